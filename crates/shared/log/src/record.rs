//! Lane records: staged transactions.

use crate::item::Item;
use crate::{Checked, DATA_CHUNK, DataSums, FIXED_LEN, Invalid, LaneMedium, LogKey};
use crate::{blocks_up, head_crc, item_codec, put, seal_head, sums};
use siftfs_base::{BLOCK_BYTES, Epoch, Error, LaneId, Lsn, Result, corrupt};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Longest lane record in bytes, whatever the lane's length.
pub const MAX_RECORD_LEN: u64 = 8 << 20;
/// Longest head (header, items and data checksums) of a record in bytes.
pub const MAX_HEAD_LEN: u64 = 1 << 20;
/// Most items in one record.
pub const MAX_ITEMS: u32 = 65_536;
/// Shortest lane in bytes.
pub const MIN_LANE_LEN: u64 = 64 << 10;

const MAGIC: [u8; 8] = *b"SIFTstg\x01";
/// Version of a staged transaction's record.
pub(crate) const VERSION: u16 = 1;
const KIND_TRANSACTION: u16 = 1;
/// Owner of the records that the Runtime writes. No other owner exists in this version.
const OWNER_RUNTIME: u64 = 0;
/// Flags of a record of a lane on byte-addressable memory: [`COMPACT_UNIT`] is its unit, and
/// recovery keeps it although a record of another lane that was published before is lost (rule
/// R44).
const FLAGS_BYTES: u16 = 3;
/// Unit of records on byte-addressable memory, in bytes: a cache line.
pub const COMPACT_UNIT: u64 = 64;
/// Longest record on byte-addressable memory in bytes.
pub const MAX_COMPACT_LEN: u64 = 64 << 10;
/// Bytes of the fixed header.
pub const RECORD_HEADER_LEN: usize = FIXED_LEN;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRecord {
    magic: [u8; 8],
    version: U16,
    kind: U16,
    lane: U16,
    flags: U16,
    epoch: U64,
    pos: U64,
    prev_end: U64,
    prev_crc: U32,
    len: U32,
    items_len: U32,
    items_count: U32,
    data_offset: U32,
    data_len: U32,
    lsn: U64,
    durable_lsn: U64,
    durable_pos: U64,
    owner: U64,
    prev_lsn: U64,
    prev_compact: U64,
    reserved: [u8; 12],
    crc: U32,
}
const _: () = assert!(size_of::<RawRecord>() == RECORD_HEADER_LEN);

impl RawRecord {
    /// Does this build know what the record means? One that it does not know has the same header,
    /// whose checksum covers the same bytes.
    fn is_known(&self) -> bool {
        (self.kind.get(), self.version.get()) == (KIND_TRANSACTION, VERSION)
            && [0, FLAGS_BYTES].contains(&self.flags.get())
            && self.owner.get() == OWNER_RUNTIME
    }

    /// Its lane's medium, as the record says it.
    fn medium(&self) -> LaneMedium {
        if self.flags.get() == FLAGS_BYTES { LaneMedium::Bytes } else { LaneMedium::Block }
    }
}

impl LaneMedium {
    /// Records begin and end at multiples of this many bytes.
    pub fn unit(self) -> u64 {
        match self {
            Self::Block => BLOCK_BYTES,
            Self::Bytes => COMPACT_UNIT,
        }
    }

    /// Longest record that a lane of `lane_len` bytes takes: an eighth of it (rule R10), within
    /// [`MAX_RECORD_LEN`] or [`MAX_COMPACT_LEN`], whole blocks.
    pub fn max_record_len(self, lane_len: u64) -> u64 {
        let most = match self {
            Self::Block => MAX_RECORD_LEN,
            Self::Bytes => MAX_COMPACT_LEN,
        };
        (lane_len / 8 / BLOCK_BYTES * BLOCK_BYTES).clamp(2 * BLOCK_BYTES, most)
    }
}

