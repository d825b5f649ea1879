//! Taking over a volume whose host lives: the only way in for a Service in a process of its own.

use crate::service::{Journaled, Newest, Service, ServiceOptions, ServiceParts};
use siftfs_base::Result;
use siftfs_log::{EpochKey, LogKey};
use siftfs_volume::JournalScanner;
use siftfs_wire::FromService;

impl Service {
    /// A Service that goes on where the durable state says, in the epoch of `journal_key`, which
    /// the durable host record names: one after another Service that died, or the first of its
    /// epoch.
    ///
    /// Committed transactions of this epoch become pending again; what is not committed is dropped
    /// (rule R9): its host has had no answer and sends it again. A record that was found whole may
    /// still lie in a volatile cache, and so may the newest service record: both are durable when
    /// this returns, before any of them is reported. The caller is the one process that has the
    /// Service's role, from before `parts` were read.
    ///
    /// # Errors
    /// Corrupt if journal or service record fail their checks, or a committed transaction rotted
    /// (rule R14); errors of the storage. Nothing was written then, but perhaps the service record
    /// again as it was.
    pub fn resume(
        parts: ServiceParts,
        options: ServiceOptions,
        journal_key: EpochKey,
        lane_key: EpochKey,
    ) -> Result<Self> {
        let mut service = Self::open(parts, options)?;
        service.collect_pending(journal_key.journal())?;
        let pending = std::mem::take(&mut service.pending);
        let crc = service.head_crc;
        service.begin_epoch(journal_key, lane_key);
        (service.pending, service.head_crc) = (pending, crc);
        let record = service.durable.clone();
        service.write_record(record)?;
        Ok(service)
    }

    /// Finds the committed transactions behind the durable tail, and the head.
    fn collect_pending(&mut self, key: LogKey) -> Result<()> {
        let (tail, next) = (self.durable.journal_tail, self.durable.next_seq);
        let mut scanner =
            JournalScanner::new(&self.parts.journal, key, tail, next, self.options.origin)?;
        while let Some(record) = scanner.next_record()? {
            let header = record.descriptor.header;
            self.validate(&record.descriptor.txn, &self.newest)?;
            self.validate_form(&record.descriptor)?;
            self.newest = Newest::of_txn(&record.descriptor.txn);
            self.pending.push_back(Journaled {
                seq: header.seq,
                pos: header.params.pos,
                len: header.layout.len,
                data: header.layout.data_offset..header.commit_offset(),
                bytes: header.end() - self.head,
                image_pos: header.image_pos(),
                digested: record.descriptor.txn.digest.as_ref().map_or(0, |d| d.ranges),
                notes: self.notes_of(&record.descriptor.txn),
            });
            self.head = header.end();
        }
        self.head_crc = scanner.end().last_crc;
        Ok(())
    }

    /// Tells a Runtime what is durable, which it may know or not.
    pub(crate) fn report_durable(&mut self) {
        self.out.extend(self.pending.iter().map(Journaled::message));
        self.out.push_back(FromService::Reclaimed {
            seq: siftfs_base::TxnSeq(self.durable.next_seq.0 - 1),
            journal_tail: self.durable.journal_tail,
            lane_tails: self.durable.lane_tails.clone(),
        });
    }
}

#[cfg(test)]
#[path = "resume_tests.rs"]
mod tests;
