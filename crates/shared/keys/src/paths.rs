//! Where files of keys are, unless others are named.

use siftfs_base::{Error, Result};
use std::env::var_os;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The directory of the machine's files.
const MACHINE: &str = "/etc/siftfs";

/// The key pair of this machine, or of a user who is not root.
///
/// # Errors
/// As [`known_servers`].
pub fn key() -> Result<PathBuf> {
    own("key")
}

/// The keys that a server admits.
pub fn authorized() -> PathBuf {
    Path::new(MACHINE).join("authorized")
}

/// The servers that a client knows.
///
/// # Errors
/// The user is not root, and has no home.
pub fn known_servers() -> Result<PathBuf> {
    own("known_servers")
}

fn own(name: &str) -> Result<PathBuf> {
    let root = rustix::process::geteuid().is_root();
    let folder = folder(root, var_os("XDG_CONFIG_HOME"), var_os("HOME"));
    let missing = || Error::Refused(format!("no place for {name}: HOME is not set; name a file"));
    Ok(folder.ok_or_else(missing)?.join(name))
}

/// The folder, where `config` and `home` are absolute paths or nothing.
fn folder(root: bool, config: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: Option<OsString>| path.map(PathBuf::from).filter(|p| p.is_absolute());
    match root {
        true => Some(MACHINE.into()),
        false => {
            let config = absolute(config).or_else(|| Some(absolute(home)?.join(".config")))?;
            Some(config.join("siftfs"))
        }
    }
}

#[cfg(test)]
#[path = "paths_tests.rs"]
mod tests;