/// A record's place and links; what the sequencer knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecordParams {
    /// The record's LSN; larger than its predecessor's in the lane.
    pub lsn: Lsn,
    /// LSN of the record before it in the order of all lanes on its medium, 0 for the first of an
    /// epoch: recovery applies a record only if that one is applied (rule R24).
    pub prev_lsn: Lsn,
    /// Of a record on block storage: LSN of the newest record on byte-addressable memory that was
    /// published before it, 0 if there is none in this epoch; recovery demands it as well (rule
    /// R44). 0 in the records there.
    pub prev_compact: Lsn,
    /// Highest LSN such that every record up to it, in any lane, was known durable (rule R14).
    pub durable_lsn: Lsn,
    /// Position in this lane up to which every record was known durable (rule R14); 0 if unknown.
    pub durable_pos: u64,
    /// Position of the record's first byte.
    pub pos: u64,
    /// Where the predecessor ended (the lane's start position for the first of an epoch); differs
    /// from `pos` when a wrap gap lies between.
    pub prev_end: u64,
    /// The predecessor's checksum, 0 for the first of an epoch.
    pub prev_crc: u32,
}

/// Sizes of a record to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordLayout {
    /// What the record's lane lies on.
    pub medium: LaneMedium,
    /// Whole length, a multiple of the medium's unit.
    pub len: u32,
    /// Bytes of all items.
    pub items_len: u32,
    /// Data section from the record's start.
    pub data_offset: u32,
    /// Bytes of the data section.
    pub data_len: u32,
}

impl RecordLayout {
    /// Computes the sizes of a record on block storage with these items and `data_len` bytes of
    /// data; `None` if one record cannot hold them: they are too long together, or a reader would
    /// refuse one. The xattrs of a volume that was made by others may be such.
    pub fn new(items: &[Item], data_len: u64) -> Option<Self> {
        Self::on(LaneMedium::Block, items, data_len)
    }

    /// As [`RecordLayout::new`], of a record on `medium`.
    pub fn on(medium: LaneMedium, items: &[Item], data_len: u64) -> Option<Self> {
        let items_len: u64 = items.iter().map(|i| item_codec::encoded_len(i) as u64).sum();
        if items.len() as u64 > u64::from(MAX_ITEMS) || data_len > MAX_RECORD_LEN {
            return None;
        }
        if items.iter().any(|item| item_codec::check(item).is_err()) {
            return None;
        }
        let (data_offset, len) = geometry(medium, items_len, data_len);
        if len > medium.max_record_len(u64::MAX) || head_len(items_len, data_len) > MAX_HEAD_LEN {
            return None;
        }
        Some(Self {
            medium,
            len: len as u32,
            items_len: items_len as u32,
            data_offset: data_offset as u32,
            data_len: data_len as u32,
        })
    }
}

impl RecordLayout {
    fn items_end(&self) -> usize {
        RECORD_HEADER_LEN + self.items_len as usize
    }

    fn sums_len(&self) -> usize {
        (self.data_len as usize).div_ceil(DATA_CHUNK) * 4
    }

    /// Can a record of at most `max_len` bytes have these sizes? Of one that this build does not
    /// know, only what its checksum needs is checked.
    fn holds(&self, items_count: u32, max_len: u64, known: bool) -> bool {
        let (len, items) = (u64::from(self.len), u64::from(self.items_len));
        let data = u64::from(self.data_len);
        let bounded = len > 0
            && len % self.medium.unit() == 0
            && len <= max_len.min(MAX_RECORD_LEN)
            && head_len(items, data) <= MAX_HEAD_LEN
            && items_count <= MAX_ITEMS;
        bounded
            && head_len(items, data) <= len
            && (!known || geometry(self.medium, items, data) == (u64::from(self.data_offset), len))
    }
}

/// Header, items and data checksums, in bytes.
fn head_len(items_len: u64, data_len: u64) -> u64 {
    RECORD_HEADER_LEN as u64 + items_len + sums::count(data_len) * 4
}

/// Where data starts and the record ends.
fn geometry(medium: LaneMedium, items_len: u64, data_len: u64) -> (u64, u64) {
    let head = head_len(items_len, data_len);
    let close = head.next_multiple_of(8);
    if medium == LaneMedium::Bytes {
        (close, (close + data_len).next_multiple_of(COMPACT_UNIT))
    } else if close + data_len <= BLOCK_BYTES {
        (close, BLOCK_BYTES)
    } else {
        let data = blocks_up(head);
        (data, blocks_up(data + data_len))
    }
}

