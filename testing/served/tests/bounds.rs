//! Sessions that are bounded by the line of their key (rule R52): a real volume behind them.

use siftfs::{RenameMode, Volume};
use siftfs_base::{Error, InodeNr, Result};
use siftfs_crash::{Driver, VolumeKind, base_image_of, mem_media, open};
use siftfs_proto::compound::{Compound, Compounded, FileArg, NewAttributes, Step, StepNr, Wanted};
use siftfs_proto::{
    Cache, Credentials, FileService, Handle, Level, Notice, Opening, ROOT_INO, Reply, Request,
    Rights, SetAttr, XattrMode,
};
use siftfs_remote::{Claim, Served};
use siftfs_served::{BoundedVolume, Setup, Way, line};
use std::sync::{Arc, Mutex};

const LIST: &[u8] = b"system.posix_acl_access";

fn driver() -> Driver {
    let (_, media) = mem_media(&base_image_of(VolumeKind::SMALL));
    open(media).unwrap()
}

/// Clients whose line has these options.
fn clients(driver: &Driver, options: &str) -> Setup {
    Setup::serving(BoundedVolume::new(&driver.volume, line(options)), Way::Unix, "")
}

fn connected(setup: &Setup, claim: Claim) -> Volume {
    let reached = (&setup.options, setup.secured.as_ref());
    Volume::connect_with(&setup.address, reached, "volume", claim).unwrap()
}

fn user(uid: u32, gid: u32) -> Claim {
    Claim::User { uid, gid, rights: Rights::default() }
}

fn all(uid: u32) -> Claim {
    Claim::User { uid, gid: uid, rights: Rights::all() }
}

fn ask(service: &dyn FileService, req: Request) -> Result<Reply> {
    service.call(&Credentials::default(), req)
}

fn errno_of<T>(result: Result<T>) -> Option<i32> {
    result.err().map(|error| error.errno())
}

fn lookup(parent: InodeNr, name: &str) -> Request {
    Request::Lookup { parent, name: name.into() }
}

fn owned(uid: u32, gid: u32) -> SetAttr {
    SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() }
}

fn ids(volume: &Volume, path: &str) -> (u32, u32) {
    let attr = volume.stat(path).unwrap();
    (attr.uid, attr.gid)
}

fn hold(service: &dyn FileService, ino: InodeNr) -> Handle {
    ask(service, Request::Hold { ino }).unwrap().opened().unwrap()
}

/// An access control list with an entry of a user, and one of a group.
fn list(uid: u32, gid: u32) -> Vec<u8> {
    let none = u32::MAX;
    let entries =
        [(0x01, 6, none), (0x02, 4, uid), (0x04, 4, none), (0x08, 4, gid), (0x10, 4, none)];
    let mut list = vec![2, 0, 0, 0];
    for (tag, may, id) in entries.into_iter().chain([(0x20, 0, none)]) {
        list.extend([tag, 0, may, 0]);
        list.extend(u32::to_le_bytes(id));
    }
    list
}

fn list_of(volume: &Volume, path: &str) -> Vec<u8> {
    let (service, ino) = (&**volume.endpoint(), found(volume, path));
    let file = hold(service, ino).into();
    let got = ask(service, Request::GetXattr { file, name: LIST.to_vec() });
    got.unwrap().data().unwrap()
}

/// The inode of a path, which stays looked up.
fn found(volume: &Volume, path: &str) -> InodeNr {
    let names = path.split('/').filter(|name| !name.is_empty());
    names.fold(ROOT_INO, |dir, name| {
        ask(&**volume.endpoint(), lookup(dir, name)).unwrap().attr().unwrap().ino
    })
}

const MAPS: &str = "subtree=/vault/mail uids=1000:5000:10 gids=100:6000:10";

/// A directory of the users 5000 to 5009, in one that they may not search.
fn vault(owner: &Volume) {
    owner.create_dir("/vault", 0o700).unwrap();
    owner.create_dir("/vault/mail", 0o700).unwrap();
    owner.set_attr("/vault/mail", owned(5000, 6000)).unwrap();
    for (name, uid, gid) in [("own", 5000, 6000), ("other", 5003, 6004), ("foreign", 7, 1000)] {
        let path = format!("/vault/mail/{name}");
        drop(owner.create(&path, 0o600).unwrap());
        owner.set_attr(&path, owned(uid, gid)).unwrap();
    }
}

