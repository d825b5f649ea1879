//! A file or block device as a device.

mod align;
mod discard;
mod exclusive;
mod flush;
mod io;
mod locks;
mod medium;
mod options;
mod pace;
mod under_way;
mod uring;
mod users;

pub(crate) use exclusive::{PATIENCE, STEP_PATIENCE, cannot_open, lock, refuse_loop};
pub use exclusive::{is_hosted, open_exclusive, open_for_service, preallocate, reserve_blocks};
pub(crate) use locks::{Hold, unlock};
pub(crate) use medium::file_system;
pub use options::{DurableWrite, FileOptions};
pub(crate) use under_way::Ring;

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::OFlags;
use siftfs_base::{Result, Turnstile};

use crate::{
    AlignedBuf, Device, DeviceInfo, Discards, Io, IoQueue, ReadOp, Role, WriteOp, check_bounds,
    io_error,
};
use align::Align;
use exclusive::Below;
use flush::FlushGate;
use medium::Medium;
use pace::{Pace, SLICE};
use uring::{Job, RingPool};

/// Largest piece of a bounced request, so that the bounce buffer is bounded.
const BOUNCE: usize = 1 << 20;

/// A regular file or block device.
///
/// With direct I/O (where the file system below takes it) data passes the page cache by; requests
/// that are not aligned are bounced. `flush` is one fdatasync at a time: callers that come while
/// one runs share the next, and its result. Once making something durable has failed, every later
/// flush and `fua` write fails as well, because the kernel reports a lost write only once and a
/// second fdatasync would lie.
pub struct FileDevice {
    file: File,
    /// The file below a loop device, locked with it.
    below: Option<Below>,
    /// How a role is held: by a writer, or by readers.
    hold: Hold,
    path: PathBuf,
    size: u64,
    medium: Medium,
    /// How a write with `fua` is made durable, under direct I/O, and why so.
    durable: (DurableWrite, &'static str),
    discards: Option<Discards>,
    /// `Some` when the file is open for direct I/O.
    align: Option<Align>,
    rings: Option<RingPool>,
    flush: FlushGate,
    /// The file or device was seen shorter than it was when it was opened.
    shrank: AtomicBool,
    pace: Pace,
    /// Aligned writes share it; a read-modify-write of partial units has it alone.
    partial: Arc<Turnstile>,
}

impl FileDevice {
    /// A device on an open file, whose size stays as it is now. `below` is kept open with it.
    fn from_file(
        file: File,
        below: Option<Below>,
        hold: Hold,
        path: &Path,
        options: FileOptions,
    ) -> Result<Self> {
        let fail =
            |e: std::io::Error| io_error("open", 0, 0, e.raw_os_error().unwrap_or(libc::EIO));
        let size =
            rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0)).map_err(|e| fail(e.into()))?;
        let align = if options.direct { enable_direct(&file, size) } else { None };
        let rings = if options.uring { RingPool::probe(options.depth) } else { None };
        let medium = Medium::of(&file);
        let durable = match options.durable {
            DurableWrite::Chosen => medium.choose(align.is_some()),
            asked => (asked, "asked for"),
        };
        tracing::debug!(
            path = %path.display(), size, direct = align.is_some(), uring = rings.is_some(),
            durable = durable.0.name(), why = durable.1, "device open"
        );
        let discards = discard::of(&file);
        Ok(Self {
            file,
            below,
            hold,
            path: path.to_owned(),
            size,
            medium,
            durable,
            discards,
            align,
            rings,
            flush: FlushGate::default(),
            shrank: AtomicBool::new(false),
            pace: Pace::new(),
            partial: Arc::default(),
        })
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Does data pass the page cache by?
    pub fn is_direct(&self) -> bool {
        self.align.is_some()
    }

    /// Are batches done through io_uring?
    pub fn is_uring(&self) -> bool {
        self.rings.is_some()
    }

    /// Does the medium take this request as it is?
    fn fits(&self, offset: u64, buf: &[u8]) -> bool {
        self.align.is_none_or(|a| a.range(offset, buf.len()) && a.memory(buf))
    }

