//! Opening a volume's file or device so that no other process uses it, or that a host and its
//! Service share it (rule R9).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use siftfs_base::{Error, Result};

use super::locks::{self, Hold};
use super::{FileDevice, FileOptions};
use crate::Role;
use crate::file::users;

/// How long a lock is waited for: a process that was just killed needs a moment to die.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);
/// The same for a device process, which ends its step first when another host comes.
pub(crate) const STEP_PATIENCE: Duration = Duration::from_secs(3);
/// How long a loop device that detaches itself is waited for: what it holds is written first.
const LOOP_PATIENCE: Duration = Duration::from_secs(5);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// Opens the regular file or block device at `path` for this process alone: with both roles.
///
/// The locks lie on the open file that does the I/O, so that they are released when the process
/// has died and its I/O has ended, and not before. With `rw` false, readers share.
///
/// # Errors
/// [`Error::Refused`], saying by what it is used and what to do, when
/// - another process (or this one) has it open as a volume, directly or below a loop device;
/// - it is a block device that is mounted or otherwise claimed;
/// - it is a file behind an attached loop device;
/// - it does not exist, may not be opened, or is neither file nor block device.
pub fn open_exclusive(path: &Path, rw: bool, options: FileOptions) -> Result<FileDevice> {
    let device = open_node(path, rw, libc::O_EXCL, options)?;
    device.claim_within(Role::Host, PATIENCE)?;
    device.claim_within(Role::Service, STEP_PATIENCE)?;
    refuse_loop(&device.file, &device.path)?;
    Ok(device)
}

/// Opens the regular file or block device at `path` for a process that shares it with the volume's
/// host, without any role: [`crate::Device::claim`] gives it [`Role::Service`].
///
/// The kernel lets one open file claim a block device, and the host has that claim. A second one is
/// not needed: while a process has a role, the ext4 area is marked, so that the kernel does not
/// mount it (rule R15), and the roles' locks keep every other SiftFS process away.
///
/// # Errors
/// As [`open_exclusive`], other SiftFS processes excepted.
pub fn open_for_service(path: &Path, options: FileOptions) -> Result<FileDevice> {
    let device = open_node(path, true, 0, options)?;
    refuse_loop(&device.file, &device.path)?;
    Ok(device)
}

/// Does a process have the volume at `path` as its host, and may it write? Nothing is locked.
///
/// # Errors
/// The file or device cannot be opened.
pub fn is_hosted(path: &Path) -> io::Result<bool> {
    let meta = std::fs::metadata(path)?;
    let node = match meta.file_type().is_block_device() {
        // As where the locks are taken.
        true => users::node_of(meta.rdev()).unwrap_or_else(|| path.to_owned()),
        false => path.to_owned(),
    };
    locks::is_locked(&open(&node, false, libc::O_NONBLOCK)?, Role::Host)
}

fn open_node(path: &Path, rw: bool, flags: i32, options: FileOptions) -> Result<FileDevice> {
    let meta = std::fs::metadata(path).map_err(|e| cannot_open(path, &e))?;
    let kind = meta.file_type();
    let (file, below) = if kind.is_file() {
        (open(path, rw, 0).map_err(|e| cannot_open(path, &e))?, None)
    } else if kind.is_block_device() {
        // Locks lie on the node's inode: two nodes of one device must not mean two locks.
        let node = users::node_of(meta.rdev()).unwrap_or_else(|| path.to_owned());
        let file = open(&node, rw, flags).map_err(|e| match e.raw_os_error() {
            Some(libc::EBUSY) => claimed(path, meta.rdev()),
            _ => cannot_open(path, &e),
        })?;
        if users::mount_of(meta.rdev()).is_some() {
            return Err(claimed(path, meta.rdev()));
        }
        (file, open_below(path, meta.rdev(), rw))
    } else {
        let path = path.display();
        return Err(Error::Refused(format!("{path} is neither a regular file nor a block device")));
    };
    // The path may have been replaced between the check and the open.
    let opened = file.metadata().map_err(|e| cannot_open(path, &e))?;
    let same = match kind.is_file() {
        true => (opened.dev(), opened.ino()) == (meta.dev(), meta.ino()),
        false => opened.rdev() == meta.rdev(),
    };
    if opened.file_type() != kind || !same {
        let path = path.display();
        return Err(Error::Refused(format!("{path} was replaced while it was opened: try again")));
    }
    let hold = if rw { Hold::Alone } else { Hold::Shared };
    FileDevice::from_file(file, below, hold, path, options)
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

/// Gives the file at `path` blocks of its own for all of its first `size` bytes, holes included;
/// what it holds stays.
///
/// # Errors
/// [`Error::Refused`] when there is not enough space, or the file system below cannot promise any.
pub fn reserve_blocks(path: &Path, size: u64) -> Result<()> {
    let refused = |e: io::Error| {
        let why = match e.raw_os_error() {
            Some(libc::EOPNOTSUPP) => "the file system that it lies on cannot".to_string(),
            _ => e.to_string(),
        };
        Error::Refused(format!("cannot reserve {size} bytes for {}: {why}", path.display()))
    };
    let file = open(path, true, 0).map_err(refused)?;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size)
        .map_err(|e| refused(e.into()))?;
    file.sync_all().map_err(refused)
}

