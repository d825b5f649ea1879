use std::collections::BTreeSet;

use super::super::hash::legacy_collisions;
use super::super::mem::*;
use super::super::*;

/// More names of one hash than a leaf holds: further leaves continue it.
#[test]
fn one_hash_may_fill_several_leaves() {
    let same = legacy_collisions(24);
    let version = HashVersion { kind: HashKind::Legacy, unsigned: false };
    let hashes: BTreeSet<_> = same.iter().map(|n| dir_hash(n, version, &[0; 4]).major).collect();
    assert_eq!((hashes.len(), same.iter().collect::<BTreeSet<_>>().len()), (1, 24));
    let (mut c, mut blocks) = (ctx(), MemBlocks::default());
    c.hash_version = version;
    Dir::new(&mut c, &mut blocks).init(2).unwrap();
    let mut names = same.clone();
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
