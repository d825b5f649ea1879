//! The kernel's ext4 on a loop device, and what the kernel counts there.

use siftfs_rig::place::{Failed, Place, Result, arg, failed, run};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Bytes of the file below the loop device.
const BYTES: u64 = 512 << 20;

/// A mounted ext4 whose device nobody else uses. It is unmounted with its [`Place`].
pub struct Ext4 {
    /// Where it is mounted.
    pub dir: PathBuf,
    stat: PathBuf,
}

/// The loop device's counters, as `/sys/block/*/stat` has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskCounts {
    /// Writes that have ended. The kernel counts a flush that carries no data as one more.
    pub writes: u64,
    /// Flushes that have ended.
    pub flushes: u64,
}

impl Ext4 {
    /// Makes and mounts it.
    ///
    /// # Errors
    /// A program that fails, with its words.
    pub fn mount(place: &Place) -> Result<Self> {
        let image = place.path("ext4.image");
        let file = File::create(&image).map_err(failed(image.display()))?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, BYTES)
            .map_err(|e| Failed(format!("{}: {e}", image.display())))?;
        let whole = "lazy_itable_init=0,lazy_journal_init=0";
        run("mke2fs", &["-q", "-F", "-t", "ext4", "-E", whole, arg(&image)?])?;
        let dir = place.mount_point("ext4")?;
        run("mount", &["-o", "loop", arg(&image)?, arg(&dir)?])?;
        let device = rustix::fs::stat(&dir).map_err(|e| Failed(format!("ext4: {e}")))?.st_dev;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        Ok(Self { dir, stat: PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat")) })
    }

    /// The counters now.
    ///
    /// # Errors
    /// The kernel has none.
    pub fn counts(&self) -> Result<DiskCounts> {
        read(&self.stat)
    }
}

fn read(stat: &Path) -> Result<DiskCounts> {
    let text = fs::read_to_string(stat).map_err(failed(stat.display()))?;
    parse(&text).ok_or_else(|| Failed(format!("{}: no counts of flushes: {text}", stat.display())))
}

fn parse(text: &str) -> Option<DiskCounts> {
    let fields: Vec<u64> = text.split_whitespace().map_while(|field| field.parse().ok()).collect();
    Some(DiskCounts { writes: *fields.get(4)?, flushes: *fields.get(15)? })
}

#[cfg(test)]
#[path = "disk_tests.rs"]
mod tests;
