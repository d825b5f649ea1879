//! What a round has, drawn from its seed alone.

use crate::scenes::Scene;
use siftfs_base::{Rng, mix};
use std::fmt;

/// How the kernel's requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    /// Over `/dev/fuse`.
    Device,
    /// By rings.
    Ring,
}

/// A round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The round's number.
    pub round: u64,
    /// What its scenes draw from.
    pub seed: u64,
    /// How requests come.
    pub requests: Loop,
    /// The kernel keeps written pages back.
    pub writeback: bool,
    /// The hostile scenes, without repetition.
    pub scenes: Vec<Scene>,
}

impl Plan {
    /// The plan of a round; its scenes are among `only`, if that is not empty.
    pub fn new(seed: u64, round: u64, only: &[Scene]) -> Self {
        let seed = mix(seed ^ mix(round));
        let mut rng = Rng::new(seed);
        let requests = if rng.chance(50) { Loop::Ring } else { Loop::Device };
        let writeback = rng.chance(50);
        let mut left: Vec<Scene> = if only.is_empty() { Scene::ALL.into() } else { only.into() };
        let count = 1 + rng.below(3);
        let mut scenes = Vec::new();
        for _ in 0..count {
            let Some(n) = (left.len() as u64).checked_sub(1) else { break };
            let at = usize::try_from(rng.below(n + 1)).expect("an index");
            scenes.push(left.swap_remove(at));
        }
        Self { round, seed, requests, writeback, scenes }
    }

    /// The mount's options.
    pub fn options(&self) -> String {
        let requests = match self.requests {
            Loop::Device => "device",
            Loop::Ring => "ring",
        };
        let cache = if self.writeback { "writeback" } else { "writethrough" };
        format!("requests={requests},write_cache={cache}")
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.scenes.iter().map(|s| s.name()).collect();
        write!(f, "round {}: {}; {}", self.round, self.options(), names.join(", "))
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
