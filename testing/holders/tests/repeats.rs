//! A mount that comes back to another server repeats what it keeps, and a program has written the
//! same file at the target since (`docs/design/lost-server.md`, "What a client keeps").

#[path = "../../../crates/frontend/direct/tests/support/mod.rs"]
mod support;

use siftfs_base::InodeNr;
use siftfs_direct::{DirectFile, Session};
use siftfs_placement::{Dial, LocalVolume, OpenOptions, ServicePlace, TransportOptions};
use siftfs_proto::compound::Access;
use siftfs_proto::{Credentials, FileService, Holder, LeaseId, Reply, Request};
use siftfs_remote::{Claim, Client, transport};
use siftfs_served::returning::{Mount, leave_books, serve, serve_by};
use siftfs_served::{Setup, Way as Reached};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::machine::{Machine, Way};
use support::{find, reach, until_direct, volume};

const BLOCK: usize = 4096;

/// A host of the volume, with a server's books in this folder.
fn host(machine: &Machine, books: &Path) -> LocalVolume {
    let (target, options) = (machine.place(), TransportOptions::default());
    let dial = Dial { address: target.address.clone(), options, secured: None };
    let service = Some(ServicePlace { connector: Arc::new(dial), fallback: None });
    let books = Some(books.into());
    let opts = OpenOptions { target: Some(target), service, books, ..OpenOptions::default() };
    LocalVolume::open(Path::new("target:test"), &opts, &mut |_, _, _| {}).unwrap()
}

fn program(setup: &Setup) -> Session {
    let reached = (&setup.options, setup.secured.as_ref());
    let session = Session::open(Box::new(reach), |holder| {
        let client = Client::connect_to_hold(&setup.address, reached, "", Claim::Owner, holder);
        Ok(Arc::new(client?))
    });
    session.unwrap()
}

/// A program of the mount itself, by a session beside the mount's.
fn own_program(setup: &Setup, mount: &Mount) -> Session {
    let session = Session::open(Box::new(reach), |holder| {
        Ok(mount.session.lend(&setup.address, &transport(), holder)? as _)
    });
    session.unwrap()
}

/// The file by such a session, which looks nothing up.
fn opened(session: &Session, ino: InodeNr) -> DirectFile {
    let cred = Credentials::default();
    let handle = session.service().call(&cred, Request::open(ino, Access::Both));
    let handle = handle.and_then(Reply::opened).unwrap();
    // What is written by a lease is kept with the file's generation.
    session.service().call(&cred, Request::GetAttr { file: handle.into() }).unwrap();
    session.file(handle, ino)
}

/// The first bytes of the file's blocks.
fn blocks(mount: &Mount, count: usize) -> String {
    let found = mount.read("f").unwrap();
    found.chunks(BLOCK).take(count).map(|part| part[0] as char).collect()
}

/// What the mount wrote was answered before, so it is older than what the program wrote; and the
/// server's successor knows that it was durable.
///
/// Seen to fail when a grant is no promise to the server's clients.
#[test]
fn what_a_mount_keeps_does_not_come_over_direct_writes() {
    let [dir, alive, books] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let machine = Machine::start(volume(64 << 20), Way::Unix, dir.path());
    let volume = host(&machine, alive.path());
    let setup = serve(&volume);
    let mount = Mount::new(&setup.address);
    let ino = mount.create("f");
    mount.ask(Request::write(ino, 0, vec![b'0'; 16 * BLOCK])).unwrap();
    mount.fsync(ino).unwrap();
    mount.ask(Request::write(ino, 0, vec![b'x'; 2 * BLOCK])).unwrap();
    let session = program(&setup);
    let (handle, number) = find(session.service(), "f");
    let file = session.file(handle, number);
    until_direct(&file);
    assert_eq!(file.read_at(0, 2 * BLOCK).unwrap(), [b'x'; 2 * BLOCK]);
    file.write_durable_at(0, &[b'y'; BLOCK]).unwrap();
    mount.loses();
    leave_books(alive.path(), books.path());
    setup.server.stop();
    drop((file, session, setup));
    volume.abandon();
    let volume = host(&machine, books.path());
    let setup = serve(&volume);
    mount.finds(&setup.address);
    mount.fsync(ino).unwrap();
    assert_eq!(blocks(&mount, 3), "yx0");
    mount.session.leave();
    drop(setup);
    volume.close().unwrap();
}

