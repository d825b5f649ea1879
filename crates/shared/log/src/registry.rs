//! The name of a registry of private logs, as a host record has it: which one, and where it is.
//!
//! What programs made durable in logs of their own is not in the volume yet while one is named. So
//! no record that says *clean* names one (rule R36).

use siftfs_base::{Error, Result, corrupt};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Longest path of a registry's directory, in bytes.
pub const MAX_REGISTRY_PATH: usize = 1000;

/// A registry's name in a host record.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawRegistry {
    uuid: [u8; 16],
    path_len: U32,
    path: [u8; MAX_REGISTRY_PATH],
}

/// Which registry, and the directory that it and its logs lie in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegistryName {
    uuid: [u8; 16],
    dir: PathBuf,
}

impl RegistryName {
    /// The registry `uuid` in `dir`.
    ///
    /// # Errors
    /// `Refused` if the path is not absolute, or longer than [`MAX_REGISTRY_PATH`].
    pub fn new(uuid: [u8; 16], dir: &Path) -> Result<Self> {
        let bytes = dir.as_os_str().as_bytes();
        if !dir.is_absolute() || bytes.contains(&0) {
            let what = format!("{}: not an absolute path of a directory", dir.display());
            return Err(Error::Refused(what));
        }
        if bytes.len() > MAX_REGISTRY_PATH {
            return Err(Error::Refused(format!(
                "the path of the directory for private logs has {} bytes, {MAX_REGISTRY_PATH} at most",
                bytes.len()
            )));
        }
        Ok(Self { uuid, dir: dir.into() })
    }

    /// Its UUID.
    pub fn uuid(&self) -> &[u8; 16] {
        &self.uuid
    }

    /// The absolute path of its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn encode(&self) -> RawRegistry {
        let mut raw = RawRegistry::new_zeroed();
        let bytes = self.dir.as_os_str().as_bytes();
        raw.uuid = self.uuid;
        raw.path_len = (bytes.len() as u32).into();
        crate::put(&mut &mut raw.path[..], bytes);
        raw
    }

    pub(crate) fn decode(raw: &RawRegistry) -> Result<Self> {
        let len = raw.path_len.get() as usize;
        let path = raw.path.get(..len).map(|bytes| Path::new(OsStr::from_bytes(bytes)));
        path.and_then(|path| Self::new(raw.uuid, path).ok()).ok_or_else(|| {
            corrupt("host record", "it names a registry of private logs by a path that cannot be")
        })
    }
}

#[cfg(test)]
#[path = "registry_tests.rs"]
pub(crate) mod tests;
