//! A record area in memory that is addressed by bytes: persistent memory, the persistent memory
//! region (PMR) of an NVMe controller, or, for tests and measurements, any file.

mod lines;
mod log_memory;
mod mapping;
mod open;
mod place;
mod pmr;
mod promise;

pub use log_memory::LogMemory;
pub use place::{BytePlace, PciAddress};
pub use promise::{BytePromise, LineFlush};

use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use siftfs_base::{Error, Result};
use siftfs_status::Persists;

use crate::file::{Hold, PATIENCE, STEP_PATIENCE, cannot_open, lock, unlock};
use crate::{Device, DeviceInfo, Medium, Role, WriteOp, check_bounds, io_error, zero_fill};
use mapping::Mapping;
use open::{Opened, Way};

/// Bytes that records are multiples of.
const RECORD_UNIT: u64 = Medium::Bytes.record_unit();
/// Bytes of the smallest record area.
const MIN_SIZE: u64 = 4096;

/// How a record area is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByteOptions {
    /// On a [`BytePlace::Volatile`] each persist takes this much longer, spinning, as if something
    /// were read back from a device; for measurements. Elsewhere anything but zero is refused.
    pub modelled_read_back: Duration,
    /// Nothing is written, and readers share a role.
    pub read_only: bool,
}

#[derive(Default)]
struct Counts {
    persists: AtomicU64,
    fences: AtomicU64,
    bytes: AtomicU64,
    inherited: AtomicU64,
}

/// A record area: memory that keeps its contents over a power cut, mapped.
///
/// Which promise holds is proved when it is opened ([`ByteDevice::promise`]). Every write starts
/// the write-back of its cache lines and waits for it in a fence, so that a flush by another thread
/// has nothing left to chase on this one's processor. A write with `fua`, and a flush, return when
/// the bytes are persistent as the promise says. The first flush after it was opened, or after a
/// role was claimed, covers what other processes stored, too: one that was killed between its
/// stores and their write-back has left lines that a reader sees and a power cut takes (rule R18).
/// Aligned words of 8 bytes are stored at once; a
/// power cut may keep any of the words of a write that did not return. Once making something
/// persistent has failed, every later write and flush fails as well.
///
/// The memory is shared: another process that has it mapped may change it at any time, and readers
/// check what they read. What is left of rule R41: the kernel kills a process that touches a
/// mapping whose file was made shorter (SIGBUS). The file is a regular one under the roles' locks,
/// which all SiftFS processes heed, its size is checked when it is opened and when a role is
/// claimed, holes are filled first, and a memfd is sealed against it. An administrator who
/// truncates the file of a mounted volume loses the mount, as by pulling a disk; the next mount
/// recovers what is left. A medium that reports a memory error in a line ends the process likewise.
pub struct ByteDevice {
    place: BytePlace,
    file: File,
    path: PathBuf,
    kind: String,
    hold: Hold,
    memory: Mapping,
    promise: BytePromise,
    way: Way,
    read_back: Duration,
    /// errno of the first failure; 0 while there was none.
    failed: AtomicI32,
    /// Another process may have left lines that are not written back.
    inherits: AtomicBool,
    /// Held by the flush that writes back what another process has left.
    inheriting: Mutex<()>,
    counts: Counts,
}

impl ByteDevice {
    /// Opens what lies at a place without any role: a caller that writes claims one first, as
    /// [`Device::claim`] says.
    ///
    /// # Errors
    /// [`Error::Refused`], saying what to do, when
    /// - nothing is there, it is too small, or it may not be opened;
    /// - it is not persistent, and not named `volatile:`;
    /// - it is the PMR of a controller that a driver uses, or that says that it is not well.
    pub fn open(place: &BytePlace, options: ByteOptions) -> Result<Self> {
        let device = Self::of(place, options, open::open(place, options)?);
        let (size, promise) = (device.size(), device.promise);
        tracing::debug!(place = %place, size, promise = %promise, "record area open");
        Ok(device)
    }

    fn of(place: &BytePlace, options: ByteOptions, opened: Opened) -> Self {
        let Opened { file, path, kind, memory, promise, way } = opened;
        Self {
            place: place.clone(),
            file,
            path,
            kind,
            hold: if options.read_only { Hold::Shared } else { Hold::Alone },
            memory,
            promise,
            way,
            read_back: options.modelled_read_back,
            failed: AtomicI32::new(0),
            inherits: AtomicBool::new(true),
            inheriting: Mutex::default(),
            counts: Counts::default(),
        }
    }

    /// As [`ByteDevice::open`], with both roles.
    ///
    /// # Errors
    /// As there; refused when another process has a role, naming it.
    pub fn open_exclusive(place: &BytePlace, options: ByteOptions) -> Result<Self> {
        let device = Self::open(place, options)?;
        device.claim(Role::Host, PATIENCE)?;
        device.claim(Role::Service, STEP_PATIENCE)?;
        Ok(device)
    }

    /// Makes a record area, and opens it with both roles. A regular file gets exactly `size` bytes
    /// (at least 4096, the usable ones being whole records of 64), all of them allocated, written
    /// with zeroes and durable. A device is taken as it is, with its own size and contents.
    ///
    /// # Errors
    /// As [`ByteDevice::open_exclusive`]; refused when a device has fewer than `size` bytes, and
    /// when there is not enough space.
    pub fn create(place: &BytePlace, size: u64, options: ByteOptions) -> Result<Self> {
        if options.read_only {
            return Err(Error::Refused(format!("{place} is to be made, but not to be written")));
        }
        let is_file =
            |path: &std::path::Path| std::fs::metadata(path).map_or(true, |m| m.is_file());
        let Some(path) = place.path().filter(|path| is_file(path)) else {
            let device = Self::open_exclusive(place, options)?;
            if device.size() < size {
                let has = device.size();
                return Err(Error::Refused(format!(
                    "{place} has {has} bytes, fewer than the {size} that were asked for"
                )));
            }
            return Ok(device);
        };
        open::make_file(path, size, matches!(place, BytePlace::Path(_)))?;
        let device = Self::open_exclusive(place, options)?;
        zero_fill(&device, 0, device.size())?;
        device.flush()?;
        Ok(device)
    }

