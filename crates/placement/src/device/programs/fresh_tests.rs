use super::*;
use siftfs_base::Rng;
use std::collections::{BTreeMap, BTreeSet};

fn run(block: u64, first: u64, len: u64) -> GrantRun {
    GrantRun { block, len, first, fresh: true }
}

/// Random runs of the area at random places of a file, some of them fresh.
fn any_runs(rng: &mut Rng) -> Vec<GrantRun> {
    let (mut runs, mut block, mut first) = (Vec::new(), 0, 0);
    for _ in 0..1 + rng.below(9) {
        block += rng.below(4);
        first += rng.below(70);
        let len = 1 + rng.below(90);
        runs.push(GrantRun { block, len, first, fresh: rng.chance(70) });
        (block, first) = (block + len, first + len);
    }
    // In the area they lie in another order than in the file.
    let places: Vec<u64> = runs.iter().map(|run| run.block).collect();
    if rng.chance(50) && runs.len() > 1 {
        let end = block;
        for (run, place) in runs.iter_mut().zip(places) {
            run.block = end - place - run.len;
        }
    }
    runs
}

/// What is written is told once, at its place in the file, and the end is that of the farthest
/// byte. Against sets of single blocks.
#[test]
fn it_is_as_its_model() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let runs = any_runs(&mut rng);
        // All at once, or a part of them later.
        let (before, later) = runs.split_at(rng.below(runs.len() as u64 + 1) as usize);
        let fresh = Fresh::of(before).unwrap();
        fresh.add(later).unwrap();
        let of_file: BTreeMap<u64, u64> = runs
            .iter()
            .filter(|run| run.fresh)
            .flat_map(|run| (0..run.len).map(|at| (run.block + at, run.first + at)))
            .collect();
        assert_eq!(fresh.blocks(), of_file.len() as u64);
        let (mut written, mut told, mut end) = (BTreeSet::new(), BTreeSet::new(), 0);
        for _ in 0..40 {
            let any = runs[rng.below(runs.len() as u64) as usize];
            let from = any.block * BLOCK_BYTES + rng.below(any.len * BLOCK_BYTES);
            let len = 1 + rng.below(5 * BLOCK_BYTES);
            if rng.chance(60) {
                fresh.note_written(&(from..from + len));
                for block in from / BLOCK_BYTES..(from + len).div_ceil(BLOCK_BYTES) {
                    let Some(place) = of_file.get(&block) else { continue };
                    written.insert(*place);
                    let upto = (from + len - block * BLOCK_BYTES).min(BLOCK_BYTES);
                    end = end.max(place * BLOCK_BYTES + upto);
                }
            }
            if rng.chance(20) {
                let report = fresh.unreported();
                let runs = report.runs.iter().flat_map(|run| run.first..run.first + run.len);
                let now: Vec<u64> = runs.collect();
                assert_eq!(now, written.difference(&told).copied().collect::<Vec<_>>());
                assert!(report.runs.iter().all(|run| run.len > 0) && !report.more);
                assert!(report.end == 0 || report.end == end, "seed {seed}");
                if rng.chance(70) {
                    fresh.reported(&report);
                    told.clone_from(&written);
                    assert_eq!(fresh.unreported(), Report::default(), "it is told once");
                }
            }
        }
    }
}

/// What is written between a report and its flush is in the next one.
#[test]
fn what_comes_behind_a_report_is_told_in_the_next() {
    let fresh = Fresh::of(&[run(5, 100, 10)]).unwrap();
    fresh.note_written(&(5 * BLOCK_BYTES..5 * BLOCK_BYTES + 10));
    let first = fresh.unreported();
    assert_eq!(first.runs, [FileRun { first: 100, len: 1 }]);
    assert_eq!(first.end, 100 * BLOCK_BYTES + 10);
    fresh.note_written(&(7 * BLOCK_BYTES..8 * BLOCK_BYTES));
    fresh.note_written(&(5 * BLOCK_BYTES + 10..5 * BLOCK_BYTES + 20));
    fresh.reported(&first);
    let second = fresh.unreported();
    assert_eq!(second.runs, [FileRun { first: 102, len: 1 }]);
    assert_eq!(second.end, 103 * BLOCK_BYTES);
    fresh.reported(&second);
    // A block that was told is not told again, but the end that moves in it is.
    let fresh = Fresh::of(&[run(5, 100, 1)]).unwrap();
    fresh.note_written(&(5 * BLOCK_BYTES..5 * BLOCK_BYTES + 10));
    fresh.reported(&fresh.unreported());
    fresh.note_written(&(5 * BLOCK_BYTES + 10..5 * BLOCK_BYTES + 20));
    let third = fresh.unreported();
    assert_eq!((third.runs.len(), third.end), (0, 100 * BLOCK_BYTES + 20));
    assert!(!third.is_empty());
}

