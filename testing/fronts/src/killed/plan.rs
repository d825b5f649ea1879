//! All decisions of a round that do not belong to a writer, drawn from the seed.

use siftfs_base::{Rng, mix};
use siftfs_model::Profile;
use std::time::Duration;

/// Rounds on one volume.
pub const ERA: u64 = 12;

/// Calls that a round has, whatever the time.
pub const LEAST: u64 = 60;

/// How a round ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// By SIGKILL, while all work.
    Kill,
    /// By SIGKILL, so long after all were told to stop and the volume to be closed.
    KillInEnd(Duration),
    /// In order.
    InOrder,
}

/// A round.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its number in the run.
    pub round: u64,
    /// What its writers draw from.
    pub seed: u64,
    /// The mount by which is judged what the round before left.
    pub judge: usize,
    /// Recoveries that are killed after so long, before one succeeds.
    pub recoveries: Vec<Duration>,
    /// What the recovery left is closed in order and checked, before the round goes on.
    pub closed_first: bool,
    /// Calls after which it ends.
    pub calls: u64,
    /// It ends after this time, too, if the load goes on at all.
    pub time: Duration,
    /// The end.
    pub end: End,
    /// A file changes by sections.
    pub sections: bool,
    /// What the threads do that have a model of their own.
    pub profile: Profile,
    /// Their writes that promise durability, in percent.
    pub synchronous: u64,
}

fn draw<T: Copy>(rng: &mut Rng, items: &[T]) -> T {
    *rng.pick(items).expect("never an empty list")
}

fn short(rng: &mut Rng) -> Duration {
    let most = draw(rng, &[10, 40, 150]);
    Duration::from_millis(rng.below(most))
}

impl Plan {
    /// Round `round` of the run with `seed`.
    #[must_use]
    pub fn new(seed: u64, round: u64) -> Self {
        let seed = mix(mix(seed).wrapping_add(round));
        let mut rng = Rng::new(seed);
        let recoveries = (0..draw(&mut rng, &[0, 0, 1, 2])).map(|_| short(&mut rng)).collect();
        let most = draw(&mut rng, &[200, 800, 4000]);
        let profile = Profile {
            // These need the command, and a daemon that listens to it.
            background: 0,
            scripts: 0,
            publish: 0,
            sync: draw(&mut rng, &[2, 8, 30]),
            ..Profile::default()
        };
        Self {
            round,
            seed,
            judge: rng.below(2) as usize,
            recoveries,
            closed_first: rng.chance(35),
            calls: rng.between(LEAST, LEAST + most),
            time: Duration::from_millis(rng.between(100, 2500)),
            end: match rng.below(100) {
                0..78 => End::Kill,
                78..90 => End::KillInEnd(short(&mut rng)),
                _ => End::InOrder,
            },
            sections: rng.chance(60),
            profile,
            synchronous: draw(&mut rng, &[0, 10, 40]),
        }
    }
}
