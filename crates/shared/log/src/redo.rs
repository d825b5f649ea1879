//! The redo lane: its region, the two slots at its begin, and the records of its ring.
//!
//! The target alone writes it (rule R34). A record holds bytes of atomic writes and where in the
//! area they go. It is a record only under the key of the newest slot, which is drawn anew whenever
//! a target opens the lane (rules R8, R35).

use crate::{
    Checked, DATA_CHUNK, DataSums, FIXED_LEN, INCOMPAT_REDO_LANE, Invalid, LogKey, StaticHeader,
};
use crate::{blocks_up, checksum, head_crc, put, seal_head, split, sums, take};
use siftfs_base::{BLOCK_BYTES, Epoch, Error, Result, corrupt};
use std::ops::Range;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Byte offsets of the two slots in the lane's region. A slot with an even number lies in the
/// first.
pub const REDO_SLOTS: [u64; 2] = [0, BLOCK_BYTES];
/// Byte offset of the ring in the lane's region.
pub const REDO_RING: u64 = 2 * BLOCK_BYTES;
/// Shortest redo lane in bytes.
pub const MIN_REDO_LANE: u64 = 1 << 20;
/// Most bytes of data in one record.
pub const REDO_MAX_DATA: u64 = 1 << 20;
/// Most ranges in one record.
pub const REDO_MAX_RUNS: usize = 4096;
/// Bytes of a slot, in one sector: a power cut leaves the old one or the new one.
pub const REDO_SLOT_LEN: usize = 128;
/// Bytes from a record's begin that say how long it is.
pub const REDO_PEEK: usize = FIXED_LEN;

/// A redo lane, in errors.
const LANE: &str = "redo lane";
const SLOT_MAGIC: [u8; 8] = *b"SIFTrsl\x01";
const RECORD_MAGIC: [u8; 8] = *b"SIFTrdo\x01";
/// Version of slots and records.
pub(crate) const VERSION: u16 = 1;
const KIND_WRITES: u16 = 1;
const FLAG_COMMIT: u32 = 1;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSlot {
    magic: [u8; 8],
    version: U32,
    reserved0: U32,
    seq: U64,
    volume: [u8; 16],
    tail: U64,
    number: U64,
    nonce: U64,
    prev_crc: U32,
    reserved1: [u8; 56],
    crc: U32,
}
const _: () = assert!(size_of::<RawSlot>() == REDO_SLOT_LEN);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRecord {
    magic: [u8; 8],
    version: U16,
    kind: U16,
    flags: U32,
    pos: U64,
    prev_end: U64,
    number: U64,
    durable: U64,
    prev_crc: U32,
    len: U32,
    index: U32,
    run_count: U32,
    data_len: U32,
    reserved: [u8; 56],
    crc: U32,
}
const _: () = assert!(size_of::<RawRecord>() == FIXED_LEN);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRun {
    offset: U64,
    len: U32,
    reserved: U32,
}
const RUN: usize = 16;
const _: () = assert!(size_of::<RawRun>() == RUN);

/// Where the redo lane lies on the device that holds the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RedoRegion {
    /// First byte; a multiple of the block size.
    pub offset: u64,
    /// Bytes, slots included; a multiple of the block size.
    pub len: u64,
}

impl StaticHeader {
    /// The feature and the region are there together, and the region is long enough.
    pub(crate) fn check_redo(&self) -> Result<()> {
        if self.redo.is_some() != (self.incompat & INCOMPAT_REDO_LANE != 0) {
            return Err(corrupt("header", "its lanes and its features disagree on a redo lane"));
        }
        match &self.redo {
            Some(redo) if redo.len < MIN_REDO_LANE => {
                Err(corrupt("header", format!("a redo lane of {} bytes", redo.len)))
            }
            _ => Ok(()),
        }
    }
}

