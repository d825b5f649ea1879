//! One mount of the volume's, and how it is taken away.

use crate::daemon::mounts::private_logs::PrivateLogs;
use crate::daemon::mounts::settings::OwnSettings;
use crate::daemon::mounts::utab::Line;
use crate::options::parsed::Options;
use siftfs_fuse::{FuseMount, MountEntry, Traffic, Writers, apart, detach, mounts_of, top_mount};
use siftfs_grantor::{Counts, Program};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// One mount that is served.
pub struct Mounted {
    /// Tells it from all others, and grows: the first mount has 0.
    pub number: u64,
    /// The mount as it was made.
    pub entry: MountEntry,
    /// Which directory of the volume it shows, if not all.
    pub subdir: Option<PathBuf>,
    /// When it was mounted.
    pub started: Instant,
    /// Files open for writing.
    pub writers: Writers,
    /// Its requests.
    pub traffic: Traffic,
    /// Its options.
    pub settings: OwnSettings,
    /// What is not as it should be.
    pub warnings: Vec<String>,
    /// Those of its programs, if it has them.
    logs: Option<PrivateLogs>,
    /// In umount(8)'s table, as long as it is served.
    line: Mutex<Option<Line>>,
}

impl Mounted {
    /// A mount that is about to be served.
    pub fn new(
        number: u64,
        (mount, logs): (&FuseMount, Option<PrivateLogs>),
        wanted: Wanted,
    ) -> Self {
        Self {
            number,
            entry: mount.entry().clone(),
            subdir: wanted.options.subdir.clone(),
            started: Instant::now(),
            writers: mount.writers(),
            traffic: mount.traffic(),
            settings: OwnSettings::new(mount, wanted.options.mount, wanted.shown),
            warnings: wanted.warnings,
            logs,
            line: Mutex::default(),
        }
    }

    /// umount(8) is told to wait for as long as there is something to wait for.
    pub fn show_in_table(&self, volume: &Path) {
        let dir = &self.entry.mount_point;
        let line = match self.number {
            // Lines that dead daemons left for the volume go, too.
            0 => Line::write(volume, dir),
            _ => Line::add(volume, dir),
        };
        *self.line.lock().unwrap_or_else(PoisonError::into_inner) = Some(line);
    }

    /// Takes in what its programs have published in private logs.
    pub fn take_logs_in(&self) {
        self.logs.iter().for_each(PrivateLogs::ingest);
    }

    /// What there is of private logs, if programs may have them.
    pub fn logs(&self) -> Option<(Counts, Vec<Program>)> {
        self.logs.as_ref().map(|logs| (logs.counts(), logs.programs()))
    }

    /// It is not served any more: what its programs have published is taken in.
    pub fn end_logs(&self) {
        self.logs.iter().for_each(PrivateLogs::end);
    }

    /// Takes it out of that table.
    pub fn leave_table(&self) {
        drop(self.line.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// What a mount is to be.
pub struct Wanted {
    /// Its options; only those of a mount count.
    pub options: Options,
    /// Those as they were given.
    pub shown: String,
    /// What the user is to know.
    pub warnings: Vec<String>,
}

/// Where a mount is now and can be reached, the newest place first. Since it was made, a program
/// may have moved it, bound it elsewhere, covered it, or put another mount in its place, even one
/// with the same device number.
pub fn places_of(entry: &MountEntry) -> Vec<PathBuf> {
    let mut mounts = mounts_of(entry).unwrap_or_default();
    mounts.retain(|m| top_mount(&m.mount_point).is_ok_and(|top| top.is_some_and(|t| t.id == m.id)));
    mounts.into_iter().rev().map(|m| m.mount_point).collect()
}

/// Takes a mount away from one directory. The kernel may wait for requests that this process
/// answers, and a thread that waits must keep nothing of it.
pub fn leave_apart(dir: &Path, how: fn(&Path) -> io::Result<()>) -> io::Result<()> {
    let dir = dir.to_path_buf();
    apart(move || how(&dir))
}

/// Detaches a mount wherever it is.
pub fn take_away(entry: &MountEntry) {
    for dir in places_of(entry) {
        if let Err(error) = leave_apart(&dir, detach) {
            tracing::error!(%error, dir = %dir.display(), "cannot detach");
        }
    }
}
