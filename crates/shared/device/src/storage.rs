//! The right to touch a region: capabilities that a volume's storage hands out.
//!
//! The file-system area, the journal, each lane and each header record have one writer, and
//! the type system carries the right to be it: a writer can be taken once and not be cloned.

use std::collections::HashSet;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use siftfs_base::{Error, LaneId, Result};

use crate::{
    Counters, Device, DeviceInfo, Discards, Medium, Origin, ReadOp, Region, RegionKind, WriteOp,
    io_error,
};

/// Where a region lies on its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionDesc {
    /// What it is.
    pub kind: RegionKind,
    /// For [`RegionKind::Staging`] the lane, for [`RegionKind::Header`] the header record, of
    /// which each descriptor with this number is one copy; 0 for the others.
    pub index: u16,
    /// First byte on the device.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// The right to read a region; clones share it.
#[derive(Clone)]
pub struct RegionReader {
    region: Arc<Region>,
}

impl RegionReader {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.region.len()
    }
    /// No bytes at all?
    pub fn is_empty(&self) -> bool {
        self.region.is_empty()
    }
    /// See [`Region::read`].
    pub fn read(&self, origin: Origin, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.region.read(origin, offset, buf)
    }
    /// See [`Region::read_batch`].
    pub fn read_batch(&self, origin: Origin, ops: &mut [ReadOp<'_>]) -> Result<()> {
        self.region.read_batch(origin, ops)
    }
    /// See [`crate::Device::expect_urgent`]: on the whole device.
    pub fn expect_urgent(&self, time: Duration) {
        self.region.expect_urgent(time);
    }
    /// See [`Region::discards`].
    pub fn discards(&self) -> Option<Discards> {
        self.region.discards()
    }
    /// See [`crate::Device::medium`].
    pub fn medium(&self) -> Medium {
        self.region.medium()
    }
    /// See [`crate::Device::describe`]: the whole device.
    pub fn describe(&self) -> DeviceInfo {
        self.region.describe()
    }

    /// Do both lie on one device, so that one flush serves both?
    pub fn shares_device(&self, other: &RegionReader) -> bool {
        self.region.shares_device(&other.region)
    }
}

/// The right to write a region, and to read it; there is one per region and storage.
pub struct RegionWriter {
    reader: RegionReader,
}

