//! The files and devices that a volume is made on.

use siftfs_base::{Error, Result};
use siftfs_device::Device;
use siftfs_log::HEADER_LEN;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// An error of a call on a file, as a refusal.
pub(crate) fn io(what: &str, path: &Path, e: &std::io::Error) -> Error {
    Error::Refused(format!("cannot {what} {}: {e}", path.display()))
}

/// Makes an empty file of this size, or empties it. It will hold the contents of every file: a new
/// one is its owner's alone, one that is there keeps the mode that it has.
pub(crate) fn make_file(path: &Path, size: u64) -> Result<()> {
    let new = !path.exists();
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .map_err(|e| io("create", path, &e))?;
    file.set_len(size).map_err(|e| {
        if new {
            // The caller did not ask for an empty file.
            let _ = std::fs::remove_file(path);
        }
        io(&format!("give {size} bytes to"), path, &e)
    })
}

/// Refuses a device that has something at its start or its end.
pub(crate) fn refuse_existing(dev: &dyn Device, force: bool) -> Result<()> {
    if force {
        return Ok(());
    }
    let len = HEADER_LEN.min(dev.size());
    for offset in [0, dev.size() - len] {
        let mut bytes = vec![0u8; usize::try_from(len).unwrap_or(0)];
        dev.read(offset, &mut bytes)?;
        if bytes.iter().any(|b| *b != 0) {
            return Err(Error::Refused(
                "it holds data already; use --force to overwrite it".to_string(),
            ));
        }
    }
    Ok(())
}

/// A secret number (rule R8).
pub fn nonce() -> Result<u64> {
    getrandom::u64().map_err(|e| Error::Refused(format!("no random numbers: {e}")))
}
