//! Where a record area lies, as a user names it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use siftfs_base::Error;

/// What the name of a persistent memory region of an NVMe controller begins with.
const PMR: &str = "pmr:";
/// What the name of a file that promises nothing begins with.
const VOLATILE: &str = "volatile:";

/// The address of a PCI device, shown as `0000:01:00.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PciAddress {
    /// Domain, 16 bits on most machines.
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device, 0 to 31.
    pub device: u8,
    /// Function, 0 to 7.
    pub function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

/// A hexadecimal number of this many digits.
fn hex(text: &str, digits: std::ops::RangeInclusive<usize>, most: u32) -> Option<u32> {
    let known = digits.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
    known.then(|| u32::from_str_radix(text, 16).ok())?.filter(|n| *n <= most)
}

impl PciAddress {
    fn parse(text: &str) -> Option<Self> {
        let (domain, rest) = text.split_once(':')?;
        let (bus, rest) = rest.split_once(':')?;
        let (device, function) = rest.split_once('.')?;
        let byte = |n: u32| u8::try_from(n).ok();
        Some(Self {
            domain: hex(domain, 4..=8, u32::MAX)?,
            bus: byte(hex(bus, 2..=2, 0xff)?)?,
            device: byte(hex(device, 2..=2, 0x1f)?)?,
            function: byte(hex(function, 1..=1, 7)?)?,
        })
    }
}

/// Where a record area lies, as a user names it. What is shown is read back as the same place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BytePlace {
    /// `PATH`: a file on a file system that is mounted with DAX, or a `/dev/dax` device.
    Path(PathBuf),
    /// `pmr:DDDD:BB:DD.F`: the persistent memory region of an NVMe controller.
    Pmr(PciAddress),
    /// `volatile:PATH`: any regular file; it promises nothing over a power cut.
    Volatile(PathBuf),
}

impl FromStr for BytePlace {
    type Err = Error;

    /// # Errors
    /// [`Error::Refused`], with the forms that there are.
    fn from_str(text: &str) -> Result<Self, Error> {
        let refused = |what: String| {
            Err(Error::Refused(format!(
                "{what}: name a record area as PATH, pmr:DDDD:BB:DD.F or volatile:PATH"
            )))
        };
        if let Some(address) = text.strip_prefix(PMR) {
            return match PciAddress::parse(address) {
                Some(address) => Ok(Self::Pmr(address)),
                None => refused(format!(
                    "\"{address}\" is not the address of a PCI device such as 0000:01:00.0 \
                     (a file of this name is ./{text})"
                )),
            };
        }
        match text.strip_prefix(VOLATILE) {
            Some("") => refused("volatile: names no path".into()),
            Some(path) => Ok(Self::Volatile(path.into())),
            None if text.is_empty() => refused("no record area is named".into()),
            None => Ok(Self::Path(text.into())),
        }
    }
}

impl fmt::Display for BytePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => {
                let shown = path.to_string_lossy();
                let here =
                    if shown.starts_with(PMR) || shown.starts_with(VOLATILE) { "./" } else { "" };
                write!(f, "{here}{shown}")
            }
            Self::Pmr(address) => write!(f, "{PMR}{address}"),
            Self::Volatile(path) => write!(f, "{VOLATILE}{}", path.display()),
        }
    }
}

impl BytePlace {
    /// The file or device node, where it is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Path(path) | Self::Volatile(path) => Some(path),
            Self::Pmr(_) => None,
        }
    }
}

#[cfg(test)]
#[path = "place_tests.rs"]
mod tests;