    /// Where it lies, as it was named.
    pub fn place(&self) -> &BytePlace {
        &self.place
    }

    /// Which promise holds.
    pub fn promise(&self) -> BytePromise {
        self.promise
    }

    /// What it was asked to make durable since it was opened.
    pub fn persists(&self) -> Persists {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Counts { persists, fences, bytes, inherited } = &self.counts;
        Persists {
            persists: of(persists),
            fences: of(fences),
            bytes: of(bytes),
            inherited: of(inherited),
        }
    }

    /// Refuses a write that cannot be one.
    fn check_write(&self, offset: u64, len: usize) -> Result<()> {
        check_bounds("write", self.size(), offset, len)?;
        if self.hold == Hold::Shared {
            return Err(io_error("write", offset, len, libc::EROFS));
        }
        self.check("write", offset, len)
    }

    fn check(&self, op: &'static str, offset: u64, len: usize) -> Result<()> {
        match self.failed.load(Ordering::Acquire) {
            0 => Ok(()),
            errno => Err(io_error(op, offset, len, errno)),
        }
    }

    /// Stores, and starts the write-back; the fence is the caller's.
    fn store(&self, offset: u64, data: &[u8]) {
        let line = if let Way::Lines(line) = &self.way { *line } else { None };
        self.memory.store(offset as usize, data, line);
        self.counts.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
    }

    /// Writes back every line, where another process may have left some behind. A flush beside one
    /// that is at it waits: both cover these lines.
    fn write_back_inherited(&self) {
        let Way::Lines(line) = &self.way else { return };
        if !self.inherits.load(Ordering::Acquire) {
            return;
        }
        let _one = self.inheriting.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.inherits.load(Ordering::Acquire) {
            return;
        }
        self.memory.write_back(0, self.memory.len(), *line);
        // A fence concerns what its own thread has written back.
        self.fence();
        self.inherits.store(false, Ordering::Release);
        self.counts.inherited.fetch_add(self.memory.len() as u64, Ordering::Relaxed);
    }

    fn fence(&self) {
        lines::fence();
        self.counts.fences.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes what was stored in the range, and fenced, persistent.
    fn persist(&self, op: &'static str, offset: u64, len: usize) -> Result<()> {
        let done = match &self.way {
            Way::Lines(_) => {
                spin(self.read_back);
                Ok(())
            }
            Way::Msync => self.memory.sync(offset as usize, len),
            Way::ReadBack(pmr) => pmr.read_back(&self.memory, offset as usize),
        };
        self.counts.persists.fetch_add(1, Ordering::Relaxed);
        done.map_err(|e| {
            let errno = e.raw_os_error().unwrap_or(libc::EIO);
            tracing::error!(place = %self.place, "the record area did not persist: {e}");
            self.failed.store(errno, Ordering::Release);
            io_error(op, offset, len, errno)
        })
    }
}

/// Takes so long.
fn spin(time: Duration) {
    if time.is_zero() {
        return;
    }
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

impl Device for ByteDevice {
    fn size(&self) -> u64 {
        self.memory.len() as u64
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_bounds("read", self.size(), offset, buf.len())?;
        self.memory.load(offset as usize, buf);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<()> {
        self.check_write(offset, data.len())?;
        self.store(offset, data);
        self.fence();
        if fua { self.persist("write", offset, data.len()) } else { Ok(()) }
    }

    fn flush(&self) -> Result<()> {
        self.check("flush", 0, 0)?;
        self.write_back_inherited();
        self.fence();
        self.persist("flush", 0, self.memory.len())
    }

    fn write_batch(&self, ops: &[WriteOp<'_>]) -> Result<()> {
        ops.iter().try_for_each(|op| self.check_write(op.offset, op.data.len()))?;
        ops.iter().for_each(|op| self.store(op.offset, op.data));
        self.fence();
        Ok(())
    }

    fn claim(&self, role: Role, patience: Duration) -> Result<()> {
        lock(&self.file, &self.path, role, self.hold, Instant::now() + patience)?;
        self.inherits.store(true, Ordering::Release);
        // What was made shorter since it was mapped would kill the process at the first touch.
        let now = self.file.metadata().map_err(|e| cannot_open(&self.path, &e))?;
        if now.is_file() && now.len() < self.size() {
            let _ = unlock(&self.file, role);
            return Err(Error::Refused(format!(
                "{} was made shorter after it was opened: open it again",
                self.place
            )));
        }
        Ok(())
    }

    fn unclaim(&self, role: Role) -> Result<()> {
        unlock(&self.file, role).map_err(|e| cannot_open(&self.path, &e))
    }

    fn medium(&self) -> Medium {
        Medium::Bytes
    }

    fn describe(&self) -> DeviceInfo {
        DeviceInfo {
            path: self.place.to_string(),
            kind: self.kind.clone(),
            volatile_cache: None,
            fua: None,
            direct: self.promise.is_persistent(),
            uring: false,
            persistent: Some(self.promise.is_persistent()),
            durable_write: self.promise.way(),
            why: match self.promise.is_persistent() {
                true => "proved when the record area was opened".into(),
                false => "it was named volatile:".into(),
            },
            persists: Some(self.persists()),
            cluster: None,
        }
    }
}

#[cfg(test)]
#[path = "bytes_tests.rs"]
mod tests;