/// Encodes records of one lane under one key.
#[derive(Clone, Copy, Debug)]
pub struct RecordBuilder {
    /// Key of the epoch.
    pub key: LogKey,
    /// The lane.
    pub lane: LaneId,
}

impl RecordBuilder {
    /// Encodes a staged transaction into `buf`, copying the data once. `buf` is exactly
    /// `layout.len` long; what it held before does not matter. Returns the record's checksum,
    /// which the successor carries as `prev_crc` and a journal transaction as `StagedRef::crc`.
    ///
    /// # Panics
    /// If `layout` was not computed from these items and this much data.
    pub fn encode(
        &self,
        p: &RecordParams,
        layout: &RecordLayout,
        items: &[Item],
        data: &[&[u8]],
        buf: &mut [u8],
    ) -> u32 {
        self.encode_data(layout, data, buf);
        self.encode_head(p, layout, items, buf)
    }

    /// The part of [`RecordBuilder::encode`] that needs no place in the lane: data, its checksums
    /// and padding.
    ///
    /// # Panics
    /// If `layout` was not computed for this much data.
    pub fn encode_data(&self, layout: &RecordLayout, data: &[&[u8]], buf: &mut [u8]) {
        assert_eq!(buf.len(), layout.len as usize, "the buffer is the record");
        let data_at = layout.data_offset as usize;
        let (head, rest) = buf.split_at_mut(data_at);
        let (section, padding) = rest.split_at_mut(layout.data_len as usize);
        let mut room = &mut *section;
        data.iter().for_each(|chunk| put(&mut room, chunk));
        assert!(room.is_empty(), "layout of other data");
        padding.fill(0);
        let (_, head) = head.split_at_mut(layout.items_end());
        let (sums, close) = head.split_at_mut(layout.sums_len());
        for (sum, chunk) in sums.chunks_exact_mut(4).zip(section.chunks(DATA_CHUNK)) {
            sum.copy_from_slice(&self.key.crc(chunk).to_le_bytes());
        }
        close.fill(0);
    }

    /// The rest of [`RecordBuilder::encode`]: items and header, in front of what
    /// [`RecordBuilder::encode_data`] made of the same `layout`. Returns the record's checksum.
    ///
    /// # Panics
    /// If `layout` was not computed from these items, or a reader would refuse the record.
    pub fn encode_head(
        &self,
        p: &RecordParams,
        layout: &RecordLayout,
        items: &[Item],
        buf: &mut [u8],
    ) -> u32 {
        assert!(layout.holds(items.len() as u32, MAX_RECORD_LEN, true), "sizes of no record");
        check(p, layout, items).expect("a record is what its reader demands");
        let (head, _) = buf.split_at_mut(layout.items_end() + layout.sums_len());
        let (fixed, rest) = head.split_first_chunk_mut().expect("a layout has room for it");
        let (mut room, _) = rest.split_at_mut(layout.items_len as usize);
        for item in items {
            let to = room.split_off_mut(..item_codec::encoded_len(item));
            item_codec::encode(item, to.expect("layout of other items"));
        }
        assert!(room.is_empty(), "layout of other items");
        seal_head(&self.key, &self.header(p, layout, items.len() as u32), fixed, rest)
    }

    fn header(&self, p: &RecordParams, l: &RecordLayout, count: u32) -> RawRecord {
        assert!(p.pos.is_multiple_of(l.medium.unit()), "records begin at their medium's units");
        let flags = if l.medium == LaneMedium::Bytes { FLAGS_BYTES } else { 0 };
        RawRecord {
            magic: MAGIC,
            version: VERSION.into(),
            kind: KIND_TRANSACTION.into(),
            lane: self.lane.0.into(),
            flags: flags.into(),
            epoch: self.key.epoch.0.into(),
            pos: p.pos.into(),
            prev_end: p.prev_end.into(),
            prev_crc: p.prev_crc.into(),
            len: l.len.into(),
            items_len: l.items_len.into(),
            items_count: count.into(),
            data_offset: l.data_offset.into(),
            data_len: l.data_len.into(),
            lsn: p.lsn.0.into(),
            durable_lsn: p.durable_lsn.0.into(),
            durable_pos: p.durable_pos.into(),
            owner: OWNER_RUNTIME.into(),
            prev_lsn: p.prev_lsn.0.into(),
            prev_compact: p.prev_compact.0.into(),
            reserved: [0; 12],
            crc: 0.into(),
        }
    }
}

