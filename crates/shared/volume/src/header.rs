//! Finding, checking, repairing and making the header.

use crate::belong;
use crate::superblock::{AreaSuper, SUPERBLOCK_LEN, SUPERBLOCK_OFFSET};
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, Error, Result, corrupt};
use siftfs_device::{Device, RegionDesc, RegionKind};
use siftfs_log::{
    Checked, HEADER_LEN, HOST_SLOTS, HostRecord, HostState, Invalid, LaneMedium, SERVICE_SLOTS,
    STATIC_OFFSET, ServiceRecord, StaticHeader, if_valid, show_uuid,
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

/// What the host slot holds that does not hold the newest record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OlderHost {
    /// A record, in either copy.
    Record,
    /// Zeroes in both copies, as the volume was made.
    Blank,
    /// Neither: what was there is lost.
    Lost,
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
    /// The area's superblock; `None` if its bytes are no superblock.
    pub area: Option<AreaSuper>,
    /// Slot that holds the newest host record.
    pub(crate) host_slot: usize,
    /// Slot that holds the newest service record.
    pub(crate) service_slot: usize,
    /// What the other host slot holds.
    pub older_host: OlderHost,
    /// The header that the log had before it was moved, if that was not erased yet.
    pub superseded: Option<StaticHeader>,
    /// Highest sequence number seen in host and service slots; a new record exceeds it.
    pub(crate) top: [u64; 2],
    blocks: [Vec<Block>; 2],
}

impl HeaderView {
    /// Name of the host slot that does not hold the newest record, as `siftfs inspect` has it.
    pub fn older_host_slot(&self) -> &'static str {
        if self.host_slot == 0 { "host B" } else { "host A" }
    }

    /// Does [`repair_headers`] have something to do?
    pub fn needs_repair(&self) -> bool {
        self.copies.iter().any(|c| *c != CopyState::Good) || self.superseded.is_some()
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
        return Err(Invalid("lies outside the device").into());
    }
    let header = StaticHeader::decode(&*read_block(dev, offset + STATIC_OFFSET)?)?;
    if header.header_offsets.contains(&offset) { Ok(header) } else { Err(Invalid("moved").into()) }
}

fn read_super(dev: &dyn Device, area: u64) -> Result<Option<AreaSuper>> {
    super_at(dev, area.saturating_add(SUPERBLOCK_OFFSET))
}

/// The superblock at this byte, if one is there.
pub(crate) fn super_at(dev: &dyn Device, at: u64) -> Result<Option<AreaSuper>> {
    let mut bytes = [0; SUPERBLOCK_LEN];
    if at.checked_add(SUPERBLOCK_LEN as u64).is_none_or(|e| e > dev.size()) {
        return Ok(None);
    }
    dev.read(at, &mut bytes)?;
    Ok(AreaSuper::parse(&bytes))
}

/// The static part at one of these places; copies must not contradict each other.
fn static_in(dev: &dyn Device, places: &[Option<u64>]) -> Result<Option<StaticHeader>> {
    let mut found: Option<StaticHeader> = None;
    for offset in places.iter().flatten() {
        if let Some(header) = if_valid(static_at(dev, *offset))? {
            match &found {
                Some(first) if *first != header => {
                    return Err(corrupt("header", "its two copies describe different volumes"));
                }
                _ => found = Some(header),
            }
        }
    }
    Ok(found)
}

/// The header of a log that lies on a device of its own: at its end, else at its start. Only the
/// device is read, not the volume that the log belongs to.
///
/// # Errors
/// Refused if no log is here; incompatible for newer versions and unknown features; corrupt if its
/// copies contradict each other.
pub fn read_log_header(log: &dyn Device) -> Result<StaticHeader> {
    let header = static_in(log, &[log.size().checked_sub(HEADER_LEN), Some(0)])?;
    let area = read_super(log, 0)?;
    match header {
        Some(header) if header.external_log() => Ok(header),
        Some(_) => {
            let what = "the device given as log is a volume that holds its own log";
            Err(Error::Refused(what.into()))
        }
        None if area.is_some() => {
            Err(Error::Refused("the device given as log holds a file system, and no log".into()))
        }
        None => Err(Error::Refused(
            "no log is on the device given as log: neither copy of its header is valid".into(),
        )),
    }
}

