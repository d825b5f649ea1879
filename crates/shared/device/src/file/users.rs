//! The other users of a file or block device, as /proc and /sys tell it; for refusals that name
//! them.
//!
//! Another process may keep the reader of its /proc waiting: one that closes files in exec(2) does
//! while it waits for their file system. So may a file that it has open, when it is asked for its
//! attributes. Both are asked with a limit ([`ask_each`]), and what was not answered is not named.

use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, major, minor, statx};
use siftfs_base::bounded::ask_each;

/// At most this many users are listed in a message.
const SHOWN: usize = 3;
/// Where processes are shown.
const PROC: &str = "/proc";

/// The attached loop device whose backing file is this very inode. A backing file that cannot be
/// checked in time is not this one, which was opened.
pub(super) fn loop_over(file: &File) -> Option<PathBuf> {
    loop_in(Path::new("/sys/block"), file)
}

/// Does this loop device detach itself once nothing has it open, and is it mounted nowhere here?
/// The kernel does so a moment after the last close, which may be another program's.
pub(super) fn loop_goes(device: &Path) -> bool {
    let name = device.file_name().unwrap_or_default();
    let autoclear = Path::new("/sys/block").join(name).join("loop/autoclear");
    fs::read_to_string(autoclear).is_ok_and(|set| set.trim() == "1")
        && mount_point_of(device).is_none()
}

fn loop_in(block: &Path, file: &File) -> Option<PathBuf> {
    let wanted = Identity::of_open(file)?;
    let devices: Vec<PathBuf> = fs::read_dir(block).ok()?.flatten().map(|e| e.path()).collect();
    let is_loop = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("loop"))
    };
    let loops = devices.into_iter().filter(is_loop).collect();
    let over = ask_each(loops, move |device: &PathBuf| {
        let backing = backing_file(device)?;
        (Identity::of(&backing)? == wanted).then(|| device.file_name().map(|n| n.to_owned()))?
    });
    over.given.into_iter().flatten().next().map(|name| Path::new("/dev").join(name))
}

/// What two ways to one file or device have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: (u32, u32),
    ino: u64,
    node: (u32, u32),
}

impl Identity {
    /// Identity of what `path` leads to. A file system is not asked for what the kernel knows
    /// already: of a FUSE mount whose daemon does not answer, it knows its open files.
    fn of(path: &Path) -> Option<Self> {
        let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        statx(CWD, path, flags, StatxFlags::INO).ok().map(Self::said)
    }

    fn of_open(file: &File) -> Option<Self> {
        statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::INO).ok().map(Self::said)
    }

    fn said(x: Statx) -> Self {
        Self {
            device: (x.stx_dev_major, x.stx_dev_minor),
            ino: x.stx_ino,
            node: (x.stx_rdev_major, x.stx_rdev_minor),
        }
    }
}

/// The file below the loop device `rdev`, or below the loop device it is a partition of.
pub(super) fn loop_backing(rdev: u64) -> Option<PathBuf> {
    let device = sys_dir(rdev);
    let whole = device.join("..");
    backing_file(&device).or_else(|| {
        device.join("partition").exists().then_some(()).and_then(|()| backing_file(&whole))
    })
}

fn backing_file(device: &Path) -> Option<PathBuf> {
    let mut name = fs::read(device.join("loop/backing_file")).ok()?;
    if name.last() == Some(&b'\n') {
        name.pop();
    }
    Some(PathBuf::from(std::ffi::OsString::from_vec(name)))
}

fn sys_dir(rdev: u64) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{}:{}", major(rdev), minor(rdev)))
}

/// Where a block device is mounted, in this mount namespace.
pub(super) fn mount_of(rdev: u64) -> Option<PathBuf> {
    let wanted = format!("{}:{}", major(rdev), minor(rdev));
    mounts(|fields| fields.nth(2) == Some(wanted.as_str()))
}

/// Where the block device at `path` is mounted.
pub(super) fn mount_point_of(path: &Path) -> Option<PathBuf> {
    mount_of(fs::metadata(path).ok()?.rdev())
}

