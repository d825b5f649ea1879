//! How volumes are made and opened, and what making and recovering them reports.

use crate::device::replay::Replay;
use crate::link::connect::Connector;
use siftfs_device::BytePlace;
use siftfs_device_rbd::Whom;
use siftfs_device_target::{TargetPlace, Waits};
use siftfs_log::JournalData;
use siftfs_runtime::{Compact, Group, Pools};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a record area's file that is made without a size.
pub const RECORD_AREA: u64 = 64 << 20;

/// How long a call of the log's device may usually take before the log fails over.
pub const LOG_STALL: Duration = Duration::from_millis(100);

/// How a volume is made.
#[derive(Clone, Debug, Default)]
pub struct MkfsOptions {
    /// Whole size in bytes (area, header, journal and staging); `None`: the size that is there.
    pub size: Option<u64>,
    /// Journal and staging together, in bytes; `None`: chosen from the size. For a log elsewhere:
    /// the whole log, header included; `None`: the size that is there.
    pub log_size: Option<u64>,
    /// ext4 label.
    pub label: Option<String>,
    /// Number of staging lanes (1 to 16); 0 means 1.
    pub lanes: u16,
    /// What the journal holds of staged data: references, or for comparison the data again.
    pub journal_data: JournalData,
    /// Where the log goes, if on a file or device of its own.
    pub log: Option<PathBuf>,
    /// Where the spare log goes, if the volume shall have one: a file or device of its own, which
    /// it takes as a whole. For a volume with `log` alone.
    pub log_spare: Option<PathBuf>,
    /// Bytes of a turn of a striped volume's members: a power of two, 64 KiB to 64 MiB; `None`:
    /// 1 MiB. Refused for a volume on one device.
    pub stripe_unit: Option<u64>,
    /// Where the record area goes, if the volume shall have one.
    pub record_area_at: Option<BytePlace>,
    /// Bytes of the record area, its header included; `None`: [`RECORD_AREA`] for a file that is
    /// made, else all of what is there.
    pub record_area: Option<u64>,
    /// How the members of a striped volume are reached that are at targets, as
    /// [`OpenOptions::members`].
    pub members: Vec<TargetPlace>,
    /// Bytes of the redo lane, which a target makes atomic writes of programs durable in; `None`:
    /// the volume has none. Besides the log's size, or within that of a log elsewhere.
    pub redo_lane: Option<u64>,
    /// Give the area's file blocks for all of it now, so that no later write can lack space below.
    pub reserve: bool,
    /// The volume may lose its newest fsyncs with this machine: its log may lie here while its area
    /// lies on a cluster.
    pub log_may_die: bool,
    /// Overwrite an existing file system.
    pub force: bool,
}

/// How a volume is opened.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenOptions {
    /// Age in milliseconds after which unsynced state is journaled.
    pub commit_ms: u64,
    /// Page cache bound in bytes.
    pub page_cache: u64,
    /// Metadata cache bound in bytes.
    pub meta_cache: u64,
    /// Bounded adaptive wait of group commit in microseconds; 0 switches it off.
    pub group_wait_us: u64,
    /// How fsyncs that come together are made durable: by a shared flush, by durable writes in
    /// parallel, or by what measures better.
    pub group: Group,
    /// How long an operation that finds no space waits for references to removed files to be given
    /// back: a kernel does it a moment after the removal. Zero where a removed file's end is known
    /// at once.
    pub late_forgets: Duration,
    /// How long a write lease lasts without a use, and once it is recalled. A request for the file
    /// waits for a silent holder as long.
    pub lease_term: Duration,
    /// Extents of a file that one transaction frees at most, if the journal has room for more: with
    /// few of them, tests see long truncations of small files. A compound frees up to 64 in one, so
    /// with fewer none may truncate.
    pub most_freed: usize,
    /// Free share of staging or journal (percent) below which a background checkpoint starts.
    pub low_watermark: u8,
    /// Whether freed blocks are given back to the storage by themselves; `None`: as is usual for
    /// it.
    pub discard: Option<bool>,
    /// What the record area takes, where the volume has one.
    pub record_area: Compact,
    /// Where files that private logs were taken in for get new blocks from.
    pub pools: Pools,
    /// Where the record area is; `None`: where it is remembered to be, if the volume has one.
    pub record_area_at: Option<BytePlace>,
    /// For measurements: each persist of a `volatile:` record area takes this much longer, as if
    /// it were read back from a device. Elsewhere anything but zero is refused.
    pub record_read_back: Duration,
    /// Keep no access times.
    pub noatime: bool,
    /// Fence this owner of the volume's images, also if it lives: an administrator says that this
    /// process takes the volume over.
    pub take_over: Option<Whom>,
    /// Refuse every change.
    pub read_only: bool,
    /// Direct I/O on files.
    pub direct: bool,
    /// io_uring where allowed.
    pub uring: bool,
    /// Where the log is, if not with the volume; `None`: searched for, if the volume names one.
    pub log: Option<PathBuf>,
    /// Where the spare log is; `None`: where it is remembered to be, if the volume has one.
    pub log_spare: Option<PathBuf>,
    /// How long a call of the log's device may take before new records go to the spare log, where
    /// the volume has one.
    pub log_stall: Duration,
    /// The process that has the storage; `None`: this one opens the volume's path by itself.
    pub target: Option<TargetPlace>,
    /// How the members of a striped volume are reached that are at targets. One that is not among
    /// them is reached with the usual options and without keys.
    pub members: Vec<TargetPlace>,
    /// Whether calls wait for a member's target that is lost. A volume that is open to be written
    /// begins it; options that are copies of each other have it together.
    pub waits: Waits,
    /// How this process replays, if it does the background work.
    pub replay: Replay,
    /// The process that does the background work; `None`: this one.
    pub service: Option<ServicePlace>,
    /// The volume is opened to be served: the folder where servers of this machine have their books
    /// of clients. That of a volume on a cluster lies beside it instead.
    /// Each epoch is written down there before the header names it, with what was found in the one
    /// before. So this process changes nothing by itself before its server has taken the book up.
    pub books: Option<PathBuf>,
}

