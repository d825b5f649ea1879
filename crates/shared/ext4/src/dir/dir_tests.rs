use std::collections::BTreeMap;

use super::mem::*;
use super::*;
use siftfs_base::{Error, errno};

fn listing(ctx: &mut DirCtx, blocks: &mut MemBlocks) -> BTreeMap<Vec<u8>, u32> {
    let mut all = BTreeMap::new();
    let (mut cookie, mut last) = (0, 0);
    // Small portions, so that going on is tested too.
    loop {
        let mut taken = 0;
        let mut dir = Dir::new(ctx, blocks);
        dir.iterate(cookie, &mut |e| {
            if taken == 7 {
                return false;
            }
            taken += 1;
            assert!(e.cookie > last && e.cookie < 1 << 63, "cookies grow");
            last = e.cookie;
            assert!(all.insert(e.name.to_vec(), e.ino).is_none(), "{:?} twice", e.name);
            true
        })
        .unwrap();
        if taken == 0 {
            return all;
        }
        cookie = last;
    }
}

fn variants() -> Vec<DirCtx> {
    let mut all = Vec::new();
    for kind in [HashKind::Legacy, HashKind::HalfMd4, HashKind::Tea] {
        for (dir_index, csum) in [(true, true), (true, false), (false, true), (false, false)] {
            let mut c = ctx();
            c.hash_version = HashVersion { kind, unsigned: kind == HashKind::Tea };
            c.dir_index = dir_index;
            c.filetype = csum || dir_index;
            c.csum_seed = csum.then_some(99);
            all.push(c);
        }
    }
    all
}

#[test]
fn random_histories_agree_with_a_map() {
    for (n, mut c) in variants().into_iter().enumerate() {
        let mut blocks = MemBlocks::default();
        let mut rng = siftfs_base::Rng::new(0x9e37_79b9 + n as u64);
        Dir::new(&mut c, &mut blocks).init(2).unwrap();
        let mut model: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
        for step in 0..6000u32 {
            let id = rng.below(if c.dir_index { 1500 } else { 300 });
            let mut name = format!("{id}-").into_bytes();
            name.resize(name.len() + (id as usize * 37) % 240, b'x' + (id % 3) as u8);
            let ino = step + 100;
            let mut dir = Dir::new(&mut c, &mut blocks);
            let found = dir.lookup(&name).unwrap();
            assert_eq!(found.map(|f| f.ino), model.get(&name).copied());
            match (rng.below(5), found) {
                (0..3, None) => {
                    dir.insert(&name, ino, ftype::REGULAR).unwrap();
                    model.insert(name, ino);
                }
                (0..2, Some(_)) => {
                    dir.replace(&name, ino, ftype::SYMLINK).unwrap();
                    model.insert(name, ino);
                }
                (_, Some(f)) => {
                    assert_eq!(dir.remove(&name).unwrap().ino, f.ino);
                    model.remove(&name);
                }
                (_, None) => assert_eq!(dir.remove(&name), Err(errno(libc::ENOENT))),
            }
            if step % 500 == 499 {
                blocks.cool();
                let mut want = model.clone();
                want.insert(b".".to_vec(), 12);
                want.insert(b"..".to_vec(), 2);
                assert_eq!(listing(&mut c, &mut blocks), want);
                assert!(!Dir::new(&mut c, &mut blocks).is_empty().unwrap());
            }
        }
        assert_eq!(c.indexed, c.dir_index);
        for name in model.keys() {
            Dir::new(&mut c, &mut blocks).remove(name).unwrap();
        }
        blocks.cool();
        assert!(Dir::new(&mut c, &mut blocks).is_empty().unwrap());
    }
}

#[test]
fn a_hundred_thousand_names_cost_a_few_blocks_each() {
    let (mut c, mut blocks) = (ctx(), MemBlocks::default());
    Dir::new(&mut c, &mut blocks).init(2).unwrap();
    for i in 0..100_000u32 {
        blocks.reads.clear();
        blocks.dirtied.clear();
        let before = blocks.blocks.len();
        let name = format!("a-name-of-some-length-{i}");
        Dir::new(&mut c, &mut blocks).insert(name.as_bytes(), i + 11, ftype::REGULAR).unwrap();
        assert!(blocks.dirtied.len() <= INSERT_WORST_CASE.dirtied as usize);
        assert!(blocks.blocks.len() - before <= INSERT_WORST_CASE.appended as usize);
        assert!(blocks.reads.len() <= 5, "{} blocks read", blocks.reads.len());
    }
    assert!(blocks.blocks[0][30] == 1, "two levels");
    for i in (0..100_000u32).step_by(3) {
        let name = format!("a-name-of-some-length-{i}");
        Dir::new(&mut c, &mut blocks).remove(name.as_bytes()).unwrap();
    }
    blocks.cool();
    for i in 0..100_000u32 {
        let name = format!("a-name-of-some-length-{i}");
        let found = Dir::new(&mut c, &mut blocks).lookup(name.as_bytes()).unwrap();
        assert_eq!(found.map(|f| f.ino), (i % 3 != 0).then_some(i + 11));
    }
    assert_eq!(listing(&mut c, &mut blocks).len(), 66_666 + 2);
}

