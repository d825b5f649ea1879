//! Opening and closing a volume: header, marker, epochs, and recovery in the order of rule R18.

use crate::device::replay::Replay;
use crate::link::driver::{Driver, Sink};
use crate::link::remote::{Identity, Remote};
use crate::mount::plane::plane;
use crate::mount::term::outlast_others;
use crate::options::{OpenOptions, Progress, RecoverReport, ServicePlace, Threads};
use crate::volume::files::nonce;
use crate::volume::marker::{self, SuperBytes};
use siftfs_base::{Clock, Epoch, LaneId, Lsn, Result, Timestamp, TxnSeq};
use siftfs_device::{AreaReader, Discards, Origin, Role, Storage};
use siftfs_device_target::Target;
use siftfs_log::{AreaLink, EpochKey, HostRecord, HostState, LaneMedium, OPEN_END};
use siftfs_proto::Recovered;
use siftfs_runtime::{
    Config, DiscardConfig, FoundRecord, Parts, Readers, RecoveryCut, Runtime, end_calls, recovered,
};
use siftfs_service::{Service, ServiceParts, replay_redo};
use siftfs_volume::{
    AreaSuper, HEADER_HOST, HeaderView, HostSlots, LaneScanner, Media, ScanData, check_lane_ends,
};
use siftfs_wire::{PROTOCOL_VERSION, ToService};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long to wait for the role of a Service that was not greeted after all.
const TAKE_BACK: Duration = Duration::from_secs(10);

/// A volume whose header has been read and found consistent.
pub struct Volume {
    pub(crate) media: Media,
    pub(crate) view: HeaderView,
    /// What its recovery found of clients' calls.
    pub(crate) recovered: Option<Arc<Recovered>>,
    /// The target that has the devices, if this process has no other way to them.
    pub(crate) target: Option<Arc<Target>>,
    /// Transactions of the redo lane that were replayed.
    pub(crate) redo: u64,
    /// When the first block had been read.
    read_at: Instant,
}

/// A Runtime with its Service behind it.
pub struct Pair {
    /// The Runtime.
    pub runtime: Arc<Runtime>,
    /// Moves the messages between the two.
    pub driver: Arc<Driver>,
    /// The host's header records.
    pub host: Arc<Mutex<HostSlots>>,
    /// The key of the host's epoch.
    pub key: EpochKey,
    /// Reads the superblock when the volume is closed.
    area: AreaReader,
}

impl Volume {
    /// Reads the header and repairs a bad copy from the good one.
    ///
    /// A process that died may have left in a volatile cache what can be read all the same.
    /// Whatever is built on that comes after it, so it is made durable first (rule R18): else a
    /// power cut could take a transaction away again that recovery has replayed in part. What the
    /// redo lane has is brought home before anything else of the area is used (rule R33).
    pub fn read(media: Media, may_write: bool) -> Result<Self> {
        let mut volume = Self::read_header(media, may_write)?;
        if may_write {
            volume.redo = replay_redo(&volume.media, &volume.view)?;
        }
        if volume.redo > 0 {
            tracing::info!(transactions = volume.redo, "the redo lane was replayed");
        }
        Ok(volume)
    }

    /// As [`Volume::read`], without the redo lane, which is to be dealt with before the volume is
    /// written.
    pub fn read_header(media: Media, may_write: bool) -> Result<Self> {
        let media = media.paired(may_write)?;
        if may_write {
            media.flush()?;
        }
        let view = if may_write { media.read_to_write()? } else { media.read()? };
        if view.needs_repair() && may_write {
            tracing::warn!(copies = ?view.copies, "one header copy was bad; rewritten from the other");
            media.repair(&view)?;
        }
        Ok(Self { media, view, recovered: None, target: None, redo: 0, read_at: Instant::now() })
    }

    /// The same, with the target that has its devices.
    pub fn at(self, target: Option<Arc<Target>>) -> Self {
        Self { target, ..self }
    }

    /// Is the log empty and the area plain ext4?
    pub fn is_clean(&self) -> bool {
        self.view.host.state == HostState::Clean
            && self.view.area.as_ref().is_some_and(|a| a.checksum_ok && !a.marker)
    }

    /// The header as read.
    pub fn view(&self) -> &HeaderView {
        &self.view
    }

    /// The volume's regions.
    pub fn storage(&self) -> Result<Storage> {
        self.media.storage(&self.view)
    }

