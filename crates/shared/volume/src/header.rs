//! Finding, checking, repairing and making the header.

use crate::superblock::{AreaSuper, SUPERBLOCK_LEN, SUPERBLOCK_OFFSET};
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, Error, Result, corrupt};
use siftfs_device::{Device, RegionDesc, RegionKind};
use siftfs_log::{
    Checked, HEADER_LEN, HOST_SLOTS, HostRecord, HostState, Invalid, SERVICE_SLOTS, STATIC_OFFSET,
    ServiceRecord, StaticHeader,
};

/// Index of the host record's region descriptors (two slots in each copy).
pub const HEADER_HOST: u16 = 0;
/// Index of the service record's region descriptors.
pub const HEADER_SERVICE: u16 = 1;
/// Index of the static part's region descriptors.
pub const HEADER_STATIC: u16 = 2;

/// Blocks of a copy that mean something: static part, two host and two service slots.
const USED: usize = 5;
type Block = Box<[u8; BLOCK_SIZE]>;

/// Condition of one header copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CopyState {
    /// Static part and the newest records of both slots are there.
    Good,
    /// Why it does not serve.
    Bad(String),
}

/// A volume's header, as read.
#[derive(Clone, Debug)]
pub struct HeaderView {
    /// The static part.
    pub header: StaticHeader,
    /// Newest host record.
    pub host: HostRecord,
    /// Newest service record.
    pub service: ServiceRecord,
    /// Condition of the two copies; at least one serves.
    pub copies: [CopyState; 2],
    /// The area's superblock, unless it is none.
    pub area: Option<AreaSuper>,
    /// Slot that holds the newest host record.
    pub(crate) host_slot: usize,
    /// Slot that holds the newest service record.
    pub(crate) service_slot: usize,
    /// Highest sequence number seen in host and service slots; a new record exceeds it.
    pub(crate) top: [u64; 2],
    blocks: [Vec<Block>; 2],
}

impl HeaderView {
    /// Does a copy need [`repair_headers`]?
    pub fn needs_repair(&self) -> bool {
        self.copies.iter().any(|c| *c != CopyState::Good)
    }
}

fn read_block(dev: &dyn Device, offset: u64) -> Result<Block> {
    let mut block = Box::new([0; BLOCK_SIZE]);
    dev.read(offset, &mut block[..])?;
    Ok(block)
}

/// A static part at `offset`, if one is there and says of itself that it belongs there.
fn static_at(dev: &dyn Device, offset: u64) -> Checked<StaticHeader> {
    if !offset.is_multiple_of(BLOCK_BYTES)
        || offset.checked_add(HEADER_LEN).is_none_or(|e| e > dev.size())
    {
        return Ok(Err(Invalid("lies outside the device")));
    }
    Ok(StaticHeader::decode(&*read_block(dev, offset + STATIC_OFFSET)?)?.and_then(|h| {
        if h.header_offsets.contains(&offset) { Ok(h) } else { Err(Invalid("moved")) }
    }))
}

fn read_super(dev: &dyn Device, area: u64) -> Result<Option<AreaSuper>> {
    let mut bytes = [0; SUPERBLOCK_LEN];
    if area.checked_add(2 * SUPERBLOCK_OFFSET).is_none_or(|e| e > dev.size()) {
        return Ok(None);
    }
    dev.read(area + SUPERBLOCK_OFFSET, &mut bytes)?;
    Ok(AreaSuper::parse(&bytes))
}

/// The static part: at the device's end, else where the ext4 area ends.
fn find_static(dev: &dyn Device) -> Result<StaticHeader> {
    let size = dev.size();
    let area = read_super(dev, 0)?;
    let guesses = [size.checked_sub(HEADER_LEN), area.map(|a| a.len)];
    let mut found: Option<StaticHeader> = None;
    for offset in guesses.into_iter().flatten() {
        if let Ok(header) = static_at(dev, offset)? {
            match &found {
                Some(first) if *first != header => {
                    return Err(corrupt("header", "its two copies describe different volumes"));
                }
                _ => found = Some(header),
            }
        }
    }
    if let Some(header) = found {
        return Ok(header);
    }
    Err(match area {
        None => Error::Refused(
            "not a SiftFS volume: neither a header nor an ext4 superblock is here (siftfs mkfs \
             makes one)"
                .into(),
        ),
        Some(a) if a.len > size => corrupt(
            "volume",
            format!("truncated: its file system has {} bytes, the device {size}", a.len),
        ),
        Some(a) if a.marker => corrupt(
            "header",
            "both copies are damaged or cut off, and the file system is marked as in use by \
             SiftFS; siftfs recover --discard-log gives up what is only in the log",
        ),
        Some(_) => Error::Refused("an ext4 file system, but not a SiftFS volume".into()),
    })
}

/// Finds and checks a volume's header on the device that holds everything.
///
/// # Errors
/// Refused if this is not a volume; incompatible for newer versions and unknown incompatible
/// features; corrupt if both copies are damaged, the volume is truncated, its ext4 area was
/// grown over the log, or the area's file system is another one.
pub fn read_headers(dev: &dyn Device) -> Result<HeaderView> {
    let header = find_static(dev)?;
    for (name, offset, len) in header.regions() {
        if offset + len > dev.size() {
            return Err(corrupt(
                "volume",
                format!(
                    "truncated: {name} should end at byte {}, the device has {} bytes",
                    offset + len,
                    dev.size()
                ),
            ));
        }
    }
    let area = read_super(dev, header.area_offset)?;
    check_area(&header, area.as_ref())?;
    let mut blocks = [Vec::new(), Vec::new()];
    for (copy, base) in header.header_offsets.iter().enumerate() {
        for i in 0..USED {
            blocks[copy].push(read_block(dev, base + i as u64 * BLOCK_BYTES)?);
        }
    }
    view(header, area, blocks)
}