/// A static part, and the one that it superseded.
type Superseding = (StaticHeader, Option<StaticHeader>);

/// The static part at the device's end, else where the ext4 area of `area` bytes ends. Both may be
/// valid and differ while the log is being moved: then the device's end counts.
fn static_at_ends(dev: &dyn Device, area: Option<u64>) -> Result<Option<Superseding>> {
    let at = |place: Option<u64>| place.map_or(Ok(None), |at| if_valid(static_at(dev, at)));
    match (at(dev.size().checked_sub(HEADER_LEN))?, at(area)?) {
        (Some(new), Some(old)) if new != old => {
            if is_moved(dev, area.unwrap_or(0), &old, &new)? {
                return Ok(Some((new, Some(old))));
            }
            Err(corrupt("header", "its two copies describe different volumes"))
        }
        (new, old) => Ok(new.or(old).map(|header| (header, None))),
    }
}

/// Did moving the log of a clean volume write `new`, and is the header `old` yet to be erased? Then
/// nothing was written under the new one, so both have the same newest host record. The old one
/// lies between the end of the ext4 area and the new one.
fn is_moved(dev: &dyn Device, area: u64, old: &StaticHeader, new: &StaticHeader) -> Result<bool> {
    let [old_first, old_last] = old.header_offsets;
    let end = old_first.max(old_last).saturating_add(HEADER_LEN);
    let apart = old_first.min(old_last) >= area && end <= new.header_offsets[0];
    let one =
        (old.volume, old.area_uuid, old.incompat) == (new.volume, new.area_uuid, new.incompat);
    if !apart || !one || new.external_log() || new.header_offsets[1] >= dev.size() {
        return Ok(false);
    }
    let newest = |header| newest(&read_blocks(dev, header)?, 1, HostRecord::decode, |r| r.seq);
    let (of_old, of_new) = (newest(old)?, newest(new)?);
    Ok(of_old == of_new && of_new.is_some_and(|(host, _)| host.state == HostState::Clean))
}

/// What means something in both copies.
fn read_blocks(dev: &dyn Device, header: &StaticHeader) -> Result<[Vec<Block>; 2]> {
    let mut blocks = [Vec::new(), Vec::new()];
    for (copy, base) in blocks.iter_mut().zip(&header.header_offsets) {
        for i in 0..USED {
            copy.push(read_block(dev, base + i as u64 * BLOCK_BYTES)?);
        }
    }
    Ok(blocks)
}

/// The static part on the device that holds everything: at its end, else where the ext4 area ends;
/// and the one that was there before the log was moved.
fn find_static(dev: &dyn Device, area: Option<&AreaSuper>) -> Result<Superseding> {
    let size = dev.size();
    match static_at_ends(dev, area.map(|a| a.len))? {
        Some((header, old)) if !header.external_log() => return Ok((header, old)),
        Some((header, _)) if area.is_none() => {
            return Err(Error::Refused(format!(
                "this is the log {} of a volume, and not the volume: name that, and this as --log",
                show_uuid(&header.volume)
            )));
        }
        _ => {}
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
        // What a damaged one says of the marker is nothing to build on.
        Some(AreaSuper { link: Some(link), marker, checksum_ok, .. }) => {
            belong::without_log(link, *marker || !checksum_ok)
        }
        Some(a) if a.marker => corrupt(
            "header",
            "both copies are damaged or cut off, and the file system is marked as in use by \
             SiftFS; siftfs recover --discard-log gives up what is only in the log",
        ),
        Some(a) if !a.checksum_ok => corrupt(
            "superblock",
            "its checksum does not hold, and no header of SiftFS is here: if this is a SiftFS volume, \
             both copies of its header are damaged as well; siftfs recover --discard-log gives up what \
             is only in the log",
        ),
        Some(_) => Error::Refused("an ext4 file system, but not a SiftFS volume".into()),
    })
}

