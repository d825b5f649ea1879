use super::*;
use crate::test_util::{AREA, KEY, ORDERED, SIZE, format, parts_of};
use siftfs_device::{Device, MemDevice};
use std::sync::Arc;

const BLOCK: usize = BLOCK_SIZE;

/// What comes to a run of blocks.
#[derive(Clone, Copy)]
enum From {
    Held(usize),
    Elsewhere,
    Zero,
}

/// Brings runs (first block, blocks, source) to a fresh area; its bytes afterwards, and the writes.
fn brought(held: &[u8], elsewhere: &[u8], runs: &[(u64, usize, From)]) -> (Vec<u8>, u64) {
    let mem = MemDevice::new(SIZE);
    mem.write(0, &vec![0xee; AREA as usize], false).unwrap();
    format(&mem);
    let dev: Arc<dyn Device> = Arc::new(mem);
    let (parts, _, _storage) = parts_of(&dev, ORDERED).unwrap();
    let mut report = CheckpointReport::default();
    let (area, lanes) = (&parts.area, &parts.lanes[..]);
    let (journal, origin) = (&*parts.journal, Origin::Background);
    let mut io = Io { area, journal, lanes, lane_key: KEY, origin, report: &mut report };
    let mut out = Gather::default();
    for (block, blocks, from) in runs {
        let len = blocks * BLOCK;
        let bytes = match from {
            From::Held(at) => Some(&held[*at..*at + len]),
            From::Elsewhere => Some(&elsewhere[..len]),
            From::Zero => None,
        };
        out.push(&mut io, held, block * BLOCK_BYTES, len as u64, bytes).unwrap();
    }
    out.drain(&mut io, held).unwrap();
    let mut area = vec![0; AREA as usize];
    dev.read(0, &mut area).unwrap();
    assert_eq!(report.write_bytes, runs.iter().map(|r| (r.1 * BLOCK) as u64).sum::<u64>());
    (area, report.writes)
}

fn held() -> AlignedBuf {
    let mut held = AlignedBuf::zeroed(256 * BLOCK);
    held.chunks_mut(512).zip(1u32..).for_each(|(c, i)| c[..4].copy_from_slice(&i.to_le_bytes()));
    held
}

#[test]
fn neighbours_become_one_write_and_long_ones_are_not_copied() {
    let (held, none) = (held(), []);
    let writes = |runs: &[(u64, usize, From)]| brought(&held, &none, runs).1;
    let at = |i: usize| From::Held(i * BLOCK);
    // Short ones in a row, from anywhere in memory; zeroes and unaligned bytes among them.
    assert_eq!(writes(&[(3, 1, at(9)), (4, 2, at(1)), (6, 1, From::Zero), (7, 1, at(20))]), 1);
    assert_eq!(writes(&[(3, 1, From::Held(10)), (4, 2, at(1))]), 1);
    // Apart, or so long that a copy costs more than a write.
    assert_eq!(writes(&[(3, 1, at(9)), (5, 1, at(10))]), 2);
    assert_eq!(writes(&[(3, 20, at(30)), (23, 20, at(0)), (43, 1, at(60))]), 3);
    // One behind the other in memory too.
    assert_eq!(writes(&[(3, 20, at(30)), (23, 20, at(50)), (43, 1, at(70))]), 1);
}

/// Whatever comes, each block holds what came for it, and no other one was touched.
#[test]
fn every_block_gets_its_bytes() {
    let (held, mut rng) = (held(), siftfs_base::Rng::new(5));
    let elsewhere: Vec<u8> = rng.bytes(40 * BLOCK);
    for _ in 0..200 {
        let (mut runs, mut want) = (Vec::new(), vec![0xee; AREA as usize]);
        let mut block = rng.below(4) as usize;
        while block < 50 {
            let most = if rng.below(3) == 0 { 14 } else { 3 };
            let blocks = 1 + rng.below(most) as usize;
            let unaligned = usize::from(rng.below(4) == 0) * 512;
            let from = match rng.below(5) {
                0 => From::Zero,
                1 => From::Elsewhere,
                _ => From::Held(rng.below(200) as usize * BLOCK + unaligned),
            };
            let place = &mut want[block * BLOCK..(block + blocks) * BLOCK];
            match from {
                From::Held(at) => place.copy_from_slice(&held[at..at + blocks * BLOCK]),
                From::Elsewhere => place.copy_from_slice(&elsewhere[..blocks * BLOCK]),
                From::Zero => place.fill(0),
            }
            runs.push((block as u64, blocks, from));
            block += blocks + usize::from(rng.below(2) == 0);
        }
        assert!(brought(&held, &elsewhere, &runs).0 == want);
    }
}