fn mounts(mut wanted: impl FnMut(&mut std::str::Split<'_, char>) -> bool) -> Option<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = table.lines().find(|line| wanted(&mut line.split(' ')))?;
    line.split(' ').nth(4).map(PathBuf::from)
}

/// Devices stacked on a block device, partitions' mounts included.
pub(super) fn device_holders(rdev: u64) -> Vec<String> {
    let dir = sys_dir(rdev);
    let mut found = Vec::new();
    for entry in fs::read_dir(dir.join("holders")).into_iter().flatten().flatten() {
        found.push(format!("the device {}", entry.file_name().to_string_lossy()));
    }
    for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
        let Ok(number) = fs::read_to_string(entry.path().join("dev")) else { continue };
        if !entry.path().join("partition").exists() {
            continue;
        }
        let number = number.trim();
        if let Some(at) = mounts(|fields| fields.nth(2) == Some(number)) {
            let name = entry.file_name();
            found.push(format!("partition {} mounted on {}", name.display(), at.display()));
        }
    }
    found.truncate(SHOWN);
    found
}

/// The usual node of a block device, if it is there.
pub(super) fn node_of(rdev: u64) -> Option<PathBuf> {
    let uevent = fs::read_to_string(sys_dir(rdev).join("uevent")).ok()?;
    let name = uevent.lines().find_map(|l| l.strip_prefix("DEVNAME="))?;
    let node = Path::new("/dev").join(name);
    fs::metadata(&node).is_ok_and(|m| m.rdev() == rdev).then_some(node)
}

/// Processes whose open files lock this byte of the file; all that have it open where that cannot
/// be seen.
pub(super) fn lock_holders(file: &File, byte: i64) -> Vec<String> {
    lock_holders_in(Path::new(PROC), file, byte)
}

fn lock_holders_in(proc: &Path, file: &File, byte: i64) -> Vec<String> {
    let open = open_in(proc, file);
    let end = format!(" {byte} {byte}");
    let locks = move |process: &PathBuf| {
        let infos = fs::read_dir(process.join("fdinfo")).into_iter().flatten().flatten();
        let mut texts = infos.filter_map(|entry| fs::read_to_string(entry.path()).ok());
        let lock = |line: &str| line.starts_with("lock:") && line.trim_end().ends_with(&end);
        texts.any(|text| text.lines().any(lock)).then(|| process.clone())
    };
    let holders: Vec<PathBuf> = ask_each(open.clone(), locks).given.into_iter().flatten().collect();
    describe(if holders.is_empty() { open } else { holders })
}

/// Processes, this one excepted, that have the file or device open.
pub(super) fn openers(file: &File) -> Vec<String> {
    describe(open_in(Path::new(PROC), file))
}

/// The directories in `proc` of processes that have the file open.
fn open_in(proc: &Path, file: &File) -> Vec<PathBuf> {
    let Some(wanted) = Identity::of_open(file) else { return Vec::new() };
    let has_it = move |process: &PathBuf| {
        let links = fs::read_dir(process.join("fd")).ok()?;
        let same = links.flatten().filter(|link| Identity::of(&link.path()) == Some(wanted));
        // The descriptor asked about is ours and no other user.
        let own = usize::from(number(process) == Some(std::process::id()));
        (same.count() > own).then(|| process.clone())
    };
    let entries = fs::read_dir(proc).into_iter().flatten().flatten().map(|e| e.path());
    let processes: Vec<PathBuf> = entries.filter(|path| number(path).is_some()).collect();
    ask_each(processes, has_it).given.into_iter().flatten().collect()
}

/// Which process a directory of `/proc` shows.
fn number(process: &Path) -> Option<u32> {
    process.file_name()?.to_str()?.parse().ok()
}

fn describe(mut processes: Vec<PathBuf>) -> Vec<String> {
    processes.sort_by_key(|process| number(process));
    processes.truncate(SHOWN);
    let named = ask_each(processes, |process: &PathBuf| {
        let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
        (number(process).unwrap_or_default(), name)
    });
    let mut named = named.given;
    named.sort();
    named.iter().map(|(pid, name)| format!("process {pid} ({})", name.trim())).collect()
}

#[cfg(test)]
#[path = "users_tests.rs"]
mod tests;