/// Every owner is shown in the client's ids and given in them, one to one, and no other id can be
/// given. The user gets to the directory although it may not search the way there.
#[test]
fn r52_owners_are_the_clients_and_no_others() {
    let driver = driver();
    let (unbounded, setup) = (Setup::new(&driver.volume, Way::Unix), clients(&driver, MAPS));
    let owner = connected(&unbounded, Claim::Owner);
    vault(&owner);
    let way = connected(&unbounded, user(5000, 6000)).stat("/vault/mail");
    assert_eq!(errno_of(way), Some(libc::EACCES));

    let client = connected(&setup, user(5000, 6000));
    let root = client.stat("/").unwrap();
    assert_eq!((root.ino, root.uid, root.gid), (ROOT_INO, 1000, 100));
    for (name, ids) in [("own", (1000, 100)), ("other", (1003, 104)), ("foreign", (65534, 65534))] {
        let shown = client.stat(&format!("/{name}")).unwrap();
        assert_eq!((shown.uid, shown.gid), ids, "{name}");
        let listed = client.read_dir("/").unwrap();
        assert!(listed.iter().any(|entry| entry.name == name.as_bytes()));
    }
    drop(client.create("/made", 0o600).unwrap());
    assert_eq!(ids(&client, "/made"), (1000, 100));
    assert_eq!(ids(&owner, "/vault/mail/made"), (5000, 6000));

    // One that may give files away can do so within its maps.
    let giver = connected(&setup, all(5000));
    for (uid, gid) in (1000..1010).zip(100..110) {
        giver.set_attr("/made", owned(uid, gid)).unwrap();
        assert_eq!(ids(&giver, "/made"), (uid, gid));
        assert_eq!(ids(&owner, "/vault/mail/made"), (uid + 4000, gid + 5900));
    }
    for (uid, gid) in [(0, 100), (1000, 0), (5000, 100), (1010, 100), (65534, 100), (1000, 65534)] {
        let refused = giver.set_attr("/made", owned(uid, gid));
        assert_eq!(errno_of(refused), Some(libc::EINVAL), "{uid}, {gid}");
    }
    assert_eq!(ids(&owner, "/vault/mail/made"), (5009, 6009));
    drop((client, giver, owner, setup, unbounded));
    driver.volume.close().unwrap();
}

/// Listings with attributes, steps of compounds and access control lists have them, too.
#[test]
fn r52_ids_are_mapped_wherever_they_are() {
    let driver = driver();
    let (unbounded, setup) = (Setup::new(&driver.volume, Way::Unix), clients(&driver, MAPS));
    let owner = connected(&unbounded, Claim::Owner);
    vault(&owner);
    let client = connected(&setup, all(5000));
    let service = &**client.endpoint();
    let handle = ask(service, Request::OpenDir { ino: ROOT_INO }).unwrap().opened().unwrap();
    let read = Request::ReadDir { handle, cookie: 0, max_bytes: 4096, plus: true };
    let entries = ask(service, read).unwrap().entries().unwrap();
    let mut shown: Vec<_> = entries.iter().filter_map(|e| e.attr.as_ref()).collect();
    shown.sort_by_key(|attr| attr.uid);
    let shown: Vec<_> = shown.iter().map(|attr| (attr.uid, attr.gid)).collect();
    assert_eq!(shown, [(1000, 100), (1003, 104), (65534, 65534)]);

    let give = |uid| {
        let set = NewAttributes { uid: Some(uid), ..NewAttributes::default() };
        let steps = vec![
            Step::Lookup { path: b"own".to_vec() },
            Step::SetAttributes { file: FileArg::Step(StepNr(0)), set },
        ];
        let (rights, level, wanted) = (Rights::default(), Level::Visible, Wanted::All);
        let compound = Compound { base: ROOT_INO, steps, level, rights, wanted };
        ask(service, Request::Compound(Box::new(compound))).unwrap().compounded().unwrap()
    };
    assert!(matches!(give(1004), Compounded::Done { .. }));
    assert_eq!(ids(&owner, "/vault/mail/own"), (5004, 6000));
    assert_eq!(give(5005), Compounded::Refused { step: StepNr(1), errno: libc::EINVAL });
    assert_eq!(ids(&owner, "/vault/mail/own"), (5004, 6000));

    let file = hold(service, found(&client, "own")).into();
    let set = |value| {
        let (name, mode, kill_setgid) = (LIST.to_vec(), XattrMode::Set, false);
        ask(service, Request::SetXattr { file, name, value, mode, kill_setgid })
    };
    set(list(1001, 102)).unwrap();
    assert_eq!(list_of(&client, "/own"), list(1001, 102));
    assert_eq!(list_of(&owner, "/vault/mail/own"), list(5001, 6002));
    assert_eq!(errno_of(set(list(5001, 102))), Some(libc::EINVAL));
    assert_eq!(errno_of(set(list(1001, 6002))), Some(libc::EINVAL));
    assert_eq!(list_of(&owner, "/vault/mail/own"), list(5001, 6002));
    drop((client, owner, setup, unbounded));
    driver.volume.close().unwrap();
}

