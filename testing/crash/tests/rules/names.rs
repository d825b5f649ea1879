//! Rules about names and attributes: R1, R2, R17.

use super::{bytes, every_recovery};
use siftfs_crash::{Bench, Layout, VolumeKind};
use siftfs_device::{Fault, Gate, OpClass};
use std::thread;
use std::time::Duration;

/// A staged creation is acknowledged, its file unlinked without fsync, and a transaction made for
/// another file carries directory and bitmaps without it. The staged creation must not be applied
/// again onto the freed inode, nor onto the number's next owner.
///
/// Seen to fail when recovery reads the lanes from where they began before the replay and applies
/// every record. Each alone is harmless: the cut says the same twice, by number and by position.
#[test]
fn r01_one_cut() {
    for reuse in [false, true] {
        let b = Bench::new(VolumeKind::SMALL);
        b.durable("foo", &bytes(1, 5000));
        b.unlink("foo");
        b.create("other");
        if reuse {
            b.settle();
            b.durable("new", &bytes(2, 300));
        }
        b.commit(false);
        every_recovery(b, |back| {
            assert!(!back.has("foo"), "applied a second time");
            assert!(back.has("other"));
            assert_eq!(back.bytes("new"), if reuse { bytes(2, 300) } else { Vec::new() });
        });
    }
}

/// The cut covers what is staged: changes after it are applied, those before are not again.
#[test]
fn r01_the_newest_staged_state_wins_over_the_cut() {
    let b = Bench::new(VolumeKind::SMALL);
    b.durable("f", &bytes(1, 9000));
    b.commit(false);
    b.write("f", 4096, &bytes(2, 100));
    b.fsync("f");
    b.commit(false);
    b.truncate("f", 5000);
    b.fsync("f");
    let want = b.read("f");
    every_recovery(b, |back| assert!(back.bytes("f") == want));
}

/// A transaction is in flight when an fsync captures what it has taken too: the record is newer
/// than the cut, and some of its operations are not. Once both are durable they must not run again.
///
/// Seen to fail when recovery runs operations whose number is at or below the cut.
#[test]
fn r01_operations_of_the_cut_are_not_run_again() {
    let b = Bench::new(VolumeKind::SMALL);
    b.mkdir("d");
    // It is never fsynced, or its rename would go along with the first record.
    b.create("d/gone");
    b.write("d/gone", 0, b"x");
    b.settle();
    b.create("foo");
    b.write("foo", 0, &bytes(1, 700));
    b.rename("d/gone", "d/moved");
    let gate = Gate::new();
    let journal = Layout::of(VolumeKind::SMALL).journal;
    b.device.inject(Fault::hold(OpClass::Write, &gate).within(journal).once());
    thread::scope(|scope| {
        let commit = scope.spawn(|| b.commit(true));
        assert!(gate.wait_arrived(1, Duration::from_secs(5)), "the commit is journaled");
        let ops = b.log(|b| {
            b.fsync("foo");
            b.fsync("d");
        });
        let staging = Layout::of(VolumeKind::SMALL).staging;
        let records = ops.iter().filter(|o| staging.contains(&o.offset)).count();
        gate.open();
        commit.join().expect("commits");
        assert_eq!(records, 2, "both fsyncs wrote records while the commit was in flight");
    });
    every_recovery(b, |back| {
        assert_eq!(back.bytes("foo"), bytes(1, 700));
        assert!(back.has("d/moved") && !back.has("d/gone"));
    });
}

/// `mv f g` unsynced; create f, fsync f: the old file's durable bytes are at g.
///
/// Seen to fail when the closure leaves out operations on the same name.
#[test]
fn r02_names_come_whole() {
    let b = Bench::new(VolumeKind::SMALL);
    // Never fsynced, or its rename would be published with any record.
    b.create("f");
    b.write("f", 0, &bytes(1, 5000));
    b.settle();
    b.rename("f", "g");
    b.durable("f", &bytes(2, 700));
    every_recovery(b, |back| {
        assert_eq!(back.bytes("f"), bytes(2, 700));
        assert_eq!(back.bytes("g"), bytes(1, 5000), "the old file is gone");
    });
}

