//! Trees of the ext4 area that lead back to themselves, under valid checksums. A caller that walks
//! there gets EUCLEAN, every walk ends, and other callers are unaffected.

use super::disk::{Disk, put, u16_at, u32_at};
use super::faults::in_time;
use siftfs_base::{Error, InodeNr};
use siftfs_crash::{Bench, VolumeKind, e2fsck_image};
use siftfs_device::Image;
use siftfs_model::{Caller, pattern};
use siftfs_proto::Request;

/// A clean volume with a file `f` whose extents fill several blocks, a directory `d` with an index,
/// the directories `a/b/c`, and a file `ok`.
fn volume() -> (Image, [InodeNr; 4]) {
    let b = Bench::new(VolumeKind::SMALL);
    let f = b.create("f");
    for i in 0..700u64 {
        b.write("f", 2 * i * 4096, &pattern(i, 0, 4096));
        if i % 100 == 99 {
            b.settle();
        }
    }
    let d = b.mkdir("d");
    for i in 0..400 {
        b.create(&format!("d/{}{i}", "a-rather-long-name-".repeat(4)));
    }
    b.mkdir("a");
    let (middle, low) = (b.mkdir("a/b"), b.mkdir("a/b/c"));
    b.durable("a/b/c/inside", b"x");
    b.durable("ok", b"fine");
    let image = b.close();
    assert_eq!(e2fsck_image(&image), Ok(()));
    (image, [f, d, middle, low])
}

/// What a caller that runs into the damage does to the others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    /// Nothing: they change what they like.
    GoOn,
    /// A change may have begun when it met the damage: then the mount refuses all further changes,
    /// of any caller, and says what it met.
    MayBeStopped,
}

/// `image` opens; each error of `calls` is EUCLEAN and comes in time; `ok` can be read, and new
/// files be made durable unless the mount stopped; e2fsck finds the loop.
fn meets(
    what: &str,
    image: &Image,
    others: Others,
    calls: impl FnOnce(&Bench) -> Vec<Error> + Send + 'static,
) {
    assert!(e2fsck_image(image).is_err(), "{what}: e2fsck sees nothing");
    let b = Bench::on(image.clone());
    let (errors, stopped) = in_time(what, move || {
        let errors = calls(&b);
        assert_eq!(b.read("ok"), b"fine");
        let stopped = b.status().failed;
        if stopped.is_none() {
            b.durable("new", b"works");
        }
        b.stop();
        (errors, stopped)
    });
    assert!(others == Others::MayBeStopped || stopped.is_none(), "{what}: {stopped:?}");
    assert!(stopped.is_none_or(|s| s.contains("corrupt")), "{what}: says what it met");
    assert!(!errors.is_empty(), "{what}: no call failed");
    for e in errors.iter().filter(|e| !matches!(e, Error::Latched(_))) {
        assert_eq!(e.errno(), libc::EUCLEAN, "{what}: {e}");
        assert!(e.to_string().starts_with("corrupt "), "{what}: {e}");
    }
    assert!(!matches!(errors[0], Error::Latched(_)), "{what}: the first is told what it met");
}

/// A block of a file's extent tree becomes a node that leads to itself, or to the node above it,
/// whatever depth root and node claim.
#[test]
fn an_extent_tree_that_loops() {
    let (image, [f, ..]) = volume();
    let disk = Disk { image };
    let first = disk.extent_child(f, 0);
    let second = disk.extent_child(f, 1);
    for (root_depth, depth) in [(1, 1), (2, 1), (2, 2), (3, 1), (5, 4)] {
        for target in [first, second] {
            let mut disk = Disk { image: disk.image.clone() };
            let mut inode = disk.inode(f);
            put(&mut inode, 0x28 + 6, &u16::to_le_bytes(root_depth));
            disk.set_inode(f, &inode);
            for (nr, to) in [(first, target), (second, first)] {
                let mut node = disk.block(nr);
                assert_eq!(u16_at(&node, 0), 0xf30a, "a block of the tree");
                let from = if nr == first { 0 } else { u32_at(&node, 12) };
                put(&mut node, 2, &u16::to_le_bytes(1));
                put(&mut node, 6, &u16::to_le_bytes(depth));
                let to = u32::try_from(to).expect("a small volume").to_le_bytes();
                put(&mut node, 12, &[from.to_le_bytes(), to, [0; 4]].concat());
                disk.set_extent_block(f, nr, &node);
            }
            let what = format!("extent tree of depth {root_depth}, node of depth {depth}");
            meets(&what, &disk.image, Others::GoOn, move |b| {
                let caller = Caller::root(&*b.service);
                let reads = [0, 100 * 8192, 400 * 8192].map(|at| caller.read(f, at, 4096).err());
                reads.into_iter().map(|e| e.expect("nothing to read there")).collect()
            });
        }
    }
}

