//! The Service's state and its messages.

use crate::batch::Batch;
use crate::blocks::Io;
use crate::discards::Discards;
use crate::images::InodeTables;
use crate::mode::ReplayMode;
use crate::replay::Replay;
use crate::requests::Requests;
use siftfs_base::{BlockRun, Clock, Error, LaneId, Lsn, Result, TxnSeq};
use siftfs_device::{
    AlignedBuf, AreaWriter, JournalWriter, Origin, ServiceWriters, StagingReader, Storage,
};
use siftfs_log::Transaction;
use siftfs_log::{EpochKey, JournalData, LaneMedium, LogKey, ServiceRecord};
use siftfs_volume::{HEADER_SERVICE, HeaderView, ServiceSlots};
use siftfs_wire::{
    CheckpointReport, EXPECT_URGENT_MAX_MS, FromService, PROTOCOL_VERSION, ServiceStatistics,
    ToService, Urgency,
};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// What the Service may touch; each right exists once, and from here on a Service alone has it:
///
/// ```compile_fail,E0616
/// fn steal(parts: siftfs_service::ServiceParts) -> siftfs_device::AreaWriter {
///     parts.area
/// }
/// ```
pub struct ServiceParts {
    /// The file-system area.
    pub(crate) area: AreaWriter,
    /// The journal.
    pub(crate) journal: JournalWriter,
    /// All lanes, in the order of their ids.
    pub(crate) lanes: Vec<StagingReader>,
    /// What each lies on.
    pub(crate) mediums: Vec<LaneMedium>,
    /// The service record's slots.
    pub(crate) slots: ServiceSlots,
}

impl ServiceParts {
    /// Takes a Service's rights from the storage of the volume that `view` describes. The caller
    /// has the Service's role.
    ///
    /// # Errors
    /// Refused if one of them was taken before.
    pub fn take(storage: &Storage, view: &HeaderView) -> Result<Self> {
        let ServiceWriters { area, journal, record } = storage.take_service(HEADER_SERVICE)?;
        let lanes = u16::try_from(view.header.lanes.len()).expect("at most 16 lanes");
        Ok(Self {
            area,
            journal,
            mediums: view.header.lanes.iter().map(|lane| lane.medium).collect(),
            lanes: (0..lanes).map(|i| storage.staging_reader(LaneId(i))).collect::<Result<_>>()?,
            slots: ServiceSlots::new(record, view),
        })
    }
}

/// Settings of a Service.
#[derive(Clone)]
pub struct ServiceOptions {
    /// Volume identity; a `Hello` must name it.
    pub volume: [u8; 16],
    /// How to replay.
    pub mode: ReplayMode,
    /// What journal transactions hold of staged data: what the volume's header says.
    pub journal_data: JournalData,
    /// On whose behalf I/O is counted.
    pub origin: Origin,
    /// Most transactions in one background step.
    pub step_transactions: u64,
    /// Journal and staging bytes after which a step ends.
    pub step_bytes: u64,
    /// Most transactions in one emergency step: a foreground reservation waits for its credits.
    pub emergency_transactions: u64,
    /// Bytes of memory that a checkpoint may take; at least [`MIN_MEMORY`](crate::MIN_MEMORY), or
    /// it cannot be kept.
    pub memory: u64,
    /// Bytes of staged data read together; at most half of `memory`.
    pub window_bytes: u64,
    /// Where inode tables lie, so that updates of inodes are counted.
    pub inode_tables: InodeTables,
    /// Time source of the reports.
    pub clock: Arc<dyn Clock>,
}

impl ServiceOptions {
    /// Usual settings for the volume with this identity.
    pub fn new(volume: [u8; 16], clock: Arc<dyn Clock>) -> Self {
        Self {
            volume,
            mode: ReplayMode::default(),
            journal_data: JournalData::default(),
            origin: Origin::Background,
            step_transactions: 16,
            step_bytes: 8 << 20,
            emergency_transactions: 4,
            memory: 256 << 20,
            window_bytes: 64 << 20,
            inode_tables: InodeTables::default(),
            clock,
        }
    }
}

