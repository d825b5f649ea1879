//! The kernel's switch for FUSE over io_uring, which this machine's tests share.

use crate::place::{Failed, Result, failed};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// Does this kernel have FUSE over io_uring, switched on or not?
pub fn has_rings() -> bool {
    std::fs::exists(PARAMETER).unwrap_or(false)
}

/// The kernel offers rings to new mounts while this lives; then it is as it was. One program
/// at a time: the lock is that of `crates/frontend/fuse/tests/support/rings.rs`.
pub struct Offer {
    before: String,
    _lock: File,
}

impl Offer {
    /// Switches rings on.
    pub fn new() -> Result<Self> {
        let path = std::env::temp_dir().join("siftfs-tests-enable-uring");
        let lock = File::create(&path).map_err(failed(path.display()))?;
        flock(&lock, FlockOperation::LockExclusive)
            .map_err(|e| Failed(format!("{}: {e}", path.display())))?;
        let before = std::fs::read_to_string(PARAMETER).map_err(failed(PARAMETER))?;
        std::fs::write(PARAMETER, "1").map_err(failed(PARAMETER))?;
        Ok(Self { before: before.trim().into(), _lock: lock })
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        if let Err(e) = std::fs::write(PARAMETER, &self.before) {
            eprintln!("{PARAMETER} stays switched on: {e}");
        }
    }
}
