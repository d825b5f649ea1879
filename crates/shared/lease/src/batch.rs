//! A batch of a program's log: what one fsync(2) writes, and how all of them are found again
//! (`docs/design/private-logs.md`, "The file log", "The byte log").
//!
//! The program writes its log, and may write anything into it. So what is read is bounded and
//! checked before it is used, and nothing in it says whose file a record is of: that stands in the
//! registry, which the program cannot write.

use crate::layout::{FULL, MOST_BYTES};
use crate::medium::LogMedium;
use crate::words::Held;
use siftfs_base::{checksum, crc32c};
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What the place and length of a file log's batch are multiples of, in bytes. Other media have
/// units of their own ([`LogMedium::unit`]).
pub const BATCH_UNIT: usize = 4096;
/// Bytes of a log.
pub const LOG_BYTES: u64 = 8 << 20;
/// Most bytes of data that a batch has. What an fsync(2) has more is the daemon's.
pub const BATCH_DATA: usize = 1 << 20;
/// Longest batch, in bytes, on any medium.
const MOST_LEN: usize = (HEADER + FULL.records * RECORD + BATCH_DATA).next_multiple_of(BATCH_UNIT);

const MAGIC: [u8; 8] = *b"SIFTplg\x01";
const VERSION: u32 = 1;
const HEADER: usize = 64;
const RECORD: usize = 32;
/// Bytes that are read at once to look for batches behind a log's end.
const WINDOW: usize = 64 << 10;
/// Where the checksum stands in the header.
const CRC_AT: usize = 44;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    version: U32,
    records: U32,
    position: U64,
    len: U64,
    before_end: U64,
    before_crc: U32,
    crc: U32,
    rest: [u8; 16],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRecord {
    slot: U32,
    len: U32,
    number: U64,
    offset: U64,
    time: I64,
}

/// A block of memory that a descriptor with O_DIRECT can write from.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(4096))]
struct Block([u8; BATCH_UNIT]);

const _: () = {
    assert!(size_of::<RawHeader>() == HEADER && size_of::<RawRecord>() == RECORD);
    assert!(std::mem::offset_of!(RawHeader, crc) == CRC_AT);
    // One batch is written while those of the other half are forgotten.
    assert!(2 * (MOST_LEN as u64) <= LOG_BYTES / 2);
    assert!(BATCH_DATA >= MOST_BYTES);
    assert!(HEADER <= LogMedium::Byte.unit() && WINDOW.is_multiple_of(BATCH_UNIT));
};

/// What a log is, as the registry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogShape {
    /// Bytes of its file, a multiple of its medium's unit.
    pub len: u64,
    /// A secret number of this log alone, drawn at random (R35).
    pub key: u64,
    /// What it lies in.
    pub medium: LogMedium,
}

impl LogShape {
    /// What a batch's place and length are multiples of, in bytes.
    pub fn unit(&self) -> u64 {
        self.medium.unit() as u64
    }

    fn seed(&self) -> u32 {
        crc32c(&self.key.to_le_bytes())
    }

    /// Where a batch of `len` bytes begins that follows `position`; none, at the counter's end.
    fn begin(&self, position: u64, len: u64) -> Option<u64> {
        match (position % self.len).checked_add(len)? > self.len {
            true => position.checked_next_multiple_of(self.len),
            false => Some(position),
        }
    }
}

/// A record of a batch: bytes that the holder of a lease wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logged {
    /// The lease. Of which file it is, the registry says.
    pub held: Held,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// When, in nanoseconds since 1970.
    pub time: i64,
}

/// The end of a log, as its writer knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End {
    /// Where the batch before ends.
    end: u64,
    /// Its checksum.
    crc: u32,
}

/// Makes batches, one behind the other. There is one for each log.
pub struct Batches {
    shape: LogShape,
    before: End,
    blocks: Vec<Block>,
    /// The records of the batch in the making, and its data behind each other.
    records: Vec<RawRecord>,
    data: Vec<u8>,
}

/// A batch to be written: aligned bytes, and where in the file.
#[derive(Debug)]
pub struct Batch<'a> {
    /// First byte in the file.
    pub place: u64,
    /// Its bytes.
    pub bytes: &'a [u8],
}

impl Batches {
    /// Of a new log; none, if it is too short for two batches, or no multiple of their unit.
    pub fn new(shape: LogShape) -> Option<Self> {
        let fits = shape.len >= 2 * MOST_LEN as u64 && shape.len.is_multiple_of(shape.unit());
        let (blocks, records, data) = (Vec::new(), Vec::new(), Vec::new());
        fits.then_some(Self { shape, before: End { end: 0, crc: 0 }, blocks, records, data })
    }

    /// Where the newest batch ends: all that were made lie before it.
    pub fn position(&self) -> u64 {
        self.before.end
    }

    /// Drops the batch in the making.
    pub fn clear(&mut self) {
        self.records.clear();
        self.data.clear();
    }

