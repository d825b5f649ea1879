//! A record of the ring: one write of the holder.

use crate::layout::{MOST_BYTES, Shape};
use crate::words::{Held, MOST_NUMBER};
use siftfs_base::{Result, corrupt};
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute};

/// Bytes of a record.
pub(crate) const RECORD: usize = 64;
/// The one kind that there is.
const WRITE: u32 = 1;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    kind: U32,
    slot: U32,
    lease: U64,
    offset: U64,
    len: U32,
    zero: U32,
    data: U64,
    time: I64,
    rest: [u8; 16],
}

const _: () = assert!(size_of::<Raw>() == RECORD);

/// Bytes that the holder wrote to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The lease of the file.
    pub held: Held,
    /// Where in the file.
    pub offset: u64,
    /// Number of bytes.
    pub len: u32,
    /// Where they lie in the ring of data: a counter that never turns back.
    pub data: u64,
    /// When, in nanoseconds since 1970.
    pub time: i64,
}

/// What a record has to keep to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub shape: Shape,
    /// Largest size of a file, in bytes.
    pub largest: u64,
    /// Where the data of the record before end.
    pub position: u64,
    /// The newest lease of the session.
    pub drawn: u64,
}

impl Record {
    pub(crate) fn encode(&self, bounds: &Bounds) -> [u8; RECORD] {
        self.check(bounds).expect("a record keeps to the bounds that its reader has");
        transmute!(Raw {
            kind: WRITE.into(),
            slot: self.held.slot.into(),
            lease: self.held.number.into(),
            offset: self.offset.into(),
            len: self.len.into(),
            zero: 0.into(),
            data: self.data.into(),
            time: self.time.into(),
            rest: [0; 16],
        })
    }

    /// Reads the copy of a record.
    ///
    /// # Errors
    /// Corrupt: no holder that keeps to the rules writes it.
    pub(crate) fn decode(bytes: &[u8; RECORD], bounds: &Bounds) -> Result<Self> {
        let raw: Raw = transmute!(*bytes);
        if raw.kind.get() != WRITE || raw.zero.get() != 0 || raw.rest != [0; 16] {
            return Err(wrong(format!("it is of kind {}, or has what this has not", raw.kind)));
        }
        let held = Held { slot: raw.slot.get(), number: raw.lease.get() };
        let (offset, len) = (raw.offset.get(), raw.len.get());
        let record = Self { held, offset, len, data: raw.data.get(), time: raw.time.get() };
        record.check(bounds)?;
        Ok(record)
    }

    fn check(&self, bounds: &Bounds) -> Result<()> {
        let Self { held, offset, len, data, .. } = *self;
        let Bounds { shape, largest, position, drawn } = *bounds;
        if held.slot as usize >= shape.slots {
            return Err(wrong(format!("it is of slot {}", held.slot)));
        }
        if held.number == 0 || held.number > drawn.min(MOST_NUMBER) {
            return Err(wrong(format!("the session never had a lease {}", held.number)));
        }
        let most = MOST_BYTES.min(shape.data);
        if len == 0 || len as usize > most {
            return Err(wrong(format!("it has {len} bytes")));
        }
        if offset.checked_add(len.into()).is_none_or(|end| end > largest) {
            return Err(wrong(format!("{len} bytes at byte {offset} are beyond the largest file")));
        }
        if shape.begin(position, len as usize) != Some(data) {
            let found = format!("its data are at {data}, and those before end at {position}");
            return Err(wrong(found));
        }
        Ok(())
    }
}

fn wrong(detail: String) -> siftfs_base::Error {
    corrupt("record of a private log", detail)
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