/// A record's fixed header. From [`RecordHeader::peek`] its lengths can be relied on, its content
/// only after [`RecordHead::decode`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHeader {
    /// Place and links.
    pub params: RecordParams,
    /// Lane it was written for.
    pub lane: LaneId,
    /// Sizes.
    pub layout: RecordLayout,
    /// Number of items.
    pub items_count: u32,
    /// Checksum of header, items and data checksums.
    pub crc: u32,
}

impl RecordHeader {
    /// The epoch that a record of `lane` at `pos` claims to be of, without any proof: its checksum
    /// needs a key that only that epoch's host record has.
    pub fn claimed_epoch(bytes: &[u8], lane: LaneId, pos: u64) -> Option<Epoch> {
        let (raw, _) = RawRecord::ref_from_prefix(bytes).ok()?;
        let here = raw.magic == MAGIC && raw.pos.get() == pos && raw.lane.get() == lane.0;
        here.then(|| Epoch(raw.epoch.get()))
    }

    /// Reads the first bytes of what may be a record of `lane` under `key` at `pos`. Nothing is
    /// verified by checksum yet; lengths are within bounds, and `len` within `max_len`.
    pub fn peek(
        bytes: &[u8],
        key: &LogKey,
        lane: LaneId,
        pos: u64,
        max_len: u64,
    ) -> std::result::Result<Self, Invalid> {
        let (raw, _) =
            RawRecord::ref_from_prefix(bytes).map_err(|_| Invalid("shorter than a header"))?;
        let ok = raw.magic == MAGIC
            && raw.epoch.get() == key.epoch.0
            && raw.pos.get() == pos
            && raw.lane.get() == lane.0;
        if !ok {
            return Err(Invalid("not a record of this lane, epoch and position"));
        }
        let layout = RecordLayout {
            medium: raw.medium(),
            len: raw.len.get(),
            items_len: raw.items_len.get(),
            data_offset: raw.data_offset.get(),
            data_len: raw.data_len.get(),
        };
        let header = Self {
            params: RecordParams {
                lsn: Lsn(raw.lsn.get()),
                prev_lsn: Lsn(raw.prev_lsn.get()),
                prev_compact: Lsn(raw.prev_compact.get()),
                durable_lsn: Lsn(raw.durable_lsn.get()),
                durable_pos: raw.durable_pos.get(),
                pos,
                prev_end: raw.prev_end.get(),
                prev_crc: raw.prev_crc.get(),
            },
            lane,
            layout,
            items_count: raw.items_count.get(),
            crc: raw.crc.get(),
        };
        let at_unit = pos.is_multiple_of(header.layout.medium.unit());
        if at_unit && header.layout.holds(header.items_count, max_len, raw.is_known()) {
            Ok(header)
        } else {
            Err(Invalid("impossible lengths"))
        }
    }

    /// Bytes from the record's start that [`RecordHead::decode`] needs.
    pub fn head_len(&self) -> usize {
        head_len(u64::from(self.layout.items_len), u64::from(self.layout.data_len)) as usize
    }

    /// Position one past the record.
    pub fn end(&self) -> u64 {
        self.params.pos + u64::from(self.layout.len)
    }

    /// Puts the checksum right of a head that a test has changed. `head` is as long as
    /// [`RecordHeader::head_len`] says.
    #[doc(hidden)]
    pub fn reseal(key: &LogKey, head: &mut [u8]) {
        let (fixed, rest) = head.split_first_chunk_mut().expect("a head has its fixed part");
        seal_head(key, &{ *fixed }, fixed, rest);
    }

    /// Does the head's checksum hold? `head` starts with the record and has at least
    /// [`RecordHeader::head_len`] bytes.
    pub fn verify_head(&self, key: &LogKey, head: &[u8]) -> bool {
        let head = head.get(..self.head_len()).and_then(|head| head.split_first_chunk());
        head.is_some_and(|(fixed, rest)| head_crc(key, fixed, rest) == self.crc)
    }
}

