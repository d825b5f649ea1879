//! The label at the begin of each member.

use crate::geometry::{DATA_BEGIN, Geometry, MIN_UNIT};
use siftfs_base::{Error, Result, checksum, corrupt};
use siftfs_device::Device;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a label.
pub(crate) const LABEL_LEN: usize = 4096;
const MAGIC: [u8; 8] = *b"SIFTstr\x01";
const VERSION: u32 = 1;
/// Bytes that are zero.
const REST: usize = 4044;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U32,
    index: U16,
    count: U16,
    set: [u8; 16],
    unit: U64,
    len: U64,
    zero: [u8; REST],
    sum: U32,
}
const _: () = assert!(size_of::<Raw>() == LABEL_LEN);

impl Raw {
    /// Its bytes, with their checksum.
    fn sealed(mut self) -> [u8; LABEL_LEN] {
        let sum = self.as_bytes().split_last_chunk::<4>().map(|(body, _)| checksum(0, body));
        self.sum = sum.expect("a label is longer than its checksum").into();
        let mut bytes = [0; LABEL_LEN];
        bytes.copy_from_slice(self.as_bytes());
        bytes
    }
}

/// What a member says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Label {
    /// UUID of the set.
    pub set: [u8; 16],
    /// Number of the member in its set, from 0.
    pub index: usize,
    /// How the set's area lies on its members.
    pub geometry: Geometry,
}

impl Label {
    /// The label of a member that is of no set yet: all but its magic, version and checksum is
    /// zero.
    pub fn free() -> [u8; LABEL_LEN] {
        Raw { magic: MAGIC, version: VERSION.into(), ..Raw::new_zeroed() }.sealed()
    }

    /// The bytes of the label.
    pub fn encode(&self) -> [u8; LABEL_LEN] {
        let number = |n: usize| U16::new(u16::try_from(n).expect("a set has 16 members at most"));
        let raw = Raw {
            magic: MAGIC,
            version: VERSION.into(),
            index: number(self.index),
            count: number(self.geometry.count()),
            set: self.set,
            unit: self.geometry.unit().into(),
            len: self.geometry.member_len().into(),
            zero: [0; REST],
            sum: 0.into(),
        };
        raw.sealed()
    }

    /// The label that these bytes are; `None` if they were never one.
    ///
    /// # Errors
    /// `Corrupt` for a label that is not as one is written, `Incompatible` for a newer version.
    pub fn decode(bytes: &[u8; LABEL_LEN]) -> Result<Option<Self>> {
        let damaged = |what: &str| corrupt("label of a striped volume's member", what);
        let raw = Raw::ref_from_bytes(bytes).map_err(|_| damaged("wrong size"))?;
        if raw.magic != MAGIC {
            return Ok(None);
        }
        let sum = bytes.split_last_chunk::<4>().map(|(body, _)| checksum(0, body));
        if sum != Some(raw.sum.get()) {
            return Err(damaged("checksum mismatch"));
        }
        let version = raw.version.get();
        if version != VERSION {
            let what = format!("a stripe label of version {version}; this build knows {VERSION}");
            return Err(Error::Incompatible(what));
        }
        let count = usize::from(raw.count.get());
        let geometry = Geometry::new(count, raw.unit.get(), raw.len.get())
            .map_err(|error| damaged(&error.to_string()))?;
        let index = usize::from(raw.index.get());
        if index >= count || raw.zero.iter().any(|byte| *byte != 0) {
            return Err(damaged("it says what no label says"));
        }
        Ok(Some(Self { set: raw.set, index, geometry }))
    }
}

/// Does the device begin as a member of a striped volume does? Its label may be damaged.
///
/// # Errors
/// I/O errors.
pub fn is_member(device: &dyn Device) -> Result<bool> {
    let mut bytes = [0; MAGIC.len()];
    if device.size() < LABEL_LEN as u64 {
        return Ok(false);
    }
    device.read(0, &mut bytes)?;
    Ok(bytes == MAGIC)
}

/// What a member of a striped volume says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It is of no set yet: `siftfs mkfs` may make it one's.
    Free,
    /// It is of the set with this UUID.
    Of {
        /// UUID of the set.
        set: [u8; 16],
        /// Its number there, from 0.
        index: usize,
        /// Members of the set.
        count: usize,
    },
}

impl Standing {
    /// What the device says; `None` for one that is no member.
    ///
    /// # Errors
    /// `Corrupt` for a damaged label, `Incompatible` for a newer one; I/O errors.
    pub fn of(device: &dyn Device) -> Result<Option<Self>> {
        let mut bytes = [0; LABEL_LEN];
        if device.size() < LABEL_LEN as u64 {
            return Ok(None);
        }
        device.read(0, &mut bytes)?;
        if bytes == Label::free() {
            return Ok(Some(Self::Free));
        }
        let label = Label::decode(&bytes)?;
        let of = |Label { set, index, geometry }| Self::Of { set, index, count: geometry.count() };
        Ok(label.map(of))
    }
}

/// Makes the device a member that is of no set yet, durable when it returns. What it holds behind
/// its first bytes stays, and counts as nothing.
///
/// # Errors
/// Refused if it has no room for data; I/O errors.
pub fn set_free(device: &dyn Device) -> Result<()> {
    let least = DATA_BEGIN + MIN_UNIT;
    if device.size() < least {
        let what = format!("{} bytes are too few for a member: {least}", device.size());
        return Err(Error::Refused(what));
    }
    device.write(0, &Label::free(), false)?;
    device.flush()
}

#[cfg(test)]
#[path = "label_tests.rs"]
mod tests;
