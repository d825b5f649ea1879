//! Publishes whose entries touch each other: one entry may take away what another one needs. They
//! are refused as a whole before anything has changed.

use siftfs_base::{Error, errno};
use siftfs_placement::LocalVolume;
use siftfs_proto::*;

mod support;
use support::World;

const ROOT: u32 = ROOT_INO;

fn call(v: &LocalVolume, req: Request) -> Result<Reply, Error> {
    v.endpoint().call(&Credentials::default(), req)
}

fn create(v: &LocalVolume, name: &str) -> (u32, Handle) {
    match call(v, Request::Create { parent: ROOT, name: name.into(), perm: 0o644 }) {
        Ok(Reply::Created { attr, handle }) => (attr.ino, handle),
        other => panic!("{other:?}"),
    }
}

fn inode(v: &LocalVolume, name: &str) -> Option<u32> {
    match call(v, Request::Lookup { parent: ROOT, name: name.into() }) {
        Ok(Reply::Entry(attr)) => Some(attr.ino),
        Err(Error::Posix(libc::ENOENT)) => None,
        other => panic!("{other:?}"),
    }
}

fn publish(v: &LocalVolume, entries: &[(PublishSource, &str)]) -> Result<Reply, Error> {
    let entry = |(source, to): &(PublishSource, &str)| PublishEntry {
        source: source.clone(),
        to: to.as_bytes().to_vec(),
        replace: true,
    };
    let entries = entries.iter().map(entry).collect();
    call(v, Request::Publish { base: ROOT, entries, level: Level::Durable, rights: Rights::all() })
}

/// The volume goes on, and its file system is whole.
fn goes_on(world: &World, v: LocalVolume) {
    create(&v, "after");
    call(&v, Request::SyncAll).expect("the volume goes on");
    v.close().expect("close");
    world.e2fsck();
}

/// A file that an entry replaces keeps the name that another entry gives it, wherever that stands.
#[test]
fn a_file_that_is_replaced_keeps_the_name_that_it_gets() {
    let world = World::new(1);
    let v = world.open();
    for last in [false, true] {
        let (new, opened) = create(&v, "new");
        let (old, kept) = create(&v, "old");
        let mut entries =
            [(PublishSource::Open(kept), "other"), (PublishSource::Path(b"new".to_vec()), "old")];
        if last {
            entries.reverse();
        }
        publish(&v, &entries).expect("it has a name");
        assert_eq!((inode(&v, "old"), inode(&v, "other")), (Some(new), Some(old)));
        for (name, handle) in [("old", opened), ("other", kept)] {
            call(&v, Request::Unlink { parent: ROOT, name: name.into() }).expect("unlink");
            call(&v, Request::Release { handle }).expect("release");
        }
    }
    goes_on(&world, v);
}

/// Each of two files would replace the other one: the one that is replaced first has no name left.
#[test]
fn two_files_that_replace_each_other_are_refused() {
    let world = World::new(1);
    let v = world.open();
    let ((a, first), (b, second)) = (create(&v, "a"), create(&v, "b"));
    let entries = [(PublishSource::Open(first), "b"), (PublishSource::Open(second), "a")];
    assert_eq!(publish(&v, &entries).err(), Some(errno(libc::ENOENT)));
    assert_eq!((inode(&v, "a"), inode(&v, "b")), (Some(a), Some(b)), "nothing has changed");
    goes_on(&world, v);
}

/// Links are counted over all entries.
#[test]
fn a_file_gets_no_more_links_than_it_can_have() {
    let world = World::new(1);
    let v = world.open();
    let (ino, handle) = create(&v, "f");
    for i in 1..64_999 {
        let name = format!("link{i}").into_bytes();
        call(&v, Request::Link { ino, parent: ROOT, name }).expect("a link");
    }
    let opened = || PublishSource::Open(handle);
    let refused = publish(&v, &[(opened(), "a"), (opened(), "b")]);
    assert_eq!(refused.err(), Some(errno(libc::EMLINK)));
    assert_eq!((inode(&v, "a"), inode(&v, "b")), (None, None));
    publish(&v, &[(opened(), "a")]).expect("the last link");
    assert_eq!(publish(&v, &[(opened(), "b")]).err(), Some(errno(libc::EMLINK)));
    goes_on(&world, v);
}
