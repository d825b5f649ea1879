//! The header: static part and host slots.

use crate::registry::{RawRegistry, RegistryName};
use crate::{Checked, EpochKey, Invalid, JournalData, MAX_LANES, RedoRegion};
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, Epoch, Error, LaneId, Lsn, Result, corrupt};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of one header copy.
pub const HEADER_LEN: u64 = 65_536;
/// Byte offset of the static part inside a copy.
pub const STATIC_OFFSET: u64 = 0;
/// Byte offsets of the two host slots inside a copy.
pub const HOST_SLOTS: [u64; 2] = [BLOCK_BYTES, 2 * BLOCK_BYTES];
/// Byte offsets of the two service slots inside a copy.
pub const SERVICE_SLOTS: [u64; 2] = [3 * BLOCK_BYTES, 4 * BLOCK_BYTES];
/// Version of the log format: of the header's blocks and of a record area's header. Staged and
/// journal records have a version of their own each.
pub const FORMAT_VERSION: u32 = 2;
/// Version of a host record that names a registry of private logs: builds that know none refuse it.
pub const REGISTRY_VERSION: u32 = 3;
/// Compatible features that this crate knows (unknown ones are ignored).
pub const KNOWN_COMPAT: u32 = COMPAT_RESERVED;
/// Compatible feature: every block of the area was given to its file when the volume was made, so
/// that no write can lack space below. What is free in the area is not given back below.
pub const COMPAT_RESERVED: u32 = 1;
/// Features without which a volume may still be read.
pub const KNOWN_RO_COMPAT: u32 = 0;
/// Features without which a volume is refused.
pub const KNOWN_INCOMPAT: u32 = INCOMPAT_EXTERNAL_LOG
    | INCOMPAT_JOURNAL_COPY
    | INCOMPAT_RECORD_AREA
    | INCOMPAT_REDO_LANE
    | INCOMPAT_SPARE_LOG;
/// Incompatible feature: the area lies on a device of its own, from its first byte on. All other
/// places are on the device that holds the header; what the header says of the area's length is
/// what it was when the log was made.
pub const INCOMPAT_EXTERNAL_LOG: u32 = 1;
/// Incompatible feature: journal transactions repeat the staged data ([`JournalData::Copy`]).
pub const INCOMPAT_JOURNAL_COPY: u32 = 2;
/// Incompatible feature: the last lane is a record area, on byte-addressable memory of its own.
pub const INCOMPAT_RECORD_AREA: u32 = 4;
/// Incompatible feature: a row behind those of the lanes is the redo lane, which the target writes.
pub const INCOMPAT_REDO_LANE: u32 = 8;
/// Incompatible feature: a spare log may hold what this log's device lacks. Nothing of the log is
/// read before what is there was looked at.
pub const INCOMPAT_SPARE_LOG: u32 = 16;
/// Bit of ext4's `s_feature_incompat` that keeps others away while the log may hold state (R15).
pub const EXT4_MARKER: u32 = 0x2000_0000;
/// [`HostRecord::lane_ends`] of a lane that is being written.
pub const OPEN_END: u64 = u64::MAX;

const STATIC_MAGIC: [u8; 8] = *b"SIFTvol\x01";
const HOST_MAGIC: [u8; 8] = *b"SIFThst\x01";
const MEDIUM_BLOCK: u16 = 1;
const MEDIUM_BYTES: u16 = 2;
const LANE_RUNTIME: u16 = 1;
const LANE_REDO: u16 = 2;
const LANE_ACTIVE: u16 = 1;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawLane {
    id: U16,
    medium: U16,
    kind: U16,
    state: U16,
    offset: U64,
    len: U64,
    owner: U64,
    reserved: [u8; 32],
}
const _: () = assert!(size_of::<RawLane>() == 64);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawStatic {
    magic: [u8; 8],
    version: U32,
    compat: U32,
    ro_compat: U32,
    incompat: U32,
    lane_count: U32,
    reserved0: U32,
    volume: [u8; 16],
    area_uuid: [u8; 16],
    area_offset: U64,
    area_len: U64,
    journal_offset: U64,
    journal_len: U64,
    header_offsets: [U64; 2],
    reserved1: [u8; 144],
    lanes: [RawLane; MAX_LANES],
    reserved2: [u8; 2812],
    crc: U32,
}
const _: () = assert!(size_of::<RawStatic>() == BLOCK_SIZE);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHost {
    magic: [u8; 8],
    version: U32,
    state: U32,
    seq: U64,
    epoch: U64,
    nonce: U64,
    lane_epoch: U64,
    lane_nonce: U64,
    journal_epoch: U64,
    journal_nonce: U64,
    lsn_floor: U64,
    area_crc: U32,
    lane_count: U32,
    lane_ends: [U64; MAX_LANES],
    lane_heads: [U64; MAX_LANES],
    reserved0: [u8; 680],
    superblock: [u8; 1024],
    registry: RawRegistry,
    reserved1: [u8; 1024],
    crc: U32,
}
const _: () = assert!(size_of::<RawHost>() == BLOCK_SIZE);

