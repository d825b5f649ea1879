//! Power is cut at every write and flush of a script, and what was not flushed is kept, lost or
//! torn: every transaction is there as a whole or not at all, in the order of the commits, and what
//! was answered is there.

use crate::redo::RedoLane;
use crate::redo::test_util::*;
use siftfs_base::{Result, Rng};
use siftfs_device::{Cut, Fate, FaultDevice};
use std::sync::Arc;

/// A step of a script.
#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<(u64, Vec<u8>)>),
    Checkpoint,
    /// By a new opening.
    Reopen,
}

fn script(seed: u64) -> Vec<Step> {
    let mut byte = 0u8;
    let mut transaction = |rng: &mut Rng| {
        byte = byte.wrapping_add(1);
        let large = rng.chance(15);
        let one = |rng: &mut Rng| {
            let len = if large { rng.between(30_000, 80_000) } else { rng.between(1, 9000) };
            (rng.below(AREA - len), vec![byte; len as usize])
        };
        (0..rng.between(1, 4)).map(|_| one(rng)).collect::<Vec<_>>()
    };
    let mut step = |rng: &mut Rng| match rng.below(10) {
        0 | 1 => Step::Checkpoint,
        2 => Step::Reopen,
        _ => Step::Commit(transaction(rng)),
    };
    let mut rng = Rng::new(seed);
    (0..14).map(|_| step(&mut rng)).collect()
}

/// Runs a script; says how many transactions were answered, and how many were begun.
fn run(device: &Arc<FaultDevice>, script: &[Step]) -> (usize, usize) {
    let (mut answered, mut begun) = (0, 0);
    let mut work = || -> Result<()> {
        let mut lane = RedoLane::open(parts(device), 5)?.0;
        for (i, step) in script.iter().enumerate() {
            match step {
                Step::Commit(writes) => {
                    begun += 1;
                    for (offset, bytes) in writes {
                        lane.append(OWNER, 1, *offset, bytes)?;
                    }
                    lane.commit(OWNER, 1)?;
                    answered += 1;
                }
                Step::Checkpoint => lane.checkpoint()?,
                Step::Reopen => lane = RedoLane::open(parts(device), 100 + i as u64)?.0,
            }
        }
        Ok(())
    };
    let _ = work();
    (answered, begun)
}

/// The area after each number of transactions.
fn states(script: &[Step]) -> Vec<Vec<u8>> {
    let mut now = area(&formatted());
    let mut all = vec![now.clone()];
    for step in script {
        let Step::Commit(writes) = step else { continue };
        let writes: Vec<(u64, &[u8])> = writes.iter().map(|(at, b)| (*at, &b[..])).collect();
        put(&mut now, &writes);
        all.push(now.clone());
    }
    all
}

fn judge(
    left: &Arc<FaultDevice>,
    states: &[Vec<u8>],
    (answered, begun): (usize, usize),
    why: &str,
) {
    replay(left).unwrap_or_else(|error| panic!("{why}: {error}"));
    let found = area(left);
    let fits = (answered..=begun).any(|n| states[n] == found);
    assert!(fits, "{why}: {answered} answered, {begun} begun, and the area is none of these");
    let slots = medium(left).read_slot().unwrap();
    assert_eq!(medium(left).end(&slots).unwrap().transactions, 0, "{why}: the lane is empty");
}

#[test]
fn a_power_cut_at_any_write_or_flush_leaves_whole_transactions() {
    for seed in 0..6 {
        let script = script(seed);
        let states = states(&script);
        let whole = formatted();
        let first = whole.ops();
        let (answered, _) = run(&whole, &script);
        assert_eq!(answered + 1, states.len(), "without a cut all are answered");
        for at in first..whole.ops() {
            let device = formatted();
            device.cut_at(at);
            let came = run(&device, &script);
            let cuts = [Cut::LoseAll, Cut::KeepAll, Cut::Random(at), Cut::Random(at + 1000)];
            for cut in cuts {
                let left = after(device.image(cut));
                judge(&left, &states, came, &format!("seed {seed}, cut at {at}, {cut:?}"));
            }
        }
    }
}