fn open(path: &Path, rw: bool, flags: i32) -> io::Result<File> {
    OpenOptions::new().read(true).write(rw).custom_flags(flags).open(path)
}

pub(crate) fn cannot_open(path: &Path, e: &io::Error) -> Error {
    let path = path.display();
    Error::Refused(match e.raw_os_error() {
        Some(libc::ETXTBSY) => {
            format!("{path} is in use as swap space or as a running program")
        }
        _ => format!("cannot open {path}: {e}"),
    })
}

impl FileDevice {
    /// Locks a role's byte, and that of the file below a loop device.
    pub(super) fn claim_within(&self, role: Role, patience: Duration) -> Result<()> {
        let until = Instant::now() + patience;
        lock(&self.file, &self.path, role, self.hold, until)?;
        let Some(below) = &self.below else { return Ok(()) };
        let backing = Path::new(&below.path);
        lock(&below.file, backing, role, below.hold, until).map_err(|e| {
            // Half of the locks of a role are given back.
            let _ = locks::unlock(&self.file, role);
            let (path, backing) = (self.path.display(), backing.display());
            Error::Refused(format!("{path} is a loop device over {backing}, and {e}"))
        })
    }

    /// Gives a role back.
    pub(super) fn unclaim_now(&self, role: Role) -> Result<()> {
        let files = self.below.as_ref().map(|b| &b.file).into_iter().chain([&self.file]);
        for file in files {
            locks::unlock(file, role).map_err(|e| cannot_open(&self.path, &e))?;
        }
        Ok(())
    }
}

/// Refuses a regular file that an attached loop device has behind it. One that is about to go, as
/// after the umount(8) of what `mount -o loop` has mounted, is waited for.
pub(crate) fn refuse_loop(file: &File, path: &Path) -> Result<()> {
    if !file.metadata().is_ok_and(|m| m.is_file()) {
        return Ok(());
    }
    let until = Instant::now() + LOOP_PATIENCE;
    while let Some(device) = users::loop_over(file) {
        if Instant::now() >= until || !users::loop_goes(&device) {
            return Err(behind_loop(path, &device));
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Takes a role's byte of an open file, waiting for another holder until then.
pub(crate) fn lock(file: &File, path: &Path, role: Role, hold: Hold, until: Instant) -> Result<()> {
    loop {
        match locks::try_lock(file, role, hold) {
            Ok(true) => return Ok(()),
            Ok(false) if Instant::now() < until => thread::sleep(PAUSE),
            Ok(false) => return Err(locked(file, path, role)),
            Err(e) => return Err(cannot_open(path, &e)),
        }
    }
}

fn locked(file: &File, path: &Path, role: Role) -> Error {
    let who = users::lock_holders(file, locks::byte_of(role));
    let by = if who.is_empty() { "another process".into() } else { who.join(", ") };
    let path = path.display();
    Error::Refused(match role {
        Role::Host => {
            format!("{path} is in use by {by}: unmount it or let that process end first")
        }
        Role::Service => format!(
            "{path} is in use by {by}, which does its background work: let that process end \
             first, or mount with --service where it listens"
        ),
    })
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

/// The file below a loop device.
pub(super) struct Below {
    file: File,
    /// How long the file was.
    size: u64,
    path: PathBuf,
    hold: Hold,
}

impl Below {
    /// Is the file shorter than it was when it was opened? Without a look at its times, which would
    /// have its next write change them (Linux 6.13).
    pub(super) fn has_shrunk(&self) -> bool {
        let end = rustix::fs::seek(&self.file, rustix::fs::SeekFrom::End(0));
        end.is_ok_and(|end| end < self.size)
    }
}

/// When `path` is a loop device, opens the file below it, so that it can be locked too.
fn open_below(path: &Path, rdev: u64, rw: bool) -> Option<Below> {
    let backing = users::loop_backing(rdev)?;
    let hold = |rw| if rw { Hold::Alone } else { Hold::Shared };
    // One that cannot be written has no writer to exclude.
    let opened = open(&backing, rw, 0)
        .map(|file| (file, hold(rw)))
        .or_else(|_| open(&backing, false, 0).map(|file| (file, Hold::Shared)));
    match opened {
        Ok((file, hold)) => {
            let size = file.metadata().map_or(0, |meta| meta.len());
            Some(Below { file, size, path: backing, hold })
        }
        // Deleted, or named in another mount namespace: no open by that name here finds it either.
        Err(e) => {
            tracing::debug!("cannot open {} below {}: {e}", backing.display(), path.display());
            None
        }
    }
}

#[cfg(test)]
#[path = "exclusive_tests.rs"]
mod tests;
