//! The Runtime's part of the status document, and what it holds of the Service.

use crate::runtime::Runtime;
use crate::staging::ways::WaysReport;
use crate::state::State;
use siftfs_base::Result;
use siftfs_status::{
    Cache, Credits, Crowd, DeviceInfo, Group, Lane, LogSpace, Pending, Queues, RuntimeStatus,
};

impl Runtime {
    /// What the volume lies on: the device of the area, and that of the log if it is another one.
    fn devices(&self) -> Vec<DeviceInfo> {
        let (area, log) = (&self.readers.area, &self.lanes[0]);
        let log = (!area.shares_device(log)).then(|| log.describe());
        std::iter::once(area.describe()).chain(log).collect()
    }

    /// All of it, of one moment but for what other threads count meanwhile.
    ///
    /// # Errors
    /// The Service cannot be asked, or has failed.
    pub(crate) fn status(&self) -> Result<RuntimeStatus> {
        let service = self.service_statistics()?;
        let (in_flight, waiting) = self.seq.depths();
        let buffers = self.record_buffers.bytes() + self.fill_buffers.bytes();
        let st = self.lock();
        Ok(RuntimeStatus {
            failed: self.check().err().map(|e| e.to_string()),
            lsn: st.staging.lsn,
            durable_lsn: self.seq.durable().0,
            transaction: st.ledger.txn_seq.0,
            reclaimed_transaction: st.ledger.reclaimed.0,
            unreclaimed_transactions: st.ledger.txns.len() as u64,
            runtime: st.stats.counts(),
            service,
            link: self.link_status(),
            storage: self.counters.snapshot(),
            fsync_latency: self.latency.fsync.distribution(),
            commit_latency: self.latency.commit.distribution(),
            assembly_lock_hold: self.latency.hold.distribution(),
            emergency_checkpoint_latency: self.latency.checkpoint.distribution(),
            credit_wait: self.latency.credit_wait.distribution(),
            bulk_wait: self.latency.bulk_wait.distribution(),
            devices: self.devices(),
            group: group(&self.seq.ways()),
            queues: Queues { records_in_flight: in_flight as u64, fsyncs_waiting: waiting as u64 },
            credits: st.credits(),
            log: st.log_space(),
            cache: st.cache(),
            memory: st.memory_report(buffers),
            pending: st.pending(),
        })
    }
}

impl State {
    fn credits(&self) -> Credits {
        Credits {
            journal_bytes: self.ledger.journal_len.saturating_sub(self.journal_used()),
            staging_bytes: self.staging.lanes.iter().map(|l| l.len - l.used()).sum(),
            quarantined_blocks: self.fs.quarantined_blocks().total(),
        }
    }

    fn log_space(&self) -> LogSpace {
        let lanes = self.staging.lanes.iter();
        LogSpace {
            journal_bytes: self.ledger.journal_len,
            journal_used: self.journal_used(),
            journal_data: self.ledger.journal_data.to_string(),
            lanes: lanes
                .map(|l| Lane { bytes: l.len, used: l.used(), head: l.head, tail: l.tail })
                .collect(),
        }
    }

    fn cache(&self) -> Cache {
        Cache {
            pages: self.pages.len() as u64,
            page_limit: self.pages.limit() as u64,
            metadata_blocks: self.meta.len() as u64,
            inodes: self.inodes.nodes.len() as u64,
            dirty_bytes: self.running.dirty_bytes,
        }
    }

    fn pending(&self) -> Pending {
        Pending {
            name_operations: self.names.len() as u64,
            metadata_blocks: self.meta.dirty_len() as u64,
            inodes: self.running.inode_dirty.len() as u64,
            reserved_blocks: self.running.reserved,
            orphans: self.inodes.orphans.len() as u64,
        }
    }
}

/// How fsyncs that come together are made durable.
fn group(ways: &WaysReport) -> Group {
    let crowds = ways.measured.iter().map(|m| Crowd {
        callers: m.callers.into(),
        way: m.way.into(),
        shared_ns: m.shared_ns,
        parallel_ns: m.parallel_ns,
    });
    Group {
        by: if ways.by_measurement { "measurement" } else { "option" }.into(),
        way: ways.way.into(),
        measured: crowds.collect(),
    }
}
