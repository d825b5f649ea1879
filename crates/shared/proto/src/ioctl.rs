//! The arguments of a mount's ioctls, as programs make them and the mount reads them ("Bytes of the
//! ioctls" in `docs/design/operations.md`).

pub mod compound;

use crate::Level;
use siftfs_base::{Result, errno};

/// The ioctls' type.
const TYPE: u32 = 0xE5;
/// Number of the ioctl that publishes. Its size is the argument's.
const PUBLISH: u32 = 16;
/// Direction bits of an ioctl that brings an argument and takes none back.
const WRITE: u32 = 1;
/// Longest argument of an ioctl in bytes: its size has 14 bits.
const LONGEST: usize = (1 << 14) - 1;

/// The entry may replace a file that has the name.
const REPLACE: u16 = 1;
/// The source is no path but the number of a descriptor of the caller's, 4 bytes.
const DESCRIPTOR: u16 = 2;

/// Is it the ioctl that publishes?
pub fn is_publish(command: u32) -> bool {
    command >> 30 == WRITE && command >> 8 & 0xFF == TYPE && command & 0xFF == PUBLISH
}

/// What an entry gives a new name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The file that a path names.
    Path(Vec<u8>),
    /// A file that the caller has open for writing.
    Descriptor(u32),
}

/// One name of a publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What gets the name.
    pub source: Source,
    /// The name, a path from the directory that the ioctl is called on.
    pub to: Vec<u8>,
    /// It may be another file's, which loses it.
    pub replace: bool,
}

/// The argument of the ioctl that publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    /// The names that change together.
    pub entries: Vec<Entry>,
    /// How far the change is when the call returns.
    pub level: Level,
}

impl Publish {
    /// Command and argument.
    ///
    /// # Errors
    /// E2BIG if the argument is longer than an ioctl's can be, 16,383 bytes.
    pub fn encode(&self) -> Result<(u32, Vec<u8>)> {
        let too_big = errno(libc::E2BIG);
        let count = u32::try_from(self.entries.len()).map_err(|_| too_big.clone())?;
        let mut out = [count.to_le_bytes(), self.level.number().to_le_bytes()].concat();
        for Entry { source, to, replace } in &self.entries {
            let (kind, source) = match source {
                Source::Path(path) => (0, path.clone()),
                Source::Descriptor(number) => (DESCRIPTOR, number.to_le_bytes().to_vec()),
            };
            out.extend((kind | if *replace { REPLACE } else { 0 }).to_le_bytes());
            for bytes in [&source, to] {
                let len = u16::try_from(bytes.len()).map_err(|_| too_big.clone())?;
                out.extend(len.to_le_bytes());
            }
            out.extend(source);
            out.extend(to);
        }
        let size = u32::try_from(out.len()).ok().filter(|_| out.len() <= LONGEST);
        let size = size.ok_or(too_big)?;
        Ok((WRITE << 30 | size << 16 | TYPE << 8 | PUBLISH, out))
    }

    /// Reads what any program may have sent.
    ///
    /// # Errors
    /// EINVAL for bytes that are no argument, or for more or fewer than the entries take.
    pub fn decode(argument: &[u8]) -> Result<Self> {
        let mut rest = Rest(argument);
        let count = rest.u32()?;
        let level = Level::from_number(rest.u32()?)?;
        let mut entries = Vec::new();
        for _ in 0..count {
            entries.push(rest.entry()?);
        }
        if rest.0.is_empty() { Ok(Self { entries, level }) } else { Err(errno(libc::EINVAL)) }
    }
}

/// Takes fields off the front of an argument.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(errno(libc::EINVAL))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.bytes(N)?.try_into().map_err(|_| errno(libc::EINVAL))
    }

    fn u32(&mut self) -> Result<u32> {
        self.number().map(u32::from_le_bytes)
    }

    fn u16(&mut self) -> Result<u16> {
        self.number().map(u16::from_le_bytes)
    }

    fn entry(&mut self) -> Result<Entry> {
        let flags = self.u16()?;
        let (source, to) = (usize::from(self.u16()?), usize::from(self.u16()?));
        let source = match flags & DESCRIPTOR {
            0 => Source::Path(self.bytes(source)?.to_vec()),
            _ if source == size_of::<u32>() => Source::Descriptor(self.u32()?),
            _ => return Err(errno(libc::EINVAL)),
        };
        if flags & !(REPLACE | DESCRIPTOR) != 0 {
            return Err(errno(libc::EINVAL));
        }
        let to = self.bytes(to)?.to_vec();
        Ok(Entry { source, to, replace: flags & REPLACE != 0 })
    }
}

#[cfg(test)]
#[path = "ioctl_tests.rs"]
mod tests;
