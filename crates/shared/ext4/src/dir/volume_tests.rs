use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::super::ftype;
use super::super::hash::legacy_collisions;
use super::*;
use crate::profile::MKE2FS_ARGS;
use crate::test_image::{Image, tool, with_kernel};
use crate::testing::MemStore;
use siftfs_base::Timestamp;

const NOW: Timestamp = Timestamp { sec: 1_700_000_000, nsec: 5 };

/// A volume with a directory `d` in its root.
struct Volume {
    image: Image,
    store: MemStore,
    fs: Fs,
    dir: Inode,
}

fn new_inode(fs: &mut Fs, store: &mut MemStore, mode: u16) -> Inode {
    let ino = fs.alloc_inode(store, 2, mode & 0o170_000 == 0o040_000).unwrap();
    let mut inode = fs.new_inode(ino, ino * 3, mode, NOW);
    inode.nlink = 1;
    inode
}

impl Volume {
    fn of(image: Image) -> Self {
        let mut store = image.load();
        let mut fs = Fs::open(&mut store).unwrap();
        let mut dir = new_inode(&mut fs, &mut store, 0o040_755);
        dir.nlink = 2;
        fs.dir_init(&mut store, &mut dir, 2).unwrap();
        let mut root = fs.read_inode(&mut store, 2).unwrap();
        fs.dir_insert(&mut store, &mut root, b"d", dir.ino, ftype::DIRECTORY).unwrap();
        root.inc_nlink();
        fs.write_inode(&mut store, &root).unwrap();
        Self { image, store, fs, dir }
    }

    fn insert(&mut self, name: &[u8], ino: u32) {
        self.fs.dir_insert(&mut self.store, &mut self.dir, name, ino, ftype::REGULAR).unwrap();
    }

    /// Writes everything back and lets e2fsck judge.
    fn check(&mut self) {
        self.fs.write_inode(&mut self.store, &self.dir).unwrap();
        self.image.save(&mut self.fs, &mut self.store);
        self.image.check();
    }

    /// Writes files whose links are counted by name into the volume.
    fn write_files(&mut self, files: &mut [Inode], names: &BTreeMap<Vec<u8>, u32>) {
        for f in files {
            f.nlink = names.values().filter(|i| **i == f.ino).count() as u32;
            self.fs.write_inode(&mut self.store, f).unwrap();
        }
    }

    fn listing(&mut self) -> BTreeMap<Vec<u8>, u32> {
        let mut all = BTreeMap::new();
        let put = &mut |e: DirEntry<'_>| {
            assert!(all.insert(e.name.to_vec(), e.ino).is_none());
            true
        };
        self.fs.dir_iterate(&mut self.store, &self.dir, 0, put).unwrap();
        all.retain(|n, _| n != b"." && n != b"..");
        all
    }

    /// The kernel lists the same names, and finds each.
    fn compare_with_kernel(&mut self, names: &BTreeMap<Vec<u8>, u32>) {
        assert_eq!(&self.listing(), names);
        with_kernel(&self.image.file, true, |root| {
            let there: BTreeSet<Vec<u8>> = std::fs::read_dir(root.join("d"))
                .unwrap()
                .map(|e| e.unwrap().file_name().into_vec())
                .collect();
            assert!(there.iter().eq(names.keys()), "{} and {}", there.len(), names.len());
            for (name, ino) in names {
                let path = root.join("d").join(std::ffi::OsStr::from_bytes(name));
                assert_eq!(std::fs::symlink_metadata(path).unwrap().ino(), u64::from(*ino));
            }
        });
    }
}

/// A name that depends on `id` in length and bytes, above ASCII too.
fn odd_name(id: u64, longest: usize) -> Vec<u8> {
    let mut name = format!("{id}-").into_bytes();
    let more = (id as usize * 37) % longest;
    name.extend((0..more).map(|k| [b'a', b'Z', 0xe9, 0x80, 0xff, b' '][(k + id as usize) % 6]));
    name
}

