//! What a device promises (crash model, "Medium").

use siftfs_base::{Error, Result};
use siftfs_status::DeviceInfo;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use crate::{Io, IoQueue};

/// Part of the volume an I/O touches; statistics count by it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RegionKind {
    /// The file-system area (ext4 format).
    Area,
    /// A staging lane.
    Staging,
    /// The journal ring.
    Journal,
    /// Either header copy.
    Header,
}

/// On whose behalf an I/O is done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    /// A caller waits for it.
    Foreground,
    /// Journaling, checkpointing, reclamation.
    Background,
    /// Recovery, mkfs, mount, unmount.
    Admin,
}

/// What a process does with a volume; the holder of a role is the one writer of its regions (rule
/// R9).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Writes the lanes, the host record and, while no Service runs, the marker.
    Host,
    /// Writes area, journal and service record.
    Service,
}

impl Role {
    /// Both roles, in the order in which they are claimed.
    pub const ALL: [Self; 2] = [Self::Host, Self::Service];
}

/// What a device keeps or loses at once, and what a log's records on it are multiples of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Medium {
    /// Sectors: a power cut tears a write between sectors of 512 bytes, never inside one. Records
    /// are multiples of 4096 bytes, so that writing one reads nothing first.
    Block,
    /// Memory: a power cut tears a write between aligned words of 8 bytes, in any order of the
    /// words, never inside one. Records are multiples of 64 bytes, a cache line.
    Bytes,
}

impl Medium {
    /// Bytes that survive a power cut together or not at all, at a multiple of their number.
    pub const fn atomic_unit(self) -> u64 {
        match self {
            Self::Block => 512,
            Self::Bytes => 8,
        }
    }

    /// Bytes that the records of a log on it are multiples of.
    pub const fn record_unit(self) -> u64 {
        match self {
            Self::Block => 4096,
            Self::Bytes => 64,
        }
    }
}

/// What a device can give back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Discards {
    /// Bytes that can be given back at least, at a multiple of their number.
    pub unit: u64,
    /// Is it of use unless an administrator says otherwise? Not for a file without a hole, whose
    /// space somebody meant to keep.
    pub usual: bool,
}

/// One buffer of a batched write.
pub struct WriteOp<'a> {
    /// Byte offset on the device or in the region.
    pub offset: u64,
    /// Bytes to write.
    pub data: &'a [u8],
}

/// One buffer of a batched read.
pub struct ReadOp<'a> {
    /// Byte offset on the device or in the region.
    pub offset: u64,
    /// Bytes to fill.
    pub buf: &'a mut [u8],
}

/// Small things that are kept beside a device, each under a name: on the same engine, so that
/// they are there wherever the device is opened. A process writes them that has the device to
/// write, and once that is taken away its calls fail.
pub trait Beside: Debug + Send + Sync {
    /// The first `limit` bytes of a thing; `None` if nothing has this name.
    ///
    /// # Errors
    /// It cannot be read. The message names the device and the thing, as those of all calls do.
    fn read(&self, name: &str, limit: u64) -> Result<Option<Vec<u8>>>;
    /// Puts bytes in a thing's place: durable, and as a whole, when this returns.
    ///
    /// # Errors
    /// They may be there, or what was there before.
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<()>;
    /// Adds bytes at the end of a thing, or makes a thing of them if nothing has this name. They
    /// are durable, and there as a whole, when this returns.
    ///
    /// # Errors
    /// They may be there.
    fn append(&self, name: &str, bytes: &[u8]) -> Result<()>;
    /// Takes a thing away, if it is there.
    ///
    /// # Errors
    /// It may still be there.
    fn remove(&self, name: &str) -> Result<()>;
}

