//! Opening a volume's file or device so that nobody else uses it (rule R9).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::Errno;
use siftfs_base::{Error, Result};

use super::{FileDevice, FileOptions};
use crate::file::users;

/// How long a lock is waited for: a process that was just killed needs a moment to die.
const PATIENCE: Duration = Duration::from_millis(500);

/// Opens the regular file or block device at `path` for this process alone.
///
/// The lock lies on the open file that does the I/O, so that it is released when the process
/// has died and its I/O has ended, and not before. With `rw` false, readers share.
///
/// # Errors
/// [`Error::Refused`], saying by what it is used and what to do, when
/// - another process (or this one) has it open as a volume, directly or below a loop device;
/// - it is a block device that is mounted or otherwise claimed;
/// - it is a file behind an attached loop device;
/// - it does not exist, may not be opened, or is neither file nor block device.
pub fn open_exclusive(path: &Path, rw: bool, options: FileOptions) -> Result<FileDevice> {
    let meta = std::fs::metadata(path).map_err(|e| cannot_open(path, &e))?;
    let kind = meta.file_type();
    let file = if kind.is_file() {
        let file = open(path, rw, 0).map_err(|e| cannot_open(path, &e))?;
        lock(&file, path, rw)?;
        if let Some(device) = users::loop_over(&file) {
            return Err(behind_loop(path, &device));
        }
        (file, None)
    } else if kind.is_block_device() {
        let file = open(path, rw, libc::O_EXCL).map_err(|e| match e.raw_os_error() {
            Some(libc::EBUSY) => claimed(path, meta.rdev()),
            _ => cannot_open(path, &e),
        })?;
        lock(&file, path, rw)?;
        let below = lock_below(path, meta.rdev(), rw)?;
        (file, below)
    } else {
        let path = path.display();
        return Err(Error::Refused(format!("{path} is neither a regular file nor a block device")));
    };
    let (file, below) = file;
    // The path may have been replaced between looking and opening.
    let opened = file.metadata().map_err(|e| cannot_open(path, &e))?;
    if opened.file_type() != kind || (opened.dev(), opened.ino()) != (meta.dev(), meta.ino()) {
        let path = path.display();
        return Err(Error::Refused(format!("{path} was replaced while it was opened: try again")));
    }
    FileDevice::from_file(file, below, path, options)
}

/// Makes the regular file at `path`, if there is none, and gives it at least `size` bytes with
/// their blocks reserved, so that no later write to it can run out of space. The file and its
/// name are durable when this returns.
///
/// Reserved blocks read as zeroes but are unwritten: a region that is to be overwritten without
/// a metadata commit of the file system below needs [`crate::zero_fill`] as well.
///
/// # Errors
/// [`Error::Refused`] when the file cannot be made, is not a regular file, or there is not
/// enough space.
pub fn preallocate(path: &Path, size: u64) -> Result<()> {
    let refused = |e: io::Error| {
        Error::Refused(format!("cannot reserve {size} bytes for {}: {e}", path.display()))
    };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(refused)?;
    if !file.metadata().map_err(refused)?.is_file() {
        return Err(Error::Refused(format!("{} is not a regular file", path.display())));
    }
    match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size) {
        Ok(()) => {}
        // A file system without reservation: the size alone has to do.
        Err(Errno::OPNOTSUPP) => {
            let now = file.metadata().map_err(refused)?.len();
            file.set_len(now.max(size)).map_err(refused)?;
        }
        Err(e) => return Err(refused(e.into())),
    }
    file.sync_all().map_err(refused)?;
    let parent = match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    File::open(parent).and_then(|dir| dir.sync_all()).map_err(refused)
}

fn open(path: &Path, rw: bool, flags: i32) -> io::Result<File> {
    OpenOptions::new().read(true).write(rw).custom_flags(flags).open(path)
}

fn cannot_open(path: &Path, e: &io::Error) -> Error {
    let path = path.display();
    Error::Refused(match e.raw_os_error() {
        Some(libc::ETXTBSY) => {
            format!("{path} is in use as swap space or as a running program")
        }
        _ => format!("cannot open {path}: {e}"),
    })
}

/// Locks the open file, exclusively for writing.
fn lock(file: &File, path: &Path, rw: bool) -> Result<()> {
    let how = if rw {
        FlockOperation::NonBlockingLockExclusive
    } else {
        FlockOperation::NonBlockingLockShared
    };
    let until = Instant::now() + PATIENCE;
    loop {
        match rustix::fs::flock(file.as_fd(), how) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if Instant::now() < until => {
                thread::sleep(Duration::from_millis(20));
            }
            Err(Errno::WOULDBLOCK) => return Err(locked(file, path)),
            Err(e) => return Err(cannot_open(path, &e.into())),
        }
    }
}

fn locked(file: &File, path: &Path) -> Error {
    let who = users::lock_holders(file);
    let by = if who.is_empty() { "another process".into() } else { who.join(", ") };
    let path = path.display();
    Error::Refused(format!("{path} is in use by {by}: unmount it or let that process end first"))
}

fn behind_loop(path: &Path, device: &Path) -> Error {
    let (path, device) = (path.display(), device.display());
    let mounted = users::mount_point_of(device.to_string().as_ref());
    let seen =
        mounted.map_or(String::new(), |at| format!(", which is mounted on {}", at.display()));
    Error::Refused(format!(
        "{path} is attached to the loop device {device}{seen}: detach it first (losetup -d {device})"
    ))
}

/// The message for a block device that the kernel would not give us alone.
fn claimed(path: &Path, rdev: u64) -> Error {
    let shown = path.display();
    if let Some(at) = users::mount_of(rdev) {
        let at = at.display();
        return Error::Refused(format!("{shown} is mounted on {at}: unmount it first"));
    }
    let mut holders = users::device_holders(rdev);
    if holders.is_empty()
        && let Ok(file) = File::open(path)
    {
        holders = users::openers(&file);
    }
    let by = if holders.is_empty() {
        "the kernel (mounted elsewhere, swap, RAID or a mapped device) or another process".into()
    } else {
        holders.join(", ")
    };
    Error::Refused(format!("{shown} is in use by {by}"))
}

/// When `path` is a loop device, locks the file below it as [`open_exclusive`] would.
fn lock_below(path: &Path, rdev: u64, rw: bool) -> Result<Option<File>> {
    let Some(backing) = users::loop_backing(rdev) else { return Ok(None) };
    let shown: PathBuf = backing.clone();
    let file = match open(&backing, false, 0) {
        Ok(file) => file,
        // Deleted, or named in another mount namespace: nobody opens it by that name either.
        Err(e) => {
            tracing::debug!("cannot open {} below {}: {e}", shown.display(), path.display());
            return Ok(None);
        }
    };
    lock(&file, &backing, rw).map_err(|e| {
        let (path, backing) = (path.display(), backing.display());
        Error::Refused(format!("{path} is a loop device over {backing}, and {e}"))
    })?;
    Ok(Some(file))
}

#[cfg(test)]
#[path = "exclusive_tests.rs"]
mod tests;