#[test]
fn a_hundred_thousand_names_under_e2fsck_and_kernel() {
    let mut v = Volume::of(Image::make(128));
    let mut files: Vec<Inode> =
        (0..4).map(|_| new_inode(&mut v.fs, &mut v.store, 0o100_644)).collect();
    let mut names = BTreeMap::new();
    for i in 0..100_000usize {
        let (name, ino) = (format!("file number {i}").into_bytes(), files[i % 4].ino);
        v.insert(&name, ino);
        names.insert(name, ino);
    }
    for i in (0..100_000).step_by(3) {
        let name = format!("file number {i}").into_bytes();
        assert!(
            names.remove(&name) == Some(v.fs.dir_remove(&mut v.store, &v.dir, &name).unwrap().ino)
        );
    }
    v.write_files(&mut files, &names);
    v.check();
    v.compare_with_kernel(&names);
}

fn history(mut v: Volume, steps: u64, ids: u64, longest: usize) {
    let mut files: Vec<Inode> =
        (0..3).map(|_| new_inode(&mut v.fs, &mut v.store, 0o100_644)).collect();
    let mut names: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    let mut rng = siftfs_base::Rng::new(steps + ids);
    for step in 1..=steps {
        let name = odd_name(rng.below(ids), longest);
        let ino = files[rng.below(3) as usize].ino;
        let found = v.fs.dir_lookup(&mut v.store, &v.dir, &name).unwrap();
        assert_eq!(found.map(|f| f.ino), names.get(&name).copied());
        match (found, rng.below(3)) {
            (None, _) => {
                v.insert(&name, ino);
                names.insert(name, ino);
            }
            (Some(_), 0) => {
                v.fs.dir_replace(&mut v.store, &v.dir, &name, ino, ftype::REGULAR).unwrap();
                names.insert(name, ino);
            }
            (Some(f), _) => {
                assert_eq!(v.fs.dir_remove(&mut v.store, &v.dir, &name).unwrap(), f);
                names.remove(&name);
            }
        }
        if step % (steps / 3) == 0 {
            v.write_files(&mut files, &names);
            if names.values().collect::<BTreeSet<_>>().len() == files.len() {
                v.check();
            }
        }
    }
    v.compare_with_kernel(&names);
}

#[test]
fn random_histories_are_clean() {
    history(Volume::of(Image::make(64)), 3000, 1500, 240);
    history(Volume::of(Image::make(64)), 300, 60, 30);
}

#[test]
fn every_hash_is_the_kernels() {
    for alg in ["legacy", "half_md4", "tea"] {
        for flags in ["1", "2"] {
            let image = Image::make(64);
            tool("tune2fs", &["-E", &format!("hash_alg={alg}")], &image.file);
            tool("debugfs", &["-w", "-R", &format!("set_super_value flags {flags}")], &image.file);
            let v = Volume::of(image);
            assert_eq!(v.fs.superblock.unsigned_hash(), flags == "2");
            history(v, 1500, 900, 200);
        }
    }
}

#[test]
fn without_an_index_all_blocks_are_searched() {
    let args: Vec<String> = MKE2FS_ARGS.iter().map(|a| a.replace("dir_index,", "")).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let v = Volume::of(Image::make_with(64, &args));
    assert!(!v.fs.superblock.has_dir_index());
    history(v, 900, 300, 240);
}

#[test]
fn leaves_that_continue_a_hash_are_the_kernels() {
    let image = Image::make(64);
    tool("tune2fs", &["-E", "hash_alg=legacy"], &image.file);
    let mut v = Volume::of(image);
    let file = new_inode(&mut v.fs, &mut v.store, 0o100_644);
    let mut names: BTreeMap<_, _> = (0..100)
        .map(|i| format!("other {i}").into_bytes())
        .chain(legacy_collisions().iter().cloned())
        .map(|n| (n, file.ino))
        .collect();
    for name in names.keys() {
        v.insert(name, file.ino);
    }
    v.write_files(&mut [file.clone()], &names);
    v.check();
    v.compare_with_kernel(&names);
    for name in &legacy_collisions()[5..15] {
        v.fs.dir_remove(&mut v.store, &v.dir, name).unwrap();
        names.remove(name);
    }
    v.write_files(&mut [file], &names);
    v.check();
    v.compare_with_kernel(&names);
}