impl RegionWriter {
    /// See [`Region::write`].
    pub fn write(&self, origin: Origin, offset: u64, data: &[u8]) -> Result<()> {
        self.reader.region.write(origin, offset, data)
    }
    /// See [`Region::write_fua`].
    pub fn write_fua(&self, origin: Origin, offset: u64, data: &[u8]) -> Result<()> {
        self.reader.region.write_fua(origin, offset, data)
    }
    /// See [`Region::write_batch`].
    pub fn write_batch(&self, origin: Origin, ops: &[WriteOp<'_>]) -> Result<()> {
        self.reader.region.write_batch(origin, ops)
    }
    /// See [`Region::flush`]: covers the whole device.
    pub fn flush(&self, origin: Origin) -> Result<()> {
        self.reader.region.flush(origin)
    }
    /// See [`Region::flush_bulk`]: covers the whole device.
    pub fn flush_bulk(&self, origin: Origin) -> Result<()> {
        self.reader.region.flush_bulk(origin)
    }
    /// See [`Region::discard`].
    pub fn discard(&self, origin: Origin, offset: u64, len: u64) -> Result<()> {
        self.reader.region.discard(origin, offset, len)
    }
    /// See [`crate::Device::give_way`].
    pub fn give_way(&self, pause: Duration) {
        self.reader.region.give_way(pause);
    }
    /// Writes zeroes over `len` bytes at `offset`, really and in large batches, so that no
    /// later write has to allocate below; volatile until a later flush.
    pub fn zero(&self, origin: Origin, offset: u64, len: u64) -> Result<()> {
        zero_with(offset, len, |ops| self.write_batch(origin, ops))
    }
}

impl Deref for RegionWriter {
    type Target = RegionReader;
    fn deref(&self) -> &RegionReader {
        &self.reader
    }
}

/// Writes zeroes over `len` bytes of `device` at `offset`, really, so that no later write has
/// to allocate below; volatile until a flush.
///
/// Preallocated but unwritten blocks would make every first write to a file-backed ring a
/// metadata commit of the file system below.
pub fn zero_fill(device: &dyn Device, offset: u64, len: u64) -> Result<()> {
    zero_with(offset, len, |ops| device.write_batch(ops))
}

fn zero_with(
    offset: u64,
    len: u64,
    mut write: impl FnMut(&[WriteOp<'_>]) -> Result<()>,
) -> Result<()> {
    const PIECE: usize = 1 << 20;
    const DEPTH: usize = 8;
    let zero = crate::AlignedBuf::zeroed(PIECE);
    let mut done = 0;
    while done < len {
        let mut ops = Vec::with_capacity(DEPTH);
        while done < len && ops.len() < DEPTH {
            let part = usize::try_from(len - done).unwrap_or(PIECE).min(PIECE);
            ops.push(WriteOp { offset: offset + done, data: &zero[..part] });
            done += part as u64;
        }
        write(&ops)?;
    }
    Ok(())
}

macro_rules! capability {
    ($(#[$doc:meta])* $name:ident => $target:ident) => {
        $(#[$doc])*
        pub struct $name($target);
        impl Deref for $name {
            type Target = $target;
            fn deref(&self) -> &$target {
                &self.0
            }
        }
    };
}

capability!(
    /// May read the file-system area.
    #[derive(Clone)]
    AreaReader => RegionReader
);
capability!(
    /// The one writer of the file-system area: the Service's. It comes with the journal and the
    /// service record, whose writer must be the same (rule R9); see [`Storage::take_service`].
    /// Nothing else makes one:
    ///
    /// ```compile_fail,E0423
    /// fn steal(writer: siftfs_device::RegionWriter) -> siftfs_device::AreaWriter {
    ///     siftfs_device::AreaWriter(writer)
    /// }
    /// ```
    ///
    /// and it is one:
    ///
    /// ```compile_fail,E0599
    /// fn double(writer: &siftfs_device::AreaWriter) -> siftfs_device::AreaWriter {
    ///     writer.clone()
    /// }
    /// ```
    ///
    /// A reader does not write:
    ///
    /// ```compile_fail,E0599
    /// fn scribble(area: &siftfs_device::AreaReader) {
    ///     let _ = area.write(siftfs_device::Origin::Admin, 0, &[0; 4096]);
    /// }
    /// ```
    AreaWriter => RegionWriter
);
capability!(
    /// May read one staging lane.
    #[derive(Clone)]
    StagingReader => RegionReader
);
capability!(
    /// The one writer of a staging lane.
    StagingWriter => RegionWriter
);
capability!(
    /// May read the journal.
    #[derive(Clone)]
    JournalReader => RegionReader
);
capability!(
    /// The one writer of the journal.
    JournalWriter => RegionWriter
);

/// The one writer of a header record, in all its copies.
pub struct HeaderWriter {
    copies: Vec<RegionWriter>,
}

impl HeaderWriter {
    /// The copies, in the order of their descriptors.
    pub fn copies(&self) -> &[RegionWriter] {
        &self.copies
    }
}

/// Everything that the Service alone writes.
pub struct ServiceWriters {
    /// The file-system area.
    pub area: AreaWriter,
    /// The journal.
    pub journal: JournalWriter,
    /// The service record, in all its copies.
    pub record: HeaderWriter,
}

/// The writers that were taken and not given back.
type Taken = Mutex<HashSet<(RegionKind, u16)>>;

/// Length of a superblock in bytes.
const SUPERBLOCK: usize = 1024;
/// Where the primary superblock lies in the area.
const PRIMARY: u64 = 1024;
/// Where each copy of a superblock begins, backups at the beginning of a block.
const BLOCK: u64 = 4096;
/// Offset and bytes of what every ext4 superblock has.
const MAGIC: (usize, [u8; 2]) = (0x38, [0x53, 0xEF]);

/// May write superblocks while no Service serves, and nothing else of the file-system area: for the
/// marker and the link (rules R15, R16). It is the area's one writer as long as it lives.
///
/// ```compile_fail,E0308
/// fn scribble(area: &siftfs_device::SuperblockWriter) {
///     let _ = area.write(siftfs_device::Origin::Admin, 4096, &[0; 4096]);
/// }
/// ```
pub struct SuperblockWriter {
    writer: RegionWriter,
    taken: Arc<Taken>,
}

impl SuperblockWriter {
    /// Writes a superblock at `offset` of the area; volatile until a later flush.
    ///
    /// # Errors
    /// `EINVAL`, and nothing is written, for a place where no superblock lies or bytes that are
    /// none.
    pub fn write(&self, origin: Origin, offset: u64, bytes: &[u8; SUPERBLOCK]) -> Result<()> {
        let (at, magic) = MAGIC;
        let place = offset == PRIMARY || offset > 0 && offset.is_multiple_of(BLOCK);
        if !place || bytes[at..at + magic.len()] != magic {
            return Err(io_error("write of a superblock", offset, SUPERBLOCK, libc::EINVAL));
        }
        self.writer.write(origin, offset, bytes)
    }

    /// See [`Region::flush`]: covers the whole device.
    pub fn flush(&self, origin: Origin) -> Result<()> {
        self.writer.flush(origin)
    }
}

impl Deref for SuperblockWriter {
    type Target = RegionReader;
    fn deref(&self) -> &RegionReader {
        &self.writer
    }
}

impl Drop for SuperblockWriter {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.remove(&(RegionKind::Area, 0));
    }
}

/// The regions of a volume, each handed to one writer at a time.
pub struct Storage {
    counters: Arc<Counters>,
    regions: Vec<(RegionDesc, RegionReader)>,
    taken: Arc<Taken>,
}

impl Storage {
    /// All regions on one device.
    ///
    /// # Errors
    /// `EINVAL` when one does not lie on the device; refused when two overlap or one that has
    /// no copies is described twice.
    pub fn new(device: Arc<dyn Device>, regions: &[RegionDesc]) -> Result<Self> {
        Self::on(&[(device, regions.to_vec())])
    }

    /// Regions on several devices, as when the log has one of its own; errors as
    /// [`Storage::new`].
    pub fn on(devices: &[(Arc<dyn Device>, Vec<RegionDesc>)]) -> Result<Self> {
        let counters = Arc::new(Counters::default());
        let mut regions = Vec::new();
        for (device, descs) in devices {
            check_overlap(descs)?;
            for desc in descs {
                let (device, counters) = (Arc::clone(device), Arc::clone(&counters));
                let region = Region::new(device, desc.kind, desc.offset, desc.len, counters)?;
                regions.push((*desc, RegionReader { region: Arc::new(region) }));
            }
        }
        let mut seen = HashSet::new();
        for (desc, _) in &regions {
            if !seen.insert((desc.kind, desc.index)) && desc.kind != RegionKind::Header {
                return Err(Error::Refused(format!("two regions are {}", name_of(desc))));
            }
        }
        Ok(Self { counters, regions, taken: Arc::default() })
    }

    /// Counts of everything done through this storage.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    fn readers(&self, kind: RegionKind, index: u16) -> Result<Vec<RegionReader>> {
        let found: Vec<_> = self
            .regions
            .iter()
            .filter(|(d, _)| d.kind == kind && d.index == index)
            .map(|(_, r)| r.clone())
            .collect();
        if found.is_empty() {
            let desc = RegionDesc { kind, index, offset: 0, len: 0 };
            return Err(Error::Refused(format!("the volume has no {}", name_of(&desc))));
        }
        Ok(found)
    }

    fn reader(&self, kind: RegionKind, index: u16) -> Result<RegionReader> {
        self.readers(kind, index).map(|mut found| found.swap_remove(0))
    }

    fn writers(&self, kind: RegionKind, index: u16) -> Result<Vec<RegionWriter>> {
        let readers = self.readers(kind, index)?;
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if !taken.insert((kind, index)) {
            let desc = RegionDesc { kind, index, offset: 0, len: 0 };
            return Err(Error::Refused(format!("the writer of {} was taken", name_of(&desc))));
        }
        Ok(readers.into_iter().map(|reader| RegionWriter { reader }).collect())
    }

    fn writer(&self, kind: RegionKind, index: u16) -> Result<RegionWriter> {
        self.writers(kind, index).map(|mut found| found.swap_remove(0))
    }

    /// A reader of the file-system area.
    pub fn area_reader(&self) -> Result<AreaReader> {
        self.reader(RegionKind::Area, 0).map(AreaReader)
    }
    /// What the Service writes: the file-system area, the journal, and the header record with the
    /// number `record`; refused when one of them was taken before. The area's writer cannot be had
    /// by itself:
    ///
    /// ```compile_fail,E0599
    /// fn take(storage: &siftfs_device::Storage) {
    ///     let _ = storage.take_area();
    /// }
    /// ```
    pub fn take_service(&self, record: u16) -> Result<ServiceWriters> {
        Ok(ServiceWriters {
            area: self.writer(RegionKind::Area, 0).map(AreaWriter)?,
            journal: self.writer(RegionKind::Journal, 0).map(JournalWriter)?,
            record: self.take_header(record)?,
        })
    }
    /// The writer of the area's superblocks; refused while another caller has it, and once a
    /// Service writes the area.
    pub fn take_superblocks(&self) -> Result<SuperblockWriter> {
        let writer = self.writer(RegionKind::Area, 0)?;
        Ok(SuperblockWriter { writer, taken: self.taken.clone() })
    }
    /// A reader of a staging lane.
    pub fn staging_reader(&self, lane: LaneId) -> Result<StagingReader> {
        self.reader(RegionKind::Staging, lane.0).map(StagingReader)
    }
    /// The writer of a staging lane; refused when it was taken before.
    pub fn take_staging(&self, lane: LaneId) -> Result<StagingWriter> {
        self.writer(RegionKind::Staging, lane.0).map(StagingWriter)
    }
    /// A reader of the journal.
    pub fn journal_reader(&self) -> Result<JournalReader> {
        self.reader(RegionKind::Journal, 0).map(JournalReader)
    }
    /// The writer of all copies of a header record; refused when it was taken before.
    /// The service record comes with [`Storage::take_service`].
    pub fn take_header(&self, record: u16) -> Result<HeaderWriter> {
        self.writers(RegionKind::Header, record).map(|copies| HeaderWriter { copies })
    }
}

fn name_of(desc: &RegionDesc) -> String {
    match desc.kind {
        RegionKind::Area => "file-system area".into(),
        RegionKind::Journal => "journal".into(),
        RegionKind::Staging => format!("staging lane {}", desc.index),
        RegionKind::Header => format!("header record {}", desc.index),
    }
}

/// Refuses descriptors of one device that share a byte: each region has its own writer.
fn check_overlap(descs: &[RegionDesc]) -> Result<()> {
    let mut sorted = descs.to_vec();
    sorted.sort_by_key(|d| d.offset);
    for pair in sorted.windows(2) {
        let [a, b] = pair else { continue };
        if a.offset.checked_add(a.len).is_none_or(|end| end > b.offset) {
            let (a, b) = (name_of(a), name_of(b));
            return Err(Error::Refused(format!("{a} and {b} overlap on the device")));
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "storage_tests.rs"]
mod tests;