/// What a slot says of the lane. The slot with the higher number counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RedoSlot {
    /// Counts the slots written, from 1.
    pub seq: u64,
    /// UUID of the volume.
    pub volume: [u8; 16],
    /// Position of the first record that is not in its blocks; a multiple of the block size.
    pub tail: u64,
    /// Number of the transaction that begins there, at least 1.
    pub number: u64,
    /// Checksum of the record before the tail; 0 if no record was written there under this key.
    pub prev_crc: u32,
    /// Key of the records' checksums.
    pub nonce: u64,
}

impl RedoSlot {
    /// Key of the records.
    pub fn key(&self) -> LogKey {
        LogKey { epoch: Epoch(0), nonce: self.nonce }
    }

    /// Byte offset in the lane's region of the slot with this number.
    pub fn place(seq: u64) -> u64 {
        let [even, odd] = REDO_SLOTS;
        if seq.is_multiple_of(2) { even } else { odd }
    }

    /// Encodes a slot.
    pub fn encode(&self) -> [u8; REDO_SLOT_LEN] {
        let mut raw = RawSlot {
            magic: SLOT_MAGIC,
            version: u32::from(VERSION).into(),
            reserved0: 0.into(),
            seq: self.seq.into(),
            volume: self.volume,
            tail: self.tail.into(),
            number: self.number.into(),
            nonce: self.nonce.into(),
            prev_crc: self.prev_crc.into(),
            reserved1: [0; 56],
            crc: 0.into(),
        };
        let sum = raw.as_bytes().split_last_chunk::<4>().map(|(body, _)| checksum(0, body));
        raw.crc = sum.expect("a slot is longer than its checksum").into();
        let mut out = [0; REDO_SLOT_LEN];
        out.copy_from_slice(raw.as_bytes());
        out
    }

    /// Decodes and checks a slot.
    ///
    /// # Errors
    /// Incompatible if it is of another version; corrupt if it says what no lane can have.
    pub fn decode(bytes: &[u8; REDO_SLOT_LEN]) -> Checked<Self> {
        let Ok(raw) = RawSlot::ref_from_bytes(bytes) else {
            return Err(Invalid("wrong size").into());
        };
        if raw.magic != SLOT_MAGIC {
            return Err(Invalid("no magic number").into());
        }
        let sum = bytes.split_last_chunk::<4>().map(|(body, _)| checksum(0, body));
        if sum != Some(raw.crc.get()) {
            return Err(Invalid("checksum mismatch").into());
        }
        if raw.version.get() != u32::from(VERSION) {
            return Err(unknown("a slot of version", raw.version.get().into()).into());
        }
        let slot = Self {
            seq: raw.seq.get(),
            volume: raw.volume,
            tail: raw.tail.get(),
            number: raw.number.get(),
            prev_crc: raw.prev_crc.get(),
            nonce: raw.nonce.get(),
        };
        let fit = slot.tail.is_multiple_of(BLOCK_BYTES) && slot.tail < 1 << 62;
        if !fit || slot.number == 0 || slot.number >= 1 << 62 || slot.seq >= 1 << 62 {
            return Err(corrupt(LANE, "a slot that no lane can have").into());
        }
        Ok(slot)
    }
}

fn unknown(what: &str, found: u64) -> Error {
    Error::Incompatible(format!("redo lane with {what} {found}, which this build does not know"))
}

/// Where a record belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RedoPlace {
    /// Position in the ring; a multiple of the block size.
    pub pos: u64,
    /// Where the record before it ended.
    pub prev_end: u64,
    /// Checksum of the record before it; 0 for the first record under this key.
    pub prev_crc: u32,
    /// Number of its transaction.
    pub number: u64,
    /// Its place in its transaction, from 0.
    pub index: u32,
    /// It is the last one of its transaction, which is committed with it.
    pub commit: bool,
    /// Everything before this position was durable when the record was written (rule R14).
    pub durable: u64,
}

