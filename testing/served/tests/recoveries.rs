//! A server dies while clients keep what is not durable, and those after it die at every write and
//! flush of their recoveries: the one that serves at last knows the clients
//! (`docs/design/lost-server.md`, "The book").

use siftfs_base::InodeNr;
use siftfs_crash::fault_device;
use siftfs_device::{Cut, Device, FaultDevice, Image};
use siftfs_placement::{LocalVolume, MkfsOptions, mkfs_on};
use siftfs_proto::{ROOT_INO, RenameMode, Request};
use siftfs_served::returning::{Mount, leave_books, open, serve};
use std::path::Path;
use std::sync::Arc;

/// What a server leaves that dies, and its client.
struct Dead {
    mount: Mount,
    image: Image,
    files: [InodeNr; 2],
}

/// One file is durable under the name that it had before, the other one not at all.
fn dead(books: &Path) -> Dead {
    let device = Arc::new(FaultDevice::new(32 << 20, 1));
    mkfs_on(device.clone() as Arc<dyn Device>, &MkfsOptions::default()).unwrap();
    let image = device.contents();
    let alive = tempfile::tempdir().unwrap();
    let volume = open(&device, &image, alive.path()).unwrap();
    let setup = serve(&volume);
    let mount = Mount::new(&setup.address);
    let files = ["lost", "synced"].map(|name| mount.create(name));
    mount.fsync(files[1]).unwrap();
    let (name, new_name) = ("synced".into(), "renamed".into());
    let (parent, mode) = (ROOT_INO, RenameMode::NoReplace);
    mount.ask(Request::Rename { parent, name, new_parent: parent, new_name, mode }).unwrap();
    mount.loses();
    // What it does from here on, nobody sees.
    leave_books(alive.path(), books);
    let image = device.image(Cut::LoseAll);
    drop(setup);
    volume.abandon();
    Dead { mount, image, files }
}

/// A server that dies at the operation `at` of its storage after it has begun, or before it serves
/// anybody. What it leaves, and whether it came to its end.
fn dies(image: &Image, books: &Path, at: u64, cut: Cut) -> (Image, bool) {
    let device = Arc::new(fault_device(image.clone(), 1));
    device.cut_at(at);
    let opened = open(&device, image, books);
    let ended = opened.is_ok();
    let left = device.image(cut);
    opened.into_iter().for_each(LocalVolume::abandon);
    (left, ended)
}

/// The server that is there at last, and the client that it has to know.
fn comes_back(dead: &Dead, image: &Image, books: &Path, what: &str) {
    let device = Arc::new(fault_device(image.clone(), 1));
    let volume = open(&device, image, books).unwrap_or_else(|e| panic!("{what}: {e}"));
    let setup = serve(&volume);
    dead.mount.finds(&setup.address);
    for (name, was) in [("lost", "lost"), ("renamed", "synced")] {
        let read = dead.mount.read(name);
        assert!(read.as_deref() == Ok(was.repeat(100).as_bytes()), "{what}: {name}");
    }
    assert!(dead.mount.read("synced").is_err(), "{what}: renamed twice, or not at all");
    for ino in dead.files {
        assert_eq!(dead.mount.fsync(ino).map(drop), Ok(()), "{what}: {ino}");
    }
    dead.mount.session.leave();
    drop(setup);
    volume.close().unwrap();
}

/// Seen to fail when the header names an epoch before the book does.
#[test]
fn a_client_is_known_wherever_recoveries_die() {
    let mut whole = 0;
    let mut round = 0;
    while whole < 2 {
        let books = tempfile::tempdir().unwrap();
        let dead = dead(books.path());
        let cut = [Cut::KeepAll, Cut::LoseAll, Cut::Random(round)][(round % 3) as usize];
        let (left, ended) = dies(&dead.image, books.path(), round, cut);
        // Another one after that, somewhere.
        let again = (round * 7) % 31;
        let (left, _) = dies(&left, books.path(), again, cut);
        comes_back(&dead, &left, books.path(), &format!("{round}, {again}, {cut:?}"));
        whole += u32::from(ended);
        round += 1;
    }
    assert!(round > 20, "a recovery of {round} operations");
}
