//! A row of the registry: a log, whose program it is, and the leases whose records count.

use crate::process::Process;
use crate::{SLOT, Slot, VERSION, is_whole, seal};
use siftfs_base::{Error, InodeNr, Result, corrupt};
use siftfs_lease::{LOG_BYTES, LogMedium};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Most leases of a row.
pub const MOST_LEASES: usize = 120;

const MAGIC: [u8; 8] = *b"SIFTrow\x01";
/// Version of a row whose log is mapped: builds that know none refuse it.
const MAPPED: u32 = 2;
/// Beyond any log and any position.
const MOST: u64 = 1 << 62;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawLease {
    slot: U32,
    generation: U32,
    number: U64,
    ino: U32,
    reserved: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U32,
    row: U32,
    registry: [u8; 16],
    seq: U64,
    log: U64,
    key: U64,
    len: U64,
    begin: U64,
    boot: [u8; 16],
    process: U32,
    lease_count: U32,
    started: U64,
    namespace: U64,
    medium: U32,
    reserved0: [u8; 140],
    leases: [RawLease; MOST_LEASES],
    reserved1: [u8; 956],
    crc: U32,
}
const _: () = assert!(size_of::<Raw>() == SLOT);

/// A lease whose records in a log count, and the file that it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisteredLease {
    /// Its slot in the session's memory.
    pub slot: u32,
    /// Its number, which no other lease of the session ever has.
    pub number: u64,
    /// The file's inode.
    pub ino: InodeNr,
    /// The inode's generation.
    pub generation: u32,
}

/// A log as its row has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogEntry {
    /// Number of the log in its registry, which no other log of it ever has; not 0.
    pub number: u64,
    /// Key of the log's checksums.
    pub key: u64,
    /// Bytes of the log.
    pub len: u64,
    /// What it lies in.
    pub medium: LogMedium,
    /// Position of the first batch that counts.
    pub begin: u64,
    /// The program that writes it.
    pub process: Process,
    /// Whose records count.
    pub leases: Vec<RegisteredLease>,
}

/// Which row of which registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub registry: [u8; 16],
    pub row: u32,
}

/// What a slot holds: a log, or nothing any more; and the number of the write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub seq: u64,
    pub entry: Option<LogEntry>,
}

impl Row {
    /// Encodes a slot.
    ///
    /// # Panics
    /// If a reader would refuse it.
    pub fn encode(&self, place: Place) -> Slot {
        self.check().expect("a row is what its reader demands");
        let mut raw = Raw::new_zeroed();
        raw.magic = MAGIC;
        raw.version = self.version().into();
        raw.row = place.row.into();
        raw.registry = place.registry;
        raw.seq = self.seq.into();
        if let Some(entry) = &self.entry {
            entry.fill(&mut raw);
        }
        let mut slot = [0; SLOT];
        slot.copy_from_slice(raw.as_bytes());
        seal(&mut slot);
        slot
    }

    /// The row that a slot of `place` holds; `None` if it holds no valid one.
    ///
    /// # Errors
    /// Incompatible if it is of another version, corrupt if it is valid and breaks the format.
    pub fn decode(slot: &Slot, place: Place) -> Result<Option<Self>> {
        let Ok(raw) = Raw::ref_from_bytes(slot) else { return Ok(None) };
        if raw.magic != MAGIC || !is_whole(slot) {
            return Ok(None);
        }
        let found = raw.version.get();
        if ![VERSION, MAPPED].contains(&found) {
            return Err(Error::Incompatible(format!(
                "a registry of private logs of version {found}; this build knows {VERSION} and {MAPPED}"
            )));
        }
        if (Place { registry: raw.registry, row: raw.row.get() }) != place {
            return Err(corrupt(what(place), "it is another registry's, or another row"));
        }
        let entry = (raw.log.get() != 0).then(|| LogEntry::of(raw, place)).transpose()?;
        let row = Self { seq: raw.seq.get(), entry };
        row.check().map_err(|why| corrupt(what(place), why))?;
        match row.version() == found {
            true => Ok(Some(row)),
            false => Err(corrupt(what(place), "its version is not that of its log's medium")),
        }
    }

    fn version(&self) -> u32 {
        let mapped = self.entry.as_ref().is_some_and(|entry| entry.medium.is_mapped());
        if mapped { MAPPED } else { VERSION }
    }

    /// What a row must be, whether it is about to be written or was read.
    fn check(&self) -> std::result::Result<(), &'static str> {
        let Some(entry) = &self.entry else { return Ok(()) };
        if entry.number == 0 || entry.leases.len() > MOST_LEASES {
            return Err("a log without a number, or of too many leases");
        }
        let is_position = |n| is_position(n, entry.medium);
        let fits = (1..=LOG_BYTES).contains(&entry.len) && is_position(entry.len);
        if !fits || !is_position(entry.begin) {
            return Err("a length or a begin that no log has");
        }
        Ok(())
    }
}

/// Can a batch begin here?
pub(crate) fn is_position(n: u64, medium: LogMedium) -> bool {
    n.is_multiple_of(medium.unit() as u64) && n < MOST
}

/// A row, in errors.
pub(crate) fn what(place: Place) -> String {
    format!("row {} of the registry of private logs", place.row)
}

impl LogEntry {
    fn fill(&self, raw: &mut Raw) {
        raw.log = self.number.into();
        raw.key = self.key.into();
        raw.len = self.len.into();
        raw.medium = self.medium.number().into();
        raw.begin = self.begin.into();
        raw.boot = self.process.boot;
        raw.process = self.process.id.into();
        raw.started = self.process.started.into();
        raw.namespace = self.process.namespace.into();
        raw.lease_count = (self.leases.len() as u32).into();
        for (to, lease) in raw.leases.iter_mut().zip(&self.leases) {
            to.slot = lease.slot.into();
            to.generation = lease.generation.into();
            to.number = lease.number.into();
            to.ino = lease.ino.into();
        }
    }

    fn of(raw: &Raw, place: Place) -> Result<Self> {
        let leases = raw.leases.get(..raw.lease_count.get() as usize);
        let leases = leases.ok_or_else(|| corrupt(what(place), "more leases than fit"))?;
        let lease = |raw: &RawLease| RegisteredLease {
            slot: raw.slot.get(),
            number: raw.number.get(),
            ino: raw.ino.get(),
            generation: raw.generation.get(),
        };
        let medium = LogMedium::of(raw.medium.get());
        let medium = medium.ok_or_else(|| corrupt(what(place), "a log in nothing known"))?;
        Ok(Self {
            medium,
            number: raw.log.get(),
            key: raw.key.get(),
            len: raw.len.get(),
            begin: raw.begin.get(),
            process: Process {
                id: raw.process.get(),
                started: raw.started.get(),
                boot: raw.boot,
                namespace: raw.namespace.get(),
            },
            leases: leases.iter().map(lease).collect(),
        })
    }
}

#[cfg(test)]
#[path = "row_tests.rs"]
pub(crate) mod tests;
