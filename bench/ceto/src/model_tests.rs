use super::*;

/// Nothing but network and storage takes time.
const FREE: Costs = Costs {
    decision: 0,
    call: 0,
    each_way: 7_000,
    message: 0,
    storage: 7_000,
    interval: 0,
    workers: 4,
};
const LINK: Link = Link { interval: 0, hosts: 1 };
const SPAN: u64 = 20_000_000;

fn write(file: usize, at: u64) -> Step {
    let range = at * BLOCK..at * BLOCK + BLOCK;
    let whose = Whose::Queue(file, Kind::Write, range);
    Step { whose, wire: BLOCK, stored: BLOCK, later: 0, counts: true }
}

/// The last of its steps counts.
fn actor(mut steps: Vec<Step>) -> Actor {
    let last = steps.len() - 1;
    steps.iter_mut().enumerate().for_each(|(at, step)| step.counts = at == last);
    Actor { steps, ..Actor::default() }
}

/// The same, and nothing of it counts.
fn uncounted(mut actor: Actor) -> Actor {
    actor.steps.iter_mut().for_each(|step| step.counts = false);
    actor
}

fn kilo(actors: &[Actor], costs: &Costs, link: Link) -> f64 {
    let files = (actors.len(), RequestOrder::Merging);
    rate(actors, files, (costs, link), (SPAN, 1)).unwrap() / 1000.0
}

#[track_caller]
fn about(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 0.06, "{found} instead of {expected}");
}

/// A round takes the sum of its steps, and threads with files of their own go beside each other.
#[test]
fn the_bounds_are_those_of_arithmetic() {
    for threads in [1, 2, 8] {
        let own = |file| actor(vec![write(file, 0)]);
        about(
            kilo(&(0..threads).map(own).collect::<Vec<_>>(), &FREE, LINK),
            threads as f64 / 0.021,
        );
        let twice = |file| actor(vec![write(file, 0), write(file, 1)]);
        about(
            kilo(&(0..threads).map(twice).collect::<Vec<_>>(), &FREE, LINK),
            threads as f64 / 0.042,
        );
    }
}

/// Of one file, writes of one block go one after the other at the target, others beside each other.
#[test]
fn a_shared_file_is_ordered_by_the_product() {
    let same: Vec<_> = (0..8).map(|_| actor(vec![write(0, 0)])).collect();
    about(kilo(&same, &FREE, LINK), 1.0 / 0.007);
    let apart: Vec<_> = (0..8).map(|at| actor(vec![write(0, at)])).collect();
    assert!(kilo(&apart, &FREE, LINK) > 1.8 * kilo(&same, &FREE, LINK));
}

/// Storage, network, and the threads of a host are bounds, and so is what is stored later.
#[test]
fn what_is_used_up_is_a_bound() {
    let all: Vec<_> = (0..20).map(|file| actor(vec![write(file, 0)])).collect();
    about(kilo(&all, &Costs { interval: 2_000, ..FREE }, LINK), 500.0);
    about(kilo(&all, &FREE, Link { interval: 4_000, ..LINK }), 250.0);
    let later = |file| actor(vec![Step { later: BLOCK, ..write(file, 0) }]);
    let later: Vec<_> = (0..20).map(later).collect();
    about(kilo(&later, &Costs { interval: 2_000, ..FREE }, LINK), 250.0);
    let host = |_| actor(vec![Step { whose: Whose::Host(5_000), ..write(0, 0) }]);
    about(kilo(&(0..20).map(host).collect::<Vec<_>>(), &FREE, LINK), 200.0);
}

/// One that is followed by a slower one is held back, and the slower one does not run ahead.
#[test]
fn followers_hold_back() {
    let first = Actor { followed: Some((1, 4)), ..actor(vec![write(0, 0)]) };
    let steps = vec![write(1, 0), write(1, 1), write(1, 2)];
    let second = uncounted(Actor { behind: Some(0), ..actor(steps) });
    about(kilo(&[first.clone(), second], &FREE, LINK), 1.0 / 0.063);
    let quick = Actor { behind: Some(0), ..actor(vec![write(1, 0)]) };
    let slow = uncounted(Actor { steps: vec![write(0, 0), write(0, 1)], ..first });
    about(kilo(&[slow, quick], &FREE, LINK), 1.0 / 0.042);
}