/// A journaled transaction that is not checkpointed yet.
#[derive(Debug)]
pub(crate) struct Journaled {
    pub seq: TxnSeq,
    pub pos: u64,
    pub len: u64,
    /// Where the transaction's data section begins in the record, and where its commit block.
    pub data: Range<u64>,
    /// Journal space the transaction took, wrap gap included.
    pub bytes: u64,
    /// Position of the transaction's first image.
    pub image_pos: u64,
    /// Physical ranges that it digests.
    pub digested: u32,
    /// What `auto` judges reuse by; empty in other modes.
    pub notes: Box<[u64]>,
}

impl Journaled {
    pub fn message(&self) -> FromService {
        FromService::Journaled { seq: self.seq, bytes: self.bytes, image_pos: self.image_pos }
    }
}

/// Keys of the present epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys {
    pub journal: LogKey,
    pub lanes: EpochKey,
}

/// What the newest journaled transaction said; the next one may not fall behind it.
#[derive(Clone, Debug)]
pub(crate) struct Newest {
    pub seq: TxnSeq,
    pub ops_cut: Lsn,
    pub staged_cut: Lsn,
    pub lane_upto: Vec<u64>,
}

impl Newest {
    pub fn of_record(r: &ServiceRecord) -> Self {
        Self {
            seq: TxnSeq(r.next_seq.0 - 1),
            ops_cut: r.ops_cut,
            staged_cut: r.staged_cut,
            lane_upto: r.lane_tails.clone(),
        }
    }
    pub fn of_txn(t: &Transaction) -> Self {
        Self {
            seq: t.seq,
            ops_cut: t.ops_cut,
            staged_cut: t.staged_cut,
            lane_upto: t.lane_upto.clone(),
        }
    }
}

/// The persistence service of one volume.
pub struct Service {
    pub(crate) parts: ServiceParts,
    pub(crate) options: ServiceOptions,
    pub(crate) keys: Option<Keys>,
    pub(crate) replay: Replay,
    /// The batch being built or replayed; in `ordered`, its buffers.
    pub(crate) batch: Option<Batch>,
    /// Durable tails and cuts.
    pub(crate) durable: ServiceRecord,
    pub(crate) newest: Newest,
    /// End of the newest journal record.
    pub(crate) head: u64,
    pub(crate) head_crc: u32,
    pub(crate) pending: VecDeque<Journaled>,
    pub(crate) requests: Requests,
    pub(crate) discards: Discards,
    pub(crate) out: VecDeque<FromService>,
    pub(crate) stats: ServiceStatistics,
    /// On whose behalf the I/O of the present work is counted.
    pub(crate) origin: Origin,
    pub(crate) buf: AlignedBuf,
    /// Runs written ahead of the next transaction, which must list exactly these.
    pub(crate) direct: Vec<BlockRun>,
    greeted: bool,
    latched: Option<Error>,
}

/// What a replay needs.
pub(crate) struct Replaying<'a> {
    /// Where it reads and writes.
    pub(crate) io: Io<'a>,
    /// The replay itself.
    pub(crate) replay: &'a mut Replay,
    /// What it measures its steps with.
    pub(crate) clock: &'a dyn Clock,
}

impl Service {
    /// A Service over a volume's regions. It journals once [`Service::begin_epoch`] was called;
    /// a journal that may not be empty is first replayed by [`Service::replay_committed`].
    ///
    /// # Errors
    /// Corrupt if the service record's tails do not fit the regions.
    pub fn open(parts: ServiceParts, options: ServiceOptions) -> Result<Self> {
        let durable = parts.slots.newest().clone();
        if durable.lane_tails.len() != parts.lanes.len() {
            return Err(siftfs_base::corrupt(
                "service record",
                format!("{} lanes, the volume has {}", durable.lane_tails.len(), parts.lanes.len()),
            ));
        }
        Ok(Self {
            newest: Newest::of_record(&durable),
            head: durable.journal_tail,
            head_crc: 0,
            durable,
            parts,
            origin: options.origin,
            options,
            keys: None,
            replay: Replay::default(),
            batch: None,
            pending: VecDeque::new(),
            requests: Requests::default(),
            discards: Discards::default(),
            out: VecDeque::new(),
            stats: ServiceStatistics::default(),
            buf: AlignedBuf::default(),
            direct: Vec::new(),
            greeted: false,
            latched: None,
        })
    }

