//! Who else uses a file or block device, as /proc and /sys tell it; for refusals that say by
//! what.

use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

/// At most this many users are listed in a message.
const SHOWN: usize = 3;

/// The attached loop device whose backing file is this very inode.
pub(super) fn loop_over(file: &File) -> Option<PathBuf> {
    let meta = file.metadata().ok()?;
    for entry in fs::read_dir("/sys/block").ok()?.flatten() {
        let name = entry.file_name();
        if !name.to_string_lossy().starts_with("loop") {
            continue;
        }
        let Some(backing) = backing_file(&entry.path()) else { continue };
        let Ok(other) = fs::metadata(&backing) else { continue };
        if (other.dev(), other.ino()) == (meta.dev(), meta.ino()) {
            return Some(Path::new("/dev").join(name));
        }
    }
    None
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
    let open = open_in(file);
    let end = format!(" {byte} {byte}");
    let locks = |pid: &u32| {
        let infos = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
        let info = infos.filter_map(|entry| fs::read_to_string(entry.path()).ok());
        info.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
            .any(|line| line.starts_with("lock:") && line.trim_end().ends_with(&end))
    };
    let holders: Vec<u32> = open.iter().copied().filter(locks).collect();
    describe(if holders.is_empty() { &open } else { &holders })
}

/// Processes, this one excepted, that have the file or device open.
pub(super) fn openers(file: &File) -> Vec<String> {
    describe(&open_in(file))
}

fn open_in(file: &File) -> Vec<u32> {
    let Ok(wanted) = file.metadata() else { return Vec::new() };
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|s| s.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(links) = fs::read_dir(entry.path().join("fd")) else { continue };
        let count = links
            .flatten()
            .filter_map(|link| fs::metadata(link.path()).ok())
            .filter(|m| (m.dev(), m.ino(), m.rdev()) == (wanted.dev(), wanted.ino(), wanted.rdev()))
            .count();
        // The descriptor asked about is ours and no other user.
        let own = usize::from(pid == std::process::id());
        if count > own {
            found.push(pid);
        }
    }
    found
}

fn describe(pids: &[u32]) -> Vec<String> {
    let name = |pid: &u32| {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        format!("process {pid} ({})", comm.trim())
    };
    pids.iter().take(SHOWN).map(name).collect()
}
