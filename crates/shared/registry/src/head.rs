//! The registry's first block: which registry it is, and of which volume.

use crate::{MOST_LOGS, SLOT, Slot, VERSION, is_whole, seal};
use siftfs_base::{Error, Result};
use siftfs_log::show_uuid;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 8] = *b"SIFTreg\x01";

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U32,
    rows: U32,
    registry: [u8; 16],
    volume: [u8; 16],
    reserved: [u8; 4044],
    crc: U32,
}
const _: () = assert!(size_of::<Raw>() == SLOT);

/// Which registry, of which volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub registry: [u8; 16],
    pub volume: [u8; 16],
}

impl Head {
    pub fn encode(&self) -> Slot {
        let mut raw = Raw::new_zeroed();
        raw.magic = MAGIC;
        raw.version = VERSION.into();
        raw.rows = MOST_LOGS.into();
        (raw.registry, raw.volume) = (self.registry, self.volume);
        let mut slot = [0; SLOT];
        slot.copy_from_slice(raw.as_bytes());
        seal(&mut slot);
        slot
    }

    /// Is this block the head of that registry?
    ///
    /// # Errors
    /// Incompatible if it is of another version, `Refused` if it is damaged or another's, with the
    /// reason.
    pub fn check(&self, slot: &Slot) -> Result<()> {
        let refused = |why: String| Err(Error::Refused(why));
        let Ok(raw) = Raw::ref_from_bytes(slot) else { return refused("it is too short".into()) };
        if raw.magic != MAGIC || !is_whole(slot) {
            return refused("its head is damaged".into());
        }
        match (raw.version.get(), raw.rows.get()) {
            (VERSION, MOST_LOGS) => {}
            (found, rows) => {
                return Err(Error::Incompatible(format!(
                    "a registry of private logs of version {found} with {rows} rows; this build knows \
                     {VERSION} with {MOST_LOGS}"
                )));
            }
        }
        if raw.registry != self.registry {
            return refused(format!("it is the registry {}", show_uuid(&raw.registry)));
        }
        if raw.volume != self.volume {
            return refused(format!("it is that of the volume {}", show_uuid(&raw.volume)));
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