/// The kernel's own directory, read, changed and given back.
#[test]
fn directories_of_the_kernel_are_taken_over() {
    let image = Image::make(64);
    let mut names = BTreeMap::new();
    let ran = with_kernel(&image.file, false, |root| {
        std::fs::create_dir(root.join("k")).unwrap();
        std::fs::write(root.join("k/first"), b"").unwrap();
        let path = |name: &[u8]| root.join("k").join(std::ffi::OsStr::from_bytes(name));
        let ino = |p: &Path| std::fs::metadata(p).unwrap().ino() as u32;
        names.insert(b"first".to_vec(), ino(&path(b"first")));
        for i in 0..3000 {
            let name = odd_name(i, 200);
            std::fs::hard_link(root.join("k/first"), path(&name)).unwrap();
            names.insert(name, names[&b"first"[..]]);
        }
        for i in (0..3000).step_by(3) {
            std::fs::remove_file(path(&odd_name(i, 200))).unwrap();
            names.remove(&odd_name(i, 200));
        }
    });
    if !ran {
        return;
    }
    let mut store = image.load();
    let mut fs = Fs::open(&mut store).unwrap();
    let root = fs.read_inode(&mut store, 2).unwrap();
    let k = fs.dir_lookup(&mut store, &root, b"k").unwrap().unwrap();
    assert_eq!(k.ftype, ftype::DIRECTORY);
    let mut k = fs.read_inode(&mut store, k.ino).unwrap();
    assert_eq!(fs.dir_dotdot(&mut store, &k).unwrap(), 2);
    assert!(!fs.dir_is_empty(&mut store, &k).unwrap());
    for (name, ino) in &names {
        assert_eq!(fs.dir_lookup(&mut store, &k, name).unwrap().unwrap().ino, *ino);
    }
    let mut seen = BTreeMap::new();
    fs.dir_iterate(&mut store, &k, 2, &mut |e| seen.insert(e.name.to_vec(), e.ino).is_none())
        .unwrap();
    assert_eq!(seen, names);
    let first = names[&b"first"[..]];
    for i in (0..3000).step_by(2) {
        let name = odd_name(i, 200);
        if names.remove(&name).is_some() {
            fs.dir_remove(&mut store, &k, &name).unwrap();
        } else {
            fs.dir_insert(&mut store, &mut k, &name, first, ftype::REGULAR).unwrap();
            names.insert(name, first);
        }
    }
    let mut file = fs.read_inode(&mut store, first).unwrap();
    file.nlink = names.len() as u32;
    fs.write_inode(&mut store, &file).unwrap();
    fs.write_inode(&mut store, &k).unwrap();
    image.save(&mut fs, &mut store);
    image.check();
    with_kernel(&image.file, false, |root| {
        let there = std::fs::read_dir(root.join("k")).unwrap().count();
        assert_eq!(there, names.len());
        for name in names.keys() {
            std::fs::remove_file(root.join("k").join(std::ffi::OsStr::from_bytes(name))).unwrap();
        }
        std::fs::remove_dir(root.join("k")).unwrap();
    });
    image.check();
}

#[test]
fn a_full_volume_keeps_a_clean_directory() {
    let mut v = Volume::of(Image::make(8));
    let mut files: Vec<Inode> =
        (0..2).map(|_| new_inode(&mut v.fs, &mut v.store, 0o100_644)).collect();
    let spare = v.fs.available_blocks() - 20;
    let (mut lblk, mut filler) = (0, new_inode(&mut v.fs, &mut v.store, 0o100_644));
    while lblk < spare {
        let run = v.fs.alloc_blocks(&mut v.store, 0, spare - lblk).unwrap();
        v.fs.insert(&mut v.store, &mut filler, lblk, run, false).unwrap();
        lblk += run.len;
    }
    filler.size = lblk * BLOCK_BYTES;
    v.fs.write_inode(&mut v.store, &filler).unwrap();
    v.insert(b"filler", filler.ino);
    let mut names = BTreeMap::from([(b"filler".to_vec(), filler.ino)]);
    for i in 0.. {
        let (name, ino) = (odd_name(i, 240), files[i as usize % 2].ino);
        let put = v.fs.dir_insert(&mut v.store, &mut v.dir, &name, ino, ftype::REGULAR);
        match put {
            Ok(()) => names.insert(name, ino),
            Err(e) => {
                assert_eq!(e, errno(libc::ENOSPC));
                break;
            }
        };
    }
    assert!(names.len() > 100);
    v.write_files(&mut files, &names);
    v.check();
    v.compare_with_kernel(&names);
}