/// A Service in a process of its own.
#[derive(Clone)]
pub struct ServicePlace {
    /// Connects to the process.
    pub connector: Arc<dyn Connector>,
    /// When the process has been away for this long, this process does the work until it is back;
    /// `None`: the volume waits for it.
    pub fallback: Option<Duration>,
}

/// The same process, reached at the same address, and the same patience with it.
impl PartialEq for ServicePlace {
    fn eq(&self, other: &Self) -> bool {
        (self.connector.address(), self.fallback) == (other.connector.address(), other.fallback)
    }
}

impl std::fmt::Debug for ServicePlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (fallback after {:?})", self.connector.address(), self.fallback)
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            commit_ms: 5000,
            page_cache: 256 << 20,
            meta_cache: 64 << 20,
            group_wait_us: 1000,
            group: Group::default(),
            late_forgets: Duration::ZERO,
            lease_term: Duration::from_secs(2),
            most_freed: usize::MAX,
            low_watermark: 50,
            discard: None,
            record_area: Compact::default(),
            pools: Pools::None,
            record_area_at: None,
            record_read_back: Duration::ZERO,
            noatime: false,
            take_over: None,
            read_only: false,
            direct: true,
            uring: true,
            log: None,
            log_spare: None,
            log_stall: LOG_STALL,
            target: None,
            members: Vec::new(),
            waits: Waits::default(),
            replay: Replay::default(),
            service: None,
            books: None,
        }
    }
}

/// What runs the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// Threads of this process.
    Real,
    /// No threads: the caller drives [`commit`](crate::LocalVolume::commit) and
    /// [`checkpoint`](crate::LocalVolume::checkpoint). Waits for progress make it inline, so a
    /// single thread runs everything deterministically.
    None,
}

/// What mkfs made.
#[derive(Clone, Debug, serde::Serialize)]
pub struct MkfsReport {
    /// Volume UUID.
    pub uuid: String,
    /// Bytes of the ext4 area.
    pub area_bytes: u64,
    /// Bytes of the journal.
    pub journal_bytes: u64,
    /// Bytes of all lanes.
    pub staging_bytes: u64,
    /// Number of lanes on block storage.
    pub lanes: u16,
    /// Bytes of the redo lane; 0 without one.
    pub redo_lane_bytes: u64,
    /// Bytes of the spare log; 0 without one.
    pub spare_log_bytes: u64,
    /// Whether the spare log has room for an image of the log, and outlives its device so.
    pub spare_log_may_stand_alone: bool,
    /// The record area, where there is one.
    pub record_area: Option<RecordAreaReport>,
    /// What the journal holds of staged data: `ref` or `copy`.
    pub journal_data: String,
    /// The area's blocks are reserved in its file.
    pub reserved: bool,
    /// The file system below has less room than the volume's file may come to need.
    pub shortage: Option<Shortage>,
}

/// A sparse file that the file system below has no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Shortage {
    /// Bytes of the file that have no block yet.
    pub missing_bytes: u64,
    /// Bytes that are free below.
    pub free_bytes: u64,
}

/// The record area that mkfs made.
#[derive(Clone, Debug, serde::Serialize)]
pub struct RecordAreaReport {
    /// Where it is, as it was named.
    pub place: String,
    /// How a write is made durable there.
    pub promise: String,
    /// Is it proved that a power cut takes nothing that was durable? False for a place that was
    /// named volatile.
    pub persistent: bool,
    /// Bytes of its lane.
    pub bytes: u64,
}

/// What recovery found and did.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct RecoverReport {
    /// The volume was already clean; nothing was written.
    pub clean: bool,
    /// Journal transactions replayed.
    pub replayed_transactions: u64,
    /// Transactions of the redo lane replayed.
    pub redo_transactions: u64,
    /// Staged transactions found valid in the lanes.
    pub staged_found: u64,
    /// Staged transactions applied (newer than the cut).
    pub staged_applied: u64,
    /// Orphans removed.
    pub orphans: u64,
    /// Bytes read from staging.
    pub staging_read_bytes: u64,
    /// Bytes read from the journal.
    pub journal_read_bytes: u64,
    /// What was in logs of programs.
    pub private_logs: LogsReport,
}

/// What recovery found in logs of programs, which had been made durable there alone.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct LogsReport {
    /// Logs read.
    pub logs: u64,
    /// Batches in them, one for each fsync.
    pub batches: u64,
    /// Records written to their files.
    pub records: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Records of leases that had ended.
    pub passed_over: u64,
    /// Logs that ended before what had been written to them.
    pub lost: Vec<LostLog>,
}

/// A log that ended before what had been written to it: what is behind is lost.
#[derive(Clone, Debug, serde::Serialize)]
pub struct LostLog {
    /// Its number.
    pub log: u64,
    /// Why it ended.
    pub why: String,
}

/// Progress of long work: what, done, total (in the same unit).
pub type Progress<'a> = &'a mut dyn FnMut(&str, u64, u64);