/// The same of a program of the mount itself: what the mount keeps of the file is durable before
/// the program is told of a block, with the lease and when more is granted.
///
/// Seen to fail when nothing is made durable before the program is told, of a lease with blocks and
/// of blocks that are added.
#[test]
fn what_a_mount_keeps_does_not_come_over_its_own_programs_writes() {
    let [dir, alive, books] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let machine = Machine::start(volume(64 << 20), Way::Unix, dir.path());
    let volume = host(&machine, alive.path());
    let setup = serve_by(&volume, Reached::Shared);
    let mount = Mount::new(&setup.address);
    let ino = mount.create("f");
    mount.ask(Request::write(ino, 0, vec![b'0'; 16 * BLOCK])).unwrap();
    mount.fsync(ino).unwrap();
    let begun = Instant::now();
    while mount.session.kept() > 0 {
        // Of its name the server says so now and then.
        assert!(begun.elapsed() < Duration::from_secs(20), "the file is not durable");
        std::thread::yield_now();
    }
    mount.ask(Request::write(ino, 0, vec![b'x'; 2 * BLOCK])).unwrap();
    assert_eq!(mount.session.kept(), 1, "the mount keeps what is not durable");
    let session = own_program(&setup, &mount);
    let file = opened(&session, ino);
    until_direct(&file);
    assert_eq!(mount.session.kept(), 0, "of the file nothing is kept");
    file.write_durable_at(0, &[b'y'; BLOCK]).unwrap();
    // Behind the end, by the server: the mount keeps that until the block is granted.
    file.write_at(16 * BLOCK as u64, &[b'a'; BLOCK]).unwrap();
    assert_eq!(mount.session.kept(), 1, "what is written by the lease is kept");
    let had = file.is_direct();
    let begun = Instant::now();
    while mount.session.kept() > 0 {
        // Calls beside what is granted have more asked for.
        assert_eq!(file.read_at(16 * BLOCK as u64, 9).unwrap(), [b'a'; 9]);
        assert!(had && begun.elapsed() < Duration::from_secs(1), "the block is not granted");
    }
    file.write_durable_at(16 * BLOCK as u64, &[b'b'; BLOCK]).unwrap();
    mount.loses();
    leave_books(alive.path(), books.path());
    setup.server.stop();
    drop((file, session, setup));
    volume.abandon();
    let volume = host(&machine, books.path());
    let setup = serve_by(&volume, Reached::Shared);
    mount.finds(&setup.address);
    mount.fsync(ino).unwrap();
    let found = mount.read("f").unwrap();
    let first = |block: usize| found[block * BLOCK] as char;
    assert_eq!([0, 1, 2, 15].map(first), ['y', 'x', '0', '0']);
    assert_eq!(found.len(), 16 * BLOCK, "what was read is 64 KiB at most");
    let last = Request::Read { file: ino.into(), offset: 16 * BLOCK as u64, len: BLOCK as u32 };
    assert_eq!(mount.ask(last).unwrap().data().unwrap(), [b'b'; BLOCK]);
    mount.session.leave();
    drop(setup);
    volume.close().unwrap();
}

/// A session that does not return what is recalled.
struct Deaf;

impl Holder for Deaf {
    fn recall(&self, _: LeaseId) {}
}

/// A server that is lost knows nothing of what a program wrote for the first time since it was told
/// last: its file's sync says so, once, or else the end of the lease. Of a file of which nothing
/// was granted neither says anything.
///
/// Seen to fail when a lease that is lost is given back as any.
#[test]
fn a_lost_server_has_not_heard_of_what_was_granted() {
    let [dir, alive] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let machine = Machine::start(volume(64 << 20), Way::Unix, dir.path());
    let volume = host(&machine, alive.path());
    let setup = serve_by(&volume, Reached::Shared);
    let mount = Mount::new(&setup.address);
    let lender = mount.session.lend(&setup.address, &transport(), Arc::new(Deaf)).unwrap();
    let cred = Credentials::default();
    let ask = |request| lender.call(&cred, request);
    let leased = ["f", "g", "h"].map(|name| {
        let ino = mount.create(name);
        mount.fsync(ino).unwrap();
        let handle = ask(Request::open(ino, Access::Both)).and_then(Reply::opened).unwrap();
        let request = Request::Lease { file: handle.into(), writers: None, direct: None };
        (handle, ask(request).and_then(Reply::leased).unwrap().0)
    });
    let [(f, of_f), (g, of_g), (_, of_h)] = leased;
    for (handle, lease) in [(f, of_f), (g, of_g)] {
        let direct = Request::LeaseDirect { lease, file: handle.into(), room: 1 << 16 };
        assert!(!ask(direct).and_then(Reply::direct).unwrap().runs.is_empty());
    }
    mount.loses();
    setup.server.stop();
    drop(setup);
    volume.abandon();
    // Nothing waits for a server that does not come.
    mount.session.give_up();
    let errno_of = |request| ask(request).map_or_else(|error| error.errno(), |_| 0);
    let sync = || Request::Fsync { file: f.into(), datasync: true };
    assert_eq!([errno_of(sync()), errno_of(sync())], [libc::EIO, libc::ESTALE]);
    let returned = [of_f, of_g, of_h].map(|lease| errno_of(Request::LeaseReturn { lease }));
    assert_eq!(returned, [0, libc::EIO, 0]);
    assert_eq!(errno_of(sync()), libc::ESTALE, "its lease has ended");
    mount.session.abandon();
}