    /// Is nothing in the making?
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// One more record, whose `len` bytes `copy` puts into what it gets. False: the batch has no
    /// room for it.
    pub fn push(&mut self, record: &Logged, len: usize, copy: impl FnOnce(&mut [u8])) -> bool {
        let begin = self.data.len();
        let end = begin + len.next_multiple_of(8);
        if end > BATCH_DATA || self.records.len() >= FULL.records {
            return false;
        }
        self.data.resize(end, 0);
        if let Some(into) = self.data.get_mut(begin..begin + len) {
            copy(into);
        }
        self.records.push(RawRecord {
            slot: record.held.slot.into(),
            len: u32::try_from(len).expect("a batch's data are few").into(),
            number: record.held.number.into(),
            offset: record.offset.into(),
            time: record.time.into(),
        });
        true
    }

    /// The batch is complete. `begin` is what was forgotten of the log: what lies before it may be
    /// written again. None: there is no room before more is forgotten, and nothing has changed.
    ///
    /// # Panics
    /// If there are no records in it.
    pub fn seal(&mut self, begin: u64) -> Option<Batch<'_>> {
        assert!(!self.records.is_empty(), "a batch has records");
        let used = HEADER + self.records.len() * RECORD + self.data.len();
        let len = used.next_multiple_of(self.shape.medium.unit()) as u64;
        let position = self.shape.begin(self.before.end, len)?;
        let end = position.checked_add(len)?;
        if end.checked_sub(begin)? > self.shape.len {
            return None;
        }
        let header = RawHeader {
            magic: MAGIC,
            version: VERSION.into(),
            records: u32::try_from(self.records.len()).expect("few").into(),
            position: position.into(),
            len: len.into(),
            before_end: self.before.end.into(),
            before_crc: self.before.crc.into(),
            crc: 0.into(),
            rest: [0; 16],
        };
        let crc = self.fill(&header, len as usize);
        self.before = End { end, crc };
        self.clear();
        let bytes = self.blocks.as_slice().as_bytes().get(..len as usize);
        let bytes = bytes.expect("the batch was put there");
        Some(Batch { place: position % self.shape.len, bytes })
    }

    /// Puts the batch into aligned memory; answers its checksum.
    fn fill(&mut self, header: &RawHeader, len: usize) -> u32 {
        self.blocks.clear();
        self.blocks.resize(len.div_ceil(BATCH_UNIT), Block::new_zeroed());
        let (bytes, _) = self.blocks.as_mut_slice().as_mut_bytes().split_at_mut(len);
        let mut at = 0;
        for part in [header.as_bytes(), self.records.as_bytes(), &self.data] {
            let into = bytes.get_mut(at..at + part.len()).expect("the length is theirs together");
            into.copy_from_slice(part);
            at += part.len();
        }
        let crc = checksum(self.shape.seed(), bytes);
        if let Some(place) = bytes.get_mut(CRC_AT..CRC_AT + 4) {
            place.copy_from_slice(&crc.to_le_bytes());
        }
        crc
    }
}

/// Reads bytes of a log's file, all that are asked for.
pub type ReadLog<'a> = dyn FnMut(u64, &mut [u8]) -> std::io::Result<()> + 'a;
/// Gets a record and its bytes. An error ends the log, which is told as lost from there on.
pub type EachLogged<'a> = dyn FnMut(&Logged, &[u8]) -> Result<(), String> + 'a;

/// What a log had.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Scanned {
    /// Batches that were valid.
    pub batches: u64,
    /// Their records.
    pub records: u64,
    /// Bytes of data of these.
    pub bytes: u64,
    /// Where the last batch ends.
    pub end: u64,
    /// Why the log ended before what was written to it did; nothing, if it did not.
    pub lost: Option<String>,
}

/// Reads a log from `begin` on: the end of what was forgotten. `each` gets all records, in order.
///
/// # Errors
/// Those of `read`.
pub fn scan(
    read: &mut ReadLog<'_>,
    shape: &LogShape,
    begin: u64,
    each: &mut EachLogged<'_>,
) -> std::io::Result<Scanned> {
    let mut scanned = Scanned { end: begin, ..Scanned::default() };
    if shape.len < shape.unit() || !shape.len.is_multiple_of(shape.unit()) {
        scanned.lost = Some(format!("a log cannot have {} bytes", shape.len));
        return Ok(scanned);
    }
    let mut before = None;
    // Each batch is longer than nothing, so these are more than a log holds.
    for _ in 0..shape.len / shape.unit() {
        let Some((bytes, end)) = next(read, shape, scanned.end, before)? else {
            scanned.lost = later(read, shape, scanned.end, begin)?;
            return Ok(scanned);
        };
        if end.end - begin > shape.len {
            scanned.lost = Some("it says that it is longer than its file".into());
            return Ok(scanned);
        }
        if let Err(why) = records(&bytes, &mut scanned, each) {
            scanned.lost = Some(why);
            return Ok(scanned);
        }
        (scanned.batches, scanned.end, before) = (scanned.batches + 1, end.end, Some(end));
    }
    Ok(scanned)
}

