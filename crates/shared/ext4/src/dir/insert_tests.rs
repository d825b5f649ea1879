use std::collections::BTreeSet;

use super::super::hash::legacy_collisions;
use super::super::mem::*;
use super::super::*;

/// More names of one hash than a leaf holds: further leaves continue it.
#[test]
fn one_hash_may_fill_several_leaves() {
    let same = legacy_collisions();
    let version = HashVersion { kind: HashKind::Legacy, unsigned: false };
    let hashes: BTreeSet<_> = same.iter().map(|n| dir_hash(n, version, &[0; 4]).major).collect();
    assert_eq!((hashes.len(), same.iter().collect::<BTreeSet<_>>().len()), (1, 20));
    let (mut c, mut blocks) = (ctx(), MemBlocks::default());
    c.hash_version = version;
    Dir::new(&mut c, &mut blocks).init(2).unwrap();
    let mut names = same.to_vec();
    for i in 0..300 {
        names.push(format!("another {i}").into_bytes());
    }
    for name in names.iter().step_by(2).chain(names.iter().skip(1).step_by(2)) {
        Dir::new(&mut c, &mut blocks).insert(name, 20, 1).unwrap();
    }
    blocks.cool();
    for name in &names {
        let mut dir = Dir::new(&mut c, &mut blocks);
        assert!(dir.lookup(name).unwrap().is_some());
    }
    let mut seen = BTreeSet::new();
    let mut cookie = 0;
    loop {
        let before = cookie;
        let one = &mut |e: DirEntry<'_>| {
            let first = cookie == before;
            if first {
                cookie = e.cookie;
                assert!(seen.insert(e.name.to_vec()));
            }
            first
        };
        Dir::new(&mut c, &mut blocks).iterate(before, one).unwrap();
        if cookie == before {
            break;
        }
    }
    assert_eq!(seen.len(), names.len() + 2);
    for name in &names {
        Dir::new(&mut c, &mut blocks).remove(name).unwrap();
    }
    assert!(Dir::new(&mut c, &mut blocks).is_empty().unwrap());
}

/// Two levels of index are all there is: a root that is full ends it, and nothing is lost.
#[test]
fn a_full_index_is_no_space() {
    let (mut c, mut blocks) = (ctx(), MemBlocks::default());
    c.csum_seed = None;
    Dir::new(&mut c, &mut blocks).init(2).unwrap();
    let (mut count, mut filled) = (0u32, false);
    let error = loop {
        let name = format!("{count:0200}");
        if let Err(e) = Dir::new(&mut c, &mut blocks).insert(name.as_bytes(), 20, 1) {
            break e;
        }
        count += 1;
        let root = &mut blocks.blocks[0];
        if !filled && root[30] == 1 {
            // Slots for hashes above all that occur, leading to the only node as well.
            let node: [u8; 4] = root[36..40].try_into().unwrap();
            for i in 1..508u32 {
                let at = 32 + i as usize * 8;
                root[at..at + 4].copy_from_slice(&(0xffff_f000 + i * 2).to_le_bytes());
                root[at + 4..at + 8].copy_from_slice(&node);
            }
            root[34..36].copy_from_slice(&508u16.to_le_bytes());
            filled = true;
        }
    };
    assert_eq!(error, siftfs_base::errno(libc::ENOSPC));
    assert!(filled && blocks.blocks.len() > 510);
    for i in 0..count {
        let name = format!("{i:0200}");
        assert!(Dir::new(&mut c, &mut blocks).lookup(name.as_bytes()).unwrap().is_some());
    }
}