/// A record whose header, items and data checksums are verified; its data is not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordHead {
    /// The header.
    pub header: RecordHeader,
    /// The record's items, optional unknown kinds left out.
    pub items: Vec<Item>,
    sums: DataSums,
}

impl RecordHead {
    /// Verifies and decodes a record's head. `head` starts with the record.
    pub fn decode(header: RecordHeader, key: &LogKey, head: &[u8]) -> Checked<Self> {
        if !header.verify_head(key, head) {
            return Err(Invalid("checksum mismatch").into());
        }
        let (raw, rest) = crate::take::<RawRecord>(head, "staged record")?;
        // Not the lane's end: what follows is acknowledged as well.
        if !raw.is_known() {
            return Err(Error::Incompatible(format!(
                "staged record at position {} of kind {}, version {}, flags {:#x}, owner {}; this build \
                 knows kind {KIND_TRANSACTION} of version {VERSION} by owner {OWNER_RUNTIME}",
                header.params.pos,
                raw.kind.get(),
                raw.version.get(),
                raw.flags.get(),
                raw.owner.get()
            )).into());
        }
        let (items, sums) = crate::split(rest, header.layout.items_len as usize, "staged record")?;
        let items = item_codec::decode_all(items, header.items_count)?;
        let count = (header.layout.data_len as usize).div_ceil(DATA_CHUNK);
        let sums = sums.as_chunks().0.iter().take(count).map(|c| u32::from_le_bytes(*c)).collect();
        let sums = DataSums::new(key, header.layout.data_len, sums)
            .ok_or_else(|| corrupt("staged record", "fewer checksums than chunks of data"))?;
        check(&header.params, &header.layout, &items)?;
        Ok(Self { header, items, sums })
    }

    /// Checksums of the data section.
    pub fn sums(&self) -> &DataSums {
        &self.sums
    }

    /// Verifies the whole data section.
    pub fn verify_data(&self, data: &[u8]) -> bool {
        self.sums.verify_data(data)
    }

    /// Verifies a part of the data section; see [`DataSums::verify_part`].
    pub fn verify_part(&self, offset: usize, part: &[u8]) -> bool {
        self.sums.verify_part(offset, part)
    }
}

/// What a record must be beyond its sizes, whether it is about to be written or was read.
fn check(p: &RecordParams, layout: &RecordLayout, items: &[Item]) -> Result<()> {
    let bad = |why| Err(corrupt(format!("staged record at position {}", p.pos), why));
    if p.prev_lsn >= p.lsn || p.durable_lsn >= p.lsn || p.durable_pos > p.pos || p.prev_end > p.pos
    {
        return bad("its sequence numbers contradict each other");
    }
    if p.prev_compact >= p.lsn || p.prev_compact.0 > 0 && layout.medium == LaneMedium::Bytes {
        return bad("it follows a record on another medium that it cannot follow");
    }
    for item in items {
        match item {
            Item::Data { len, data_offset, .. }
                if u64::from(*len) + u64::from(*data_offset) > u64::from(layout.data_len) =>
            {
                return bad("a data item outside the data section");
            }
            Item::Reply(reply) if reply.lsn > p.lsn => {
                return bad("a reply of an operation newer than its record");
            }
            Item::NameOp(op) if op.lsn > p.lsn => {
                return bad("a name operation newer than its record");
            }
            _ => {}
        }
    }
    Ok(())
}

/// Decodes and verifies a whole record given its bytes: head and data.
pub fn decode_record<'a>(
    bytes: &'a [u8],
    key: &LogKey,
    lane: LaneId,
    pos: u64,
    max_len: u64,
) -> Checked<(RecordHead, &'a [u8])> {
    let header = RecordHeader::peek(bytes, key, lane, pos, max_len)?;
    let head = RecordHead::decode(header, key, bytes)?;
    let start = header.layout.data_offset as usize;
    let data = bytes.get(start..start + header.layout.data_len as usize);
    match data {
        Some(d) if head.verify_data(d) => Ok((head, d)),
        _ => Err(Invalid("data checksum mismatch").into()),
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
pub(crate) mod tests;
