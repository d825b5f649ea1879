//! Where journal, lanes and header copies lie, and writing them for the first time.

use crate::options::{MkfsOptions, MkfsReport, Progress, RecordAreaReport};
use crate::volume::files::nonce;
use crate::volume::marker::{self, SuperBytes};
use siftfs_base::{BLOCK_BYTES, Epoch, Error, LaneId, Lsn, Result, TxnSeq};
use siftfs_device::{Device, DeviceInfo, zero_fill};
use siftfs_ext4::{has_marker, set_own_bytes};
use siftfs_log::{
    AreaLink, COMPAT_RESERVED, EpochKey, HEADER_LEN, HostRecord, HostState, INCOMPAT_EXTERNAL_LOG,
    INCOMPAT_JOURNAL_COPY, INCOMPAT_RECORD_AREA, INCOMPAT_REDO_LANE, INCOMPAT_SPARE_LOG,
    JournalData, LaneEntry, LaneMedium, MIN_REDO_LANE, OPEN_END, RECORD_AREA_LANE, RedoRegion,
    ServiceRecord, StaticHeader,
};
use siftfs_volume::{
    AreaSuper, Media, RedoMedium, format_headers, format_record_area, format_spare,
    read_spare_header,
};

/// Smallest journal in bytes: a quarter of it must hold one operation with room to spare.
const MIN_JOURNAL: u64 = 2 << 20;
/// Smallest lane in bytes.
const MIN_LANE: u64 = 1 << 20;
/// Smallest lane in a record area in bytes: two of the longest records, and a sentinel.
const MIN_RECORD_AREA: u64 = 256 << 10;
/// Largest redo lane in bytes.
const MAX_REDO_LANE: u64 = 16 << 30;
/// Smallest area in bytes.
const MIN_AREA: u64 = 8 << 20;

/// Where everything lies, in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// Length of the area.
    pub area: u64,
    /// First byte of the log on its device: behind the area, or 0 on a device of its own.
    base: u64,
    journal: u64,
    lane: u64,
    lanes: u16,
    /// Length of the lane in the record area, on a medium of its own.
    record_area: Option<u64>,
    /// Length of the redo lane; 0 without one.
    redo: u64,
    journal_data: JournalData,
    /// The area's blocks are reserved in its file.
    reserved: bool,
    /// End of the log on its device.
    pub total: u64,
}

/// `bytes` down to whole blocks.
pub(crate) fn down(bytes: u64) -> u64 {
    bytes / BLOCK_BYTES * BLOCK_BYTES
}

/// Journal, lane, and what they take with both header copies.
fn split(log: u64, lanes: u16) -> (u64, u64, u64) {
    let journal = down((log / 4).max(MIN_JOURNAL));
    let lane = down((log - journal) / u64::from(lanes));
    (journal, lane, 2 * HEADER_LEN + journal + lane * u64::from(lanes))
}

/// Lanes on block storage: with a record area and a redo lane, 16 in all.
fn lanes(opts: &MkfsOptions) -> u16 {
    let others = u16::from(opts.record_area.is_some()) + u16::from(opts.redo_lane.is_some());
    opts.lanes.clamp(1, 16 - others)
}

/// Length of the redo lane; 0 without one.
fn redo(opts: &MkfsOptions) -> Result<u64> {
    let Some(size) = opts.redo_lane else { return Ok(0) };
    let len = down(size);
    if !(MIN_REDO_LANE..=MAX_REDO_LANE).contains(&len) {
        let (least, most) = (MIN_REDO_LANE >> 20, MAX_REDO_LANE >> 20);
        return Err(Error::Refused(format!(
            "a redo lane of {size} bytes: it has {least}M at least, and {most}M at most (--redo-lane)"
        )));
    }
    Ok(len)
}

/// Length of the lane in the record area.
fn record_area(opts: &MkfsOptions) -> Result<Option<u64>> {
    let Some(size) = opts.record_area else { return Ok(None) };
    let len = down(size.saturating_sub(RECORD_AREA_LANE));
    if len < MIN_RECORD_AREA {
        let least = MIN_RECORD_AREA + RECORD_AREA_LANE;
        return Err(Error::Refused(format!(
            "a record area of {size} bytes is too small: it needs at least {least} \
             (--record-area-size {}K)",
            least.div_ceil(1024)
        )));
    }
    Ok(Some(len))
}