/// A path that is no directory is a message on the client's side; one with a symbolic link, too.
#[test]
fn a_directory_that_is_not_there_is_told() {
    let driver = driver();
    let unbounded = Setup::new(&driver.volume, Way::Unix);
    let owner = connected(&unbounded, Claim::Owner);
    owner.create_dir("/real", 0o755).unwrap();
    owner.create_dir("/real/in", 0o755).unwrap();
    owner.symlink("/link", "real").unwrap();
    drop(owner.create("/real/file", 0o600).unwrap());
    let cases = [
        ("/none", "is not there"),
        ("/real/none", "is not there"),
        ("/link", "symbolic link"),
        ("/link/in", "symbolic link"),
        ("/real/file", "is no directory"),
    ];
    for (path, why) in cases {
        let options = format!("subtree={path}");
        let setup =
            Setup::serving(BoundedVolume::new(&driver.volume, line(&options)), Way::Unix, "");
        let error = setup.client(all(0)).unwrap_err();
        let told = matches!(&error, Error::Refused(text) if text.contains(why));
        assert!(told, "{path}: {error}");
    }
    let setup = clients(&driver, "subtree=/real");
    assert!(connected(&setup, user(9, 9)).stat("/in").is_ok());
    drop((owner, setup, unbounded));
    driver.volume.close().unwrap();
}

/// The session keeps its directory under another name, and when it is gone nothing can be made in
/// it; a directory that others move out of it leads to nothing above.
#[test]
fn what_becomes_of_a_directory_that_moves() {
    let driver = driver();
    let unbounded = Setup::new(&driver.volume, Way::Unix);
    let setup = clients(&driver, "subtree=/a/b");
    let owner = connected(&unbounded, Claim::Owner);
    for path in ["/a", "/a/b", "/a/b/in", "/a/b/in/deep", "/elsewhere"] {
        owner.create_dir(path, 0o777).unwrap();
    }
    let client = connected(&setup, all(0));
    let service = &**client.endpoint();
    owner.rename("/a/b", "/elsewhere/c", RenameMode::Replace).unwrap();
    drop(client.create("/made", 0o600).unwrap());
    owner.stat("/elsewhere/c/made").unwrap();
    assert!(matches!(setup.client(all(0)), Err(Error::Refused(_))));

    let inner = found(&client, "in");
    owner.rename("/elsewhere/c/in", "/in", RenameMode::Replace).unwrap();
    ask(service, lookup(inner, "deep")).unwrap();
    let handle = ask(service, Request::OpenDir { ino: inner }).unwrap().opened().unwrap();
    let mut cookie = 0;
    loop {
        let read = Request::ReadDir { handle, cookie, max_bytes: 1, plus: false };
        let entries = ask(service, read).unwrap().entries().unwrap();
        let Some(last) = entries.last() else { break };
        cookie = last.cookie;
        for up in entries.iter().filter(|entry| entry.name == b"..") {
            assert_eq!(up.ino, inner, "its parent is the volume's root");
        }
    }
    assert_eq!(errno_of(ask(service, lookup(inner, ".."))), Some(libc::EINVAL));

    owner.remove_file("/elsewhere/c/made").unwrap();
    owner.remove_dir("/elsewhere/c").unwrap();
    assert_eq!(errno_of(client.create("/late", 0o600)), Some(libc::ENOENT));
    owner.create_dir("/a/b", 0o777).unwrap();
    assert_eq!(errno_of(client.create("/late", 0o600)), Some(libc::ENOENT));
    assert_eq!(client.stat("/").unwrap().nlink, 0);
    drop(connected(&setup, all(0)).create("/new", 0o600).unwrap());
    owner.stat("/a/b/new").unwrap();
    drop((client, owner, setup, unbounded));
    driver.volume.close().unwrap();
}