/// Finds and checks the header of a volume on one device: [`read_media`] without a log elsewhere.
pub fn read_headers(dev: &dyn Device) -> Result<HeaderView> {
    read_media(dev, None)
}

/// Finds and checks a volume's header: on `log` if there is one, else on the device that holds
/// everything.
///
/// # Errors
/// Refused if this is not a volume, or its log is missing or another volume's; incompatible for
/// newer versions and unknown incompatible features; corrupt if both copies are damaged, the volume
/// is truncated, its ext4 area was grown over the log, the area's file system is another one, or
/// log and area are of different times (rule R16).
pub fn read_media(area: &dyn Device, log: Option<&dyn Device>) -> Result<HeaderView> {
    let area_super = read_super(area, 0)?;
    let (dev, (header, superseded)) = match log {
        Some(log) => (log, (read_log_header(log)?, None)),
        None => (area, find_static(area, area_super.as_ref())?),
    };
    for (name, offset, len) in header.regions() {
        if offset + len > dev.size() {
            return Err(corrupt(
                if header.external_log() { "log" } else { "volume" },
                format!(
                    "truncated: {name} should end at byte {}, the device has {} bytes",
                    offset + len,
                    dev.size()
                ),
            ));
        }
    }
    if !header.external_log() {
        belong::check_area(&header, area_super.as_ref())?;
    }
    let blocks = read_blocks(dev, &header)?;
    let view = HeaderView { superseded, ..view(header, area_super, blocks)? };
    if view.header.external_log() {
        belong::check_linked(&view, area)?;
    }
    Ok(view)
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
            if let Some(record) = if_valid(decode(block))?
                && best.as_ref().is_none_or(|(b, _)| seq(&record) > seq(b))
            {
                best = Some((record, slot));
            }
        }
    }
    Ok(best)
}