/// The batch that follows the one that ends at `position`: there, or at the file's begin.
fn next(
    read: &mut ReadLog<'_>,
    shape: &LogShape,
    position: u64,
    before: Option<End>,
) -> std::io::Result<Option<(Vec<u8>, End)>> {
    let lap = position.checked_next_multiple_of(shape.len);
    for at in [Some(position), lap.filter(|lap| *lap != position)].into_iter().flatten() {
        let Some((header, bytes)) = valid(read, shape, at)? else { continue };
        let follows = End { end: header.before_end.get(), crc: header.before_crc.get() };
        // What was before the first one was forgotten.
        if before.is_none_or(|before| before == follows) {
            let end = at + header.len.get();
            return Ok(Some((bytes, End { end, crc: header.crc.get() })));
        }
    }
    Ok(None)
}

/// The length of the batch at a position whose header this would be; none, if it cannot be one.
fn claims(shape: &LogShape, position: u64, header: &RawHeader) -> Option<usize> {
    let len = usize::try_from(header.len.get()).unwrap_or(usize::MAX);
    let unit = shape.medium.unit();
    let fits = (unit..=MOST_LEN).contains(&len)
        && len.is_multiple_of(unit)
        && position % shape.len + len as u64 <= shape.len
        && position.checked_add(len as u64).is_some();
    let said = (header.magic, header.version.get(), header.position.get());
    (said == (MAGIC, VERSION, position) && header.rest == [0; 16] && fits).then_some(len)
}

/// The batch at a position, if there is a valid one.
fn valid(
    read: &mut ReadLog<'_>,
    shape: &LogShape,
    position: u64,
) -> std::io::Result<Option<(RawHeader, Vec<u8>)>> {
    let (place, unit) = (position % shape.len, shape.medium.unit());
    let mut bytes = vec![0; unit];
    read(place, &mut bytes)?;
    let Ok((header, _)) = RawHeader::read_from_prefix(&bytes) else { return Ok(None) };
    let Some(len) = claims(shape, position, &header) else { return Ok(None) };
    bytes.resize(len, 0);
    if let Some(rest) = bytes.get_mut(unit..).filter(|rest| !rest.is_empty()) {
        read(place + unit as u64, rest)?;
    }
    if let Some(crc) = bytes.get_mut(CRC_AT..CRC_AT + 4) {
        crc.fill(0);
    }
    let right = checksum(shape.seed(), &bytes) == header.crc.get();
    Ok(right.then_some((header, bytes)))
}

/// Is there a valid batch behind the end? Each is written after those before it were durable. Those
/// that were damaged have no more bytes than the log: others were made up, to be read for long.
fn later(
    read: &mut ReadLog<'_>,
    shape: &LogShape,
    end: u64,
    begin: u64,
) -> std::io::Result<Option<String>> {
    let (mut at, mut claimed) = (end, 0);
    let until = begin.saturating_add(shape.len);
    let mut window = vec![0; WINDOW];
    while at < until {
        let place = at % shape.len;
        let len = (shape.len - place).min(until - at).min(WINDOW as u64);
        let Some(piece) = window.get_mut(..len as usize) else { break };
        read(place, piece)?;
        for unit in piece.chunks(shape.medium.unit()) {
            let header = RawHeader::read_from_prefix(unit).ok();
            if let Some(len) = header.and_then(|(header, _)| claims(shape, at, &header)) {
                if valid(read, shape, at)?.is_some() {
                    let what = "is damaged, and the one at";
                    return Ok(Some(format!("the batch at {end} {what} {at} is not")));
                }
                claimed += len as u64;
                if claimed > shape.len {
                    return Ok(Some(format!(
                        "behind its end at {end} batches lie over each other"
                    )));
                }
            }
            at = at.saturating_add(unit.len() as u64);
        }
    }
    Ok(None)
}

/// Hands over the records of a batch.
fn records(bytes: &[u8], scanned: &mut Scanned, each: &mut EachLogged<'_>) -> Result<(), String> {
    let wrong = |what: &str| format!("a batch at {} {what}", scanned.end);
    let short = || wrong("is shorter than it says");
    let (header, rest) = RawHeader::read_from_prefix(bytes).map_err(|_| short())?;
    let count = header.records.get() as usize;
    if count == 0 || count > FULL.records {
        return Err(wrong("has another number of records than it can"));
    }
    let (records, mut data) = rest.split_at_checked(count * RECORD).ok_or_else(short)?;
    let records = <[RawRecord]>::ref_from_bytes(records).map_err(|_| short())?;
    for raw in records {
        let len = raw.len.get() as usize;
        if len == 0 || len > MOST_BYTES {
            return Err(wrong("has a record that is too long, or has nothing"));
        }
        let (bytes, rest) = data.split_at_checked(len.next_multiple_of(8)).ok_or_else(short)?;
        data = rest;
        let held = Held { slot: raw.slot.get(), number: raw.number.get() };
        let logged = Logged { held, offset: raw.offset.get(), time: raw.time.get() };
        each(&logged, bytes.get(..len).unwrap_or_default())?;
        scanned.records += 1;
        scanned.bytes += len as u64;
    }
    Ok(())
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
