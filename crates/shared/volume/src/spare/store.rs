//! The bytes of a spare log on its device.

use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, Epoch, Error, Result, corrupt};
use siftfs_device::{AlignedBuf, Device};
use siftfs_log::{
    MAX_SPARE_BATCH, SPARE_FIRST, SPARE_SLOTS, SpareBatch, SpareExtent, SpareHeader, StaticHeader,
    if_valid,
};
use std::sync::Arc;

/// Smallest spare log in bytes.
pub const MIN_SPARE: u64 = 16 << 20;

/// The newest header of a spare log, and in which of the slots it lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub header: SpareHeader,
    pub index: usize,
}

/// Where the next batch goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tail {
    /// Byte offset on the device.
    pub pos: u64,
    /// Its number.
    pub index: u64,
}

impl Tail {
    pub const FIRST: Self = Self { pos: SPARE_FIRST, index: 0 };
}

/// Bytes of the log's device that a batch takes along.
pub(super) struct Part {
    /// First byte on the log's device.
    pub offset: u64,
    pub data: Arc<AlignedBuf>,
    /// First byte in `data`.
    pub from: usize,
    pub len: usize,
}

impl Part {
    fn bytes(&self) -> &[u8] {
        self.data.get(self.from..self.from + self.len).expect("a part lies in its buffer")
    }
}

impl Slot {
    /// Reads the newest header.
    ///
    /// # Errors
    /// Refused if no spare log is here; incompatible if it is of a newer version.
    pub fn read(device: &dyn Device) -> Result<Self> {
        let mut newest: Option<Self> = None;
        for (index, at) in SPARE_SLOTS.into_iter().enumerate() {
            if at + BLOCK_BYTES > device.size() {
                continue;
            }
            let header = if_valid(SpareHeader::decode(&*read_block(device, at)?))?;
            let newer = |header: &SpareHeader| {
                newest.is_none_or(|other| header.generation > other.header.generation)
            };
            if let Some(header) = header.filter(newer) {
                newest = Some(Self { header, index });
            }
        }
        newest.ok_or_else(|| {
            Error::Refused("no spare log is there: neither slot of its header is valid".into())
        })
    }

    /// Writes the next generation's header into the other slot, durably: there are no batches then.
    pub fn write_next(&self, device: &dyn Device, epoch: Epoch, nonce: u64) -> Result<Self> {
        let generation = self.header.generation + 1;
        self.put(device, SpareHeader { generation, epoch, nonce, ..self.header })
    }

    /// Writes a header that says that the image is the log, durably. No batch counts any more.
    pub fn write_alone(&self, device: &dyn Device) -> Result<Self> {
        let generation = self.header.generation + 1;
        self.put(device, SpareHeader { generation, alone: true, ..self.header })
    }

    fn put(&self, device: &dyn Device, header: SpareHeader) -> Result<Self> {
        let index = 1 - self.index;
        let at = SPARE_SLOTS.get(index).expect("there are two slots");
        device.write(*at, &header.encode()[..], true)?;
        Ok(Self { header, index })
    }
}

fn read_block(device: &dyn Device, at: u64) -> Result<Box<[u8; BLOCK_SIZE]>> {
    let mut block = Box::new([0; BLOCK_SIZE]);
    device.read(at, &mut block[..])?;
    Ok(block)
}

/// The newest header of a spare log.
///
/// # Errors
/// Refused if no spare log is here; incompatible if it is of a newer version.
pub fn read_spare_header(device: &dyn Device) -> Result<SpareHeader> {
    Slot::read(device).map(|slot| slot.header)
}

/// Is the device long enough for a spare log?
///
/// # Errors
/// Refused if it is not.
pub fn require_room_for_spare(device: &dyn Device) -> Result<()> {
    match device.size() {
        MIN_SPARE.. => Ok(()),
        len => Err(Error::Refused(format!(
            "a spare log of {len} bytes is too small: it needs {}M at least",
            MIN_SPARE >> 20
        ))),
    }
}

/// Makes an empty spare log that takes the whole device, for the volume of `log`, whose log's
/// device has `log_len` bytes; durable when it returns. Batches that were there are of other keys.
/// If [`MIN_SPARE`] bytes and an image of the log have room, it can be the log alone.
///
/// # Errors
/// Refused if the device is too small.
pub fn format_spare(
    device: &dyn Device,
    log: &StaticHeader,
    log_len: u64,
    nonce: u64,
) -> Result<()> {
    let down = |len: u64| len / BLOCK_BYTES * BLOCK_BYTES;
    let (len, log_len) = (down(device.size()), down(log_len));
    require_room_for_spare(device)?;
    let (volume, epoch, alone) = (log.volume, Epoch(0), false);
    let image = len.checked_sub(log_len).filter(|at| *at >= MIN_SPARE).unwrap_or(0);
    for (generation, at) in (1..).zip(SPARE_SLOTS) {
        let header = SpareHeader { generation, volume, epoch, nonce, len, log_len, image, alone };
        device.write(at, &header.encode()[..], true)?;
    }
    Ok(())
}

