//! The back end by itself: what it took in of a program's writes, and how long its steps took.

use crate::Plan;
use crate::job::{Job, Op};
use crate::stage::{Stage, System};
use serde_json::{Value, json};
use siftfs_rig::place::Result;
use siftfs_status::{IngestSteps, PrivateLogs};

/// What the back end did during one job.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// Bytes that the program wrote, in a second.
    pub front: f64,
    /// Records, and bytes of them.
    pub records: f64,
    pub bytes: f64,
    /// Writes that became of them, and bytes of these.
    pub writes: f64,
    pub patched: f64,
    /// Questions to the index.
    pub asked: f64,
    /// Seconds of its steps, and of whole ingestions.
    pub seconds: IngestSteps,
}

/// Names of the steps, in their order.
pub const STEPS: [&str; 5] = ["fetch", "locate", "merge", "copy", "patch"];

impl Work {
    /// Bytes that were taken in for each second of an ingestion.
    pub fn back(&self) -> f64 {
        self.bytes / self.seconds.all
    }

    /// What part of the steps' time each took.
    pub fn shares(&self) -> [f64; 5] {
        let IngestSteps { fetch, locate, merge, copy, patch, .. } = self.seconds;
        let sum = fetch + locate + merge + copy + patch;
        [fetch, locate, merge, copy, patch].map(|step| step / sum)
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let shares: serde_json::Map<String, Value> = STEPS
            .iter()
            .zip(self.shares())
            .map(|(name, share)| ((*name).into(), share.into()))
            .collect();
        json!({
            "front_bytes_per_second": self.front,
            "back_bytes_per_second": self.back(),
            "records": self.records,
            "writes": self.writes,
            "bytes": self.bytes,
            "patched": self.patched,
            "asked": self.asked,
            "shares": shares,
        })
    }
}

/// One job of one program on a volume, and what its back end did until all was taken in.
pub fn work(stage: &Stage<'_>, plan: &Plan<'_>, (op, bytes): (Op, usize)) -> Result<Work> {
    stage.settle(System::Sift)?;
    let before = stage.logs()?;
    let time = u64::try_from(plan.time.as_millis()).unwrap_or(u64::MAX);
    let file = stage.file(System::Sift, 0);
    let job = Job { file, op, bytes, sync: false, raw: false, time };
    let done = stage.run(System::Sift, &job)?;
    Ok(difference(&before, &stage.logs()?, done.rate * bytes as f64))
}

fn difference(before: &PrivateLogs, after: &PrivateLogs, front: f64) -> Work {
    let of = |count: fn(&PrivateLogs) -> u64| (count(after) - count(before)) as f64;
    let took =
        |step: fn(&IngestSteps) -> f64| step(&after.ingest.seconds) - step(&before.ingest.seconds);
    Work {
        front,
        records: of(|logs| logs.records),
        bytes: of(|logs| logs.bytes),
        writes: of(|logs| logs.ingest.writes),
        patched: of(|logs| logs.ingest.patched),
        asked: of(|logs| logs.ingest.index_misses),
        seconds: IngestSteps {
            fetch: took(|s| s.fetch),
            locate: took(|s| s.locate),
            merge: took(|s| s.merge),
            copy: took(|s| s.copy),
            patch: took(|s| s.patch),
            all: took(|s| s.all),
        },
    }
}