/// What a lane lies on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LaneMedium {
    /// Block storage: torn at 512 bytes.
    Block,
    /// Byte-addressable memory: torn at 8 bytes.
    Bytes,
}

/// One row of the lane table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaneEntry {
    /// Index, equal to the row.
    pub id: LaneId,
    /// What it lies on.
    pub medium: LaneMedium,
    /// First byte on the device; a multiple of the block size.
    pub offset: u64,
    /// Ring length in bytes; a multiple of the block size.
    pub len: u64,
    /// Session that may write it, 0 for the Runtime itself.
    pub owner: u64,
}

/// What never changes while a volume is in use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StaticHeader {
    /// Features a reader may ignore.
    pub compat: u32,
    /// Features a reader may ignore, a writer not.
    pub ro_compat: u32,
    /// Features that neither readers nor writers may ignore.
    pub incompat: u32,
    /// Identity of the volume.
    pub volume: [u8; 16],
    /// UUID of the ext4 area that the log belongs to (rule R16).
    pub area_uuid: [u8; 16],
    /// First byte of the area on its device.
    pub area_offset: u64,
    /// Bytes of the area.
    pub area_len: u64,
    /// First byte of the journal ring.
    pub journal_offset: u64,
    /// Bytes of the journal ring.
    pub journal_len: u64,
    /// First byte of header copy 0 and of header copy 1.
    pub header_offsets: [u64; 2],
    /// Lanes, at least one, in the order of their ids.
    pub lanes: Vec<LaneEntry>,
    /// The redo lane, if there is one; its row lies behind those of the lanes.
    pub redo: Option<RedoRegion>,
}

/// What the log is for, as the host last said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostState {
    /// The log is empty and the area is plain ext4.
    Clean,
    /// A mount writes, or died writing.
    Mounted,
    /// A recovery writes, or died writing.
    Recovering,
}

/// The host's record, written by mount, unmount and recovery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostRecord {
    /// Counts host records; the highest is the newest.
    pub seq: u64,
    /// What is going on.
    pub state: HostState,
    /// Present epoch and its nonce.
    pub key: EpochKey,
    /// Key under which the lanes' unreclaimed records were written.
    pub lane_key: EpochKey,
    /// Key under which the journal's unreclaimed records were written.
    pub journal_key: EpochKey,
    /// Every LSN drawn from now on is larger.
    pub lsn_floor: Lsn,
    /// crc32c of the first 1020 bytes of the area's superblock while it has no marker: as the last
    /// clean unmount left it, or, in a mounted record, as that mount found it (rule R15). The
    /// superblock's own checksum is left out: over a message and its checksum, a CRC is the same
    /// for every message. A clean volume whose superblock differs was changed by another program
    /// since (rule R16).
    pub area_crc: u32,
    /// Per lane, the end of its valid records as found by a recovery, or [`OPEN_END`] while the
    /// lane is being written under `lane_key` (rule R8).
    pub lane_ends: Vec<u64>,
    /// Per lane, where its first record under `lane_key` was or will be placed after.
    pub lane_heads: Vec<u64>,
    /// The superblock that the area should have, marker included (rule R15).
    pub superblock: Box<[u8; 1024]>,
    /// The registry of private logs that may hold what is not in the volume; none in a clean record
    /// (rule R36).
    pub registry: Option<RegistryName>,
}

