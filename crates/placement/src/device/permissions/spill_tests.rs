//! Tests of the scratch file.

use super::super::entry::Owner;
use super::*;
use rustix::fs::{MemfdFlags, SealFlags};
use std::os::unix::fs::MetadataExt;

fn leaf(id: u32) -> Entries {
    let mut leaf = [Entry::FREE; LEAF_BLOCKS];
    leaf[7] = Entry::new(Owner::of(id).unwrap(), true);
    leaf
}

fn spill() -> Spill {
    Spill::create(&std::env::temp_dir()).unwrap()
}

#[test]
fn the_file_has_no_name_and_is_its_owners() {
    let folder = tempfile::tempdir().unwrap();
    let made = [Spill::create(folder.path()), Ok(Spill::create_and_unlink(folder.path()).unwrap())];
    for spill in made {
        let about = spill.unwrap().file.metadata().unwrap();
        assert_eq!((about.mode() & 0o7777, about.nlink(), about.len()), (0o600, 0, 0));
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let gone = folder.path().join("gone");
    assert!(matches!(Spill::create(&gone), Err(Error::Refused(_))));
}

#[test]
fn a_slot_gives_back_what_was_written_last() {
    let (spill, mut slots) = (spill(), Slots::default());
    let old = spill.write(3, &leaf(1), &mut slots).unwrap();
    let other = spill.write(4, &leaf(2), &mut slots).unwrap();
    assert_eq!(*spill.read(old).unwrap(), leaf(1));
    let new = spill.write(3, &leaf(9), &mut slots).unwrap();
    assert_eq!(*spill.read(new).unwrap(), leaf(9));
    assert_eq!(*spill.read(other).unwrap(), leaf(2));
    assert!(matches!(spill.read(old), Err(Error::Corrupt { .. })));
    // The same bytes, written again, are another write.
    assert_ne!(spill.write(3, &leaf(9), &mut slots).unwrap(), new);
}

#[test]
fn the_file_grows_when_memory_has_no_room() {
    let (spill, mut slots) = (spill(), Slots::default());
    let len = || spill.file.metadata().unwrap().len();
    slots.reserve(10, 10, &spill).unwrap();
    assert_eq!((0..10).map(|_| slots.take()).collect::<Vec<_>>(), Vec::from_iter(0..10));
    assert_eq!((slots.used(), len()), (10, 0));
    slots.reserve(1, 10, &spill).unwrap();
    assert_eq!((len(), slots.file_bytes()), (STEP, STEP));
    let more = usize::try_from(STEP).unwrap() / SLOT_BYTES;
    slots.reserve(more - 10, 10, &spill).unwrap();
    assert_eq!(len(), STEP);
    slots.release(4);
    slots.reserve(more - 9, 10, &spill).unwrap();
    assert_eq!((slots.take(), slots.used(), len()), (4, 10, STEP));
    slots.reserve(more - 9, 10, &spill).unwrap();
    assert_eq!(len(), 2 * STEP);
}

#[test]
fn a_file_that_cannot_grow_says_so() {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file: File = rustix::fs::memfd_create("scratch", flags).unwrap().into();
    rustix::fs::fcntl_add_seals(&file, SealFlags::GROW).unwrap();
    let (spill, mut slots) = (Spill { file }, Slots::default());
    assert!(matches!(slots.reserve(2, 1, &spill), Err(Error::Io { op: "write", .. })));
    assert_eq!((slots.file_bytes(), slots.used()), (0, 0));
    assert!(spill.write(0, &leaf(1), &mut slots).is_err());
}
