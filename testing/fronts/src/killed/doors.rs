//! The doors through which writers work: a mount, or the program in the process that is killed.

#![allow(unsafe_code)] // mappings

use crate::wire::Wire;
use memmap2::MmapOptions;
use rustix::io::ReadWriteFlags;
use std::fs::{self, File};
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// How a write is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// By write(2), or the like of it.
    Plain,
    /// By a write(2) that promises durability of its bytes.
    Durable,
    /// Through a mapping, with msync(2).
    Mapped,
    /// The bytes are kept under a new write lease.
    Kept,
    /// They are kept under the lease that is there.
    KeptToo,
}

impl How {
    /// Does it promise durability of the bytes?
    #[must_use]
    pub fn is_durable(self) -> bool {
        matches!(self, Self::Durable | Self::Mapped)
    }

    /// Has nobody else seen the bytes?
    #[must_use]
    pub fn is_kept(self) -> bool {
        matches!(self, Self::Kept | Self::KeptToo)
    }
}

/// What a writer may ask for. Paths are those from the volume's root.
pub trait Door {
    /// Writes at an offset.
    fn write(&mut self, file: &str, at: u64, bytes: &[u8], how: How) -> io::Result<()>;
    /// Appends.
    fn append(&mut self, file: &str, bytes: &[u8]) -> io::Result<()>;
    /// Reads; less than `len` bytes at the end of the file.
    fn read(&mut self, file: &str, at: u64, len: usize) -> io::Result<Vec<u8>>;
    /// Makes a file.
    fn create(&mut self, file: &str) -> io::Result<()>;
    /// Renames.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;
    /// Removes.
    fn remove(&mut self, file: &str) -> io::Result<()>;
    /// fsync(2) of a file.
    fn sync(&mut self, file: &str) -> io::Result<()>;
    /// fsync(2) of a directory.
    fn sync_dir(&mut self, dir: &str) -> io::Result<()>;
    /// Everything that was written is made durable. A mount has no such call.
    fn sync_all(&mut self) -> io::Result<()>;
    /// A lease is given back, with what was kept. A mount has none.
    fn give_back(&mut self, file: &str) -> io::Result<()>;
}

fn not_here() -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
}

/// A mount, with descriptors that are kept from call to call.
pub struct Mount {
    root: PathBuf,
    open: Vec<(String, File)>,
}

/// Descriptors that are kept.
const KEPT: usize = 48;

impl Mount {
    /// The one at `root`.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self { root: root.into(), open: Vec::new() }
    }

    fn file(&mut self, file: &str) -> io::Result<&File> {
        if let Some(at) = self.open.iter().position(|(name, _)| name == file) {
            return Ok(&self.open[at].1);
        }
        if self.open.len() == KEPT {
            self.open.remove(0);
        }
        let opened = File::options().read(true).write(true).open(self.root.join(file))?;
        self.open.push((file.into(), opened));
        Ok(&self.open[self.open.len() - 1].1)
    }

    /// Stores through a mapping, inside the file's size. The kernel copies, so that a page that
    /// cannot be had is an error and no signal.
    fn store(&mut self, file: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        let file = self.file(file)?;
        // SAFETY: nothing refers to the mapping's bytes but the kernel, which may change them.
        let mut map = unsafe { MmapOptions::new().offset(at).len(bytes.len()).map_mut(file)? };
        for (to, from) in map.chunks_mut(4096).zip(bytes.chunks(4096)) {
            let (reader, mut writer) = io::pipe()?;
            writer.write_all(from)?;
            if rustix::io::read(&reader, to)? != from.len() {
                return Err(io::Error::from_raw_os_error(libc::EFAULT));
            }
        }
        map.flush()
    }
}