/// Every sector of a write that was not flushed may be the last one.
#[test]
fn every_prefix_of_a_torn_record_leaves_whole_transactions() {
    let bytes = vec![8u8; 20_000];
    let script = [
        Step::Commit(vec![(5000, vec![3; 6000])]),
        Step::Commit(vec![(1000, bytes.clone()), (300_000, bytes)]),
    ];
    let states = states(&script);
    let whole = formatted();
    let first = whole.ops();
    run(&whole, &script);
    for at in first..whole.ops() {
        let device = formatted();
        device.cut_at(at);
        let came = run(&device, &script);
        for sectors in 0..100 {
            let left = after(device.image_with(|_| Fate::Prefix(sectors)));
            judge(&left, &states, came, &format!("cut at {at}, {sectors} sectors"));
            let left = after(device.image_with(|_| Fate::Torn(sectors as u64)));
            judge(&left, &states, came, &format!("cut at {at}, torn {sectors}"));
        }
    }
}

/// A replay that is cut in turn is made again.
#[test]
fn a_power_cut_within_a_replay_changes_nothing() {
    let script: Vec<Step> =
        script(3).into_iter().filter(|step| matches!(step, Step::Commit(_))).take(5).collect();
    let states = states(&script);
    let device = formatted();
    let came = run(&device, &script);
    let image = device.durable();
    let whole = after(image.clone());
    replay(&whole).unwrap();
    for at in 0..whole.ops() {
        for cut in [Cut::LoseAll, Cut::KeepAll, Cut::Random(at)] {
            let again = after(image.clone());
            again.cut_at(at);
            assert!(replay(&again).is_err());
            let left = after(again.image(cut));
            judge(&left, &states, came, &format!("replay cut at {at}, {cut:?}"));
        }
    }
}

/// Two threads commit at once; the batch is torn in any way. What one of them was answered is
/// there, and each is whole.
#[test]
fn a_batch_that_is_torn_leaves_a_begin_of_it() {
    for at in 0..6u64 {
        for seed in 0..40 {
            let device = formatted();
            let lane = open(&device);
            device.cut_at(device.ops() + at);
            let answered: Vec<bool> = std::thread::scope(|scope| {
                let commit = |owner: u64| {
                    let lane = &lane;
                    scope.spawn(move || {
                        (0..3u64)
                            .take_while(|i| {
                                let place = owner * 100_000 + i * 20_000;
                                lane.append(owner, 0, place, &[owner as u8 + 1; 9000]).unwrap();
                                lane.commit(owner, 0).is_ok()
                            })
                            .count()
                    })
                };
                let counts = [commit(0), commit(1), commit(2)].map(|t| t.join().unwrap());
                counts.into_iter().flat_map(|n| (0..3).map(move |i| i < n)).collect()
            });
            let left = after(device.image(Cut::Random(seed)));
            replay(&left).unwrap();
            let (found, before) = (area(&left), area(&formatted()));
            for (i, answered) in answered.into_iter().enumerate() {
                let (owner, place) = (i / 3, i / 3 * 100_000 + i % 3 * 20_000);
                let whole = found[place..place + 9000] == [owner as u8 + 1; 9000];
                let nothing = found[place..place + 9000] == before[place..place + 9000];
                assert!(whole || nothing && !answered, "cut at {at}, seed {seed}, commit {i}");
            }
        }
    }
}

/// Bytes at rest that change, anywhere in the lane: an error, or whole transactions; never a panic.
#[test]
fn hostile_bytes_in_the_lane_leave_whole_transactions() {
    let script: Vec<Step> =
        script(4).into_iter().filter(|step| matches!(step, Step::Commit(_))).take(6).collect();
    let states = states(&script);
    let device = formatted();
    run(&device, &script);
    let image = device.durable();
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let left = after(image.clone());
        let used = 8192 + medium(&left).end(&medium(&left).read_slot().unwrap()).unwrap().pos;
        for _ in 0..rng.between(1, 4) {
            let len = [1, 8, 512][rng.below(3) as usize];
            left.scribble(AREA + rng.below(used - 512), len, seed);
        }
        if replay(&left).is_ok() {
            let found = area(&left);
            assert!(states.contains(&found), "seed {seed}");
        } else {
            assert_eq!(area(&left), states[0], "seed {seed}: nothing is written");
        }
    }
}
