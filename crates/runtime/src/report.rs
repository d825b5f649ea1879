//! The Runtime's part of the status document.

use crate::locks::allowance::{MOST, Usage};
use crate::runtime::Runtime;
use crate::staging::ways::WaysReport;
use crate::state::State;
use crate::state::report::allocation;
use siftfs_base::Result;
use siftfs_status::{
    Crowd, DeviceInfo, Group, LogSpace, Operations, Queues, RecordArea, RuntimeStatus,
};

/// What to do about a volume that has stopped.
const REMEDY: &str = "see to the storage that the volume lies on, then unmount, and mount again: that \
                      recovers everything that was acknowledged";

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

impl Runtime {
    /// What callers have begun, and the memory that they have for it.
    fn operations(
        &self,
        (tickets, (locks, lock_waits)): (u64, (u64, u64)),
        st: &State,
    ) -> Operations {
        let Usage { now, peak, refused } = self.allowance.usage();
        let sections = st.sections.status();
        let memory =
            Operations { bytes: now, bytes_peak: peak, bytes_most: MOST, refused, ..sections };
        let direct = &st.leases.direct;
        Operations {
            tickets,
            locks,
            lock_waits,
            direct_writers: direct.writers() as u64,
            direct_readers: direct.readers.count() as u64,
            direct_recalls: direct.recalls,
            ..memory
        }
    }

    /// What the volume lies on: the device of the area, and those of the log and the record area
    /// if they are others.
    fn devices(&self) -> Vec<DeviceInfo> {
        let (area, log) = (&self.readers.area, &self.lanes[0]);
        let log = (!area.shares_device(log)).then(|| log.describe());
        let bytes = self.record_area.map(|lane| self.lanes[lane].describe());
        std::iter::once(area.describe()).chain(log).chain(bytes).collect()
    }

    /// The log, and what its record area promises.
    fn log_space(&self, st: &State) -> LogSpace {
        let mut log = st.metadata.log.log_space();
        log.record_area = self.record_area.map(|lane| {
            let (device, ring) = (self.lanes[lane].describe(), &log.lanes[lane]);
            RecordArea {
                place: device.path,
                promise: device.durable_write,
                persistent: device.persistent == Some(true),
                bytes: ring.bytes,
                used: ring.used,
                persists: device.persists.unwrap_or_default(),
            }
        });
        log
    }

    /// All of it, of one moment but for what other threads count meanwhile. A volume that has
    /// stopped tells of itself too, and why; the Service's counters are then what it said last.
    ///
    /// # Errors
    /// The Service cannot be asked although the volume serves.
    pub(crate) fn status(&self) -> Result<RuntimeStatus> {
        let service = match self.service_statistics() {
            Ok(statistics) => statistics,
            Err(_) if self.check().is_err() => {
                self.lock().metadata.log.ledger.questions.last_statistics()
            }
            Err(error) => return Err(error),
        };
        let failure = self.seq.failure();
        let (in_flight, waiting) = self.seq.depths();
        let oldest = self.counters.waits().longest();
        let buffers =
            self.record_buffers.bytes() + self.fill_buffers.bytes() + self.unwritten.bytes();
        let tickets = self.sessions.open_tickets(self.seq.durable()) as u64;
        let locks = self.file_locks.count();
        let st = self.lock();
        Ok(RuntimeStatus {
            failed: failure.as_ref().map(|(error, _)| error.to_string()),
            failed_s: failure.as_ref().map(|(_, at)| at.sec as f64 + f64::from(at.nsec) / 1e9),
            remedy: failure.map(|_| REMEDY.into()),
            no_room: self.counters.room().report(),
            lsn: st.metadata.log.staging.last_drawn().0,
            durable_lsn: self.seq.durable().0,
            transaction: st.metadata.log.ledger.last_cut().0,
            reclaimed_transaction: st.metadata.log.ledger.last_reclaimed().0,
            unreclaimed_transactions: st.metadata.log.ledger.len() as u64,
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
            queues: Queues {
                records_in_flight: in_flight as u64,
                fsyncs_waiting: waiting as u64,
                oldest_call_ms: u64::try_from(oldest.as_millis()).unwrap_or(u64::MAX),
            },
            credits: st.metadata.credits(),
            allocation: allocation(&st.metadata.tree),
            discard: st.discards.report(),
            log: self.log_space(&st),
            cache: st.cache(),
            memory: st.memory_report(buffers),
            pending: st.metadata.pending(),
            operations: self.operations((tickets, locks), &st),
        })
    }
}