    fn read_one(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if self.fits(offset, buf) {
            return io::read_all(&self.file, offset, buf);
        }
        let align = self.align.expect("only direct I/O needs a bounce");
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let part = (buf.len() - done).min(BOUNCE);
            let (start, len) = align.around(at, part);
            let mut bounce = AlignedBuf::zeroed(len);
            io::read_all(&self.file, start, &mut bounce)?;
            let skip = (at - start) as usize;
            buf[done..done + part].copy_from_slice(&bounce[skip..skip + part]);
            done += part;
        }
        Ok(())
    }

    /// Writes without any promise of durability, several in flight, what is long in slices.
    fn write_together(&self, ops: &[WriteOp<'_>]) -> Result<()> {
        let several = |ops: &[WriteOp<'_>]| ops.len() > 1 || ops.iter().any(|o| is_long(o.data));
        let Some(rings) = self.rings.as_ref().filter(|_| several(ops)) else {
            return ops.iter().try_for_each(|op| self.write_plain(op.offset, op.data));
        };
        let pieces = sliced(ops);
        let mut jobs = Vec::with_capacity(pieces.len());
        for op in &pieces {
            if self.fits(op.offset, op.data) {
                jobs.push(Job::write(op.offset, op.data));
            } else {
                self.write_bounced(op.offset, op.data)?;
            }
        }
        let _shared = self.partial.enter();
        rings.run(self.file.as_fd(), &mut jobs)
    }

    /// As [`FileDevice::write_together`], for bulk: in slices as long as small writes come.
    fn write_bulk(&self, ops: &[WriteOp<'_>]) -> Result<()> {
        let pieces = sliced(ops);
        let mut rest = &pieces[..];
        while !rest.is_empty() && self.pace.busy() {
            let (some, more) = rest.split_at(slice_of(rest));
            self.pace.slice(|| self.write_together(some))?;
            rest = more;
        }
        self.write_together(rest)
    }

    /// Writes without any promise of durability.
    fn write_plain(&self, offset: u64, data: &[u8]) -> Result<()> {
        if self.fits(offset, data) {
            let _shared = self.partial.enter();
            return io::write_all(&self.file, offset, data);
        }
        self.write_bounced(offset, data)
    }

    /// Writes through an aligned buffer; the units at both ends keep their other bytes.
    fn write_bounced(&self, offset: u64, data: &[u8]) -> Result<()> {
        let align = self.align.expect("only direct I/O needs a bounce");
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let part = &data[done..data.len().min(done + BOUNCE)];
            if align.range(at, part.len()) {
                let _shared = self.partial.enter();
                io::write_all(&self.file, at, &AlignedBuf::copy_of(part))?;
            } else {
                let (start, len) = align.around(at, part.len());
                let skip = (at - start) as usize;
                let mut bounce = AlignedBuf::zeroed(len);
                let _alone = self.partial.alone();
                io::read_all(&self.file, start, &mut bounce)?;
                bounce[skip..skip + part.len()].copy_from_slice(part);
                io::write_all(&self.file, start, &bounce)?;
            }
            done += part.len();
        }
        Ok(())
    }

    /// One write that is durable when it returns.
    fn write_durable(&self, offset: u64, data: &[u8]) -> Result<()> {
        let bounce;
        let data = if self.fits(offset, data) {
            data
        } else if self.align.is_some_and(|a| a.range(offset, data.len())) && data.len() <= BOUNCE {
            bounce = AlignedBuf::copy_of(data);
            &bounce
        } else {
            self.write_bounced(offset, data)?;
            return self.sync();
        };
        let shared = self.partial.enter();
        // Without direct I/O an error of the page cache's writeback is reported to one caller
        // only, so that every sync has to go through the gate.
        let way = if self.is_direct() { self.durable.0 } else { DurableWrite::WriteThenSync };
        let written = match (way, &self.rings) {
            (DurableWrite::Dsync, _) => {
                self.flush.check().and_then(|()| io::write_dsync(&self.file, offset, data))
            }
            (DurableWrite::Linked, Some(rings)) => self
                .flush
                .check()
                .and_then(|()| rings.write_and_sync(self.file.as_fd(), offset, data)),
            _ => {
                io::write_all(&self.file, offset, data)?;
                drop(shared);
                return self.sync();
            }
        };
        written.map_err(|errno| {
            self.flush.note_failure(errno);
            io_error("write", offset, data.len(), errno)
        })
    }

    fn sync(&self) -> Result<()> {
        let fdatasync = || {
            rustix::fs::fdatasync(&self.file).map_err(|e| e.raw_os_error())?;
            if self.is_whole() { Ok(()) } else { Err(libc::EIO) }
        };
        self.flush.run(fdatasync).map_err(|errno| io_error(self.what("flush"), 0, 0, errno))
    }

    /// Is the file or device, and the file below a loop device, as long as it was when it was
    /// opened? What lay behind a new end is gone, and a write there would make the file long again,
    /// with a hole in the place of what was acknowledged: so this is asked before each write, and
    /// after each sync. Costs a system call that does no I/O.
    fn is_whole(&self) -> bool {
        let end = |file: &File| rustix::fs::seek(file, rustix::fs::SeekFrom::End(0));
        let shrank = end(&self.file).is_ok_and(|size| size < self.size)
            || self.below.as_ref().is_some_and(Below::has_shrunk);
        if shrank && !self.shrank.swap(true, Ordering::AcqRel) {
            tracing::error!(
                path = %self.path.display(), size = self.size,
                "the file or device was cut shorter while it was in use"
            );
        }
        !self.shrank.load(Ordering::Acquire)
    }

    fn check_whole(&self, offset: u64, len: usize) -> Result<()> {
        if self.is_whole() {
            return Ok(());
        }
        self.flush.note_failure(libc::EIO);
        Err(io_error(self.what("write"), offset, len, libc::EIO))
    }

    /// What failed, for people.
    fn what(&self, op: &'static str) -> &'static str {
        if self.shrank.load(Ordering::Acquire) {
            "use of storage that was cut shorter below the mount"
        } else {
            op
        }
    }
}

/// Switches direct I/O on when the file takes it for its whole length.
fn enable_direct(file: &File, size: u64) -> Option<Align> {
    let align = Align::of(file)?;
    if size == 0 || !size.is_multiple_of(align.unit as u64) {
        return None;
    }
    let flags = rustix::fs::fcntl_getfl(file).ok()?;
    rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT).ok()?;
    let mut probe = AlignedBuf::zeroed(align.unit);
    if io::read_all(file, 0, &mut probe).is_ok() {
        return Some(align);
    }
    // A bad first block is not the probe's business: the reader that needs it will say so.
    if rustix::fs::fcntl_setfl(file, flags).is_err() {
        return Some(align);
    }
    None
}

impl Device for FileDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_bounds("read", self.size, offset, buf.len())?;
        self.read_one(offset, buf)
    }

    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<()> {
        check_bounds("write", self.size, offset, data.len())?;
        self.check_whole(offset, data.len())?;
        match fua {
            true => self.write_durable(offset, data).and_then(|()| {
                // A write that is durable by itself is a flush, too.
                self.check_whole(offset, data.len())
            }),
            false if is_long(data) => self.write_together(&[WriteOp { offset, data }]),
            false => self.write_plain(offset, data),
        }
    }

    fn flush(&self) -> Result<()> {
        self.sync()
    }

    fn read_batch(&self, ops: &mut [ReadOp<'_>]) -> Result<()> {
        for op in ops.iter() {
            check_bounds("read", self.size, op.offset, op.buf.len())?;
        }
        let Some(rings) = self.rings.as_ref().filter(|_| ops.len() > 1) else {
            return ops.iter_mut().try_for_each(|op| self.read_one(op.offset, op.buf));
        };
        let mut jobs = Vec::with_capacity(ops.len());
        for op in ops.iter_mut() {
            if self.fits(op.offset, op.buf) {
                jobs.push(Job::read(op.offset, op.buf));
            } else {
                self.read_one(op.offset, op.buf)?;
            }
        }
        rings.run(self.file.as_fd(), &mut jobs)
    }

    fn write_batch(&self, ops: &[WriteOp<'_>]) -> Result<()> {
        for op in ops {
            check_bounds("write", self.size, op.offset, op.data.len())?;
        }
        self.check_whole(ops.first().map_or(0, |op| op.offset), 0)?;
        let bytes: usize = ops.iter().map(|op| op.data.len()).sum();
        if bytes > SLICE / 2 && self.pace.busy() {
            self.write_bulk(ops)
        } else {
            self.write_together(ops)
        }
    }

    fn begin(self: Arc<Self>, io: Io, queue: &mut IoQueue) -> std::result::Result<(), Io> {
        self.begin_one(io, queue)
    }

    fn claim(&self, role: Role, patience: Duration) -> Result<()> {
        self.claim_within(role, patience)
    }

    fn unclaim(&self, role: Role) -> Result<()> {
        self.unclaim_now(role)
    }

    fn urgent(&self, under_way: bool) {
        self.pace.urgent(under_way);
    }

    fn expect_urgent(&self, time: Duration) {
        self.pace.expect(time);
    }

    fn give_way(&self, pause: Duration) {
        self.pace.give_way(pause);
    }

    fn discards(&self) -> Option<Discards> {
        self.discards
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        let bytes = usize::try_from(len).unwrap_or(usize::MAX);
        check_bounds("discard", self.size, offset, bytes)?;
        discard::discard(&self.file, offset, len)
            .map_err(|errno| io_error("discard", offset, bytes, errno))
    }

    fn describe(&self) -> DeviceInfo {
        let cache = self.medium.cache();
        DeviceInfo {
            path: self.path.display().to_string(),
            kind: self.medium.name(),
            volatile_cache: cache.map(|c| c.volatile),
            fua: cache.map(|c| c.fua),
            direct: self.is_direct(),
            uring: self.is_uring(),
            persistent: None,
            durable_write: self.durable.0.name().into(),
            why: self.durable.1.into(),
            persists: None,
            cluster: None,
        }
    }
}

/// Is it worth several requests in flight? A disk takes a megabyte in four faster than in one.
fn is_long(data: &[u8]) -> bool {
    data.len() >= 2 * SLICE
}

/// The same writes, none longer than a slice.
fn sliced<'a>(ops: &[WriteOp<'a>]) -> Vec<WriteOp<'a>> {
    let mut pieces = Vec::new();
    for op in ops {
        for (i, data) in op.data.chunks(SLICE).enumerate() {
            pieces.push(WriteOp { offset: op.offset + (i * SLICE) as u64, data });
        }
    }
    pieces
}

/// How many of the writes are a slice together; at least one.
fn slice_of(pieces: &[WriteOp<'_>]) -> usize {
    let mut bytes = 0;
    let fits = |op: &&WriteOp<'_>| {
        bytes += op.data.len();
        bytes <= SLICE
    };
    pieces.iter().take_while(fits).count().max(1)
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
