use super::*;
use DurableWrite::{Dsync, WriteThenSync};

fn cache(volatile: bool, fua: bool) -> Option<Cache> {
    Some(Cache { volatile, fua })
}

/// A block device with a volatile cache, or one that does not say: RWF_DSYNC would flush it twice.
#[test]
fn a_block_device_is_flushed_once() {
    for below in [None, cache(true, false), cache(true, true)] {
        assert_eq!(Medium::Block(below).choose(true).0, WriteThenSync, "{below:?}");
    }
    for below in [cache(false, false), cache(false, true)] {
        assert_eq!(Medium::Block(below).choose(true).0, Dsync, "nothing is flushed: {below:?}");
    }
}

/// On a file RWF_DSYNC is one FUA write, or a write and one flush.
#[test]
fn a_file_is_written_by_one_call() {
    for below in [None, cache(true, false), cache(true, true), cache(false, false)] {
        assert_eq!(Medium::File("ext4".into(), below).choose(true).0, Dsync, "{below:?}");
    }
}

/// Through the page cache every sync must pass one gate (see `FlushGate`).
#[test]
fn the_page_cache_is_synced_through_the_gate() {
    for medium in [Medium::File("ext4".into(), cache(true, true)), Medium::Block(None)] {
        assert_eq!(medium.choose(false).0, WriteThenSync, "{medium:?}");
    }
    assert_eq!(Medium::File("tmpfs".into(), None).choose(true).0, WriteThenSync);
}

#[test]
fn words_that_are_not_known_say_nothing() {
    assert_eq!(is_volatile("write back\n"), Some(true));
    assert_eq!(is_volatile("write through\n"), Some(false));
    assert_eq!(is_volatile("write around\n"), None);
    assert_eq!(is_volatile(""), None);
}

#[test]
fn what_the_kernel_says_of_a_file() {
    let file = tempfile::tempfile_in("/dev/shm").expect("a file in memory");
    assert_eq!(Medium::of(&file).name(), "file on tmpfs");
    assert_eq!(Medium::of(&file).cache(), None, "there is no disk below");
}
