//! A mount that comes back to another server repeats what it keeps, and a program has written the
//! same file at the target since (`docs/design/lost-server.md`, "What a client keeps").

#[path = "../../../crates/frontend/direct/tests/support/mod.rs"]
mod support;

use siftfs_direct::Session;
use siftfs_placement::{Dial, LocalVolume, OpenOptions, ServicePlace, TransportOptions};
use siftfs_proto::Request;
use siftfs_remote::{Claim, Client};
use siftfs_served::Setup;
use siftfs_served::returning::{Mount, leave_books, serve};
use std::path::Path;
use std::sync::Arc;
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
    let found = mount.read("f").unwrap();
    let parts: Vec<char> = found.chunks(BLOCK).take(3).map(|part| part[0] as char).collect();
    assert_eq!(parts, ['y', 'x', '0']);
    mount.session.leave();
    drop(setup);
    volume.close().unwrap();
}