    /// Brings the volume to the clean state, whatever it was in.
    pub fn recover(
        &mut self,
        clock: &Arc<dyn Clock>,
        opts: &OpenOptions,
        progress: Progress<'_>,
    ) -> Result<RecoverReport> {
        let redo_transactions = self.redo;
        let mut report = RecoverReport { redo_transactions, ..RecoverReport::default() };
        if self.is_clean() {
            self.check_clean()?;
            report.clean = true;
            return Ok(report);
        }
        let mut left = None;
        match self.mend_superblock()? {
            Found::Empty => {}
            Found::NeverMounted => self.cancel_mount()?,
            Found::InUse => {
                self.replay(clock, opts, progress, &mut report)?;
                left = self.take_in_logs(clock, opts, progress, &mut report.private_logs)?;
            }
        }
        // The header says clean; what is left of the marker goes, backups first.
        let storage = self.storage()?;
        self.view = self.media.read()?;
        marker::clear(&storage.take_superblocks()?, &self.view.host.superblock)?;
        self.view = self.media.read()?;
        if let Some(left) = left {
            left.remove();
        }
        Ok(report)
    }

    /// Rule R18: committed transactions, then the remaining staged ones, then orphans. The log is
    /// empty afterwards, and the header says clean, or, with a registry, that the next epoch began.
    fn replay(
        &mut self,
        clock: &Arc<dyn Clock>,
        opts: &OpenOptions,
        progress: Progress<'_>,
        report: &mut RecoverReport,
    ) -> Result<()> {
        let storage = Arc::new(self.storage()?);
        let old = self.view.host.clone();
        let epoch = Epoch(old.key.epoch.0 + 1);
        let mut service = self.service(&storage, clock, opts, Origin::Admin)?;
        progress("replaying the journal", 0, 1);
        let replayed = service.replay_committed(old.journal_key, old.lane_key)?;
        report.replayed_transactions = replayed.transactions;
        report.journal_read_bytes = replayed.journal.bytes;
        progress("replaying the journal", 1, 1);

        let (ends, found) = self.scan(&storage, &old, &service, progress, report)?;
        // What a recovery had replayed in part cannot be told from what was not there; nor can what
        // an unmount had forgotten.
        let known = old.state == HostState::Mounted;
        let there = known.then(|| recovered(old.key.epoch, replayed.ops_cut, &found));
        let key = EpochKey { epoch, nonce: nonce()? };
        self.note_epoch(opts, old.key, key, there.as_ref())?;
        self.recovered = there.map(Arc::new);
        let mut host = HostSlots::new(storage.take_header(HEADER_HOST)?, &self.view);
        let recovering = HostRecord {
            state: HostState::Recovering,
            key,
            journal_key: key,
            lane_ends: ends.clone(),
            ..old.clone()
        };
        host.write(Origin::Admin, &recovering)?;
        service.begin_epoch(key, old.lane_key);

        let heads = ends.clone();
        let floor = Lsn(old.lsn_floor.0.max(replayed.ops_cut.0).max(replayed.staged_cut.0));
        let mut config = config_of(opts, key);
        config.read_only = false;
        let behind = Behind::Here(Box::new(service), Threads::None);
        let pair = self.pair(&storage, behind, host, config, clock, heads, floor)?;
        let base = RecoveryCut {
            ops_cut: replayed.ops_cut,
            staged_cut: replayed.staged_cut,
            lane_upto: pair.driver.with_inline(|s| s.durable().lane_tails.clone()),
        };
        pair.runtime.begin_recovery(base);
        let total = found.len() as u64;
        for (done, record) in (1..).zip(found) {
            report.staged_applied += u64::from(pair.runtime.apply(record)?);
            progress("applying staged transactions", done, total);
        }
        report.orphans = pair.runtime.finish_recovery(floor)?;
        pair.driver.with_inline(|s| s.advance_lanes(&ends))?;
        // Before the header says clean: a process that opens a clean volume waits for nobody.
        outlast_others(&*self.media.area, self.read_at);
        match old.registry {
            Some(_) => self.begin_next(pair, opts),
            None => close_pair(pair, clock.now()),
        }
    }