/// The closure follows ancestors that were never durable, and names across a chain of renames.
///
/// Seen to fail when the closure leaves out the operations on the directories of its names.
#[test]
fn r02_the_closure_is_transitive() {
    let b = Bench::new(VolumeKind::SMALL);
    for (id, name) in [(1, "a"), (2, "b"), (3, "c")] {
        b.durable(name, &bytes(id, 1000));
    }
    b.settle();
    b.rename("c", "d");
    b.rename("b", "c");
    b.rename("a", "b");
    b.mkdir("x");
    b.mkdir("x/y");
    b.durable("x/y/z", b"deep");
    b.durable("a", b"new");
    every_recovery(b, |back| {
        assert_eq!(back.bytes("a"), b"new");
        assert_eq!(back.bytes("x/y/z"), b"deep");
        let found: Vec<_> = ["b", "c", "d"].iter().map(|n| back.bytes(n)).collect();
        for id in 1..=3 {
            assert!(found.contains(&bytes(id, 1000)), "file {id} is gone");
        }
        assert_eq!(back.bytes("b"), bytes(1, 1000));
    });
}

/// A directory moved inside the closure: what was fsynced is reached under its new path.
///
/// Seen to fail when the closure leaves out the operations on the directories of its names and
/// `moved_above` is not asked; each of them stands in for the other here.
#[test]
fn r02_a_moved_directory_comes_along() {
    let b = Bench::new(VolumeKind::SMALL);
    b.mkdir("d");
    b.mkdir("e");
    b.settle();
    b.rename("d", "e/d");
    b.durable("e/d/f", b"inside");
    every_recovery(b, |back| assert_eq!(back.bytes("e/d/f"), b"inside"));
}

/// The same when the move was further up, and nothing between has changed.
///
/// Seen to fail when `moved_above` is not asked.
#[test]
fn r02_a_directory_moved_far_above_comes_along() {
    let b = Bench::new(VolumeKind::SMALL);
    b.mkdir("a");
    b.mkdir("a/b");
    b.mkdir("a/b/c");
    b.settle();
    b.rename("a", "z");
    b.durable("z/b/c/f", b"inside");
    every_recovery(b, |back| assert_eq!(back.bytes("z/b/c/f"), b"inside"));
}

/// A file whose own name is durable, below a directory whose move is not: an fsync makes its data
/// durable, and does not owe the move (S1). The file is there once, under the one path or the
/// other, with its new data. An fsync of the directory that was moved, or of the one it went to,
/// owes it.
///
/// Seen to fail when the closure of a directory leaves out the operations on itself.
#[test]
fn r02_an_fsync_below_a_moved_directory_owes_the_data_alone() {
    for owed in [None, Some("new"), Some("to")] {
        let b = Bench::new(VolumeKind::SMALL);
        b.mkdir("old");
        b.mkdir("to");
        b.durable("old/f", &bytes(1, 5000));
        b.settle();
        let new = if owed == Some("to") { "to/new" } else { "new" };
        b.rename("old", new);
        let path = format!("{new}/f");
        b.write(&path, 0, &bytes(2, 3000));
        b.fsync(&path);
        if let Some(dir) = owed {
            b.fsync(dir);
        }
        let want = [&bytes(2, 3000)[..], &bytes(1, 5000)[3000..]].concat();
        every_recovery(b, |back| {
            let found: Vec<_> = ["old/f", &path].into_iter().filter(|p| back.has(p)).collect();
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(owed.is_none() || found[0] == path, "the move of {owed:?} is owed");
            assert!(back.bytes(found[0]) == want, "under {}", found[0]);
        });
    }
}