#[test]
fn a_report_has_an_end() {
    let blocks = 3 * SETTLED_MAX_RUNS as u64;
    let fresh = Fresh::of(&[run(0, 0, 2 * blocks)]).unwrap();
    for block in 0..blocks {
        fresh.note_written(&(2 * block * BLOCK_BYTES..(2 * block + 1) * BLOCK_BYTES));
    }
    let mut told = Vec::new();
    loop {
        let report = fresh.unreported();
        assert!(report.runs.len() <= SETTLED_MAX_RUNS);
        told.extend(report.runs.iter().map(|run| run.first));
        fresh.reported(&report);
        if !report.more {
            break;
        }
    }
    assert_eq!(told, (0..blocks).map(|block| 2 * block).collect::<Vec<_>>());
}

/// What a host says with a grant is checked as anything that comes over a wire.
#[test]
fn forged_places_are_refused() {
    for runs in [
        vec![run(0, u64::MAX, 1)],
        vec![run(0, u64::MAX / BLOCK_BYTES, 1)],
        vec![run(0, 3, u64::MAX)],
        vec![run(0, 3, 2), run(9, 4, 1)],
        vec![run(0, 3, 1), run(9, 3, 1)],
        vec![run(0, 3, GRANT_MAX_FRESH + 1)],
        vec![run(0, 3, GRANT_MAX_FRESH), run(1 << 40, 1 << 40, 1)],
    ] {
        assert!(matches!(Fresh::of(&runs), Err(Error::Refused(_))), "{runs:?}");
    }
    Fresh::of(&[run(0, 3, GRANT_MAX_FRESH)]).unwrap();
    let plain = GrantRun { fresh: false, ..run(0, u64::MAX, 1) };
    assert_eq!(Fresh::of(&[plain]).unwrap().blocks(), 0);
}

/// What is added lies beside what there is, in the file and in the area. What is cut off again
/// takes nothing with it, and may be added anew.
#[test]
fn what_is_added_meets_nothing() {
    let fresh = Fresh::of(&[run(10, 100, 10)]).unwrap();
    fresh.note_written(&(10 * BLOCK_BYTES..11 * BLOCK_BYTES));
    for wrong in [
        vec![run(19, 200, 1)],
        vec![run(30, 109, 1)],
        vec![run(30, 99, 2)],
        vec![run(9, 200, 2)],
        vec![run(30, 200, 1), run(31, 200, 1)],
        vec![run(30, 200, GRANT_MAX_FRESH - 9)],
    ] {
        assert!(fresh.add(&wrong).is_err(), "{wrong:?}");
        assert_eq!(fresh.blocks(), 10);
    }
    fresh.add(&[run(30, 200, 5), GrantRun { fresh: false, ..run(40, 300, 5) }]).unwrap();
    assert_eq!(fresh.blocks(), 15);
    fresh.cut(10);
    assert_eq!(fresh.blocks(), 10);
    fresh.add(&[run(30, 90, 5)]).unwrap();
    fresh.note_written(&(30 * BLOCK_BYTES..35 * BLOCK_BYTES));
    let report = fresh.unreported();
    let told = [FileRun { first: 90, len: 5 }, FileRun { first: 100, len: 1 }];
    assert_eq!((report.runs, report.end), (told.to_vec(), 101 * BLOCK_BYTES));
}