    /// The lanes' valid records in LSN order, and where each lane ends: recorded by an earlier
    /// recovery, or found now. Each staged byte is read once; heads and items are kept (a small
    /// part of the lanes), data is not.
    fn scan(
        &self,
        storage: &Storage,
        old: &HostRecord,
        service: &Service,
        progress: Progress<'_>,
        report: &mut RecoverReport,
    ) -> Result<(Vec<u64>, Vec<FoundRecord>)> {
        let mut ends = Vec::new();
        let mut found = Vec::new();
        for (id, tail) in self.lane_ids().zip(&service.durable().lane_tails) {
            let medium = self.view.header.medium_of(id);
            let recorded = old.lane_ends.get(usize::from(id.0)).copied().unwrap_or(OPEN_END);
            let region = storage.staging_reader(id)?;
            let key = old.lane_key.lane(id);
            let mut scanner = LaneScanner::new(
                &region,
                (id, medium),
                key,
                *tail,
                recorded,
                ScanData::Verify,
                Origin::Admin,
            )?;
            while let Some(record) = scanner.next_record()? {
                let end = record.head.header.end();
                progress("reading staged transactions", end - tail, region.len());
                found.push(FoundRecord::from(record.head));
            }
            report.staging_read_bytes += scanner.counts().bytes;
            ends.push(scanner.end());
        }
        check_lane_ends(&ends)?;
        found.sort_by_key(|f| f.record.lsn);
        let durable = ends.iter().map(|e| e.durable_lsn).max().unwrap_or_default();
        cut_at_gap(&mut found, service.durable().staged_cut, durable)?;
        report.staged_found = found.len() as u64;
        Ok((ends.iter().map(|e| e.pos).collect(), found))
    }

    pub(crate) fn service(
        &self,
        storage: &Storage,
        clock: &Arc<dyn Clock>,
        opts: &OpenOptions,
        origin: Origin,
    ) -> Result<Service> {
        let mut options = opts.replay.options(storage, &self.view, clock)?;
        options.origin = origin;
        Service::open(ServiceParts::take(storage, &self.view)?, options)
    }

    /// No Service could be greeted: nothing was appended, and the volume becomes plain ext4 again.
    pub(crate) fn take_back(&mut self, clock: &Arc<dyn Clock>, opts: &OpenOptions) -> Result<()> {
        self.media.claim(Role::Service, TAKE_BACK)?;
        self.view = self.media.read()?;
        self.recover(clock, opts, &mut |_, _, _| {}).map(drop)
    }

    pub(crate) fn lane_ids(&self) -> impl Iterator<Item = LaneId> + use<> {
        let count = u16::try_from(self.view.header.lanes.len()).expect("at most 16 lanes");
        (0..count).map(LaneId)
    }

    #[allow(clippy::too_many_arguments)] // what a pair is made of, each part from another step
    pub(crate) fn pair(
        &self,
        storage: &Storage,
        behind: Behind<'_>,
        host: HostSlots,
        config: Config,
        clock: &Arc<dyn Clock>,
        lane_heads: Vec<u64>,
        lsn_floor: Lsn,
    ) -> Result<Pair> {
        let readers = Readers {
            area: storage.area_reader()?,
            journal: storage.journal_reader()?,
            lanes: self.lane_ids().map(|i| storage.staging_reader(i)).collect::<Result<_>>()?,
        };
        let next_seq = match &behind {
            Behind::Here(service, _) => service.durable().next_seq,
            Behind::There(..) => self.view.service.next_seq,
        };
        let txn_seq = TxnSeq(next_seq.0 - 1);
        let (key, volume) = (config.key, self.view.header.volume);
        let epoch = key.epoch;
        let driver = Arc::new(match behind {
            Behind::Here(service, Threads::None) => Driver::inline(*service),
            Behind::Here(service, Threads::Real) => Driver::threaded(*service)?,
            Behind::There(there, replay) => {
                let sink = Arc::new(Sink::default());
                let who = Identity { volume, epoch, txn_seq };
                let (connector, media) = (there.connector.clone(), self.media.clone());
                let remote =
                    Remote::new(sink.clone(), who, connector, there.fallback, media, replay);
                Driver::remote(sink, Arc::new(remote))
            }
        });
        let runtime = Arc::new(Runtime::open(Parts {
            config,
            clock: clock.clone(),
            readers,
            lanes: self.lane_ids().map(|i| storage.take_staging(i)).collect::<Result<_>>()?,
            mediums: self.lane_ids().map(|i| self.view.header.medium_of(i)).collect(),
            lane_heads,
            journal_len: self.view.header.journal_len,
            journal_data: self.view.header.journal_data(),
            link: driver.clone(),
            direct: self.target.clone().map(plane),
            txn_seq,
            lsn_floor,
            counters: storage.counters().clone(),
        })?);
        driver.attach(&runtime);
        let waiter = Arc::downgrade(&runtime);
        storage.counters().room().on_change(move || {
            if let Some(runtime) = waiter.upgrade() {
                runtime.look_again();
            }
        });
        driver.greet(ToService::Hello { version: PROTOCOL_VERSION, volume, epoch })?;
        let host = Arc::new(Mutex::new(host));
        Ok(Pair { runtime, driver, host, key, area: storage.area_reader()? })
    }