/// Bytes that belong at `offset` of the area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RedoRun {
    /// First byte in the area.
    pub offset: u64,
    /// Bytes, at least 1.
    pub len: u32,
}

/// Bytes of a record's head: fixed part, ranges, data checksums.
fn head_len(runs: u64, data: u64) -> u64 {
    FIXED_LEN as u64 + runs * RUN as u64 + sums::count(data) * 4
}

/// Bytes of a record with this number of ranges and bytes of data: whole blocks.
pub fn redo_record_len(runs: usize, data: u64) -> u64 {
    blocks_up(head_len(runs as u64, data) + data)
}

/// Encodes a record of these ranges and their bytes into `buf`, which is as long as
/// [`redo_record_len`] says. Returns its checksum.
///
/// # Panics
/// If a reader would refuse the record.
pub fn encode_redo(
    key: &LogKey,
    place: &RedoPlace,
    writes: &[(u64, &[u8])],
    buf: &mut [u8],
) -> u32 {
    let data_len: u64 = writes.iter().map(|(_, bytes)| bytes.len() as u64).sum();
    assert!((1..=REDO_MAX_DATA).contains(&data_len), "a record has some data");
    assert!(writes.len() <= REDO_MAX_RUNS, "a record has few ranges");
    assert!(writes.iter().all(|(_, bytes)| !bytes.is_empty()), "no range is empty");
    assert_eq!(buf.len() as u64, redo_record_len(writes.len(), data_len), "the buffer's length");
    let len = buf.len() as u32;
    let (head, rest) = buf.split_at_mut(head_len(writes.len() as u64, data_len) as usize);
    let (data, padding) = rest.split_at_mut(data_len as usize);
    let mut room = &mut *data;
    writes.iter().for_each(|(_, bytes)| put(&mut room, bytes));
    padding.fill(0);
    let (fixed, lists) = head.split_first_chunk_mut().expect("a head has its fixed part");
    let mut room = &mut *lists;
    for (offset, bytes) in writes {
        let (offset, len) = (U64::new(*offset), U32::new(bytes.len() as u32));
        put(&mut room, RawRun { offset, len, reserved: 0.into() }.as_bytes());
    }
    data.chunks(DATA_CHUNK).for_each(|chunk| put(&mut room, &key.crc(chunk).to_le_bytes()));
    let raw = RawRecord {
        magic: RECORD_MAGIC,
        version: VERSION.into(),
        kind: KIND_WRITES.into(),
        flags: if place.commit { FLAG_COMMIT } else { 0 }.into(),
        pos: place.pos.into(),
        prev_end: place.prev_end.into(),
        number: place.number.into(),
        durable: place.durable.into(),
        prev_crc: place.prev_crc.into(),
        len: len.into(),
        index: place.index.into(),
        run_count: (writes.len() as u32).into(),
        data_len: (data_len as u32).into(),
        reserved: [0; 56],
        crc: 0.into(),
    };
    seal_head(key, &raw, fixed, lists)
}

/// How long what may be a record at `pos` is, in bytes, and how long its head. The first
/// [`REDO_PEEK`] bytes say it, and are not verified by that.
pub fn peek_redo(bytes: &[u8], pos: u64) -> std::result::Result<(u64, usize), Invalid> {
    let (raw, _) = RawRecord::ref_from_prefix(bytes).map_err(|_| Invalid("too short"))?;
    if raw.magic != RECORD_MAGIC || raw.pos.get() != pos {
        return Err(Invalid("no record of this position"));
    }
    let (runs, data) = (u64::from(raw.run_count.get()), u64::from(raw.data_len.get()));
    let sensible =
        (1..=REDO_MAX_DATA).contains(&data) && (1..=REDO_MAX_RUNS as u64).contains(&runs);
    let head = head_len(runs, data);
    if !sensible || u64::from(raw.len.get()) != blocks_up(head + data) {
        return Err(Invalid("impossible lengths"));
    }
    Ok((raw.len.get().into(), head as usize))
}