    /// Starts journaling under a new key. The host record that names it is durable already, the
    /// journal is empty, and no staged record under an older lane key is left unless `lane_key`
    /// is that older key (recovery).
    ///
    /// # Panics
    /// If a journaled transaction is not checkpointed.
    pub fn begin_epoch(&mut self, journal_key: EpochKey, lane_key: EpochKey) {
        assert!(self.pending.is_empty(), "a new epoch begins with an empty journal");
        self.keys = Some(Keys { journal: journal_key.journal(), lanes: lane_key });
        self.head_crc = 0;
        self.greeted = false;
    }

    /// Takes one message. Its answers, if they are due at once, are in the queue afterwards.
    pub fn handle(&mut self, message: ToService) {
        // One that has stopped can still say what it did.
        if !matches!(message, ToService::Statistics) && self.report_latched() {
            return;
        }
        let done = match message {
            ToService::Hello { version, volume, epoch } => self.hello(version, volume, epoch.0),
            ToService::Direct { seq, runs, waited } => {
                self.count_as(waited);
                let done = self.write_direct(seq, &runs);
                self.count_as(false);
                done
            }
            ToService::Submit { txn, waited } => {
                self.count_as(waited);
                let done = self.submit(&txn);
                self.count_as(false);
                done
            }
            ToService::Checkpoint { id, upto, urgency } => {
                if urgency == Urgency::Emergency {
                    self.expect_urgent(0);
                }
                self.requests.add(id, upto, urgency);
                self.answer_finished();
                Ok(())
            }
            ToService::Discard { id, runs } => self.discard(id, runs),
            ToService::ExpectUrgent { ms } => {
                self.expect_urgent(ms);
                Ok(())
            }
            ToService::Statistics => {
                self.out.push_back(FromService::Statistics(Box::new(self.stats.clone())));
                Ok(())
            }
            ToService::Goodbye => {
                self.out.push_back(FromService::Bye);
                Ok(())
            }
            ToService::Objection { reason } => Err(Error::Refused(reason)),
            ToService::Inquire { .. } => {
                Err(Error::Refused("an inquiry where a Hello was due or had been".into()))
            }
            ToService::Storage { .. } | ToService::Queued { .. } => {
                Err(Error::Refused("a call on the storage on a host's connection".into()))
            }
        };
        self.latch(done);
    }

    /// Expects the host's small durable writes for `ms`, capped at [`EXPECT_URGENT_MAX_MS`].
    fn expect_urgent(&self, ms: u32) {
        let time = Duration::from_millis(ms.min(EXPECT_URGENT_MAX_MS).into());
        self.parts.lanes.iter().for_each(|lane| lane.expect_urgent(time));
    }

    /// The next answer.
    pub fn pop(&mut self) -> Option<FromService> {
        self.out.pop_front()
    }

    /// All answers in the queue.
    pub fn drain(&mut self) -> Vec<FromService> {
        self.out.drain(..).collect()
    }

    /// Adds to the statistics that wait to be sent what only the Service's process knows.
    pub fn annotate(&mut self, add: impl Fn(&mut ServiceStatistics)) {
        for message in &mut self.out {
            if let FromService::Statistics(statistics) = message {
                add(statistics);
            }
        }
    }

    /// Is there work for [`Service::step`]?
    pub fn has_work(&self) -> bool {
        self.latched.is_none() && !(self.requests.is_empty() && self.discards.is_empty())
    }

    /// Does one bounded piece of background work: some transactions replayed, made durable, their
    /// space returned as credits; or some freed blocks given back.
    pub fn step(&mut self) {
        if !self.has_work() {
            return;
        }
        if self.discards.is_next(self.requests.urgency()) {
            return self.discard_step();
        }
        let done = self.checkpoint_step();
        self.latch(done);
    }

    /// The error that stopped this Service, if one did.
    pub fn failure(&self) -> Option<&Error> {
        self.latched.as_ref()
    }

    /// Totals since the start.
    pub fn statistics(&self) -> &ServiceStatistics {
        &self.stats
    }

    /// The newest durable service record.
    pub fn durable(&self) -> &ServiceRecord {
        &self.durable
    }

