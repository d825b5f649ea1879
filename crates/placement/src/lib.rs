//! Placement: puts Frontend-facing endpoint, Runtime and Service together in one process (the
//! `local` profile), and does what needs both: mkfs, mount, unmount, recovery.

use siftfs_base::{Clock, Error, Result};
use siftfs_device::Device;
use siftfs_proto::FileService;
use std::path::Path;
use std::sync::Arc;

/// How a volume is made.
#[derive(Clone, Debug, Default)]
pub struct MkfsOptions {
    /// Whole size in bytes (area, header, journal and staging); `None`: the size that is there.
    pub size: Option<u64>,
    /// Journal and staging together, in bytes; `None`: chosen from the size.
    pub log_size: Option<u64>,
    /// ext4 label.
    pub label: Option<String>,
    /// Number of staging lanes (1 to 16); 0 means 1.
    pub lanes: u16,
    /// Overwrite an existing file system.
    pub force: bool,
}

/// How a volume is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Age in milliseconds after which unsynced state is journaled.
    pub commit_ms: u64,
    /// Page cache bound in bytes.
    pub page_cache: u64,
    /// Metadata cache bound in bytes.
    pub meta_cache: u64,
    /// Bounded adaptive wait of group commit in microseconds; 0 switches it off.
    pub group_wait_us: u64,
    /// Free share of staging or journal (percent) below which a background checkpoint starts.
    pub low_watermark: u8,
    /// Refuse every change.
    pub read_only: bool,
    /// Direct I/O on files.
    pub direct: bool,
    /// io_uring where allowed.
    pub uring: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            commit_ms: 5000,
            page_cache: 256 << 20,
            meta_cache: 64 << 20,
            group_wait_us: 0,
            low_watermark: 50,
            read_only: false,
            direct: true,
            uring: true,
        }
    }
}

/// Who runs the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// Threads of this process.
    Real,
    /// Nobody: the caller drives [`LocalVolume::commit`] and [`LocalVolume::checkpoint`]; waits for
    /// progress make it inline, so a single thread runs everything deterministically.
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
    /// Number of lanes.
    pub lanes: u16,
}

/// What recovery found and did.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct RecoverReport {
    /// The volume was already clean; nothing was written.
    pub clean: bool,
    /// Journal transactions replayed.
    pub replayed_transactions: u64,
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
}

/// Progress of long work: what, done, total (in the same unit).
pub type Progress<'a> = &'a mut dyn FnMut(&str, u64, u64);

/// Makes a volume on a file (created or resized) or block device.
pub fn mkfs(_path: &Path, _opts: &MkfsOptions, _progress: Progress<'_>) -> Result<MkfsReport> {
    Err(Error::Refused("mkfs".into()))
}

/// Makes a volume on any device.
pub fn mkfs_on(_dev: &Arc<dyn Device>, _opts: &MkfsOptions) -> Result<MkfsReport> {
    Err(Error::Refused("mkfs".into()))
}

/// Recovers a volume without mounting it; afterwards it is plain ext4.
pub fn recover(_path: &Path, _opts: &OpenOptions, _p: Progress<'_>) -> Result<RecoverReport> {
    Err(Error::Refused("recover".into()))
}

/// As [`recover`], on any device.
pub fn recover_on(_dev: Arc<dyn Device>, _opts: &OpenOptions) -> Result<RecoverReport> {
    Err(Error::Refused("recover".into()))
}

/// An open volume: Runtime and Service in this process.
pub struct LocalVolume {}

impl LocalVolume {
    /// Opens a volume exclusively, recovering it first if it is dirty.
    pub fn open(_path: &Path, _opts: &OpenOptions, _p: Progress<'_>) -> Result<Self> {
        Err(Error::Refused("open".into()))
    }
    /// As [`LocalVolume::open`], on any device, with any clock.
    pub fn open_on(
        _dev: Arc<dyn Device>,
        _clock: Arc<dyn Clock>,
        _opts: &OpenOptions,
        _threads: Threads,
    ) -> Result<Self> {
        Err(Error::Refused("open".into()))
    }
    /// The endpoint Frontends speak to.
    pub fn endpoint(&self) -> Arc<dyn FileService> {
        unreachable!("a volume cannot be opened")
    }
    /// Assembles and journals one background transaction now (everything unsynced is pushed when
    /// `push_all`); returns when it is durable.
    pub fn commit(&self, _push_all: bool) -> Result<()> {
        Ok(())
    }
    /// Checkpoints and reclaims everything journaled.
    pub fn checkpoint(&self) -> Result<()> {
        Ok(())
    }
    /// Makes everything durable and final, clears the marker: the volume is plain ext4.
    pub fn close(self) -> Result<()> {
        Ok(())
    }
    /// Stops without writing anything more, as a crash would (tests).
    pub fn abandon(self) {}
}
