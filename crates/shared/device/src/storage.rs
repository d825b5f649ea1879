//! Who may touch which region: capabilities that a volume's storage hands out.
//!
//! The file-system area, the journal, each lane and each header record have one writer, and
//! the type system carries the right to be it: a writer can be taken once and not be cloned.

use std::collections::HashSet;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use siftfs_base::{Error, LaneId, Result};

use crate::{Counters, Device, Origin, ReadOp, Region, RegionKind, WriteOp};

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
    /// The one writer of the file-system area.
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

/// May read all copies of one header record.
#[derive(Clone)]
pub struct HeaderReader {
    copies: Vec<RegionReader>,
}

impl HeaderReader {
    /// The copies, in the order of their descriptors.
    pub fn copies(&self) -> &[RegionReader] {
        &self.copies
    }
}

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

/// The regions of a volume, each handed to its one writer at most once.
pub struct Storage {
    counters: Arc<Counters>,
    regions: Vec<(RegionDesc, RegionReader)>,
    taken: Mutex<HashSet<(RegionKind, u16)>>,
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
        Ok(Self { counters, regions, taken: Mutex::default() })
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
    /// The writer of the file-system area; refused when it was taken before.
    pub fn take_area(&self) -> Result<AreaWriter> {
        self.writer(RegionKind::Area, 0).map(AreaWriter)
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
    /// The writer of the journal; refused when it was taken before.
    pub fn take_journal(&self) -> Result<JournalWriter> {
        self.writer(RegionKind::Journal, 0).map(JournalWriter)
    }
    /// A reader of all copies of a header record.
    pub fn header_reader(&self, record: u16) -> Result<HeaderReader> {
        self.readers(RegionKind::Header, record).map(|copies| HeaderReader { copies })
    }
    /// The writer of all copies of a header record; refused when it was taken before.
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
