//! Recovery's second phase: what programs made durable in logs of their own becomes the files'
//! (`docs/design/private-logs.md`, "Recovery").
//!
//! The lanes come first, as ever. Then an ordinary epoch begins, with the marker set and the
//! registry named: every record that counts is written over its file again, in order, and all of it
//! is made durable before the registry goes (rule R36). After a crash in between it is done again.

use crate::mount::open::{Behind, Pair, Volume, close_pair, config_of, settle_pair};
use crate::options::{LogsReport, LostLog, OpenOptions, Progress, Threads};
use crate::volume::files::nonce;
use siftfs_base::{Clock, Epoch, Error, Result, Timestamp};
use siftfs_device::Origin;
use siftfs_lease::{Logged, scan};
use siftfs_log::{EpochKey, HostRecord, HostState, OPEN_END};
use siftfs_registry::{Left, LeftFile, LeftLog};
use siftfs_runtime::{LoggedWrite, Runtime};
use siftfs_volume::{HEADER_HOST, HostSlots};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// For how long a program that outlives its daemon may believe what that has said, in pieces: the
/// wait ends when no such program is left (rule R37).
const PIECE: Duration = Duration::from_millis(50);
const PIECES: u32 = 40;

impl Volume {
    /// Ends a recovery of the lanes while a registry is named: the log is empty, and the header
    /// says that an ordinary epoch has begun.
    pub(crate) fn begin_next(&self, pair: Pair, opts: &OpenOptions) -> Result<()> {
        let (heads, lsn) = settle_pair(&pair)?;
        let key = EpochKey { epoch: Epoch(pair.key.epoch.0 + 1), nonce: nonce()? };
        self.note_epoch(opts, pair.key, key, None)?;
        // Before the header, unlike at a mount: the marker is set, and a header that names an epoch
        // that the area has not seen would be that of a newer log (rule R16).
        if let Some(area) = self.media.record_area(&self.view)? {
            area.begin_epoch(key.epoch)?;
        }
        self.begin_spare(key.epoch)?;
        let mut host = pair.host.lock().unwrap_or_else(PoisonError::into_inner);
        let old = host.newest().clone();
        let record = HostRecord {
            state: HostState::Mounted,
            key,
            lane_key: key,
            journal_key: key,
            lane_ends: vec![OPEN_END; heads.len()],
            lane_heads: heads,
            lsn_floor: lsn,
            ..old
        };
        host.write(Origin::Admin, &record)
    }

    /// If the header still names a registry, everything that counts in its logs becomes durable in
    /// the files, and then the header says clean. What is left to be removed then.
    ///
    /// # Errors
    /// The registry or a log is missing (rule R16); the storage's. A log that a program has filled
    /// with anything is no error: what it does not continue is told.
    pub(crate) fn take_in_logs(
        &mut self,
        clock: &Arc<dyn Clock>,
        opts: &OpenOptions,
        progress: Progress<'_>,
        report: &mut LogsReport,
    ) -> Result<Option<Left>> {
        self.view = self.media.read()?;
        let Some(name) = self.view.host.registry.clone() else { return Ok(None) };
        let left = Left::open(&name, self.view.header.volume)?;
        wait_for_programs(&left, &**clock);
        let pair = self.ordinary_epoch(clock, opts)?;
        let total = left.logs().len() as u64;
        for (done, log) in (1..).zip(left.logs()) {
            if log.counts() {
                report.take_in(&pair.runtime, log, &left.file(log)?)?;
            }
            progress("taking programs' logs in", done, total);
        }
        close_pair(pair, clock.now())?;
        Ok(Some(left))
    }

    /// A Runtime in the epoch that the header has begun.
    fn ordinary_epoch(&self, clock: &Arc<dyn Clock>, opts: &OpenOptions) -> Result<Pair> {
        let storage = Arc::new(self.storage()?);
        let HostRecord { key, lane_heads, lsn_floor, .. } = self.view.host.clone();
        let host = HostSlots::new(storage.take_header(HEADER_HOST)?, &self.view);
        let mut service = self.service(&storage, clock, opts, Origin::Admin)?;
        service.begin_epoch(key, key);
        let mut config = config_of(opts, key);
        config.read_only = false;
        let behind = Behind::Here(Box::new(service), Threads::None);
        self.pair(&storage, behind, host, config, clock, lane_heads, lsn_floor)
    }
}

/// A program may still acknowledge by what its daemon said last.
fn wait_for_programs(left: &Left, clock: &dyn Clock) {
    for _ in 0..PIECES {
        if !left.may_be_written() {
            return;
        }
        clock.sleep(PIECE);
    }
}

impl LogsReport {
    /// Writes what counts in a log to the files.
    fn take_in(&mut self, runtime: &Runtime, log: &LeftLog, file: &LeftFile) -> Result<()> {
        let shape = log.shape();
        // An error of the volume's, not of the log's.
        let mut failed = None;
        let mut each = |record: &Logged, data: &[u8]| {
            let Some(lease) = log.lease(record.held.slot, record.held.number) else {
                self.passed_over += 1;
                return Ok(());
            };
            let (offset, time) = (record.offset, time_of(record.time));
            let (ino, generation) = (lease.ino, lease.generation);
            let write = LoggedWrite { ino, generation, offset, time, data };
            match write.write_to(runtime) {
                Ok(()) => {
                    self.records += 1;
                    self.bytes += data.len() as u64;
                    Ok(())
                }
                Err(error) => {
                    let why = format!("a record of inode {ino} cannot be written: {error}");
                    if matches!(error, Error::Io { .. } | Error::Latched(_) | Error::Link(_)) {
                        failed = Some(error);
                    }
                    Err(why)
                }
            }
        };
        let scanned = scan(&mut |at, buf| file.read(at, buf), &shape, log.begin(), &mut each);
        if let Some(error) = failed {
            return Err(error);
        }
        let scanned = scanned.map_err(|error| {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            Error::Io { op: "read of a program's log", offset: 0, len: shape.len, errno }
        })?;
        self.logs += 1;
        self.batches += scanned.batches;
        if let Some(why) = scanned.lost {
            tracing::warn!(
                log = log.number(),
                why,
                "a program's log ends before what it was given"
            );
            self.lost.push(LostLog { log: log.number(), why });
        }
        Ok(())
    }
}

/// A record's time, in nanoseconds since 1970.
fn time_of(ns: i64) -> Timestamp {
    const SECOND: i64 = 1_000_000_000;
    let nsec = u32::try_from(ns.rem_euclid(SECOND)).expect("less than a second");
    Timestamp { sec: ns.div_euclid(SECOND), nsec }
}