fn check_area(header: &StaticHeader, area: Option<&AreaSuper>) -> Result<()> {
    match area.filter(|a| a.checksum_ok) {
        Some(a) if a.len > header.area_len => Err(corrupt(
            "volume",
            format!(
                "its ext4 file system has {} bytes and was grown over header and log, which begin \
                 at byte {}; shrink it again with resize2fs",
                a.len, header.area_len
            ),
        )),
        Some(a) if a.uuid != header.area_uuid => Err(corrupt(
            "volume",
            "its ext4 file system is not the one that the log belongs to (UUIDs differ)",
        )),
        _ => Ok(()),
    }
}

/// Newest valid record of the four places, its slot and the highest sequence number.
fn newest<T: Clone>(
    blocks: &[Vec<Block>; 2],
    first: usize,
    decode: fn(&[u8; BLOCK_SIZE]) -> Checked<T>,
    seq: fn(&T) -> u64,
) -> Result<Option<(T, usize)>> {
    let mut best: Option<(T, usize)> = None;
    for copy in blocks {
        for slot in 0..2 {
            let Some(block) = copy.get(first + slot) else { continue };
            if let Ok(record) = decode(block)?
                && best.as_ref().is_none_or(|(b, _)| seq(&record) > seq(b))
            {
                best = Some((record, slot));
            }
        }
    }
    Ok(best)
}

fn view(
    header: StaticHeader,
    area: Option<AreaSuper>,
    blocks: [Vec<Block>; 2],
) -> Result<HeaderView> {
    let none = |what: &str| corrupt("header", format!("no valid {what} record in either copy"));
    let (host, host_slot) =
        newest(&blocks, 1, HostRecord::decode, |r| r.seq)?.ok_or_else(|| none("host"))?;
    let (service, service_slot) =
        newest(&blocks, 3, ServiceRecord::decode, |r| r.seq)?.ok_or_else(|| none("service"))?;
    let lanes = header.lanes.len();
    if host.lane_ends.len() != lanes || service.lane_tails.len() != lanes {
        return Err(corrupt("header", "its records disagree about the number of lanes"));
    }
    let copies = [0, 1].map(|c| {
        let block = |i: usize| blocks[c].get(i).map(|b| &b[..]);
        if block(0) != Some(&header.encode()[..]) {
            CopyState::Bad("static part damaged".into())
        } else if block(1 + host_slot) != Some(&host.encode()[..]) {
            CopyState::Bad("newest host record missing".into())
        } else if block(3 + service_slot) != Some(&service.encode()[..]) {
            CopyState::Bad("newest service record missing".into())
        } else {
            CopyState::Good
        }
    });
    let top = [host.seq, service.seq];
    Ok(HeaderView { header, host, service, copies, area, host_slot, service_slot, top, blocks })
}

/// Writes what a bad copy lacks from the good one, then flushes. A block that is the only valid
/// place of a record is never touched.
pub fn repair_headers(dev: &dyn Device, view: &HeaderView) -> Result<()> {
    let wanted: [(usize, Block); 3] = [
        (0, view.header.encode()),
        (1 + view.host_slot, view.host.encode()),
        (3 + view.service_slot, view.service.encode()),
    ];
    for (copy, base) in view.header.header_offsets.iter().enumerate() {
        for (i, block) in &wanted {
            if view.blocks[copy].get(*i) != Some(block) {
                dev.write(base + *i as u64 * BLOCK_BYTES, &block[..], false)?;
            }
        }
    }
    dev.flush()
}

/// Makes both copies anew, all other bytes of them zero, then flushes.
pub fn format_headers(
    dev: &dyn Device,
    header: &StaticHeader,
    host: &HostRecord,
    service: &ServiceRecord,
) -> Result<()> {
    assert_eq!(host.state, HostState::Clean, "a new volume is clean");
    let mut copy = siftfs_device::AlignedBuf::zeroed(HEADER_LEN as usize);
    let mut put = |at: u64, block: &[u8]| {
        copy[at as usize..at as usize + BLOCK_SIZE].copy_from_slice(block);
    };
    put(STATIC_OFFSET, &header.encode()[..]);
    put(HOST_SLOTS[0], &host.encode()[..]);
    put(SERVICE_SLOTS[0], &service.encode()[..]);
    for base in header.header_offsets {
        dev.write(base, &copy, false)?;
    }
    dev.flush()
}

/// The regions that a `Storage` over the volume's device consists of.
pub fn region_descs(header: &StaticHeader) -> Vec<RegionDesc> {
    let desc = |kind, index, offset, len| RegionDesc { kind, index, offset, len };
    let mut all = vec![
        desc(RegionKind::Area, 0, header.area_offset, header.area_len),
        desc(RegionKind::Journal, 0, header.journal_offset, header.journal_len),
    ];
    for base in header.header_offsets {
        let slots = 2 * BLOCK_BYTES;
        all.push(desc(RegionKind::Header, HEADER_STATIC, base + STATIC_OFFSET, BLOCK_BYTES));
        all.push(desc(RegionKind::Header, HEADER_HOST, base + HOST_SLOTS[0], slots));
        all.push(desc(RegionKind::Header, HEADER_SERVICE, base + SERVICE_SLOTS[0], slots));
    }
    for lane in &header.lanes {
        all.push(desc(RegionKind::Staging, lane.id.0, lane.offset, lane.len));
    }
    all
}

#[cfg(test)]
#[path = "header_tests.rs"]
mod tests;