/// Both halves of a rename between directories, and a replaced file that is still open.
///
/// Seen to fail when the closure of a directory leaves out its entries.
#[test]
fn r02_a_rename_is_never_half() {
    let b = Bench::new(VolumeKind::SMALL);
    b.mkdir("d");
    b.mkdir("e");
    b.durable("d/f", &bytes(1, 100));
    b.durable("e/g", &bytes(2, 100));
    b.settle();
    let _open = b.open("e/g");
    b.rename("d/f", "e/g");
    b.fsync("e");
    every_recovery(b, |back| {
        assert!(!back.has("d/f"));
        assert_eq!(back.bytes("e/g"), bytes(1, 100));
    });
}

/// `chmod 700 dir` unsynced; a secret made in it and fsynced is not recovered under 0755.
///
/// Seen to fail when `pending_permissions` finds nothing.
#[test]
fn r17_permissions_in_order() {
    for datasync in [false, true] {
        let b = Bench::new(VolumeKind::SMALL);
        b.mkdir("top");
        b.mkdir("top/dir");
        b.settle();
        b.chmod("top", 0o711);
        b.chmod("top/dir", 0o700);
        b.setxattr("top/dir", "security.label", b"secret");
        b.create("top/dir/secret");
        b.write("top/dir/secret", 0, b"secret");
        if datasync {
            b.fdatasync("top/dir/secret")
        } else {
            b.fsync("top/dir/secret")
        }
        every_recovery(b, |back| {
            assert_eq!(back.bytes("top/dir/secret"), b"secret");
            let dir = back.tree.get("top/dir").expect("its directory");
            assert_eq!(dir.attr.perm, 0o700);
            assert_eq!(dir.xattrs.get(b"security.label".as_slice()), Some(&b"secret".to_vec()));
            assert_eq!(back.tree.get("top").map(|d| d.attr.perm), Some(0o711));
        });
    }
}

/// The same for a file that was there before: only its data is new.
///
/// Seen to fail when `pending_permissions` finds nothing.
#[test]
fn r17_an_overwrite_carries_the_permissions_above() {
    let b = Bench::new(VolumeKind::SMALL);
    b.mkdir("dir");
    b.durable("dir/f", &bytes(1, 4096));
    b.settle();
    b.chmod("dir", 0o700);
    b.chmod("dir/f", 0o600);
    b.write("dir/f", 0, b"secret");
    b.fdatasync("dir/f");
    every_recovery(b, |back| {
        assert_eq!(back.bytes("dir/f")[..6], *b"secret");
        assert_eq!(back.tree.get("dir").map(|d| d.attr.perm), Some(0o700));
        assert_eq!(back.tree.get("dir/f").map(|d| d.attr.perm), Some(0o600));
    });
}

/// A file whose mode changed is replaced and freed while the transaction with the change is still
/// on its way, as it is for seconds when the device process is away: it guards nothing any more,
/// and the fsync of what replaced it does not ask for it.
///
/// Seen to fail when `pending_permissions` keeps what is not in memory.
#[test]
fn r17_what_was_freed_meanwhile_guards_nothing() {
    let b = Bench::new(VolumeKind::SMALL);
    b.durable("f", &bytes(1, 5000));
    b.settle();
    b.chmod("f", 0o600);
    let gate = Gate::new();
    let journal = Layout::of(VolumeKind::SMALL).journal;
    b.device.inject(Fault::hold(OpClass::Write, &gate).within(journal).once());
    thread::scope(|scope| {
        let commit = scope.spawn(|| b.commit(false));
        assert!(gate.wait_arrived(1, Duration::from_secs(20)), "a transaction is on its way");
        b.create("g");
        b.write("g", 0, &bytes(2, 5000));
        b.rename("g", "f");
        let synced = b.try_fsync("f");
        gate.open();
        assert_eq!(synced, Ok(()));
        commit.join().expect("the commit");
    });
    every_recovery(b, |back| assert_eq!(back.bytes("f"), bytes(2, 5000)));
}