    /// Says that the volume is in use, in the header first and then in the superblocks, and returns
    /// the primary one.
    pub(crate) fn note_mounted(
        &self,
        storage: &Storage,
        host: &mut HostSlots,
        key: EpochKey,
        now: Timestamp,
    ) -> Result<SuperBytes> {
        let old = self.forget_older_log();
        let area = storage.take_superblocks()?;
        let link = AreaLink { volume: self.view.header.volume, epoch: key.epoch };
        let link = self.view.header.external_log().then_some(link);
        let superblock = marker::marked_super(&area, now, link)?;
        host.write(
            Origin::Admin,
            &HostRecord {
                state: HostState::Mounted,
                key,
                lane_key: key,
                journal_key: key,
                lane_ends: vec![OPEN_END; old.lane_ends.len()],
                area_crc: self.view.area.map_or(0, |a| a.crc),
                superblock: Box::new(superblock),
                ..old
            },
        )?;
        if let Some(area) = self.media.record_area(&self.view)? {
            area.begin_epoch(key.epoch)?;
        }
        self.begin_spare(key.epoch)?;
        marker::set(&area, &superblock)?;
        if let Some(pair) = &self.media.pair {
            pair.arm()?;
        }
        Ok(superblock)
    }

    /// Says in the spare log, if there is one, that its batches are of `epoch` from now on; durable
    /// when it returns.
    pub(crate) fn begin_spare(&self, epoch: Epoch) -> Result<()> {
        self.media.pair.as_ref().map_or(Ok(()), |pair| pair.begin_epoch(epoch, nonce()?))
    }

    /// Opens a clean volume for use: the header first, then the marker, then the first append. So a
    /// marked area always has a log of the same epoch (rules R15, R16).
    pub fn open_clean(
        &self,
        clock: &Arc<dyn Clock>,
        opts: &OpenOptions,
        threads: Threads,
    ) -> Result<Pair> {
        assert!(self.is_clean(), "recovery comes first");
        if let Some(pair) = &self.media.pair {
            pair.set_bound(opts.log_stall);
        }
        let storage = self.storage()?;
        let old = self.forget_older_log();
        let epoch = Epoch(old.key.epoch.0 + 1);
        let key = EpochKey { epoch, nonce: nonce()? };
        // Another program may have used the plain ext4 since.
        if self.view.area.is_some_and(|area| area.crc == self.view.host.area_crc) {
            self.note_epoch(opts, self.view.host.key, key, None)?;
        }
        let mut host = HostSlots::new(storage.take_header(HEADER_HOST)?, &self.view);
        if !opts.read_only {
            self.note_mounted(&storage, &mut host, key, clock.now())?;
        }
        let behind = match &opts.service {
            Some(there) => {
                // The host record is durable and names the epoch: from here on area and journal are
                // the other process's.
                self.media.unclaim(Role::Service)?;
                Behind::There(there, opts.replay)
            }
            None => {
                let mut service = self.service(&storage, clock, opts, Origin::Background)?;
                service.begin_epoch(key, key);
                Behind::Here(Box::new(service), threads)
            }
        };
        let heads = old.lane_heads.clone();
        let mut config = config_of(opts, key);
        if !self.view.header.reserved() {
            config.discard = discard_of(opts, storage.area_reader()?.discards());
        }
        self.pair(&storage, behind, host, config, clock, heads, old.lsn_floor)
    }
}

/// Where the Service of a pair is.
pub(crate) enum Behind<'a> {
    /// The Service is in this process.
    Here(Box<Service>, Threads),
    /// The Service is in another process.
    There(&'a ServicePlace, Replay),
}

/// What a recovery finds, by header and marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The header says that the log is empty; the marker may be left.
    Empty,
    /// A mount had written its header, and nothing else yet.
    NeverMounted,
    /// The log may hold state.
    InUse,
}