pub(crate) fn lanes_u64(values: &[u64]) -> [U64; MAX_LANES] {
    assert!(!values.is_empty() && values.len() <= MAX_LANES, "1 to 16 lanes");
    std::array::from_fn(|i| values.get(i).copied().unwrap_or(0).into())
}

pub(crate) fn lanes_vec(values: &[U64; MAX_LANES], count: u32, what: &str) -> Result<Vec<u64>> {
    let n = count as usize;
    match values.get(..n) {
        Some(v) if n > 0 => Ok(v.iter().map(|x| x.get()).collect()),
        _ => Err(corrupt(what, format!("{count} lanes"))),
    }
}

/// Checks magic, checksum and version of one header block, in this order. `newest` is the highest
/// version of this kind of block that this build knows.
pub(crate) fn open_block<'a, T>(
    block: &'a [u8; BLOCK_SIZE],
    magic: &[u8; 8],
    newest: u32,
    version: impl Fn(&T) -> u32,
) -> Checked<&'a T>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    let Ok(raw) = T::ref_from_bytes(block) else { return Err(Invalid("wrong size").into()) };
    if block[..8] != *magic {
        return Err(Invalid("no magic number").into());
    }
    let (body, crc) = block.split_at(BLOCK_SIZE - 4);
    if crc != crate::checksum(0, body).to_le_bytes() {
        return Err(Invalid("checksum mismatch").into());
    }
    let found = version(raw);
    if !(FORMAT_VERSION..=newest).contains(&found) {
        let what_to_do = match found < FORMAT_VERSION {
            true => ": mount and unmount it with the build that made it; the files are ext4's then",
            false => "",
        };
        return Err(Error::Incompatible(format!(
            "log format version {found}; this build knows {newest}{what_to_do}"
        ))
        .into());
    }
    Ok(raw)
}

/// The block's bytes with the checksum in its last four.
pub(crate) fn seal<T: IntoBytes + Immutable>(raw: &T) -> Box<[u8; BLOCK_SIZE]> {
    let mut block = Box::new([0u8; BLOCK_SIZE]);
    block.copy_from_slice(raw.as_bytes());
    let (body, crc) = block.split_last_chunk_mut().expect("a block is longer than a checksum");
    *crc = crate::checksum(0, body).to_le_bytes();
    block
}

impl StaticHeader {
    /// Encodes the static part.
    ///
    /// # Panics
    /// If a reader would refuse it.
    pub fn encode(&self) -> Box<[u8; BLOCK_SIZE]> {
        self.check().expect("a header is what its reader demands");
        self.encode_unchecked()
    }

    /// What a static part must be, whether it is about to be written or was read: features that
    /// this build knows, lanes in order, and a geometry in which no two regions overlap.
    fn check(&self) -> Result<()> {
        check_features(self.incompat)?;
        if self.lanes.is_empty() || self.lanes.len() + usize::from(self.redo.is_some()) > MAX_LANES
        {
            return Err(corrupt("header", format!("{} lanes", self.lanes.len())));
        }
        if let Some((row, lane)) = (0..).zip(&self.lanes).find(|(row, lane)| lane.id.0 != *row) {
            return Err(corrupt("header", format!("lane {row} has id {}", lane.id.0)));
        }
        if self.spare_log() && !self.external_log() {
            return Err(corrupt("header", "a spare log, and the log on the area's device"));
        }
        self.check_record_area()?;
        self.check_redo()?;
        self.check_geometry()
    }