impl Layout {
    /// Everything on one device of `size` bytes.
    pub fn together(size: u64, opts: &MkfsOptions) -> Result<Self> {
        let total = down(size);
        let lanes = lanes(opts);
        let least = MIN_JOURNAL + MIN_LANE * u64::from(lanes);
        let log = down(opts.log_size.unwrap_or((total / 16).clamp(least.max(8 << 20), 1 << 30)));
        if log < least {
            let given = opts.log_size.unwrap_or(log);
            return Err(Error::Refused(format!(
                "a log of {given} bytes is too small: journal and {lanes} lane(s) need {least} bytes \
                 (--log-size {}K)",
                least.div_ceil(1024)
            )));
        }
        let redo = redo(opts)?;
        let (journal, lane, behind) = split(log, lanes);
        let behind = behind + redo;
        if total < behind + MIN_AREA {
            let least = behind + MIN_AREA;
            return Err(Error::Refused(format!(
                "{size} bytes are too few for a volume: the log takes {behind} of them, and the file system \
                 needs {MIN_AREA}, together {least} (--size {}K)",
                least.div_ceil(1024)
            )));
        }
        let area = down(total - behind);
        let journal_data = opts.journal_data;
        let (record_area, reserved) = (record_area(opts)?, opts.reserve);
        let base = area;
        Ok(Self {
            area,
            base,
            journal,
            lane,
            lanes,
            record_area,
            redo,
            journal_data,
            reserved,
            total,
        })
    }

    /// The log on a device of its own, of which it takes `log` bytes; `area` is the file system's
    /// length.
    pub fn apart(area: u64, log: u64, opts: &MkfsOptions) -> Result<Self> {
        let lanes = lanes(opts);
        let redo = redo(opts)?;
        let least = 2 * HEADER_LEN + MIN_JOURNAL + MIN_LANE * u64::from(lanes) + redo;
        if down(log) < least {
            return Err(Error::Refused(format!(
                "a log of {log} bytes is too small: with {lanes} lane(s) it needs at least {least} \
                 bytes (--log-size {}K)",
                least.div_ceil(1024)
            )));
        }
        if down(area) < MIN_AREA {
            return Err(Error::Refused(format!(
                "{area} bytes are too few for a volume: the file system needs {MIN_AREA} (--size {}K)",
                MIN_AREA.div_ceil(1024)
            )));
        }
        let (area, log) = (down(area), down(log));
        let (journal, lane, behind) = split(log - 2 * HEADER_LEN - redo, lanes);
        let total = behind + redo;
        let journal_data = opts.journal_data;
        let (record_area, reserved) = (record_area(opts)?, opts.reserve);
        let base = 0;
        Ok(Self {
            area,
            base,
            journal,
            lane,
            lanes,
            record_area,
            redo,
            journal_data,
            reserved,
            total,
        })
    }

    fn header(&self, volume: [u8; 16], area: [u8; 16]) -> StaticHeader {
        let journal_offset = self.base + HEADER_LEN;
        let first_lane = journal_offset + self.journal;
        let lane = |i: u16| LaneEntry {
            id: LaneId(i),
            medium: LaneMedium::Block,
            offset: first_lane + self.lane * u64::from(i),
            len: self.lane,
            owner: 0,
        };
        let external = if self.base == 0 { INCOMPAT_EXTERNAL_LOG } else { 0 };
        let copy = match self.journal_data {
            JournalData::Ref => 0,
            JournalData::Copy => INCOMPAT_JOURNAL_COPY,
        };
        let record_area = self.record_area.map(|len| LaneEntry {
            id: LaneId(self.lanes),
            medium: LaneMedium::Bytes,
            offset: RECORD_AREA_LANE,
            len,
            owner: 0,
        });
        let bytes = if record_area.is_some() { INCOMPAT_RECORD_AREA } else { 0 };
        let offset = first_lane + self.lane * u64::from(self.lanes);
        let redo = (self.redo > 0).then_some(RedoRegion { offset, len: self.redo });
        let atomic = if redo.is_some() { INCOMPAT_REDO_LANE } else { 0 };
        StaticHeader {
            compat: if self.reserved { COMPAT_RESERVED } else { 0 },
            ro_compat: 0,
            incompat: external | copy | bytes | atomic,
            volume,
            area_uuid: area,
            area_offset: 0,
            area_len: self.area,
            journal_offset,
            journal_len: self.journal,
            header_offsets: [self.base, self.total - HEADER_LEN],
            lanes: (0..self.lanes).map(lane).chain(record_area).collect(),
            redo,
        }
    }
}

