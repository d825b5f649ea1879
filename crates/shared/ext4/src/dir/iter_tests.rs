use std::collections::BTreeSet;

use super::super::mem::*;
use super::super::*;

/// Reads in portions while names come and go; those that stay are seen exactly once.
#[test]
fn changes_in_between_neither_hide_nor_repeat() {
    for kind in [HashKind::Legacy, HashKind::HalfMd4, HashKind::Tea] {
        for start in [10u32, 60, 3000] {
            let (mut c, mut blocks) = (ctx(), MemBlocks::default());
            c.hash_version.kind = kind;
            Dir::new(&mut c, &mut blocks).init(2).unwrap();
            for i in 0..start {
                let name = format!("stays {i}");
                Dir::new(&mut c, &mut blocks).insert(name.as_bytes(), 20, 1).unwrap();
                let name = format!("goes {i}");
                Dir::new(&mut c, &mut blocks).insert(name.as_bytes(), 20, 1).unwrap();
            }
            let (mut cookie, mut seen, mut round) = (0, BTreeSet::new(), 0u32);
            loop {
                let mut taken = 0;
                Dir::new(&mut c, &mut blocks)
                    .iterate(cookie, &mut |e| {
                        if taken == 13 {
                            return false;
                        }
                        taken += 1;
                        cookie = e.cookie;
                        assert!(seen.insert(e.name.to_vec()), "repeated");
                        true
                    })
                    .unwrap();
                if taken == 0 {
                    break;
                }
                let mut dir = Dir::new(&mut c, &mut blocks);
                let _ = dir.remove(format!("goes {round}").as_bytes());
                for i in 0..20 {
                    let _ = dir.insert(format!("comes {round} {i}").as_bytes(), 30, 1);
                }
                round += 1;
            }
            for i in 0..start {
                assert!(seen.contains(format!("stays {i}").as_bytes()), "lost {i}");
            }
        }
    }
}
