//! What the disk asks for a synchronous direct write.

use rustix::fs::{Mode, OFlags};
use siftfs::Result;
use siftfs_base::Error;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Direct I/O wants memory that begins at a block.
const ALIGNED: usize = 4096;

/// Makes a file of this many zeros, all of them written.
///
/// # Errors
/// When it cannot be made or written.
pub fn fill(path: &Path, len: u64) -> Result<()> {
    let io = |e: std::io::Error| Error::Refused(format!("{}: {e}", path.display()));
    let mut file = File::create(path).map_err(io)?;
    std::io::copy(&mut std::io::repeat(0).take(len), &mut file).map_err(io)?;
    file.sync_all().map_err(io)
}

/// A file that is written past the kernel's cache, from its begin to its end and again.
pub struct Floor {
    file: File,
    len: u64,
    at: u64,
    /// One block more than the largest write, so that some part begins at a block.
    memory: Vec<u8>,
}

impl Floor {
    /// # Errors
    /// When the file cannot be made or written.
    pub fn new(path: &Path, len: u64) -> Result<Self> {
        let io = |e: std::io::Error| Error::Refused(format!("{}: {e}", path.display()));
        fill(path, len)?;
        let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::DSYNC;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| io(e.into()))?;
        Ok(Self { file: file.into(), len, at: 0, memory: vec![7; ALIGNED + (1 << 20)] })
    }

    /// One write of this many bytes, durable on return.
    ///
    /// # Errors
    /// As write(2).
    pub fn write(&mut self, bytes: usize) -> Result<()> {
        let skip = self.memory.as_ptr().align_offset(ALIGNED);
        let part = &self.memory[skip..skip + bytes];
        self.at = if self.at + bytes as u64 > self.len { 0 } else { self.at };
        let written = self.file.write_all_at(part, self.at);
        self.at += bytes as u64;
        written.map_err(|e| Error::Refused(format!("a direct write: {e}")))
    }
}