    /// Only the last lane is one, not the only one, and the feature says so.
    fn check_record_area(&self) -> Result<()> {
        let bytes = |lane: &LaneEntry| lane.medium == LaneMedium::Bytes;
        let Some((last, before)) = self.lanes.split_last() else { return Ok(()) };
        let wanted = self.incompat & INCOMPAT_RECORD_AREA != 0;
        let wrong = bytes(last) != wanted || before.iter().any(bytes);
        if wrong || before.is_empty() && wanted {
            return Err(corrupt("header", "its lanes and its features disagree on a record area"));
        }
        let whole = |n: u64| n.is_multiple_of(BLOCK_BYTES) && n > 0;
        let end = last.offset.checked_add(last.len).filter(|end| *end < 1 << 62);
        if wanted && !(whole(last.offset) && whole(last.len) && end.is_some()) {
            return Err(corrupt("header", "a record area that no medium can have"));
        }
        Ok(())
    }

    /// Encodes a static part that a test has made wrong.
    #[doc(hidden)]
    pub fn encode_unchecked(&self) -> Box<[u8; BLOCK_SIZE]> {
        let mut raw = RawStatic::new_zeroed();
        raw.magic = STATIC_MAGIC;
        raw.version = FORMAT_VERSION.into();
        raw.compat = self.compat.into();
        raw.ro_compat = self.ro_compat.into();
        raw.incompat = self.incompat.into();
        raw.lane_count = (self.lanes.len() as u32).into();
        raw.volume = self.volume;
        raw.area_uuid = self.area_uuid;
        raw.area_offset = self.area_offset.into();
        raw.area_len = self.area_len.into();
        raw.journal_offset = self.journal_offset.into();
        raw.journal_len = self.journal_len.into();
        raw.header_offsets = self.header_offsets.map(U64::new);
        for (slot, lane) in raw.lanes.iter_mut().zip(&self.lanes) {
            slot.id = lane.id.0.into();
            slot.medium = match lane.medium {
                LaneMedium::Block => MEDIUM_BLOCK.into(),
                LaneMedium::Bytes => MEDIUM_BYTES.into(),
            };
            slot.kind = LANE_RUNTIME.into();
            slot.state = LANE_ACTIVE.into();
            slot.offset = lane.offset.into();
            slot.len = lane.len.into();
            slot.owner = lane.owner.into();
        }
        let behind = raw.lanes.get_mut(self.lanes.len());
        if let (Some(redo), Some(slot)) = (&self.redo, behind) {
            slot.id = (self.lanes.len() as u16).into();
            (slot.medium, slot.kind) = (MEDIUM_BLOCK.into(), LANE_REDO.into());
            (slot.state, slot.offset) = (LANE_ACTIVE.into(), redo.offset.into());
            slot.len = redo.len.into();
        }
        seal(&raw)
    }

    /// Decodes and checks the static part: version, features, and a geometry in which no two
    /// regions overlap.
    pub fn decode(block: &[u8; BLOCK_SIZE]) -> Checked<Self> {
        let raw =
            open_block::<RawStatic>(block, &STATIC_MAGIC, FORMAT_VERSION, |r| r.version.get())?;
        check_features(raw.incompat.get())?;
        let count = raw.lane_count.get() as usize;
        let Some(rows) = raw.lanes.get(..count) else {
            return Err(corrupt("header", format!("{count} lanes")).into());
        };
        let mut lanes = Vec::with_capacity(count);
        for (i, row) in rows.iter().enumerate() {
            lanes.push(decode_lane(i, row)?);
        }
        let redo = match raw.incompat.get() & INCOMPAT_REDO_LANE {
            0 => None,
            _ => Some(decode_redo_row(count, raw.lanes.get(count))?),
        };
        let header = Self {
            compat: raw.compat.get(),
            ro_compat: raw.ro_compat.get(),
            incompat: raw.incompat.get(),
            volume: raw.volume,
            area_uuid: raw.area_uuid,
            area_offset: raw.area_offset.get(),
            area_len: raw.area_len.get(),
            journal_offset: raw.journal_offset.get(),
            journal_len: raw.journal_len.get(),
            header_offsets: raw.header_offsets.map(|o| o.get()),
            lanes,
            redo,
        };
        header.check()?;
        Ok(header)
    }

    /// Unknown features that forbid writing, or 0.
    pub fn unknown_ro_compat(&self) -> u32 {
        self.ro_compat & !KNOWN_RO_COMPAT
    }

