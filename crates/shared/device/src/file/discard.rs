//! Space given back to what lies below: a hole in a file, a discard of a block device.

#![allow(unsafe_code)]

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

use rustix::fs::{FallocateFlags, major, minor};
use rustix::io::Errno;

use crate::Discards;

/// Bytes of a hole that a file system can make, whatever its block size says below that.
const HOLE: u64 = 4096;
/// Bytes that one unit of st_blocks stands for.
const STAT_BLOCK: u64 = 512;
/// `BLKDISCARD` of <linux/fs.h>: `_IO(0x12, 119)`.
const BLKDISCARD: libc::Ioctl = 0x1277;

/// What can be given back of an open file or block device.
pub(super) fn of(file: &File) -> Option<Discards> {
    let meta = file.metadata().ok()?;
    if meta.file_type().is_block_device() {
        return of_queue(|name| queue_value(meta.rdev(), name));
    }
    let sparse = meta.blocks().saturating_mul(STAT_BLOCK) < meta.len();
    Some(Discards { unit: meta.blksize().clamp(HOLE, 1 << 20), usual: sparse })
}

/// What a block device's queue says.
fn of_queue(value: impl Fn(&str) -> Option<u64>) -> Option<Discards> {
    value("discard_max_bytes").filter(|most| *most > 0)?;
    let unit = value("discard_granularity").unwrap_or(0).max(HOLE);
    unit.is_power_of_two().then_some(Discards { unit, usual: true })
}

/// A number of the queue of the block device with this number, or of the disk that it is a
/// partition of.
fn queue_value(device: u64, name: &str) -> Option<u64> {
    let dir = PathBuf::from(format!("/sys/dev/block/{}:{}", major(device), minor(device)));
    // The link is followed before "..", so that a partition's parent is its disk.
    let found = [dir.join("queue"), dir.join("../queue")];
    let text = found.iter().find_map(|queue| fs::read_to_string(queue.join(name)).ok())?;
    text.trim().parse().ok()
}

/// Gives the bytes back.
///
/// # Errors
/// The errno; `EOPNOTSUPP` if what lies below cannot do it.
pub(super) fn discard(file: &File, offset: u64, len: u64) -> Result<(), i32> {
    let block = file.metadata().is_ok_and(|meta| meta.file_type().is_block_device());
    let once = || match block {
        true => discard_blocks(file, offset, len),
        false => {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(file, hole, offset, len)
        }
    };
    loop {
        match once() {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::NOTTY | Errno::NOSYS) => return Err(libc::EOPNOTSUPP),
            Err(e) => return Err(e.raw_os_error()),
        }
    }
}

fn discard_blocks(file: &File, offset: u64, len: u64) -> rustix::io::Result<()> {
    let range = [offset, len];
    // SAFETY: the kernel reads two 64-bit numbers from the address, which are there and live on
    // until the call returns.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), BLKDISCARD, range.as_ptr()) };
    match done {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

#[cfg(test)]
#[path = "discard_tests.rs"]
mod tests;