/// Makes both slots invalid, durably: what is there belongs to no volume any more.
pub fn erase_spare(device: &dyn Device) -> Result<()> {
    let zero = [0; BLOCK_SIZE];
    SPARE_SLOTS.into_iter().try_for_each(|at| device.write(at, &zero, true))
}

/// A batch of `parts` at `tail`, whole.
pub(super) fn encode(header: &SpareHeader, tail: Tail, parts: &[Part]) -> AlignedBuf {
    let key = header.key();
    let extent = |part: &Part| SpareExtent {
        offset: part.offset,
        len: u32::try_from(part.len).expect("a batch is bounded"),
        crc: key.crc(part.bytes()),
    };
    let extents = parts.iter().map(extent).collect();
    let (generation, index) = (header.generation, tail.index);
    let batch = SpareBatch { generation, index, pos: tail.pos, extents };
    let mut buf = AlignedBuf::zeroed(usize::try_from(batch.len()).expect("a batch is bounded"));
    let (head, mut rest) = buf.split_at_mut(BLOCK_SIZE);
    head.copy_from_slice(&batch.encode(&key)[..]);
    for part in parts {
        let to = rest.split_off_mut(..part.len).expect("the batch has room for its parts");
        to.copy_from_slice(part.bytes());
    }
    buf
}

/// Reads all batches, in order, and tells of each block of the log's device where its bytes are on
/// the spare one; a later telling of the same block counts. Returns where the next batch goes.
///
/// # Errors
/// Corrupt if a batch is damaged, and one behind it proves that it was durable (rule R14).
pub(super) fn scan(
    device: &dyn Device,
    header: &SpareHeader,
    each: &mut impl FnMut(u64, u64),
) -> Result<Tail> {
    let mut tail = Tail::FIRST;
    while let Some(batch) = whole_batch(device, header, tail)? {
        let mut pos = tail.pos + BLOCK_BYTES;
        for extent in &batch.extents {
            for at in (0..u64::from(extent.len)).step_by(BLOCK_SIZE) {
                each((extent.offset + at) / BLOCK_BYTES, pos + at);
            }
            pos += u64::from(extent.len);
        }
        tail = Tail { pos: tail.pos + batch.len(), index: tail.index + 1 };
    }
    judge_end(device, header, tail)?;
    Ok(tail)
}

/// The head at `pos`, if one of this generation is there.
fn head_at(device: &dyn Device, header: &SpareHeader, pos: u64) -> Result<Option<SpareBatch>> {
    if pos + BLOCK_BYTES > header.batches_end() {
        return Ok(None);
    }
    let batch = if_valid(SpareBatch::decode(&*read_block(device, pos)?, header, pos))?;
    Ok(batch.filter(|batch| pos + batch.len() <= header.batches_end()))
}

fn whole_batch(
    device: &dyn Device,
    header: &SpareHeader,
    tail: Tail,
) -> Result<Option<SpareBatch>> {
    let Some(batch) = head_at(device, header, tail.pos)?.filter(|b| b.index == tail.index) else {
        return Ok(None);
    };
    let (key, mut pos) = (header.key(), tail.pos + BLOCK_BYTES);
    for extent in &batch.extents {
        let mut bytes = AlignedBuf::zeroed(extent.len as usize);
        device.read(pos, &mut bytes)?;
        if key.crc(&bytes) != extent.crc {
            return Ok(None);
        }
        pos += u64::from(extent.len);
    }
    Ok(Some(batch))
}

/// A batch is written once the one before it is durable. So a later one behind the end is proof
/// that what should lie there was lost.
fn judge_end(device: &dyn Device, header: &SpareHeader, end: Tail) -> Result<()> {
    let last = (end.pos + MAX_SPARE_BATCH).min(header.batches_end());
    for pos in (end.pos + BLOCK_BYTES..last).step_by(BLOCK_SIZE) {
        if head_at(device, header, pos)?.is_some_and(|batch| batch.index > end.index) {
            return Err(corrupt(
                "spare log",
                format!(
                    "its batch {} at byte {} is damaged, but one behind it says that it was durable: \
                     the medium lost acknowledged data",
                    end.index, end.pos
                ),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
