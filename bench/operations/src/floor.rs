//! What the disk asks for a synchronous direct write.

use rustix::fs::{Mode, OFlags};
use siftfs::Result;
use siftfs_base::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Direct I/O wants memory that begins at a block.
const ALIGNED: usize = 4096;

/// A file that is written past the kernel's cache, from its begin to its end and again.
pub struct Floor {
    file: File,
    len: usize,
    at: usize,
    /// One block more than the largest write, so that some part begins at a block.
    memory: Vec<u8>,
}

impl Floor {
    /// # Errors
    /// When the file cannot be made or written.
    pub fn new(path: &Path, len: usize) -> Result<Self> {
        let io = |e: std::io::Error| Error::Refused(format!("{}: {e}", path.display()));
        std::fs::write(path, vec![1; len]).map_err(io)?;
        let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::DSYNC;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| io(e.into()))?;
        Ok(Self { file: file.into(), len, at: 0, memory: vec![7; ALIGNED + (1 << 20)] })
    }

    /// One write of so many bytes, durable on return.
    ///
    /// # Errors
    /// As write(2).
    pub fn write(&mut self, bytes: usize) -> Result<()> {
        let skip = self.memory.as_ptr().align_offset(ALIGNED);
        let part = &self.memory[skip..skip + bytes];
        self.at = if self.at + bytes > self.len { 0 } else { self.at };
        let written = self.file.write_all_at(part, self.at as u64);
        self.at += bytes;
        written.map_err(|e| Error::Refused(format!("a direct write: {e}")))
    }
}
