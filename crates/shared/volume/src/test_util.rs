//! A small volume with an ext4 superblock, and a writer of lane records.

use siftfs_base::*;
use siftfs_device::*;
use siftfs_log::*;
use std::sync::Arc;

pub const AREA: u64 = 64 * BLOCK_BYTES;
pub const RING: u64 = 128 << 10;
pub const SIZE: u64 = AREA + 2 * RING + 2 * HEADER_LEN;
pub const KEY: EpochKey = EpochKey { epoch: Epoch(3), nonce: 77 };
pub const UUID: [u8; 16] = *b"the-area-of-test";

pub fn header() -> StaticHeader {
    let at = AREA + HEADER_LEN;
    let lane = LaneEntry {
        id: LaneId(0),
        medium: LaneMedium::Block,
        offset: at + RING,
        len: RING,
        owner: 0,
    };
    StaticHeader {
        compat: 0,
        ro_compat: 0,
        incompat: 0,
        volume: *b"a-small-volume-x",
        area_uuid: UUID,
        area_offset: 0,
        area_len: AREA,
        journal_offset: at,
        journal_len: RING,
        header_offsets: [AREA, SIZE - HEADER_LEN],
        lanes: vec![lane],
        redo: None,
    }
}

pub fn host() -> HostRecord {
    HostRecord {
        seq: 4,
        state: HostState::Clean,
        key: KEY,
        lane_key: KEY,
        journal_key: KEY,
        lsn_floor: Lsn(0),
        area_crc: 0,
        lane_ends: vec![OPEN_END],
        lane_heads: vec![0],
        superblock: Box::new([0; 1024]),
        registry: None,
    }
}

pub fn service() -> ServiceRecord {
    ServiceRecord { seq: 2, next_seq: TxnSeq(1), lane_tails: vec![0], ..Default::default() }
}

/// As much of a superblock as the parser reads, with a checksum.
pub fn superblock(blocks: u32, marker: bool) -> [u8; 1024] {
    let mut s = [0; 1024];
    s[4..8].copy_from_slice(&blocks.to_le_bytes());
    s[24] = 2;
    s[56..58].copy_from_slice(&[0x53, 0xef]);
    let incompat = 0x80 | if marker { EXT4_MARKER } else { 0 };
    s[96..100].copy_from_slice(&incompat.to_le_bytes());
    s[100..104].copy_from_slice(&0x400u32.to_le_bytes());
    s[104..120].copy_from_slice(&UUID);
    let crc = !siftfs_base::crc32c(&s[..1020]);
    s[1020..].copy_from_slice(&crc.to_le_bytes());
    s
}

pub fn volume() -> MemDevice {
    let dev = MemDevice::new(SIZE);
    dev.write(1024, &superblock(64, true), false).unwrap();
    crate::format_headers(&dev, &header(), &host(), &service()).unwrap();
    dev
}

pub fn storage(dev: &Arc<MemDevice>) -> Storage {
    let dev: Arc<dyn Device> = Arc::clone(dev) as _;
    Storage::new(dev, &crate::region_descs(&header())).unwrap()
}

/// Appends records to lane 0 of a device.
pub struct Appender<'a> {
    pub dev: &'a MemDevice,
    pub key: LogKey,
    pub end: u64,
    pub crc: u32,
    pub lsn: u64,
    pub durable_lsn: u64,
    pub durable_pos: u64,
}

impl<'a> Appender<'a> {
    pub fn new(dev: &'a MemDevice, tail: u64) -> Self {
        Self {
            dev,
            key: KEY.lane(LaneId(0)),
            end: tail,
            crc: 0,
            lsn: 10,
            durable_lsn: 0,
            durable_pos: 0,
        }
    }

    /// Appends a record with this much data; returns its position.
    pub fn append(&mut self, len: usize) -> u64 {
        let data = vec![self.lsn as u8; len];
        let item = Item::Data {
            ino: 12,
            generation: 0,
            offset: 0,
            len: len as u32,
            data_offset: 0,
            home: None,
        };
        let layout = RecordLayout::new(std::slice::from_ref(&item), len as u64).unwrap();
        let pos = place_record(self.end, u64::from(layout.len), RING).unwrap();
        let p = RecordParams {
            lsn: Lsn(self.lsn),
            prev_lsn: Lsn(0),
            prev_compact: Lsn(0),
            durable_lsn: Lsn(self.durable_lsn),
            durable_pos: self.durable_pos,
            pos,
            prev_end: self.end,
            prev_crc: self.crc,
        };
        let mut buf = vec![0; layout.len as usize];
        let builder = RecordBuilder { key: self.key, lane: LaneId(0) };
        self.crc = builder.encode(&p, &layout, &[item], &[&data], &mut buf);
        self.dev.write(header().lanes[0].offset + pos % RING, &buf, false).unwrap();
        self.end = pos + buf.len() as u64;
        self.lsn += 1;
        pos
    }
}

/// Flips one bit of lane 0.
pub fn flip(dev: &MemDevice, pos: u64) {
    flip_at(dev, header().lanes[0].offset + pos % RING);
}

/// Flips one bit of the device.
pub fn flip_at(dev: &MemDevice, at: u64) {
    let mut b = [0];
    dev.read(at, &mut b).unwrap();
    dev.write(at, &[b[0] ^ 1], false).unwrap();
}