#[test]
fn parents_and_bad_names() {
    let (mut c, mut blocks) = (ctx(), MemBlocks::default());
    for indexed in [false, true] {
        let mut dir = Dir::new(&mut c, &mut blocks);
        if !indexed {
            dir.init(2).unwrap();
            assert!(dir.is_empty().unwrap());
        } else {
            for i in 0..500 {
                dir.insert(format!("name {i}").as_bytes(), 100, ftype::FIFO).unwrap();
            }
            assert!(dir.ctx.indexed);
        }
        dir.set_dotdot(77).unwrap();
        assert_eq!(dir.dotdot().unwrap(), 77);
        blocks.cool();
        let mut dir = Dir::new(&mut c, &mut blocks);
        assert_eq!(dir.dotdot().unwrap(), 77);
        assert_eq!(dir.lookup(b".").unwrap(), Some(Found { ino: 12, ftype: 2 }));
        assert_eq!(dir.remove(b".."), Err(errno(libc::EINVAL)));
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
            assert_eq!(dir.insert(bad, 5, 1), Err(errno(libc::EINVAL)));
        }
        assert_eq!(dir.insert(&[b'x'; 256], 5, 1), Err(errno(libc::ENAMETOOLONG)));
    }
    let mut dir = Dir::new(&mut c, &mut blocks);
    assert_eq!(dir.insert(b"name 3", 5, 1), Err(errno(libc::EEXIST)));
    assert_eq!(dir.lookup(&[b'y'; 300]).unwrap(), None);
}

#[test]
fn a_full_volume_leaves_the_directory_whole() {
    for spare in 0..12 {
        let (mut c, mut blocks) =
            (ctx(), MemBlocks { room: Some(1 + spare), ..Default::default() });
        Dir::new(&mut c, &mut blocks).init(2).unwrap();
        let mut put = 0;
        for i in 0..5000u32 {
            match Dir::new(&mut c, &mut blocks).insert(format!("{i}").as_bytes(), 20, 1) {
                Ok(()) => put += 1,
                Err(e) => {
                    assert_eq!(e, errno(libc::ENOSPC));
                    break;
                }
            }
        }
        blocks.cool();
        assert_eq!(listing(&mut c, &mut blocks).len(), put + 2);
    }
}

/// Flips bytes anywhere; nothing may panic, and with checksums nothing wrong may be believed.
#[test]
fn hostile_bytes_are_refused_or_survived() {
    for (n, base) in variants().into_iter().enumerate() {
        let (mut c, mut blocks) = (base, MemBlocks::default());
        Dir::new(&mut c, &mut blocks).init(2).unwrap();
        for i in 0..400u32 {
            Dir::new(&mut c, &mut blocks).insert(format!("name {i}").as_bytes(), 20, 1).unwrap();
        }
        let mut rng = siftfs_base::Rng::new(77 + n as u64);
        for _ in 0..100 {
            let (mut c, mut bad) = (c, blocks.clone());
            bad.cool();
            for _ in 0..=rng.below(3) {
                let b = rng.below(bad.blocks.len() as u64) as usize;
                let low = rng.below(2) == 0;
                let at = rng.below(if low { 64 } else { BLOCK_SIZE as u64 }) as usize;
                let interesting = [0, 1, 2, 8, 12, 0x7f, 0x80, 0xfc, 0xff];
                bad.blocks[b][at] = interesting[rng.below(9) as usize];
            }
            let changed = bad.blocks != blocks.blocks;
            let mut dir = Dir::new(&mut c, &mut bad);
            let mut seen = 0;
            let listed = dir.iterate(0, &mut |_| {
                seen += 1;
                seen < 10_000
            });
            let _ = dir.is_empty();
            let mut failed = listed.is_err();
            for i in 0..400u32 {
                failed |= !matches!(dir.lookup(format!("name {i}").as_bytes()), Ok(Some(_)));
            }
            if c.csum_seed.is_some() && changed && !failed {
                // Only bytes that say nothing are outside a checksum.
                assert!(seen == 402, "believed a changed block");
            }
            let mut dir = Dir::new(&mut c, &mut bad);
            let _ = dir.insert(&[b'z'; 200], 5, 1);
            let _ = dir.remove(b"name 17");
            let _ = dir.replace(b"..", 3, 2);
        }
    }
}

#[test]
fn a_broken_index_is_read_block_by_block() {
    let (mut c, mut blocks) = (ctx(), MemBlocks::default());
    c.csum_seed = None;
    Dir::new(&mut c, &mut blocks).init(2).unwrap();
    for i in 0..400u32 {
        Dir::new(&mut c, &mut blocks).insert(format!("name {i}").as_bytes(), 20, 1).unwrap();
    }
    blocks.blocks[0][28] = 9;
    blocks.cool();
    for i in 0..400u32 {
        let found = Dir::new(&mut c, &mut blocks).lookup(format!("name {i}").as_bytes()).unwrap();
        assert!(found.is_some());
    }
    assert_eq!(listing(&mut c, &mut blocks).len(), 402);
    Dir::new(&mut c, &mut blocks).set_dotdot(9).unwrap();
    Dir::new(&mut c, &mut blocks).insert(b"new", 20, 1).unwrap();
    assert!(!c.indexed, "an index that entries overwrite is no index");
    assert_eq!(listing(&mut c, &mut blocks).len(), 403);
    c = ctx();
    let mut blocks = MemBlocks::default();
    Dir::new(&mut c, &mut blocks).init(2).unwrap();
    blocks.blocks[0][4095] ^= 1;
    blocks.cool();
    let refused = Dir::new(&mut c, &mut blocks).lookup(b"x");
    assert!(matches!(refused, Err(Error::Corrupt { .. })));
}
