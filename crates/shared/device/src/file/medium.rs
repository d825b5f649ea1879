//! What lies below an open file, as the kernel says it, and which way of making one write durable
//! is one write and one flush there.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

use rustix::fs::{major, minor};

use super::DurableWrite;

/// File systems that keep files in memory: a sync of theirs reaches nothing.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];

/// By `f_type` of statfs(2); others are shown as a number.
const FILE_SYSTEMS: [(u64, &str); 10] = [
    (0xEF53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683E, "btrfs"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58F6, "ramfs"),
    (0x794C_7630, "overlay"),
    (0xF2F5_2010, "f2fs"),
    (0x2FC1_2FC1, "zfs"),
    (0x6969, "nfs"),
    (0x6573_5546, "fuse"),
];

/// What a block device says of its cache (`queue/write_cache`, `queue/fua`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cache {
    /// The device has a volatile cache, so that durability needs flushes.
    pub volatile: bool,
    /// The device takes writes that pass the cache by.
    pub fua: bool,
}

/// What lies below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Medium {
    /// A block device, and what it says of its cache.
    Block(Option<Cache>),
    /// A regular file on such a file system, and what the disk below that says; `None` where the
    /// file system has none, or several.
    File(String, Option<Cache>),
}

impl Medium {
    /// What the kernel says.
    pub fn of(file: &File) -> Self {
        let Ok(meta) = file.metadata() else { return Self::Block(None) };
        if meta.file_type().is_block_device() {
            return Self::Block(cache_of(meta.rdev()));
        }
        Self::File(file_system(file), cache_of(meta.dev()))
    }

    /// For people.
    pub fn name(&self) -> String {
        match self {
            Self::Block(_) => "block device".into(),
            Self::File(fs, _) => format!("file on {fs}"),
        }
    }

    /// What the disk says of its cache.
    pub fn cache(&self) -> Option<Cache> {
        match self {
            Self::Block(cache) | Self::File(_, cache) => *cache,
        }
    }

    fn in_memory(&self) -> bool {
        matches!(self, Self::File(fs, _) if IN_MEMORY.contains(&fs.as_str()))
    }

    /// The way of making one write durable that is one write and one flush, or less, and why. With
    /// `direct` false the page cache is between.
    pub fn choose(&self, direct: bool) -> (DurableWrite, &'static str) {
        use DurableWrite::{Dsync, WriteThenSync};
        match self {
            _ if self.in_memory() => {
                (WriteThenSync, "the file system is in memory: its fdatasync reaches nothing")
            }
            _ if !direct => (
                WriteThenSync,
                "no direct I/O: an error of writeback is told once, so that every sync goes one way",
            ),
            Self::Block(Some(Cache { volatile: false, .. })) => {
                (Dsync, "no volatile cache: the kernel leaves flushes out, and one call is enough")
            }
            Self::Block(_) => (
                WriteThenSync,
                "on a block device RWF_DSYNC ends in a flush of the whole device, FUA or not; \
                 without FUA it is a second one",
            ),
            Self::File(_, Some(Cache { fua: true, volatile: true })) => {
                (Dsync, "the disk has FUA: an overwrite is one write and no flush of the disk")
            }
            Self::File(..) => (Dsync, "one call: a write and one flush by the file system"),
        }
    }
}

/// The name of the file system that a file lies on.
pub(crate) fn file_system(file: &File) -> String {
    let Ok(stat) = rustix::fs::fstatfs(file) else { return "an unknown file system".into() };
    // The field's type differs from machine to machine, and its upper half may be a sign.
    #[allow(clippy::cast_sign_loss, clippy::unnecessary_cast)]
    let magic = stat.f_type as u64 & 0xFFFF_FFFF;
    let known = FILE_SYSTEMS.iter().find(|(number, _)| *number == magic);
    known.map_or_else(|| format!("file system {magic:#x}"), |(_, name)| (*name).into())
}

/// What the block device with this number says, or the disk that it is a partition of.
fn cache_of(device: u64) -> Option<Cache> {
    let dir = PathBuf::from(format!("/sys/dev/block/{}:{}", major(device), minor(device)));
    // The link is followed before "..", so that a partition's parent is its disk.
    [dir.join("queue"), dir.join("../queue")].iter().find_map(|queue| {
        let read = |name| fs::read_to_string(queue.join(name)).ok();
        Some(Cache {
            volatile: is_volatile(&read("write_cache")?)?,
            fua: read("fua").is_some_and(|fua| fua.trim() == "1"),
        })
    })
}

/// What `queue/write_cache` says; `None` for words that are not known.
fn is_volatile(words: &str) -> Option<bool> {
    match words.trim() {
        "write back" => Some(true),
        "write through" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
#[path = "medium_tests.rs"]
mod tests;