    /// Were the area's blocks reserved in the file that holds it?
    pub fn reserved(&self) -> bool {
        self.compat & COMPAT_RESERVED != 0
    }

    /// Does the area lie on another device than the log?
    pub fn external_log(&self) -> bool {
        self.incompat & INCOMPAT_EXTERNAL_LOG != 0
    }

    /// Is there a spare log?
    pub fn spare_log(&self) -> bool {
        self.incompat & INCOMPAT_SPARE_LOG != 0
    }

    /// What a lane lies on.
    pub fn medium_of(&self, lane: LaneId) -> LaneMedium {
        let lane = self.lanes.get(usize::from(lane.0));
        lane.map_or(LaneMedium::Block, |lane| lane.medium)
    }

    /// The record area: the lane on byte-addressable memory.
    pub fn record_area(&self) -> Option<&LaneEntry> {
        self.lanes.last().filter(|lane| lane.medium == LaneMedium::Bytes)
    }

    /// What every journal transaction of this volume holds of staged data.
    pub fn journal_data(&self) -> JournalData {
        match self.incompat & INCOMPAT_JOURNAL_COPY {
            0 => JournalData::Ref,
            _ => JournalData::Copy,
        }
    }

    /// Every region on the device that holds the header: name, offset and length in bytes.
    pub fn regions(&self) -> Vec<(String, u64, u64)> {
        let area = ("area".to_string(), self.area_offset, self.area_len);
        let mut all: Vec<_> = (!self.external_log()).then_some(area).into_iter().collect();
        all.extend([
            ("header copy 0".to_string(), self.header_offsets[0], HEADER_LEN),
            ("header copy 1".to_string(), self.header_offsets[1], HEADER_LEN),
            ("journal".to_string(), self.journal_offset, self.journal_len),
        ]);
        let here = self.lanes.iter().filter(|lane| lane.medium == LaneMedium::Block);
        all.extend(here.map(|l| (format!("lane {}", l.id.0), l.offset, l.len)));
        all.extend(self.redo.map(|r| ("redo lane".to_string(), r.offset, r.len)));
        all
    }

    /// Regions are block-aligned, not empty, and do not overlap.
    pub fn check_geometry(&self) -> Result<()> {
        if self.external_log() && self.area_offset != 0 {
            return Err(corrupt("header", "the area does not begin at its device's first byte"));
        }
        let mut regions = self.regions();
        regions.sort_by_key(|r| r.1);
        let mut last: Option<(String, u64)> = None;
        for (name, offset, len) in regions {
            let bad = |why: &str| Err(corrupt("header", format!("{name} {why}")));
            if len == 0 || len % BLOCK_BYTES != 0 || offset % BLOCK_BYTES != 0 {
                return bad("is empty or not aligned to blocks");
            }
            let Some(end) = offset.checked_add(len).filter(|e| *e < 1 << 62) else {
                return bad("lies beyond any device");
            };
            if let Some((before, before_end)) = last
                && before_end > offset
            {
                return bad(&format!("overlaps {before}"));
            }
            last = Some((name, end));
        }
        Ok(())
    }
}

fn check_features(incompat: u32) -> Result<()> {
    match incompat & !KNOWN_INCOMPAT {
        0 => Ok(()),
        unknown => Err(Error::Incompatible(format!(
            "incompatible features {unknown:#x} that this build does not know"
        ))),
    }
}

fn decode_lane(row: usize, raw: &RawLane) -> Result<LaneEntry> {
    let medium = match raw.medium.get() {
        MEDIUM_BLOCK => LaneMedium::Block,
        MEDIUM_BYTES => LaneMedium::Bytes,
        m => return Err(Error::Incompatible(format!("lane {row} on unknown medium {m}"))),
    };
    if raw.kind.get() != LANE_RUNTIME || raw.state.get() != LANE_ACTIVE {
        return Err(Error::Incompatible(format!("lane {row} of unknown type or state")));
    }
    Ok(LaneEntry {
        id: LaneId(raw.id.get()),
        medium,
        offset: raw.offset.get(),
        len: raw.len.get(),
        owner: raw.owner.get(),
    })
}

