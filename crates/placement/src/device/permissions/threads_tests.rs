//! Tests of the table with several threads.

use super::tests::{audit, run, table, unwritten};
use super::*;
use siftfs_base::Rng;
use std::sync::RwLock;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

const BLOCKS: u64 = 6 * LEAF_SPAN;

/// Blocks that one of two threads gives and takes: every second run of 300 blocks.
fn runs(changer: u64) -> Vec<BlockRun> {
    (0..5).map(|i| run((2 * i + changer) * 300, 300)).collect()
}

/// What one thread has told the others.
#[derive(Default)]
struct Told {
    /// The give to it was answered, and its end was not asked for.
    live: Option<Owner>,
    /// Its end was answered.
    ended: Option<Owner>,
}

fn change(table: &Permissions, told: &RwLock<Told>, changer: u64, until: Instant) -> u64 {
    let (mut rounds, runs) = (0, runs(changer));
    while Instant::now() < until {
        let owner = table.owner().expect("there are few");
        table.give(owner, &runs, rounds % 2 == 0).expect("nobody else has them");
        told.write().unwrap().live = Some(owner);
        let part = runs[1].start + 5..runs[1].start + 250;
        table.set_written(owner, part).expect("they are its own");
        told.write().unwrap().live = None;
        table.take_all(owner).expect("it was there");
        told.write().unwrap().ended = Some(owner);
        rounds += 1;
    }
    rounds
}

/// Looks until told otherwise; how often something was granted, and how often it was refused to an
/// owner that had ended.
fn look(table: &Permissions, told: &[RwLock<Told>; 2], seed: u64, end: &AtomicBool) -> (u64, u64) {
    let (mut rng, mut granted, mut refused) = (Rng::new(seed), 0, 0);
    while !end.load(Ordering::Acquire) {
        let changer = rng.below(2);
        let told = &told[usize::try_from(changer).unwrap()];
        let run = *rng.pick(&runs(changer)).expect("five");
        let block = rng.between(run.start, run.end());
        let blocks = block..(block + rng.between(1, 65)).min(run.end());
        let ended = told.read().unwrap().ended;
        if let Some(ended) = ended {
            assert_eq!(table.check(ended, blocks.clone()), Ok(Checked::Refused), "{blocks:?}");
            refused += 1;
        }
        // The owner is not taken back while this is held.
        let held = told.read().unwrap();
        if let Some(live) = held.live {
            let checked = table.check(live, blocks.clone()).expect("the file is whole");
            assert_ne!(checked, Checked::Refused, "{blocks:?}");
            granted += 1;
        }
    }
    (granted, refused)
}

/// Ends those that look, also if another thread fails: they would look for ever.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn nothing_of_an_owner_is_granted_when_it_was_taken_back() {
    let (table, told, end) = (table(BLOCKS, 2), Default::default(), AtomicBool::new(false));
    let until = Instant::now() + Duration::from_millis(1500);
    let (table, told, end) = (&table, &told, &end);
    let [rounds, granted, refused] = std::thread::scope(|scope| {
        let ends = Ends(end);
        let looking = [1, 2].map(|seed| scope.spawn(move || look(table, told, seed, end)));
        let changing = [0, 1].map(|changer| {
            let told = &told[usize::try_from(changer).unwrap()];
            scope.spawn(move || change(table, told, changer, until))
        });
        let rounds = changing.map(|thread| thread.join().expect("no panic"));
        drop(ends);
        let found = looking.map(|thread| thread.join().expect("no panic"));
        let [granted, refused] = [found[0].0 + found[1].0, found[0].1 + found[1].1];
        [rounds[0].min(rounds[1]), granted, refused]
    });
    assert!(rounds > 20 && granted > 100 && refused > 100, "{rounds} {granted} {refused}");
    assert!(table.counts().misses > 20, "{:?}", table.counts());
    audit(table, &vec![None; usize::try_from(BLOCKS).unwrap()]);
}

/// Threads that read leaves from the scratch file beside each other, and keep them.
#[test]
fn leaves_come_and_go_under_checks() {
    let table = table(BLOCKS, 2);
    let [a, b] = [(); 2].map(|()| table.owner().unwrap());
    let mine = |from| Vec::from_iter((from..BLOCKS).step_by(2).map(|block| run(block, 1)));
    table.give(a, &mine(0), true).unwrap();
    table.give(b, &mine(1), false).unwrap();
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let table = &table;
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                for _ in 0..20_000 {
                    let block = rng.below(BLOCKS);
                    let (own, other) = if block.is_multiple_of(2) { (a, b) } else { (b, a) };
                    let wanted = match own == a {
                        true => Checked::Written,
                        false => unwritten(block, block + 1),
                    };
                    assert_eq!(table.check(own, block..block + 1), Ok(wanted));
                    assert_eq!(table.check(other, block..block + 1), Ok(Checked::Refused));
                }
            });
        }
    });
    let counts = table.counts();
    assert_eq!((counts.hot, counts.spilled), (2, 4));
    // Each check looks at one leaf.
    assert_eq!(counts.hits + counts.misses, 3 * 40_000);
    // What was read is kept while no change is under way.
    for leaf in 0..6 {
        let block = leaf * LEAF_SPAN;
        let misses = [(); 3].map(|()| {
            assert_eq!(table.check(a, block..block + 1), Ok(Checked::Written));
            table.counts().misses
        });
        assert!(misses[1] == misses[0] && misses[2] == misses[0], "leaf {leaf}: {misses:?}");
    }
}
