//! Another machine's kernel over TLS (rule R52): what its calls claim is worth what the line of its
//! key says, whatever the client is made of.

use siftfs::Volume;
use siftfs_base::{Error, InodeNr, Result};
use siftfs_crash::{Driver, VolumeKind, base_image_of, mem_media, open};
use siftfs_proto::compound::{
    Access, Compound, Compounded, FileArg, NewAttributes, Step, StepNr, Wanted,
};
use siftfs_proto::{
    Attr, Credentials, FileKind, FileService, Level, PublishEntry, PublishSource, ROOT_INO,
    RenameMode, Reply, Request, Rights, SetAttr, XattrMode,
};
use siftfs_remote::{Claim, Client};
use siftfs_served::{Setup, Way};

const LIST: &[u8] = b"system.posix_acl_access";

fn driver() -> Driver {
    let (_, media) = mem_media(&base_image_of(VolumeKind::SMALL));
    open(media).unwrap()
}

/// A user of the client with every right that there is, in these groups.
fn claimed(uid: u32, gid: u32, groups: &[u32]) -> Credentials {
    let rights = Rights { groups: groups.to_vec(), ..Rights::all() };
    Credentials { uid, gid, rights: Some(Box::new(rights)), ..Credentials::default() }
}

/// A machine, and the volume as its owner has it.
struct Both {
    driver: Driver,
    server: Setup,
    owners: Setup,
    machine: Client,
    owner: Volume,
}

impl Both {
    /// The machine's key has this line. `/root` is root's alone, `/a` is user 1000's, `/b` is user
    /// 1001's with a group of 0, and `/open` is everybody's.
    fn new(options: &str) -> Self {
        let driver = driver();
        let owners = Setup::new(&driver.volume, Way::Unix);
        let reached = (&owners.options, owners.secured.as_ref());
        let owner = Volume::connect_with(&owners.address, reached, "", Claim::Owner).unwrap();
        owner.create_dir("/open", 0o777).unwrap();
        owner.set_attr("/open", SetAttr { perm: Some(0o1777), ..SetAttr::default() }).unwrap();
        for (name, uid, gid, perm) in
            [("root", 0, 0, 0o600), ("a", 1000, 1000, 0o600), ("b", 1001, 0, 0o660)]
        {
            let path = format!("/{name}");
            drop(owner.create(&path, 0o600).unwrap());
            let (uid, gid) = (Some(uid), Some(gid));
            owner.set_attr(&path, SetAttr { uid, gid, ..SetAttr::default() }).unwrap();
            owner.set_attr(&path, SetAttr { perm: Some(perm), ..SetAttr::default() }).unwrap();
        }
        let line = format!("role=client {options}");
        let server = Setup::admitting(&driver.volume, Way::Secret, &line);
        let machine = server.client(Claim::Kernel).unwrap();
        Self { driver, server, owners, machine, owner }
    }

    fn ask(&self, cred: &Credentials, req: Request) -> Result<Reply> {
        self.machine.call(cred, req)
    }

    fn found(&self, name: &str) -> InodeNr {
        let lookup = Request::Lookup { parent: ROOT_INO, name: name.into() };
        self.ask(&Credentials::default(), lookup).unwrap().attr().unwrap().ino
    }

    fn attr(&self, path: &str) -> Attr {
        self.owner.stat(path).unwrap()
    }

    fn end(self) {
        let Self { driver, server, owners, machine, owner } = self;
        drop((machine, owner, server, owners));
        driver.volume.close().unwrap();
    }
}

fn errno_of(result: Result<Reply>) -> Option<i32> {
    result.err().map(|error: Error| error.errno())
}

fn perm(perm: u16) -> SetAttr {
    SetAttr { perm: Some(perm), ..SetAttr::default() }
}

fn owned(uid: Option<u32>, gid: Option<u32>) -> SetAttr {
    SetAttr { uid, gid, ..SetAttr::default() }
}

/// An access control list with an entry of this user.
fn list(uid: u32) -> Vec<u8> {
    let none = u32::MAX;
    let entries = [(0x01, 6, none), (0x02, 6, uid), (0x04, 0, none), (0x10, 6, none)];
    let mut list = vec![2, 0, 0, 0];
    for (tag, may, id) in entries.into_iter().chain([(0x20, 0, none)]) {
        list.extend([tag, 0, may, 0]);
        list.extend(u32::to_le_bytes(id));
    }
    list
}

