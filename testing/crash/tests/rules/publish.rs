//! Part of rule R2: names that publish files keep their order.

use super::every_recovery;
use siftfs_crash::{Bench, VolumeKind};

/// Writes a file, makes it durable, and gives it its name: what git does with an object and then
/// with the reference that names it.
fn put(b: &Bench, temporary: &str, name: &str, bytes: &[u8]) {
    b.durable(temporary, bytes);
    b.rename(temporary, name);
}

/// An object gets its name, then a reference to it does, and the reference's temporary name is used
/// and synced again. A program that finds the new reference finds the object, though no directory
/// was ever synced.
///
/// Seen to fail when an fsync carries only what is connected with its own file.
#[test]
fn r02_a_reference_is_never_without_its_object() {
    let b = Bench::new(VolumeKind::ROOMY);
    b.mkdir("objects");
    b.mkdir("refs");
    b.settle();
    put(&b, "objects/tmp-1", "objects/1", b"one");
    put(&b, "refs/lock", "refs/main", b"1");
    b.durable("refs/lock", b"2");
    every_recovery(b, |back| {
        assert_eq!(back.bytes("refs/main"), b"1");
        assert_eq!(back.bytes("objects/1"), b"one");
        assert!(!back.has("objects/tmp-1"));
        assert_eq!(back.bytes("refs/lock"), b"2");
    });
}

/// The same when the reference is overwritten in place, for a rename and for link(2); and an fsync
/// with nothing of its own to do still writes nothing.
///
/// Seen to fail when an fsync carries only what is connected with its own file.
#[test]
fn r02_any_fsync_that_writes_keeps_the_order() {
    let b = Bench::new(VolumeKind::ROOMY);
    b.durable("index", &[1; 5000]);
    b.settle();
    put(&b, "tmp-1", "renamed", b"first");
    b.durable("tmp-2", b"second");
    b.link("tmp-2", "linked");
    b.write("index", 100, b"both");
    let io = b.io(|b| b.fsync("index"));
    assert_eq!((io.writes, io.flushes), (1, 1));
    put(&b, "tmp-3", "later", b"third");
    let io = b.io(|b| b.fsync("index"));
    assert_eq!((io.writes, io.flushes), (0, 0), "nothing new in the index");
    every_recovery(b, |back| {
        assert_eq!(&back.bytes("index")[100..104], b"both");
        assert_eq!(back.bytes("renamed"), b"first");
        assert_eq!(back.bytes("linked"), b"second");
    });
}
