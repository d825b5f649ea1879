//! Hostile programs at a target, beside an honest one and a canary: requests forged in every field,
//! and in memory that is shared while they are carried out, tokens and places of others, grants
//! that end meanwhile, deaths in transactions. They get no byte of anybody else's, change none, and
//! stop nobody. Ten seconds, an hour with `SIFTFS_LONG`; `SIFTFS_SEED` names the seed,
//! `SIFTFS_SECONDS` another length.

#[path = "at_target/machine.rs"]
mod machine;
#[path = "intruder/program.rs"]
mod program;
#[path = "intruder/world.rs"]
mod world;

use program::Intruder;
use siftfs_base::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use world::{Honest, World, shared_memories};

/// How many calls of the hostile may be answered while one call of the honest waits. In a quiet run
/// it is less than a hundred.
const BOUND: u64 = 2_000;
const INTRUDERS: u64 = 3;

fn length() -> Duration {
    let long = std::env::var_os("SIFTFS_LONG").is_some();
    let seconds = std::env::var("SIFTFS_SECONDS").ok().map(|text| text.parse().unwrap());
    Duration::from_secs(seconds.unwrap_or(if long { 3600 } else { 10 }))
}

#[test]
fn hostile_programs_get_nothing_and_stop_nobody() {
    let seed = std::env::var("SIFTFS_SEED").map_or(1, |text| text.parse().unwrap());
    let world = Arc::new(World::new());
    let mut honest = Honest::new(&world, Rng::new(seed));
    // Every memory that is shared from here on is a hostile program's.
    let ours = shared_memories();
    let is_over = Arc::new(AtomicBool::new(false));
    let start = |number: u64| {
        let (world, is_over, ours) = (world.clone(), is_over.clone(), ours.clone());
        thread::spawn(move || {
            let rng = Rng::new(seed * 1000 + number);
            let mut intruder = Intruder::new(&world, &format!("own{number}"), rng, ours);
            while !is_over.load(Ordering::SeqCst) {
                intruder.attack();
            }
            intruder.tried()
        })
    };
    let intruders: Vec<_> = (0..INTRUDERS).map(start).collect();
    let (begun, mut calls, mut most) = (Instant::now(), 0, 0);
    while begun.elapsed() < length() && !intruders.iter().any(|thread| thread.is_finished()) {
        let before = world.answered();
        honest.call();
        most = most.max(world.answered() - before);
        calls += 1;
        if calls % 50 == 0 {
            honest.work_by_the_host();
            world.judge_canary();
        }
    }
    is_over.store(true, Ordering::SeqCst);
    let tried = intruders.into_iter().map(|thread| thread.join().unwrap());
    let tried: Vec<_> = tried.collect();
    println!("{calls} honest calls, {most} hostile ones beside one at most; {tried:?}");
    assert!(most < BOUND, "an honest call waited for {most} hostile ones");
    assert!(calls > 100, "{calls} honest calls");
    for tried in &tried {
        assert!(tried.done > 20 && tried.refused > 20 && tried.connections > 5, "{tried:?}");
    }
    honest.end();
    let refused: u64 = tried.iter().map(|tried| tried.refusals).sum();
    let counted = world.refusals();
    assert!(counted >= refused, "{refused} were refused, {counted} counted");
    Arc::into_inner(world).unwrap().end();
}