    /// Journal bytes between tail and head, wrap gaps included.
    pub fn journal_used(&self) -> u64 {
        self.head - self.durable.journal_tail
    }

    /// Moves the lane tails to `tails` and makes that durable: recovery's last act, when
    /// everything staged is in the area. The journal is empty.
    ///
    /// # Errors
    /// Corrupt if a tail would move back; I/O errors are latched.
    pub fn advance_lanes(&mut self, tails: &[u64]) -> Result<()> {
        assert!(self.pending.is_empty(), "lanes are emptied after the journal");
        let old = &self.durable.lane_tails;
        if old.len() != tails.len() || old.iter().zip(tails).any(|(o, n)| n < o) {
            return Err(siftfs_base::corrupt("staging", "a lane's tail would move back"));
        }
        let record = ServiceRecord { lane_tails: tails.to_vec(), ..self.durable.clone() };
        let done = self.write_record(record);
        self.latch(done.clone());
        self.newest.lane_upto = tails.to_vec();
        done
    }

    /// Notes whether a foreground caller waits for what is done from here on: then the I/O is
    /// counted as that caller's.
    pub(crate) fn count_as(&mut self, waited: bool) {
        self.origin = match self.options.origin {
            Origin::Background if waited => Origin::Foreground,
            usual => usual,
        };
    }

    /// What a replay needs, borrowed apart from the rest.
    pub(crate) fn replaying<'a>(
        &'a mut self,
        report: &'a mut CheckpointReport,
    ) -> Result<Replaying<'a>> {
        let lane_key = self.greeted_keys()?.lanes;
        let io = Io {
            area: &self.parts.area,
            journal: &self.parts.journal,
            lanes: &self.parts.lanes,
            lane_key,
            origin: self.origin,
            report,
        };
        Ok(Replaying { io, replay: &mut self.replay, clock: &*self.options.clock })
    }

    /// Writes a service record, durable on return.
    pub(crate) fn write_record(&mut self, record: ServiceRecord) -> Result<()> {
        self.parts.slots.write(self.origin, &record)?;
        self.durable = self.parts.slots.newest().clone();
        Ok(())
    }

    fn hello(&mut self, version: u32, volume: [u8; 16], epoch: u64) -> Result<()> {
        if version != PROTOCOL_VERSION {
            return Err(Error::Incompatible(format!(
                "block protocol version {version}; this Service speaks {PROTOCOL_VERSION}"
            )));
        }
        if volume != self.options.volume {
            return Err(Error::Refused("the Runtime serves another volume".into()));
        }
        match self.keys {
            Some(keys) if keys.journal.epoch.0 == epoch => {}
            _ => return Err(Error::Refused(format!("epoch {epoch} is not the present one"))),
        }
        self.greeted = true;
        // What another Runtime sent ahead of a transaction it never submitted has no owner.
        self.direct.clear();
        self.out.push_back(FromService::Welcome {
            version: PROTOCOL_VERSION,
            journaled: self.newest.seq,
            checkpointed: TxnSeq(self.durable.next_seq.0 - 1),
        });
        self.report_durable();
        Ok(())
    }

    /// Keys, if a Runtime has introduced itself under the present epoch (rule R9).
    pub(crate) fn greeted_keys(&self) -> Result<Keys> {
        match self.keys {
            Some(keys) if self.greeted => Ok(keys),
            _ => Err(Error::Refused("a transaction before a Hello of this epoch".into())),
        }
    }

    /// Latches an error (rule R21) and tells the Runtime.
    pub(crate) fn latch(&mut self, done: Result<()>) {
        if let Err(error) = done {
            tracing::error!(%error, "the Service stops");
            self.out.push_back(FromService::Failed { error: error.clone() });
            self.latched = Some(error);
        }
    }

    fn report_latched(&mut self) -> bool {
        if let Some(error) = &self.latched {
            self.out.push_back(FromService::Failed { error: error.clone() });
            return true;
        }
        false
    }

    /// Refuses work after a failure.
    pub(crate) fn check_latched(&self) -> Result<()> {
        match &self.latched {
            Some(e) => Err(Error::Latched(e.to_string())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "service_tests.rs"]
mod tests;