/// Keeps what it is told of.
#[derive(Default)]
struct Told(Mutex<Vec<(InodeNr, Vec<u8>)>>);

impl Cache for Told {
    fn take_back(&self, notice: Notice) {
        let mut told = self.0.lock().unwrap();
        told.extend(notice.attributes.iter().map(|ino| (*ino, Vec::new())));
        told.extend(notice.names.clone());
    }
}

/// A client that caches is told of changes in its root, and of none in the volume's.
#[test]
fn a_cache_is_told_of_its_own_root() {
    let driver = driver();
    let unbounded = Setup::new(&driver.volume, Way::Unix);
    let owner = connected(&unbounded, Claim::Owner);
    owner.create_dir("/a", 0o755).unwrap();
    let bounded = BoundedVolume::new(&driver.volume, line("subtree=/a"));
    let told = Arc::new(Told::default());
    let opening = Opening::user(0, 0, Rights::all());
    let client = bounded.open(opening, Some(told.clone())).unwrap();
    ask(&*client, Request::GetAttr { file: ROOT_INO.into() }).unwrap();
    owner.create_dir("/secret", 0o755).unwrap();
    assert_eq!(*told.0.lock().unwrap(), []);
    owner.create_dir("/a/shown", 0o755).unwrap();
    let told = told.0.lock().unwrap();
    assert!(told.contains(&(ROOT_INO, b"shown".to_vec())), "{told:?}");
    assert!(told.iter().all(|(ino, _)| *ino == ROOT_INO), "{told:?}");
    drop(told);
    drop((client, owner, unbounded));
    driver.volume.close().unwrap();
}

/// The line of the key by which a client came is what bounds it, over TLS.
#[test]
fn r52_the_keys_line_bounds_its_sessions() {
    let driver = driver();
    let unbounded = Setup::new(&driver.volume, Way::Unix);
    let owner = connected(&unbounded, Claim::Owner);
    vault(&owner);
    let options = format!("role=client {MAPS}");
    let setup = Setup::admitting(&driver.volume, Way::Secret, &options);
    // The line's maps make its user 5000 of the client's 1000.
    let client = connected(&setup, user(1000, 100));
    assert_eq!((client.stat("/").unwrap().ino, ids(&client, "/own")), (ROOT_INO, (1000, 100)));
    assert_eq!(errno_of(client.stat("/vault")), Some(libc::ENOENT));
    drop(client.create("/made", 0o600).unwrap());
    assert_eq!(ids(&owner, "/vault/mail/made"), (5000, 6000));
    // Its kernel has the same bounds, and is told to send its callers' rights.
    let kernel = setup.client(Claim::Kernel).unwrap();
    assert!(kernel.checks());
    let named = Credentials { uid: 1000, gid: 100, ..Credentials::default() };
    let made = kernel.call(&named, lookup(ROOT_INO, "made")).unwrap().attr().unwrap();
    assert_eq!((made.uid, made.gid), (1000, 100));
    drop((kernel, client, owner, setup, unbounded));
    driver.volume.close().unwrap();
}
