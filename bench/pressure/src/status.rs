//! What the mount counts (`docs/design/status.md`), as far as it is reported here.

use serde::Serialize;
use serde_json::Value;
use siftfs_rig::place::{Failed, Result};
use std::collections::BTreeMap;

/// Counts since the mount.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counts {
    /// Staged records and their bytes.
    pub staged_transactions: u64,
    pub staged_bytes: u64,
    /// Journaled by the Service.
    pub transactions: u64,
    pub journal_bytes: u64,
    pub checkpoints_background: u64,
    pub checkpoints_emergency: u64,
    /// Blocks that transactions named, and those that checkpoints replayed.
    pub raw_blocks: u64,
    pub surviving_blocks: u64,
    /// Bytes that checkpoints wrote into the area.
    pub area_bytes: u64,
    /// Head and length of the lane, in bytes.
    pub lane_head: u64,
    pub lane_bytes: u64,
    /// Waits by reason.
    pub stalls: BTreeMap<String, u64>,
    /// Longest waits for credits in microseconds, and how many: of small fsyncs, and of bulk.
    pub credit_waits: u64,
    pub credit_wait_max_us: f64,
    pub bulk_waits: u64,
    pub bulk_wait_max_us: f64,
    /// Messages sent to the device process.
    pub messages: u64,
}

impl Counts {
    /// From the part `runtime` of a status.
    pub fn of(runtime: &Value) -> Result<Self> {
        let at = |path: &str| {
            let n = runtime.pointer(path).and_then(Value::as_u64);
            n.ok_or_else(|| Failed(format!("status has no number at /runtime{path}")))
        };
        let micros = |path: &str| at(path).map(|ns| ns as f64 / 1e3);
        let stalls = runtime["runtime"]["stalls"].as_object().into_iter().flatten();
        Ok(Self {
            staged_transactions: at("/runtime/staged_transactions")?,
            staged_bytes: at("/runtime/staged_bytes")?,
            transactions: at("/service/journaled_transactions")?,
            journal_bytes: at("/service/journaled_bytes")?,
            checkpoints_background: at("/service/checkpoints_background")?,
            checkpoints_emergency: at("/service/checkpoints_emergency")?,
            raw_blocks: at("/service/checkpoint_total/raw_blocks")?,
            surviving_blocks: at("/service/checkpoint_total/surviving_blocks")?,
            area_bytes: at("/service/checkpoint_total/write_bytes")?,
            lane_head: at("/log/lanes/0/head")?,
            lane_bytes: at("/log/lanes/0/bytes")?,
            stalls: stalls.filter_map(|(k, v)| Some((k.clone(), v.as_u64()?))).collect(),
            credit_waits: at("/credit_wait/count")?,
            credit_wait_max_us: micros("/credit_wait/max_ns")?,
            bulk_waits: at("/bulk_wait/count")?,
            bulk_wait_max_us: micros("/bulk_wait/max_ns")?,
            // A Service in this process gets none.
            messages: at("/link/messages").unwrap_or(0),
        })
    }

    /// What came since `before`; longest waits stay those since the mount.
    pub fn since(&self, before: &Self) -> Self {
        let stalls = self
            .stalls
            .iter()
            .map(|(why, n)| (why.clone(), n - before.stalls.get(why).copied().unwrap_or(0)));
        Self {
            staged_transactions: self.staged_transactions - before.staged_transactions,
            staged_bytes: self.staged_bytes - before.staged_bytes,
            transactions: self.transactions - before.transactions,
            journal_bytes: self.journal_bytes - before.journal_bytes,
            checkpoints_background: self.checkpoints_background - before.checkpoints_background,
            checkpoints_emergency: self.checkpoints_emergency - before.checkpoints_emergency,
            raw_blocks: self.raw_blocks - before.raw_blocks,
            surviving_blocks: self.surviving_blocks - before.surviving_blocks,
            area_bytes: self.area_bytes - before.area_bytes,
            lane_head: self.lane_head - before.lane_head,
            lane_bytes: self.lane_bytes,
            stalls: stalls.filter(|(_, n)| *n > 0).collect(),
            credit_waits: self.credit_waits - before.credit_waits,
            bulk_waits: self.bulk_waits - before.bulk_waits,
            messages: self.messages - before.messages,
            ..*self
        }
    }

    /// How often the lane's ring was written over.
    pub fn laps(&self) -> f64 {
        self.lane_head as f64 / self.lane_bytes.max(1) as f64
    }
}