/// Lanes are written independently: a record whose predecessor in another lane was lost was never
/// acknowledged, and neither was anything on block storage after it (rules R3, R24). A record of
/// the record area stays: all that it needs was durable before it was written (rule R44). `base` is
/// contained in the area; everything up to `durable` is known to have been durable, so a gap below
/// it is rot (rule R14).
fn cut_at_gap(found: &mut Vec<FoundRecord>, base: Lsn, durable: Lsn) -> Result<()> {
    let (mut last, mut last_compact, mut gap) = (base, base, None);
    for record in found.iter() {
        let follows = |prev: Lsn, last: Lsn| prev <= base || prev == last;
        let lsn = record.record.lsn;
        match record.medium {
            LaneMedium::Bytes => last_compact = lsn,
            LaneMedium::Block if gap.is_some() => {}
            LaneMedium::Block => {
                if !follows(record.prev_lsn, last) {
                    gap = Some((lsn, record.prev_lsn));
                } else if !follows(record.prev_compact, last_compact) {
                    gap = Some((lsn, record.prev_compact));
                }
                last = lsn;
            }
        }
    }
    let Some((first, missing)) = gap else { return Ok(()) };
    if missing <= durable {
        return Err(siftfs_base::corrupt(
            format!("staged transaction {}", missing.0),
            "it was durable, and is not there any more",
        ));
    }
    let before = found.len();
    found.retain(|f| f.record.lsn < first || f.medium == LaneMedium::Bytes);
    tracing::info!(
        missing = missing.0,
        dropped = before - found.len(),
        "the log ends at a lost record"
    );
    Ok(())
}

/// Inodes in memory are metadata, too. They may take about the same memory as the blocks, at 1 KiB
/// each.
fn inodes_kept(meta_cache: u64) -> usize {
    usize::try_from(meta_cache >> 10).unwrap_or(usize::MAX).clamp(4096, 65_536)
}

/// Whether freed blocks go back to this storage.
fn discard_of(opts: &OpenOptions, storage: Option<Discards>) -> DiscardConfig {
    let Some(Discards { unit, usual }) = storage else { return DiscardConfig::default() };
    DiscardConfig { unit, online: opts.discard.unwrap_or(usual) }
}

pub(crate) fn config_of(opts: &OpenOptions, key: EpochKey) -> Config {
    Config {
        commit_age: Duration::from_millis(opts.commit_ms),
        page_cache: opts.page_cache,
        meta_cache: opts.meta_cache,
        max_nodes: inodes_kept(opts.meta_cache),
        group_wait: Duration::from_micros(opts.group_wait_us),
        group: opts.group,
        late_forgets: opts.late_forgets,
        lease_term: opts.lease_term,
        most_freed: opts.most_freed,
        low_watermark: u64::from(opts.low_watermark),
        discard: DiscardConfig::default(),
        record_area: opts.record_area,
        pools: opts.pools,
        key,
        noatime: opts.noatime,
        read_only: opts.read_only,
    }
}

/// Everything final, the log durably empty: where its lanes go on, and from which number.
pub(crate) fn settle_pair(pair: &Pair) -> Result<(Vec<u64>, Lsn)> {
    pair.runtime.settle()?;
    let position = pair.runtime.log_position();
    // Nothing is left to write that a Service without room for it could wait for.
    pair.runtime.wait_for_no_room();
    pair.driver.stop()?;
    pair.runtime.check()?;
    Ok(position)
}

/// Everything final, the log durably empty: the header says clean. The marker goes after that.
pub fn close_pair(pair: Pair, now: Timestamp) -> Result<()> {
    if end_calls(&pair.runtime) {
        // What is known of clients' calls is about to be forgotten, and a crash before the header
        // says clean must not take that for calls without effect (rule R53).
        let mut host = pair.host.lock().unwrap_or_else(PoisonError::into_inner);
        let closing = HostRecord { state: HostState::Recovering, ..host.newest().clone() };
        host.write(Origin::Admin, &closing)?;
    }
    let (heads, lsn) = settle_pair(&pair)?;
    let plain = marker::final_super(&pair.area, now)?;
    let mut host = pair.host.lock().unwrap_or_else(PoisonError::into_inner);
    write_clean(&mut host, (heads, lsn), &plain)
}

/// The header says clean, durably: the log is empty, its lanes go on at `heads`, and numbers behind
/// `lsn`. `plain` is the primary superblock as it will be without the marker.
pub(crate) fn write_clean(
    host: &mut HostSlots,
    (heads, lsn): (Vec<u64>, Lsn),
    plain: &SuperBytes,
) -> Result<()> {
    let old = HostRecord { registry: None, ..host.newest().clone() };
    if host.newest().registry.is_some() {
        // A record of its own, so that neither slot of a clean volume has one that only a build
        // that knows registries takes.
        host.write(Origin::Admin, &old)?;
    }
    host.write(
        Origin::Admin,
        &HostRecord {
            state: HostState::Clean,
            lane_key: old.key,
            lane_ends: vec![OPEN_END; heads.len()],
            lane_heads: heads,
            lsn_floor: lsn,
            area_crc: AreaSuper::parse(plain).map_or(0, |s| s.crc),
            superblock: Box::new(*plain),
            ..old
        },
    )
}