/// The newest host record of the log with this static part, whatever the area says.
pub(crate) fn newest_host(dev: &dyn Device, header: &StaticHeader) -> Result<Option<HostRecord>> {
    let blocks = read_blocks(dev, header)?;
    Ok(newest(&blocks, 1, HostRecord::decode, |r| r.seq)?.map(|(host, _)| host))
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
    let copies = blocks.each_ref().map(|copy| {
        let block = |i: usize| copy.get(i).map(|b| &b[..]);
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
    let older_host = older_host(blocks.iter().filter_map(|copy| copy.get(2 - host_slot)));
    Ok(HeaderView {
        header,
        host,
        service,
        copies,
        area,
        host_slot,
        service_slot,
        older_host,
        superseded: None,
        top,
        blocks,
    })
}

fn older_host<'a>(mut copies: impl Iterator<Item = &'a Block> + Clone) -> OlderHost {
    if copies.clone().any(|block| HostRecord::decode(block).is_ok()) {
        OlderHost::Record
    } else if copies.all(|block| block.iter().all(|byte| *byte == 0)) {
        OlderHost::Blank
    } else {
        OlderHost::Lost
    }
}

/// Writes what a bad copy lacks from the good one, then flushes. A block that is the only valid
/// place of a record is never touched. Then the header that the log had before it was moved is
/// erased, durably.
pub fn repair_headers(dev: &dyn Device, view: &HeaderView) -> Result<()> {
    let wanted: [(usize, Block); 3] = [
        (0, view.header.encode()),
        (1 + view.host_slot, view.host.encode()),
        (3 + view.service_slot, view.service.encode()),
    ];
    for (copy, base) in view.blocks.iter().zip(&view.header.header_offsets) {
        for (i, block) in &wanted {
            if copy.get(*i) != Some(block) {
                dev.write(base + *i as u64 * BLOCK_BYTES, &block[..], false)?;
            }
        }
    }
    dev.flush()?;
    view.superseded.as_ref().map_or(Ok(()), |old| erase_headers(dev, old))
}

/// Gives the log of a clean volume, which was moved on its device, the header `header`, with all
/// records as they stand; durable when it returns. Whatever the header names lies behind the old
/// log and is durable by then. The one step that counts is the last: the static part at the
/// device's end. The old header is still there afterwards: [`repair_headers`] of a new view erases
/// it.
///
/// # Panics
/// If it is the header of another volume, or does not end where the device ends, or the log lies
/// elsewhere.
pub fn write_moved_headers(
    dev: &dyn Device,
    view: &HeaderView,
    header: &StaticHeader,
) -> Result<()> {
    let [first, last] = header.header_offsets;
    assert_eq!(view.host.state, HostState::Clean, "a log that is moved is empty");
    assert_eq!((header.volume, header.external_log()), (view.header.volume, false), "the same log");
    assert_eq!(last + HEADER_LEN, dev.size(), "a reader looks at the device's end first");
    for ((base, old), whole) in [first, last].into_iter().zip(&view.blocks).zip([true, false]) {
        let mut copy = siftfs_device::AlignedBuf::zeroed(HEADER_LEN as usize);
        let parts = copy.as_chunks_mut().0.iter_mut().zip(old);
        parts.skip(1).for_each(|(to, block)| *to = **block);
        if whole {
            let start = copy.as_chunks_mut().0.first_mut().expect("a copy begins with a block");
            *start = *header.encode();
        }
        dev.write(base, &copy, false)?;
    }
    dev.flush()?;
    dev.write(last + STATIC_OFFSET, &header.encode()[..], false)?;
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
    let mut put = |at: u64, block: Block| {
        let to = copy.as_chunks_mut().0.get_mut((at / BLOCK_BYTES) as usize);
        *to.expect("a copy has room for all its parts") = *block;
    };
    put(STATIC_OFFSET, header.encode());
    put(HOST_SLOTS[0], host.encode());
    put(SERVICE_SLOTS[0], service.encode());
    for base in header.header_offsets {
        dev.write(base, &copy, false)?;
    }
    dev.flush()
}

/// Writes zeroes over both copies, then flushes: there is no log any more.
pub fn erase_headers(dev: &dyn Device, header: &StaticHeader) -> Result<()> {
    for base in header.header_offsets {
        siftfs_device::zero_fill(dev, base, HEADER_LEN)?;
    }
    dev.flush()
}

/// The regions on the device that holds the header, the area among them if it lies there.
pub fn region_descs(header: &StaticHeader) -> Vec<RegionDesc> {
    let desc = |kind, index, offset, len| RegionDesc { kind, index, offset, len };
    let mut all = vec![desc(RegionKind::Journal, 0, header.journal_offset, header.journal_len)];
    if !header.external_log() {
        all.push(desc(RegionKind::Area, 0, header.area_offset, header.area_len));
    }
    for base in header.header_offsets {
        let slots = 2 * BLOCK_BYTES;
        all.push(desc(RegionKind::Header, HEADER_STATIC, base + STATIC_OFFSET, BLOCK_BYTES));
        all.push(desc(RegionKind::Header, HEADER_HOST, base + HOST_SLOTS[0], slots));
        all.push(desc(RegionKind::Header, HEADER_SERVICE, base + SERVICE_SLOTS[0], slots));
    }
    let here = header.lanes.iter().filter(|lane| lane.medium == LaneMedium::Block);
    for lane in here {
        all.push(desc(RegionKind::Staging, lane.id.0, lane.offset, lane.len));
    }
    all
}

#[cfg(test)]
#[path = "header_tests.rs"]
mod tests;