/// A record whose head is verified; its data is not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedoRecord {
    /// Where it belongs.
    pub place: RedoPlace,
    /// Bytes of it.
    pub len: u64,
    /// What it writes, in order.
    pub runs: Vec<RedoRun>,
    /// Its checksum.
    pub crc: u32,
    /// Where in the record its data lies.
    data: Range<usize>,
    sums: DataSums,
}

impl RedoRecord {
    /// Decodes and checks the head of a record at `pos` under `key`. `bytes` begin with the record,
    /// and have its head at least.
    ///
    /// # Errors
    /// Incompatible if its version, kind or flags are not known; corrupt if its lists contradict
    /// its lengths.
    pub fn decode(bytes: &[u8], key: &LogKey, pos: u64) -> Checked<Self> {
        let (len, head) = peek_redo(bytes, pos)?;
        let Some((fixed, lists)) = bytes.get(..head).and_then(|head| head.split_first_chunk())
        else {
            return Err(Invalid("shorter than its head").into());
        };
        let (raw, _) = take::<RawRecord>(fixed, LANE)?;
        if head_crc(key, fixed, lists) != raw.crc.get() {
            return Err(Invalid("checksum mismatch").into());
        }
        if (raw.version.get(), raw.kind.get()) != (VERSION, KIND_WRITES) {
            return Err(unknown("a record of kind", raw.kind.get().into()).into());
        }
        if raw.flags.get() & !FLAG_COMMIT != 0 {
            return Err(unknown("a record with flags", raw.flags.get().into()).into());
        }
        let (runs, sums) = lists_of(raw, lists)?;
        let data = head..head + raw.data_len.get() as usize;
        let sums = DataSums::new(key, raw.data_len.get(), sums)
            .ok_or_else(|| corrupt(LANE, "a record with other checksums than data"))?;
        let place = RedoPlace {
            pos,
            prev_end: raw.prev_end.get(),
            prev_crc: raw.prev_crc.get(),
            number: raw.number.get(),
            index: raw.index.get(),
            commit: raw.flags.get() & FLAG_COMMIT != 0,
            durable: raw.durable.get(),
        };
        Ok(Self { place, len, runs, crc: raw.crc.get(), data, sums })
    }

    /// Position one past the record.
    pub fn end(&self) -> u64 {
        self.place.pos + self.len
    }

    /// The data, verified, out of all of the record's bytes; `None` if it is not whole.
    pub fn data<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        bytes.get(self.data.clone()).filter(|data| self.sums.verify_data(data))
    }
}

/// Ranges and data checksums behind the fixed part.
fn lists_of(raw: &RawRecord, mut lists: &[u8]) -> Result<(Vec<RedoRun>, Box<[u32]>)> {
    let mut runs = Vec::with_capacity(raw.run_count.get() as usize);
    let mut all = 0;
    for _ in 0..raw.run_count.get() {
        let (run, rest) = take::<RawRun>(lists, LANE)?;
        lists = rest;
        let (offset, len) = (run.offset.get(), run.len.get());
        if len == 0 || offset.checked_add(len.into()).is_none_or(|end| end >= 1 << 62) {
            return Err(corrupt(LANE, format!("a range of {len} bytes at byte {offset}")));
        }
        all += u64::from(len);
        runs.push(RedoRun { offset, len });
    }
    if all != u64::from(raw.data_len.get()) {
        return Err(corrupt(LANE, format!("ranges of {all} bytes for {}", raw.data_len.get())));
    }
    let (sums, _) = split(lists, sums::count(all) as usize * 4, LANE)?;
    let sums = sums.as_chunks().0.iter().map(|sum| u32::from_le_bytes(*sum)).collect();
    Ok((runs, sums))
}

#[cfg(test)]
#[path = "redo_tests.rs"]
pub(crate) mod tests;