/// A block device, a file used as one, or memory that keeps its contents ([`Device::medium`]).
///
/// A write that returned is *volatile*: until a [`Device::flush`] that was called after it has
/// returned, a power cut may lose it, tear it at sectors (or words, on [`Medium::Bytes`]), or
/// keep it while losing earlier writes. A flush covers every write that had returned before the
/// flush was called. A write with `fua` is durable itself when it returns, and says nothing of any
/// other write.
/// After a failed flush a backend may fail every later flush; it never reports success for
/// writes that the failed one may have lost.
/// All calls may be made from several threads at once. Offsets and lengths may have any
/// alignment; backends bounce what their medium does not take (slowly). A range that is not
/// inside the device is refused with `EINVAL` and touches nothing.
pub trait Device: Send + Sync {
    /// Size in bytes.
    fn size(&self) -> u64;
    /// Fills `buf` from `offset`. Short reads are errors.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
    /// Writes `data` at `offset`; `fua` makes this write durable before it returns. After an
    /// error, any part of the range may hold the new bytes.
    fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<()>;
    /// Makes every write that had returned before this call durable; after a role was claimed, also
    /// what reads show of a process that had the device before and has died.
    fn flush(&self) -> Result<()>;
    /// Several reads in flight; default is one after the other. After an error the contents
    /// of all buffers are undefined.
    fn read_batch(&self, ops: &mut [ReadOp<'_>]) -> Result<()> {
        ops.iter_mut().try_for_each(|op| self.read(op.offset, op.buf))
    }
    /// Several writes in flight, in no order; default is one after the other. After an error
    /// any of them may have been carried out. None is in flight any more when it returns.
    fn write_batch(&self, ops: &[WriteOp<'_>]) -> Result<()> {
        ops.iter().try_for_each(|op| self.write(op.offset, op.data, false))
    }
    /// Begins a read or a write that ends while the caller does other things; `queue` tells how it
    /// has ended, once. It is what [`Device::read`] and [`Device::write`] are, in no order with
    /// others that have not ended.
    ///
    /// # Errors
    /// The access itself: it cannot be begun so, and nothing was done. The caller makes it by those
    /// two calls, which also say what is wrong with it.
    fn begin(self: Arc<Self>, io: Io, queue: &mut IoQueue) -> std::result::Result<(), Io> {
        let _ = queue;
        Err(io)
    }
    /// Takes a role for this open device, waiting at most `patience` for another holder. Nothing
    /// happens if it has the role. A holder gives the role back by [`Device::unclaim`] or by
    /// dropping the device; when its process dies, the role is free once its I/O has ended, and
    /// not before.
    ///
    /// A device in memory belongs to one process and knows no other holder: the default is success.
    ///
    /// # Errors
    /// Refused, naming the holder.
    fn claim(&self, role: Role, patience: Duration) -> Result<()> {
        let _ = (role, patience);
        Ok(())
    }
    /// Gives a role back. Every call on this device that writes for the role has returned.
    fn unclaim(&self, role: Role) -> Result<()> {
        let _ = role;
        Ok(())
    }
    /// What is on it was closed in order: this process uses it no more, though it may still refer
    /// to it, and the next owner has nobody to keep away. Of use to a device whose owner others
    /// know by more than this process's life; the default does nothing.
    fn finish(&self) {}
    /// Can another process take the device away from this one while it lives? Then every access
    /// asks, and one that is refused for that reason fails with [`Error::Latched`], as do all
    /// behind it. The process that takes it reads its first block before anything else, and from
    /// then on no access of this process to that block succeeds.
    ///
    /// [`Error::Latched`]: siftfs_base::Error::Latched
    fn can_be_taken(&self) -> bool {
        false
    }
    /// Why this process has the device no more, once it was told so. Asks nobody.
    fn was_taken(&self) -> Option<String> {
        None
    }
    /// Small things beside the device, which are where it is; `None` where nothing can be kept so.
    fn beside(&self) -> Option<Arc<dyn Beside>> {
        None
    }
    /// A small durable step that a caller waits for begins (`true`), or has ended. A hint: much
    /// written without durability may give way to it meanwhile, and for a little longer, because
    /// the next one may follow.
    fn urgent(&self, _under_way: bool) {}
    /// Small durable steps of another process are expected on the same medium from now on for
    /// `_time`; takes the place of what was said before, and zero takes it back. A hint, as
    /// [`Device::urgent`], for a process that does not see these steps: what it writes without
    /// durability gives way to them meanwhile.
    fn expect_urgent(&self, _time: Duration) {}
    /// Yields to small steps; for a caller that has just written and will go on. Returns after
    /// `_pause`, 200 ms at most, or when small steps have ceased, 5 ms after the last; at once if
    /// there are none.
    fn give_way(&self, _pause: Duration) {}

    /// What [`Device::discard`] can do here; `None` where space cannot be given back.
    fn discards(&self) -> Option<Discards> {
        None
    }
    /// Gives the space of `len` bytes at `offset` back: what they hold is undefined from the begin
    /// of the call on, until they are written again after it has returned. Volatile as a write is,
    /// and in no order with unflushed writes of other bytes. After an error the bytes are undefined
    /// as well.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where space cannot be given back.
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        Err(io_error("discard", offset, len, libc::EOPNOTSUPP))
    }

    /// What a power cut tears a write at, and what records are multiples of.
    fn medium(&self) -> Medium {
        Medium::Block
    }

    /// Describes the device, for reports; one in memory has little to say.
    fn describe(&self) -> DeviceInfo {
        DeviceInfo {
            kind: "memory".into(),
            durable_write: "none".into(),
            why: "there is no kernel below".into(),
            ..DeviceInfo::default()
        }
    }
}

/// An [`Error::Io`].
pub(crate) fn io_error(op: &'static str, offset: u64, len: usize, errno: i32) -> Error {
    Error::Io { op, offset, len: len as u64, errno }
}

/// Refuses a range that is not inside `size` bytes.
pub(crate) fn check_bounds(op: &'static str, size: u64, offset: u64, len: usize) -> Result<()> {
    match offset.checked_add(len as u64) {
        Some(end) if end <= size => Ok(()),
        _ => Err(io_error(op, offset, len, libc::EINVAL)),
    }
}
