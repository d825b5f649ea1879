//! What the mount counts (`docs/design/status.md`), as far as it is reported here.

use serde::Serialize;
use siftfs_rig::place::{Failed, Result};
use siftfs_status::RuntimeStatus;
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
    pub fn of(status: &RuntimeStatus) -> Result<Self> {
        let (runtime, service) = (&status.runtime, &status.service);
        let lane = status.log.lanes.first();
        let lane = lane.ok_or_else(|| Failed("status has no lane".into()))?;
        let micros = |ns: u64| ns as f64 / 1e3;
        Ok(Self {
            staged_transactions: runtime.staged_transactions,
            staged_bytes: runtime.staged_bytes,
            transactions: service.journaled_transactions,
            journal_bytes: service.journaled_bytes,
            checkpoints_background: service.checkpoints_background,
            checkpoints_emergency: service.checkpoints_emergency,
            raw_blocks: service.checkpoint_total.raw_blocks,
            surviving_blocks: service.checkpoint_total.surviving_blocks,
            area_bytes: service.checkpoint_total.write_bytes,
            lane_head: lane.head,
            lane_bytes: lane.bytes,
            stalls: runtime.stalls.clone(),
            credit_waits: status.credit_wait.count,
            credit_wait_max_us: micros(status.credit_wait.max_ns),
            bulk_waits: status.bulk_wait.count,
            bulk_wait_max_us: micros(status.bulk_wait.max_ns),
            // A Service in this process gets none.
            messages: status.link.remote.as_ref().map_or(0, |link| link.messages),
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