/// Requests that root could make of the file `ino`, and in the root directory.
fn of_root(ino: InodeNr) -> Vec<(Request, i32)> {
    use Request as R;
    let (parent, file, times) = (ROOT_INO, ino.into(), true);
    let set_xattr = |name: &[u8], value: Vec<u8>| {
        let (name, mode, kill_setgid) = (name.to_vec(), XattrMode::Set, false);
        R::SetXattr { file, name, value, mode, kill_setgid }
    };
    let name = || b"new".to_vec();
    let rename = R::Rename {
        parent,
        name: b"root".to_vec(),
        new_parent: parent,
        new_name: name(),
        mode: RenameMode::Replace,
    };
    vec![
        (R::open(ino, Access::Read), libc::EACCES),
        (R::open(ino, Access::Write), libc::EACCES),
        (R::SetAttr { file, set: perm(0o777), times }, libc::EPERM),
        (R::SetAttr { file, set: owned(Some(1000), None), times }, libc::EPERM),
        (R::SetAttr { file, set: owned(None, Some(1000)), times }, libc::EPERM),
        (R::SetAttr { file, set: SetAttr { size: Some(0), ..perm(0o600) }, times }, libc::EPERM),
        (
            R::SetAttr { file, set: SetAttr { size: Some(0), ..SetAttr::default() }, times },
            libc::EACCES,
        ),
        (set_xattr(LIST, list(1000)), libc::EPERM),
        (set_xattr(b"user.x", vec![1]), libc::EACCES),
        (set_xattr(b"trusted.x", vec![1]), libc::EPERM),
        (set_xattr(b"security.capability", vec![1; 20]), libc::EPERM),
        (R::GetXattr { file, name: b"user.x".to_vec() }, libc::EACCES),
        (R::SetFlags { file, flags: siftfs_proto::flags::IMMUTABLE }, libc::EPERM),
        (R::Create { parent, name: name(), perm: 0o666 }, libc::EACCES),
        (R::TmpFile { parent, perm: 0o666, exclusive: false }, libc::EACCES),
        (R::MakeDir { parent, name: name(), perm: 0o777 }, libc::EACCES),
        (R::Symlink { parent, name: name(), target: name() }, libc::EACCES),
        (R::Unlink { parent, name: b"root".to_vec() }, libc::EACCES),
        (R::RemoveDir { parent, name: b"open".to_vec() }, libc::EACCES),
        (rename, libc::EACCES),
        (R::Read { file, offset: 0, len: 1 }, libc::EBADF),
        (R::write(ino, 0, vec![1]), libc::EBADF),
        (R::WriteBack { file, offset: 0, data: vec![1].into(), times }, libc::EBADF),
    ]
}

/// A machine that claims everything for everybody: root, its group, all capabilities.
#[test]
fn r52_a_hostile_machine_is_nobody() {
    let both = Both::new("");
    assert!(both.machine.checks());
    let ino = both.found("root");
    let before = (both.attr("/root"), both.attr("/"));
    for cred in [claimed(0, 0, &[0]), claimed(1000, 0, &[0]), claimed(u32::MAX, 0, &[0])] {
        for (req, errno) in of_root(ino) {
            let said = format!("{req:?}");
            assert_eq!(errno_of(both.ask(&cred, req)), Some(errno), "{}: {said}", cred.uid);
        }
    }
    // A list of another's is not changed by an entry for oneself, and nobody is in the group 0.
    let (a, b) = (both.found("a"), both.found("b"));
    let user = claimed(1000, 1000, &[0]);
    assert_eq!(errno_of(both.ask(&user, Request::open(b, Access::Both))), Some(libc::EACCES));
    let set = |ino: InodeNr, value| {
        let (name, mode) = (LIST.to_vec(), XattrMode::Set);
        Request::SetXattr { file: ino.into(), name, value, mode, kill_setgid: false }
    };
    assert_eq!(errno_of(both.ask(&user, set(b, list(1000)))), Some(libc::EPERM));
    both.ask(&user, set(a, list(1001))).unwrap();
    // Set-id bits for a group that the user is not in do not stay.
    let parent = both.found("open");
    let create = Request::Create { parent, name: b"f".to_vec(), perm: 0o6777 };
    let (made, _) = both.ask(&claimed(1000, 0, &[0]), create).unwrap().created().unwrap();
    assert_eq!((made.uid, made.gid), (1000, 65534));
    let root = both.ask(
        &claimed(0, 0, &[]),
        Request::MakeDir { parent, name: b"by root".to_vec(), perm: 0o777 },
    );
    let root = root.unwrap().attr().unwrap();
    assert_eq!((root.uid, root.gid), (65534, 65534));
    let chgrp = Request::SetAttr { file: made.ino.into(), set: owned(None, Some(0)), times: true };
    assert_eq!(errno_of(both.ask(&user, chgrp)), Some(libc::EPERM));
    let device = Request::MakeNode {
        parent,
        name: b"dev".to_vec(),
        kind: FileKind::BlockDevice,
        perm: 0o666,
        rdev: 0x800,
    };
    assert_eq!(errno_of(both.ask(&user, device)), Some(libc::EPERM));
    let now = (both.attr("/root"), both.attr("/"));
    assert_eq!(before.0, now.0);
    assert_eq!((before.1.mtime, before.1.nlink), (now.1.mtime, now.1.nlink));
    both.end();
}