/// The row of the redo lane, which lies behind those of the lanes.
fn decode_redo_row(row: usize, raw: Option<&RawLane>) -> Result<RedoRegion> {
    let known = |raw: &&RawLane| {
        let kind = (raw.medium.get(), raw.kind.get(), raw.state.get());
        usize::from(raw.id.get()) == row && kind == (MEDIUM_BLOCK, LANE_REDO, LANE_ACTIVE)
    };
    let raw = raw.filter(known).ok_or_else(|| corrupt("header", "no row is a redo lane's"))?;
    Ok(RedoRegion { offset: raw.offset.get(), len: raw.len.get() })
}

fn key(epoch: U64, nonce: U64) -> EpochKey {
    EpochKey { epoch: Epoch(epoch.get()), nonce: nonce.get() }
}

impl HostRecord {
    /// Encodes the record.
    ///
    /// # Panics
    /// If a reader would refuse it.
    pub fn encode(&self) -> Box<[u8; BLOCK_SIZE]> {
        assert_eq!(self.lane_ends.len(), self.lane_heads.len(), "one end and head per lane");
        self.check().expect("a host record is what its reader demands");
        let mut raw = RawHost::new_zeroed();
        raw.magic = HOST_MAGIC;
        raw.version = FORMAT_VERSION.into();
        if let Some(name) = &self.registry {
            raw.version = REGISTRY_VERSION.into();
            raw.registry = name.encode();
        }
        raw.state = match self.state {
            HostState::Clean => 1.into(),
            HostState::Mounted => 2.into(),
            HostState::Recovering => 3.into(),
        };
        raw.seq = self.seq.into();
        raw.epoch = self.key.epoch.0.into();
        raw.nonce = self.key.nonce.into();
        raw.lane_epoch = self.lane_key.epoch.0.into();
        raw.lane_nonce = self.lane_key.nonce.into();
        raw.journal_epoch = self.journal_key.epoch.0.into();
        raw.journal_nonce = self.journal_key.nonce.into();
        raw.lsn_floor = self.lsn_floor.0.into();
        raw.area_crc = self.area_crc.into();
        raw.lane_count = (self.lane_ends.len() as u32).into();
        raw.lane_ends = lanes_u64(&self.lane_ends);
        raw.lane_heads = lanes_u64(&self.lane_heads);
        raw.superblock = *self.superblock;
        seal(&raw)
    }

    /// Decodes and checks a host slot.
    pub fn decode(block: &[u8; BLOCK_SIZE]) -> Checked<Self> {
        const WHAT: &str = "host record";
        let newest = REGISTRY_VERSION;
        let raw = open_block::<RawHost>(block, &HOST_MAGIC, newest, |r| r.version.get())?;
        let state = match raw.state.get() {
            1 => HostState::Clean,
            2 => HostState::Mounted,
            3 => HostState::Recovering,
            s => return Err(Error::Incompatible(format!("host state {s}")).into()),
        };
        let named = raw.version.get() == REGISTRY_VERSION;
        let registry = named.then(|| RegistryName::decode(&raw.registry)).transpose()?;
        let record = Self {
            seq: raw.seq.get(),
            state,
            key: key(raw.epoch, raw.nonce),
            lane_key: key(raw.lane_epoch, raw.lane_nonce),
            journal_key: key(raw.journal_epoch, raw.journal_nonce),
            lsn_floor: Lsn(raw.lsn_floor.get()),
            area_crc: raw.area_crc.get(),
            lane_ends: lanes_vec(&raw.lane_ends, raw.lane_count.get(), WHAT)?,
            lane_heads: lanes_vec(&raw.lane_heads, raw.lane_count.get(), WHAT)?,
            superblock: Box::new(raw.superblock),
            registry,
        };
        record.check()?;
        Ok(record)
    }

    /// Rule R36, whether it is about to be written or was read.
    fn check(&self) -> Result<()> {
        match (self.state, &self.registry) {
            (HostState::Clean, Some(_)) => Err(corrupt(
                "host record",
                "it says that the log is empty, and names a registry of private logs",
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "header_tests.rs"]
pub(crate) mod tests;