impl Door for Mount {
    fn write(&mut self, file: &str, at: u64, bytes: &[u8], how: How) -> io::Result<()> {
        match how {
            How::Durable => {
                let file = self.file(file)?;
                let write = |bytes: &[u8], at| {
                    rustix::io::pwritev2(file, &[IoSlice::new(bytes)], at, ReadWriteFlags::DSYNC)
                };
                // The kernel sends what crosses a page in parts, and ends where one is refused
                // behind another: the next call is told why. To end for no reason is wrong.
                let written = write(bytes, at)?;
                match bytes.get(written..) {
                    Some(rest @ [_, ..]) => {
                        let more = write(rest, at + written as u64)?;
                        let len = bytes.len();
                        let why = format!("{written} of {len} bytes, and {more} of the rest");
                        Err(io::Error::other(why))
                    }
                    _ => Ok(()),
                }
            }
            How::Mapped => self.store(file, at, bytes).map_err(|e| {
                // A page that cannot be had or written does not say why.
                let vague = [Some(libc::EIO), Some(libc::EFAULT)].contains(&e.raw_os_error());
                let dead = vague && siftfs_fuse::is_dead(&self.root);
                if dead { io::Error::from_raw_os_error(libc::ENOTCONN) } else { e }
            }),
            _ => self.file(file)?.write_all_at(bytes, at),
        }
    }

    fn append(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        File::options().append(true).open(self.root.join(file))?.write_all(bytes)
    }

    fn read(&mut self, file: &str, at: u64, len: usize) -> io::Result<Vec<u8>> {
        let (file, mut bytes, mut got) = (self.file(file)?, vec![0; len], 0);
        while got < len {
            match file.read_at(&mut bytes[got..], at + got as u64)? {
                0 => break,
                more => got += more,
            }
        }
        bytes.truncate(got);
        Ok(bytes)
    }

    fn create(&mut self, file: &str) -> io::Result<()> {
        File::create_new(self.root.join(file)).map(drop)
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.open.retain(|(name, _)| name != from);
        fs::rename(self.root.join(from), self.root.join(to))
    }

    fn remove(&mut self, file: &str) -> io::Result<()> {
        self.open.retain(|(name, _)| name != file);
        fs::remove_file(self.root.join(file))
    }

    fn sync(&mut self, file: &str) -> io::Result<()> {
        self.file(file)?.sync_all()
    }

    fn sync_dir(&mut self, dir: &str) -> io::Result<()> {
        File::open(self.root.join(dir))?.sync_all()
    }

    fn sync_all(&mut self) -> io::Result<()> {
        not_here()
    }

    fn give_back(&mut self, _: &str) -> io::Result<()> {
        not_here()
    }
}

/// The program in the process that is killed; `holds` if it takes leases.
pub struct Embedded {
    /// The way to it.
    pub wire: Wire,
    /// It has write leases, and asks in their session.
    pub holds: bool,
}

impl Embedded {
    fn ask(&mut self, words: &[&str], bytes: &[u8]) -> io::Result<()> {
        self.wire.ask(words, bytes).map(drop)
    }
}

impl Door for Embedded {
    fn write(&mut self, file: &str, at: u64, bytes: &[u8], how: How) -> io::Result<()> {
        let verb = match how {
            How::Kept => "keep",
            How::KeptToo => "keep-more",
            _ => "write",
        };
        self.ask(&[verb, file, &at.to_string()], bytes)
    }

    fn append(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        self.ask(&["append", file], bytes)
    }

    fn read(&mut self, file: &str, at: u64, len: usize) -> io::Result<Vec<u8>> {
        self.wire.ask(&["read", file, &at.to_string(), &len.to_string()], &[])
    }

    fn create(&mut self, file: &str) -> io::Result<()> {
        self.ask(&["create", file], &[])
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.ask(&["rename", from, to], &[])
    }

    fn remove(&mut self, file: &str) -> io::Result<()> {
        self.ask(&["remove", file], &[])
    }

    fn sync(&mut self, file: &str) -> io::Result<()> {
        let verb = if self.holds { "keep-sync" } else { "sync" };
        self.ask(&[verb, file], &[])
    }

    fn sync_dir(&mut self, dir: &str) -> io::Result<()> {
        self.ask(&["sync-dir", dir], &[])
    }

    fn sync_all(&mut self) -> io::Result<()> {
        self.ask(&["sync-all"], &[])
    }

    fn give_back(&mut self, file: &str) -> io::Result<()> {
        self.ask(&["give-back", file], &[])
    }
}
