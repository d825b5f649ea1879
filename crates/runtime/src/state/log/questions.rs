//! What the Service was asked, and what it has answered.

use siftfs_wire::{CheckpointReport, ServiceStatistics, Urgency};
use std::collections::BTreeMap;

/// Checkpoints and statistics that the Service was asked for. Of the checkpoints that callers share
/// at most one of each urgency is open; others are waited for by their number.
#[derive(Default)]
pub struct Questions {
    /// Checkpoint answers that have arrived, by request id.
    reports: BTreeMap<u64, CheckpointReport>,
    /// Statistics answers that have arrived.
    statistics: Option<ServiceStatistics>,
    /// The newest statistics that have ever arrived.
    last_statistics: ServiceStatistics,
    /// A background checkpoint has been asked for and not answered.
    background: bool,
    /// An emergency checkpoint has been asked for, for credits, and not answered: its number.
    for_credits: Option<u64>,
}

impl Questions {
    /// Is a checkpoint of this urgency open that callers share?
    pub fn is_open(&self, urgency: Urgency) -> bool {
        match urgency {
            Urgency::Background => self.background,
            Urgency::Emergency => self.for_credits.is_some(),
        }
    }

    /// A background checkpoint is asked for.
    pub fn ask_background(&mut self) {
        self.background = true;
    }

    /// An emergency checkpoint is asked for, for credits: its number is `id`.
    pub fn ask_for_credits(&mut self, id: u64) {
        self.for_credits = Some(id);
    }

    /// The Service has made the checkpoint. Its report is kept if a caller waits for this number.
    pub fn checkpointed(&mut self, id: u64, urgency: Urgency, report: CheckpointReport) {
        if urgency == Urgency::Background {
            self.background = false;
        } else if self.for_credits == Some(id) {
            self.for_credits = None;
        } else {
            self.reports.insert(id, report);
        }
    }

    /// The report of the checkpoint with this number, once it has come.
    pub fn take_report(&mut self, id: u64) -> Option<CheckpointReport> {
        self.reports.remove(&id)
    }

    /// The Service has sent its statistics.
    pub fn counted(&mut self, statistics: ServiceStatistics) {
        self.last_statistics = statistics.clone();
        self.statistics = Some(statistics);
    }

    /// What the Service sent last, for when it does not answer any more.
    pub fn last_statistics(&self) -> ServiceStatistics {
        self.last_statistics.clone()
    }

    /// The Service's statistics, once they have come.
    pub fn take_statistics(&mut self) -> Option<ServiceStatistics> {
        self.statistics.take()
    }
}

#[cfg(test)]
#[path = "questions_tests.rs"]
mod tests;