/// Rights that compounds and publishes carry themselves are no others than the caller's.
#[test]
fn r52_no_request_brings_rights_of_its_own() {
    let both = Both::new("");
    let rights = Rights { groups: vec![0], ..Rights::all() };
    for cred in [claimed(0, 0, &[0]), claimed(1001, 0, &[0])] {
        let create = Step::Create { path: b"new".to_vec(), perm: 0o644 };
        let open = Step::Open { path: b"root".to_vec(), access: Access::Read, truncate: false };
        for step in [create, open] {
            let (base, level, wanted) = (ROOT_INO, Level::Visible, Wanted::All);
            let (steps, rights) = (vec![step], rights.clone());
            let compound = Compound { base, steps, level, rights, wanted };
            let reply = both.ask(&cred, Request::Compound(Box::new(compound))).unwrap();
            let Reply::Compounded(Compounded::Refused { errno, .. }) = reply else {
                panic!("{reply:?}")
            };
            assert_eq!(errno, libc::EACCES);
        }
        let (source, to) = (PublishSource::Path(b"root".to_vec()), b"mine".to_vec());
        let entries = vec![PublishEntry { source, to, replace: false }];
        let (base, level, rights) = (ROOT_INO, Level::Visible, rights.clone());
        let publish = Request::Publish { base, entries, level, rights };
        assert_eq!(errno_of(both.ask(&cred, publish)), Some(libc::EACCES));
    }
    both.end();
}

/// Ids that are not mapped own nothing, and no request gives them: by attributes, lists, steps.
#[test]
fn r52_unmapped_ids_are_not_given_by_a_machine() {
    let both = Both::new("squash=none uids=0:1000:2 gids=0:1000:2");
    let a = both.found("a");
    let parent = both.found("open");
    let attr = both.ask(&claimed(7, 7, &[]), Request::GetAttr { file: a.into() });
    let attr = attr.unwrap().attr().unwrap();
    assert_eq!((attr.uid, attr.gid), (0, 0), "the client's root owns it");
    let root = claimed(0, 0, &[1, 2]);
    both.ask(&root, Request::SetAttr { file: a.into(), set: perm(0o640), times: true }).unwrap();
    both.ask(&root, Request::SetAttr { file: a.into(), set: owned(None, Some(1)), times: true })
        .unwrap();
    assert_eq!((both.attr("/a").perm, both.attr("/a").gid), (0o640, 1001));
    // It has no power over what it cannot name, nor gives anything to that.
    let b = both.found("b");
    let chmod = Request::SetAttr { file: b.into(), set: perm(0o777), times: true };
    assert_eq!(errno_of(both.ask(&root, chmod)), Some(libc::EPERM));
    for id in [2, 1000, 65534, u32::MAX] {
        for set in [owned(Some(id), None), owned(None, Some(id))] {
            let chown = Request::SetAttr { file: a.into(), set, times: true };
            assert_eq!(errno_of(both.ask(&root, chown)), Some(libc::EINVAL), "{id}");
        }
        let (name, value, mode) = (LIST.to_vec(), list(id), XattrMode::Set);
        let listed = Request::SetXattr { file: a.into(), name, value, mode, kill_setgid: false };
        assert_eq!(errno_of(both.ask(&root, listed)), Some(libc::EINVAL), "{id}");
        let set = NewAttributes { uid: Some(id), ..NewAttributes::default() };
        let find = Step::Lookup { path: b"a".to_vec() };
        let step = Step::SetAttributes { file: FileArg::Step(StepNr(0)), set };
        let (base, level, wanted) = (ROOT_INO, Level::Visible, Wanted::All);
        let rights = Rights::all();
        let compound = Compound { base, steps: vec![find, step], level, rights, wanted };
        let reply = both.ask(&root, Request::Compound(Box::new(compound))).unwrap();
        let (step, errno) = (StepNr(1), libc::EINVAL);
        let refused = Reply::Compounded(Compounded::Refused { step, errno });
        assert_eq!(reply, refused);
    }
    // A caller that is not mapped is nobody, and what it makes is nobody's.
    let make = Request::MakeDir { parent, name: b"d".to_vec(), perm: 0o755 };
    let made = both.ask(&claimed(2, 2, &[0]), make).unwrap().attr().unwrap();
    assert_eq!((made.uid, made.gid), (65534, 65534));
    assert_eq!(
        errno_of(both.ask(&claimed(2, 2, &[0]), Request::open(a, Access::Read))),
        Some(libc::EACCES)
    );
    both.end();
}
