//! Volumes made by others: every feature of the profile that is read or left alone.

use std::process::Command;

use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, BlockRun, Error};

use crate::profile::{COMPAT_HAS_JOURNAL, FEATURES, Support, Word};
use crate::test_image::{FIRST_FILE, Image};
use crate::{BlockStore, Fs, Mapping};

const BASE: &str = "none,filetype,ext_attr,dir_index,extent,sparse_super,large_file,huge_file,\
                    dir_nlink,extra_isize,metadata_csum";

/// Allocates, maps, frees and makes inodes all over the volume, then asks e2fsck and the kernel.
fn use_volume(image: &Image) {
    let mut store = image.load();
    let mut fs = Fs::open(&mut store).unwrap();
    assert!(fs.superblock.is_clean());
    let mut rng = siftfs_base::Rng::new(8);
    // The orphan file of some volumes comes before the files.
    let empty = |i: &crate::Inode| i.is_reg() && i.size == 0;
    let files: Vec<_> = (FIRST_FILE..FIRST_FILE + 3)
        .filter_map(|ino| fs.read_inode(&mut store, ino).ok().filter(empty))
        .collect();
    assert_eq!(files.len(), 2);
    let name = image.name_of(files[0].ino);
    for mut inode in files {
        for i in 0..1200u64 {
            let goal = rng.below(fs.layout.block_count());
            let run = fs.alloc_blocks(&mut store, goal, 1 + i % 3).unwrap();
            fs.insert(&mut store, &mut inode, i * 5, run, i % 2 == 0).unwrap();
        }
        inode.size = 6000 * BLOCK_BYTES;
        let gone = fs.remove(&mut store, &mut inode, 2000, 4000, 10_000).unwrap();
        assert!(gone.done && !gone.runs.is_empty());
        fs.write_inode(&mut store, &inode).unwrap();
    }
    image.save(&mut fs, &mut store);
    image.check();
    image.mounted(|dir| {
        assert_eq!(std::fs::read(dir.join(&name)).unwrap().len() as u64, 6000 * BLOCK_BYTES);
        std::fs::write(dir.join("more"), vec![7; 1 << 20]).unwrap();
    });
    image.check();
    // The journal, now in use by the kernel and empty again, does not bar the way.
    Fs::open(&mut image.load()).unwrap();
}

#[test]
fn feature_sets_of_others() {
    let journal = "has_journal,resize_inode,metadata_csum_seed,orphan_file,64bit,flex_bg";
    for (extra, more) in [
        (journal, &["-I", "256"][..]),
        ("64bit", &["-I", "512", "-g", "8192"]),
        ("resize_inode", &["-I", "256", "-g", "16384"]),
        ("flex_bg,has_journal", &["-I", "1024", "-G", "4", "-g", "4096", "-i", "65536"]),
    ] {
        let features = format!("{BASE},{extra}");
        let mut args = vec!["-q", "-F", "-b", "4096", "-O", &features, "-E", "lazy_itable_init=1"];
        args.extend(more);
        use_volume(&Image::files_with(300, 2, &args));
    }
}

/// A file with a block map is read at every level of indirection.
#[test]
fn block_maps_are_read() {
    let image = Image::empty_with(|dir, file| {
        use std::os::unix::fs::FileExt;
        let source = dir.join("source");
        std::fs::create_dir_all(&source).unwrap();
        let big = std::fs::File::create(source.join("big")).unwrap();
        for at in blocks() {
            big.write_all_at(&[at as u8 | 1; BLOCK_SIZE], at * BLOCK_BYTES).unwrap();
        }
        let features = BASE.replace("extent,", "");
        let run = |cmd: &mut Command| {
            let out = cmd.output().unwrap();
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        };
        run(Command::new("/usr/sbin/mke2fs")
            .args(["-q", "-F", "-b", "4096", "-I", "256", "-O", &features, "-d"])
            .args([source.as_path(), file])
            .arg("64M"));
        run(Command::new("/usr/sbin/tune2fs").args(["-O", "extent"]).arg(file));
    });
    let mut store = image.load();
    let fs = Fs::open(&mut store).unwrap();
    let inode = fs.read_inode(&mut store, FIRST_FILE).unwrap();
    assert!(!inode.has_extents());
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(r) = fs.layout.next_mapped(&mut store, &inode, at, u64::MAX).unwrap() {
        for i in 0..r.run.len {
            let byte = (r.lblk + i) as u8 | 1;
            assert!(store.read(r.run.start + i).unwrap().iter().all(|b| *b == byte));
            found.push(r.lblk + i);
        }
        at = r.lblk + r.run.len;
    }
    assert_eq!(found, blocks());
    let far = fs.layout.map(&mut store, &inode, 1 << 31, 10).unwrap();
    assert_eq!(far, Mapping::Hole { len: 10 });
}

/// Blocks in the inode, and behind one, two and three levels.
fn blocks() -> Vec<u64> {
    let mut all = vec![0, 1, 5, 11, 12, 13, 1035, 1036, 1037, 3000, 500_000];
    all.extend([12 + 1024 + (1 << 20) - 1, 12 + 1024 + (1 << 20), 12 + 1024 + (1 << 20) + 99_999]);
    all
}

/// A refused feature is named, whichever it is.
#[test]
fn refused_features_are_named() {
    let image = Image::make(64);
    let clean = image.load();
    for f in FEATURES.iter().filter(|f| f.support == Support::Refused) {
        let mut store = clean.clone();
        let at = 1024
            + match f.word {
                Word::Compat => 0x5C,
                Word::Incompat => 0x60,
                Word::RoCompat => 0x64,
            };
        let block = store.modify(0).unwrap();
        for (byte, bit) in block[at..at + 4].iter_mut().zip(f.bit.to_le_bytes()) {
            *byte |= bit;
        }
        match Fs::open(&mut store) {
            Err(Error::Incompatible(text)) => assert!(text.contains(f.name), "{text}"),
            other => panic!("{}: {:?}", f.name, other.err()),
        }
    }
    assert_ne!(COMPAT_HAS_JOURNAL, 0);
}

/// Not ext4 at all, and other block sizes.
#[test]
fn other_contents_are_refused() {
    let mut store = crate::testing::MemStore::new(1000);
    assert!(matches!(Fs::open(&mut store), Err(Error::Incompatible(_))));
    for size in ["1024", "2048"] {
        let image = Image::make_with(64, &["-q", "-F", "-b", size, "-O", BASE]);
        match Fs::open(&mut image.load()) {
            Err(Error::Incompatible(text)) => assert!(text.contains("4096"), "{text}"),
            other => panic!("{:?}", other.err()),
        }
    }
    let image = Image::make(64);
    let mut short =
        crate::testing::MemStore::from_bytes(&std::fs::read(&image.file).unwrap()[..4096]);
    assert!(Fs::open(&mut short).is_err());
    let run = BlockRun { start: 3, len: 0 };
    assert!(Fs::open(&mut image.load()).unwrap().layout.check_run(run, || "x".into()).is_err());
}
