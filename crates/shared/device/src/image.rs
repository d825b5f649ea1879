//! The contents of a device in memory, sparse and cheap to clone.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Bytes per chunk: small enough that copying one on the first write after a clone is cheap,
/// large enough that a clone of a 64 MiB image copies few pointers.
const CHUNK: usize = 16 * 1024;

type Chunk = Arc<[u8; CHUNK]>;

/// The bytes of a whole device.
///
/// Chunks never written take no memory. A clone shares every chunk until one side writes it,
/// so that a test can keep thousands of states of one device.
#[derive(Clone)]
pub struct Image {
    size: u64,
    chunks: Vec<Option<Chunk>>,
}

impl Image {
    /// `size` zero bytes.
    pub fn new(size: u64) -> Self {
        let chunks = usize::try_from(size.div_ceil(CHUNK as u64)).expect("image fits memory");
        Self { size, chunks: vec![None; chunks] }
    }

    /// The contents of `data`.
    pub fn from_bytes(data: &[u8]) -> Self {
        let mut image = Self::new(data.len() as u64);
        image.write(0, data);
        image
    }

    /// The contents of a file; holes and zeroes take no memory.
    pub fn load(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let mut image = Self::new(file.metadata()?.len());
        let mut buf = vec![0; CHUNK];
        let mut at = 0;
        while at < image.size {
            let part = usize::try_from(image.size - at).unwrap_or(CHUNK).min(CHUNK);
            file.read_exact_at(&mut buf[..part], at)?;
            image.write(at, &buf[..part]);
            at += part as u64;
        }
        Ok(image)
    }

    /// Writes the contents to a file of exactly this size, replacing it; untouched chunks
    /// become holes.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let file = File::create(path)?;
        file.set_len(self.size)?;
        for (chunk, at) in self.chunks.iter().zip((0u64..).step_by(CHUNK)) {
            if let Some(chunk) = chunk {
                let part = usize::try_from(self.size - at).unwrap_or(CHUNK).min(CHUNK);
                file.write_all_at(&chunk[..part], at)?;
            }
        }
        Ok(())
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Does `[offset, offset + len)` lie inside?
    pub fn contains(&self, offset: u64, len: usize) -> bool {
        offset.checked_add(len as u64).is_some_and(|end| end <= self.size)
    }

    /// Fills `buf` from `offset`.
    ///
    /// # Panics
    /// When the range is not inside the image.
    pub fn read(&self, offset: u64, buf: &mut [u8]) {
        assert!(self.contains(offset, buf.len()), "read beyond the image");
        pieces(offset, buf.len(), |index, at, range| match &self.chunks[index] {
            Some(chunk) => {
                let len = range.len();
                buf[range].copy_from_slice(&chunk[at..at + len]);
            }
            None => buf[range].fill(0),
        });
    }

    /// The `len` bytes at `offset`; panics as [`Image::read`].
    pub fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut buf = vec![0; len];
        self.read(offset, &mut buf);
        buf
    }

    /// Replaces the bytes at `offset`.
    ///
    /// # Panics
    /// When the range is not inside the image.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        assert!(self.contains(offset, data.len()), "write beyond the image");
        pieces(offset, data.len(), |index, at, range| {
            let part = &data[range];
            let slot = &mut self.chunks[index];
            if slot.is_none() && part.iter().all(|b| *b == 0) {
                return;
            }
            let chunk = slot.get_or_insert_with(|| Arc::new([0; CHUNK]));
            Arc::make_mut(chunk)[at..at + part.len()].copy_from_slice(part);
        });
    }

    /// Bytes of memory that chunks of this image take, shared ones included.
    pub fn resident(&self) -> u64 {
        (self.chunks.iter().flatten().count() * CHUNK) as u64
    }
}

/// Splits `[offset, offset + len)` at chunk borders: chunk index, offset in it, range of the
/// caller's buffer.
fn pieces(offset: u64, len: usize, mut each: impl FnMut(usize, usize, std::ops::Range<usize>)) {
    let mut done = 0;
    while done < len {
        let pos = offset + done as u64;
        let index = usize::try_from(pos / CHUNK as u64).expect("inside the image");
        let at = (pos % CHUNK as u64) as usize;
        let part = (CHUNK - at).min(len - done);
        each(index, at, done..done + part);
        done += part;
    }
}

impl PartialEq for Image {
    fn eq(&self, other: &Self) -> bool {
        const ZERO: [u8; CHUNK] = [0; CHUNK];
        self.size == other.size
            && self.chunks.iter().zip(&other.chunks).all(|pair| match pair {
                (None, None) => true,
                (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a == b,
                (Some(a), None) | (None, Some(a)) => **a == ZERO,
            })
    }
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Image({} bytes, {} resident)", self.size, self.resident())
    }
}

#[cfg(test)]
#[path = "image_tests.rs"]
mod tests;
