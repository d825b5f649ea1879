//! Many seeds on all cores.

use crate::config::Config;
use crate::guard::guarded;
use crate::record::Source;
use siftfs_model::{Op, shrink};
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A seed that failed.
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// What happened.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {} (SIFTFS_SEED={}):\n{}", self.seed, self.seed, self.message)
    }
}

/// Runs `one` for every seed of `config` on all cores until one fails; a panic is a failure.
/// Returns what the runs returned, in no order.
pub fn campaign<T: Send>(
    config: &Config,
    one: impl Fn(u64) -> Result<T, String> + Sync,
) -> Result<Vec<T>, Failure> {
    crate::heap::keep();
    let next = AtomicU64::new(config.first);
    let end = config.first + config.seeds;
    let stop = AtomicBool::new(false);
    let results = Mutex::new((Vec::new(), None));
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return;
            }
            let result = guarded(|| one(seed));
            let mut results = results.lock().unwrap_or_else(|e| e.into_inner());
            match result {
                Ok(done) => results.0.push(done),
                Err(message) => {
                    stop.store(true, Ordering::Relaxed);
                    results.1.get_or_insert(Failure { seed, message });
                }
            }
        }
    };
    let cores = std::thread::available_parallelism().map_or(2, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..cores.min(usize::try_from(config.seeds).unwrap_or(cores)) {
            scope.spawn(work);
        }
    });
    let (done, failed) = results.into_inner().unwrap_or_else(|e| e.into_inner());
    failed.map_or(Ok(done), Err)
}

/// If asked for, makes the sequence of a failing seed shorter: `ops` is the whole sequence,
/// `one` runs one. Returns the message of the shortest that fails.
pub fn shortest(ops: Vec<Op>, one: impl Fn(&Source) -> Result<(), String>) -> String {
    let run = |ops: &[Op]| guarded(|| one(&Source::Ops(ops.to_vec())));
    let Err(first) = run(&ops) else { return "did not fail again".into() };
    let short = shrink(ops, |ops| run(ops).is_err());
    let text: String = short.iter().map(|op| format!("  {op:?}\n")).collect();
    let message = run(&short).err().unwrap_or(first);
    format!("shortest sequence:\n{text}{message}")
}