/// Makes the log of the file system that is on the area's device. A log elsewhere is whole and
/// durable before the superblock names it.
pub(crate) fn write_log(
    media: &Media,
    layout: &Layout,
    progress: Progress<'_>,
) -> Result<MkfsReport> {
    let dev = media.log_device();
    clear_regions(dev, layout, progress)?;
    let mut block: SuperBytes = [0; 1024];
    media.area.read(1024, &mut block)?;
    let volume = uuid::Uuid::new_v4();
    if media.log.is_some() {
        let link = AreaLink { volume: *volume.as_bytes(), epoch: Epoch(0) };
        set_own_bytes(&mut block, &link.encode());
    }
    let area = AreaSuper::parse(&block)
        .ok_or_else(|| siftfs_base::corrupt("new area", "there is no superblock"))?;
    assert!(!has_marker(&block), "a log is made for a file system that nobody uses");
    let mut header = layout.header(*volume.as_bytes(), area.uuid);
    let mut may_stand_alone = false;
    if let Some(spare) = &media.spare {
        header.incompat |= INCOMPAT_SPARE_LOG;
        format_spare(&**spare, &header, dev.size(), nonce()?)?;
        may_stand_alone = read_spare_header(&**spare)?.image > 0;
    }
    let (host, service) = first_records(layout, &block, area.crc)?;
    if let Some(bytes) = &media.bytes {
        format_record_area(&**bytes, &header)?;
    }
    if let Some(redo) = RedoMedium::of(media, &header) {
        redo.format(nonce()?)?;
    }
    format_headers(dev, &header, &host, &service)?;
    if media.log.is_some() {
        let view = media.read()?;
        marker::set(&media.storage(&view)?.take_superblocks()?, &block)?;
    }
    progress("writing the log regions", 1, 1);
    Ok(MkfsReport {
        uuid: volume.to_string(),
        area_bytes: layout.area,
        journal_bytes: layout.journal,
        staging_bytes: layout.lane * u64::from(layout.lanes),
        lanes: layout.lanes,
        redo_lane_bytes: layout.redo,
        spare_log_bytes: media.spare.as_ref().map_or(0, |spare| spare.size()),
        spare_log_may_stand_alone: may_stand_alone,
        record_area: layout.record_area.zip(media.bytes.as_deref()).map(report_area),
        journal_data: layout.journal_data.to_string(),
        reserved: header.reserved(),
        shortage: None,
    })
}

fn report_area((bytes, device): (u64, &dyn Device)) -> RecordAreaReport {
    let DeviceInfo { path: place, durable_write: promise, persistent, .. } = device.describe();
    RecordAreaReport { place, promise, persistent: persistent == Some(true), bytes }
}

/// Log regions are written once, so that a ring in a file costs no metadata of the file system
/// below when it is filled for the first time.
fn clear_regions(dev: &dyn Device, layout: &Layout, progress: Progress<'_>) -> Result<()> {
    // What an older volume left at the end of a larger device must not pass for a header.
    if dev.size() > layout.total {
        let len = HEADER_LEN.min(dev.size() - layout.total);
        zero_fill(dev, dev.size() - len, len)?;
    }
    let (start, end) = (layout.base, layout.total);
    let mut at = start;
    while at < end {
        let len = (end - at).min(16 << 20);
        progress("writing the log regions", at - start, end - start);
        zero_fill(dev, at, len)?;
        at += len;
    }
    Ok(())
}

fn first_records(
    layout: &Layout,
    superblock: &SuperBytes,
    area_crc: u32,
) -> Result<(HostRecord, ServiceRecord)> {
    let key = EpochKey { epoch: Epoch(0), nonce: nonce()? };
    let lanes = usize::from(layout.lanes) + usize::from(layout.record_area.is_some());
    let host = HostRecord {
        seq: 0,
        state: HostState::Clean,
        key,
        lane_key: key,
        journal_key: key,
        lsn_floor: Lsn(0),
        area_crc,
        lane_ends: vec![OPEN_END; lanes],
        lane_heads: vec![0; lanes],
        superblock: Box::new(*superblock),
        registry: None,
    };
    let service = ServiceRecord {
        next_seq: TxnSeq(1),
        lane_tails: vec![0; lanes],
        ..ServiceRecord::default()
    };
    Ok((host, service))
}