/// The index of a directory leads to itself: a slot of the root to the root, a node to itself, to
/// the root, or to another node that leads back.
#[test]
fn a_directory_index_that_loops() {
    const ROOT: usize = 0x20;
    const NODE: usize = 8;
    let (image, [_, d, ..]) = volume();
    for (what, levels, targets) in [
        ("root to root", 0u8, [0u32, 0]),
        ("root to root, one level more", 1, [0, 0]),
        ("node to itself", 1, [1, 1]),
        ("node to itself, two levels", 2, [1, 1]),
        ("node to root", 2, [1, 0]),
        ("node to node", 2, [1, 2]),
    ] {
        let mut disk = Disk { image: image.clone() };
        let root_nr = disk.mapped(d, 0);
        let mut root = disk.block(root_nr);
        let slots = usize::from(u16_at(&root, ROOT + 2));
        assert!(slots > 5, "{slots} slots");
        root[0x1e] = levels;
        for i in 0..slots {
            put(&mut root, ROOT + 8 * i + 4, &targets[0].to_le_bytes());
        }
        disk.set_index_block(d, root_nr, ROOT, &root);
        if levels > 0 && targets[0] > 0 {
            for (logical, to) in [(1, targets[1]), (2, 1)] {
                let mut node = vec![0; 4096];
                put(&mut node, 4, &4096u16.to_le_bytes());
                put(&mut node, NODE, &u16::to_le_bytes(510));
                put(&mut node, NODE + 2, &u16::to_le_bytes(1));
                put(&mut node, NODE + 4, &u32::to_le_bytes(to));
                let nr = disk.mapped(d, logical);
                disk.set_index_block(d, nr, NODE, &node);
            }
        }
        let what = format!("directory index, {what}");
        meets(&what, &disk.image, Others::MayBeStopped, move |b| {
            let call = |req| b.call(req).err();
            let name = format!("{}7", "a-rather-long-name-".repeat(4)).into_bytes();
            let lookup = call(Request::Lookup { parent: d, name: name.clone() });
            let create = call(Request::Create { parent: d, name: b"new".to_vec(), perm: 0o600 });
            let unlink = call(Request::Unlink { parent: d, name });
            let list = Caller::root(&*b.service).read_dir(d).err();
            // The names in the blocks that became nodes are gone.
            let gone = |e: &Error| *e == Error::Posix(libc::ENOENT);
            [lookup, create, unlink, list].into_iter().flatten().filter(|e| !gone(e)).collect()
        });
    }
}

/// Two directories of `volume` with these parents instead of their own.
fn with_parents(parents: [(InodeNr, InodeNr); 2], image: &Image) -> Image {
    let mut disk = Disk { image: image.clone() };
    for (dir, parent) in parents {
        let nr = disk.mapped(dir, 0);
        let mut block = disk.block(nr);
        assert_eq!(block[20..22], *b"..");
        put(&mut block, 12, &parent.to_le_bytes());
        disk.set_entry_block(dir, nr, &block);
    }
    disk.image
}

/// Directories that are each other's parents: a move that asks what lies above comes to an end.
#[test]
fn directories_that_are_each_others_parents() {
    let (image, [.., middle, low]) = volume();
    for (what, parents) in [
        ("each other", [(middle, low), (low, middle)]),
        ("itself", [(middle, middle), (low, middle)]),
    ] {
        let image = with_parents(parents, &image);
        meets(&format!("parent of {what}"), &image, Others::GoOn, move |b| {
            let (parent, name) = (siftfs_proto::ROOT_INO, b"d".to_vec());
            let mode = siftfs_proto::RenameMode::Replace;
            let (new_parent, new_name) = (low, b"d".to_vec());
            let moved = b.call(Request::Rename { parent, name, new_parent, new_name, mode });
            moved.err().into_iter().collect()
        });
    }
}

/// The same for an fsync, which asks whose permissions above are pending (rule R17).
///
/// Seen to hang when the walk upwards does not notice where it has been.
#[test]
fn an_fsync_below_directories_that_are_each_others_parents() {
    let (image, [.., middle, low]) = volume();
    for (what, parents) in [
        ("each other", [(middle, low), (low, middle)]),
        ("itself", [(middle, middle), (low, middle)]),
    ] {
        let image = with_parents(parents, &image);
        meets(&format!("parent of {what}, fsync"), &image, Others::GoOn, move |b| {
            // A pending permission change anywhere makes an fsync check what is above.
            b.chmod("d", 0o700);
            b.write("a/b/c/inside", 0, b"y");
            let synced = ["a/b/c/inside", "a/b/c"].map(|path| {
                let ino = b.ino(path);
                b.call(Request::Fsync { file: ino.into(), datasync: false }).err()
            });
            synced.into_iter().flatten().collect()
        });
    }
}
