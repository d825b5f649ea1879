//! The stamps of a member: for each role, its last holder's nonce (`docs/design/stripes.md`,
//! "Stamps").
//!
//! A holder writes its stamp to all members before it writes anything else. So one whose connection
//! to a member was lost, and that finds its own stamp there, knows that nobody has written the
//! member for that role meanwhile (rule R9).

use crate::label::{LABEL_LEN, Label};
use siftfs_base::{Error, Result, checksum};
use siftfs_device::{Device, Role};

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a stamp.
const STAMP_LEN: usize = 4096;
const MAGIC: [u8; 8] = *b"SIFTown\x01";
const VERSION: u32 = 1;
/// Bytes that are zero.
const REST: usize = 4060;

/// A number that one holder of a role has drawn.
pub(crate) type Nonce = [u8; 16];

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U32,
    role: U16,
    pad: [u8; 2],
    nonce: Nonce,
    zero: [u8; REST],
    sum: U32,
}
const _: () = assert!(size_of::<Raw>() == STAMP_LEN);

fn number(role: Role) -> u16 {
    match role {
        Role::Host => 0,
        Role::Service => 1,
    }
}

/// The bytes of a member that hold this role's stamp. Nothing else lies in them.
pub fn stamp_range(role: Role) -> Range<u64> {
    let at = (1 + u64::from(number(role))) * STAMP_LEN as u64;
    at..at + STAMP_LEN as u64
}

/// The bytes of a stamp.
fn encode(role: Role, nonce: Nonce) -> [u8; STAMP_LEN] {
    let mut raw = Raw {
        magic: MAGIC,
        version: VERSION.into(),
        role: number(role).into(),
        pad: [0; 2],
        nonce,
        zero: [0; REST],
        sum: 0.into(),
    };
    let sum = raw.as_bytes().split_last_chunk::<4>().map(|(body, _)| checksum(0, body));
    raw.sum = sum.expect("a stamp is longer than its checksum").into();
    let mut bytes = [0; STAMP_LEN];
    bytes.copy_from_slice(raw.as_bytes());
    bytes
}

/// Are these bytes one whole stamp, of any holder?
fn is_whole(bytes: &[u8; STAMP_LEN]) -> bool {
    let sum = bytes.split_last_chunk::<4>().map(|(body, _)| checksum(0, body));
    Raw::ref_from_bytes(bytes).is_ok_and(|raw| raw.magic == MAGIC && sum == Some(raw.sum.get()))
}

/// A nonce that nobody has drawn before.
fn draw() -> Result<Nonce> {
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce).map_err(|e| Error::Refused(format!("no random numbers: {e}")))?;
    Ok(nonce)
}

/// Of each role, the nonce under which it is had on all members.
#[derive(Default)]
pub(crate) struct Holdings {
    had: Mutex<[Option<Nonce>; 2]>,
    turns: [Mutex<()>; 2],
}

impl Holdings {
    /// Takes and gives this role back one caller after the other.
    pub fn turn(&self, role: Role) -> MutexGuard<'_, ()> {
        let [host, service] = &self.turns;
        let turn = if role == Role::Host { host } else { service };
        turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn had(&self) -> MutexGuard<'_, [Option<Nonce>; 2]> {
        self.had.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The nonce under which the role is had.
    pub fn of(&self, role: Role) -> Option<Nonce> {
        let [host, service] = *self.had();
        if role == Role::Host { host } else { service }
    }

    fn set(&self, role: Role, nonce: Option<Nonce>) {
        let mut had = self.had();
        let [host, service] = &mut *had;
        *(if role == Role::Host { host } else { service }) = nonce;
    }

    /// The role is given back: its stamp may be anybody's from now on.
    pub fn forget(&self, role: Role) {
        self.set(role, None);
    }

    /// Stamps the devices, on all of which the role is had. The stamps are durable when this
    /// returns.
    ///
    /// # Errors
    /// I/O errors: then the role is not had, and some of the devices may have the stamp.
    pub fn stamp<'a>(
        &self,
        role: Role,
        devices: impl IntoIterator<Item = &'a dyn Device>,
    ) -> Result<()> {
        let nonce = draw()?;
        let (bytes, range) = (encode(role, nonce), stamp_range(role));
        for device in devices {
            device.write(range.start, &bytes, true)?;
        }
        self.set(role, Some(nonce));
        Ok(())
    }
}

/// Knows whether a member that could not be reached was another holder's meanwhile.
pub struct Guard {
    name: String,
    label: [u8; LABEL_LEN],
    had: Arc<Holdings>,
}

impl Guard {
    /// The guard of the member that has this label.
    pub(crate) fn new(name: &str, label: &Label, had: &Arc<Holdings>) -> Self {
        Self { name: name.into(), label: label.encode(), had: had.clone() }
    }

    /// Looks at the member's label and at the stamps of the roles that are had, over a connection
    /// that is new.
    ///
    /// # Errors
    /// Refused, naming the member: it was made anew, or another holder has had one of the roles
    /// since; a stamp that is damaged counts as another holder's. I/O errors.
    pub fn check(&self, device: &dyn Device) -> Result<()> {
        let refused = |what: &str| Err(Error::Refused(format!("member {}: {what}", self.name)));
        let mut label = [0; LABEL_LEN];
        device.read(0, &mut label)?;
        if label != self.label {
            return refused("its label is another one than before: it was made anew");
        }
        for role in Role::ALL {
            let Some(nonce) = self.had.of(role) else { continue };
            let mut found = [0; STAMP_LEN];
            device.read(stamp_range(role).start, &mut found)?;
            if found == encode(role, nonce) {
                continue;
            }
            return refused(match is_whole(&found) {
                true => "another process has had it since: it is given up",
                false => "its stamp is damaged, and who has had it is not known: it is given up",
            });
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "stamp_tests.rs"]
mod tests;
