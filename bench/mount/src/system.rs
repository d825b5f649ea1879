//! The systems that are compared, behind one small interface, so that each row is written once.

use crate::counts::Disk;
use crate::peers::LoopMount;
use siftfs_client::{Entry, Level, Publish, Source};
use siftfs_rig::place::{Failed, Result, arg, failed};
use siftfs_rig::volume::Volume;
use siftfs_status::Status;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// An open file.
pub trait Handle: Send + Sync {
    /// Overwrites or extends at an offset.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Reads exactly so much.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
    /// fsync.
    fn sync(&self) -> io::Result<()>;
}

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The file is there.
    Open,
    /// The file is not there.
    Create,
    /// The file is there, and each write is to be durable (O_DSYNC).
    Durable,
}

/// One file system under measurement. Paths are relative to a directory of its own.
pub trait System: Send + Sync {
    /// Opens or creates.
    fn open(&self, path: &str, mode: Mode) -> io::Result<Box<dyn Handle>>;
    /// Makes a directory.
    fn make_dir(&self, path: &str) -> io::Result<()>;
    /// fsync of a directory.
    fn sync_dir(&self, path: &str) -> io::Result<()>;
    /// Renames over what is there.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// The files `names`, just written and not synced, are durable under new names in the same
    /// directory, `dir`. Where the system has no call for all of them: fsync and rename each, then
    /// fsync of the directory.
    fn publish(&self, dir: &str, names: &[(String, String)]) -> io::Result<()>;
    /// Removes a directory of files.
    fn remove_all(&self, path: &str) -> io::Result<()>;
    /// Everything written so far is durable, so that the next cell does not pay for this one.
    fn settle(&self) -> Result<()>;
    /// Everything lies where it stays: the background has nothing to write, nor has the file system
    /// below a volume.
    fn rest(&self) -> Result<()>;
    /// Nothing of its files, synced and closed, is in any cache afterwards: it is mounted again
    /// (but not the disk's own ext4, in which everything else lies), and the kernel drops its
    /// caches.
    fn forget(&self) -> Result<()>;
    /// Where other programs see it.
    fn directory(&self) -> Option<&Path>;
    /// SiftFS's status document; none for another system.
    fn status(&self) -> Result<Option<Status>>;
}

/// A system of the comparison.
pub struct Named {
    /// Its name in the table.
    pub name: String,
    /// It is measured in one round of this many.
    pub every: usize,
    /// The system.
    pub system: Box<dyn System>,
}

/// What is mounted, and how it is mounted again.
enum Below {
    /// A directory of the disk's own file system, which stays mounted.
    Directory,
    /// An image on a loop device.
    Loop(LoopMount),
    /// SiftFS with these options.
    Sift(Volume, String),
}

/// A mounted file system: one of the kernel's, or SiftFS through FUSE.
pub struct Mounted {
    dir: PathBuf,
    below: Below,
}

fn mount(volume: &Volume, options: &str) -> Result<()> {
    if options.is_empty() { volume.mount() } else { volume.mount_with(&["-o", options]) }
}

impl Mounted {
    /// SiftFS, mounted here with these options (as after `mount -o`), or with none.
    pub fn fuse(volume: Volume, options: &str) -> Result<Self> {
        mount(&volume, options)?;
        Ok(Self { dir: volume.dir.clone(), below: Below::Sift(volume, options.to_owned()) })
    }

    /// A directory on the disk's own file system, made here.
    pub fn directory(dir: PathBuf) -> Result<Self> {
        fs::create_dir(&dir).map_err(failed(dir.display()))?;
        Ok(Self::there(dir))
    }

    /// A file system on a loop device, mounted.
    pub fn on_loop(mount: LoopMount) -> Self {
        Self { dir: mount.dir.clone(), below: Below::Loop(mount) }
    }

    /// A directory of whatever is mounted.
    pub fn there(dir: PathBuf) -> Self {
        Self { dir, below: Below::Directory }
    }
}

impl Handle for File {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_all_at(data, offset)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(into, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }
}

impl System for Mounted {
    fn open(&self, path: &str, mode: Mode) -> io::Result<Box<dyn Handle>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(mode == Mode::Create);
        if mode == Mode::Durable {
            options.custom_flags(libc::O_DSYNC);
        }
        Ok(Box::new(options.open(self.dir.join(path))?))
    }

    fn make_dir(&self, path: &str) -> io::Result<()> {
        fs::create_dir(self.dir.join(path))
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        File::open(self.dir.join(path))?.sync_all()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.dir.join(from), self.dir.join(to))
    }

    fn publish(&self, dir: &str, names: &[(String, String)]) -> io::Result<()> {
        if let Below::Sift(..) = self.below {
            let entry = |(from, to): &(String, String)| Entry {
                source: Source::Path(from.as_bytes().to_vec()),
                to: to.as_bytes().to_vec(),
                replace: true,
            };
            let entries = names.iter().map(entry).collect();
            let root = File::open(&self.dir)?;
            let level = Level::Durable;
            return siftfs_client::publish(root.as_fd(), &Publish { entries, level });
        }
        for (from, to) in names {
            self.open(from, Mode::Open)?.sync()?;
            self.rename(from, to)?;
        }
        self.sync_dir(dir)
    }

    fn remove_all(&self, path: &str) -> io::Result<()> {
        fs::remove_dir_all(self.dir.join(path))
    }

    fn settle(&self) -> Result<()> {
        if let Below::Sift(volume, _) = &self.below {
            return volume.sync();
        }
        sync_all_of(&self.dir)
    }

    fn rest(&self) -> Result<()> {
        let Below::Sift(volume, _) = &self.below else { return self.settle() };
        volume.siftfs(&["checkpoint", arg(&volume.dir)?])?;
        sync_all_of(&volume.image)
    }

    fn forget(&self) -> Result<()> {
        match &self.below {
            Below::Directory => {}
            Below::Loop(peer) => peer.mount_again()?,
            Below::Sift(volume, options) => {
                volume.siftfs(&["umount", arg(&volume.dir)?])?;
                mount(volume, options)?;
            }
        }
        drop_caches()
    }

    fn directory(&self) -> Option<&Path> {
        Some(&self.dir)
    }

    fn status(&self) -> Result<Option<Status>> {
        match &self.below {
            Below::Sift(volume, _) => volume.status().map(Some),
            Below::Directory | Below::Loop(_) => Ok(None),
        }
    }
}

/// syncfs(2) of the file system on which this lies.
fn sync_all_of(path: &Path) -> Result<()> {
    let file = File::open(path).map_err(failed(path.display()))?;
    rustix::fs::syncfs(&file).map_err(|e| Failed(format!("{}: {e}", path.display())))
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Below::Sift(volume, _) = &self.below
            && let Err(Failed(e)) = volume.siftfs(&["umount", &volume.dir.to_string_lossy()])
        {
            eprintln!("{e}");
        }
    }
}

/// The kernel drops clean pages, dentries and inodes of all file systems.
pub fn drop_caches() -> Result<()> {
    let path = "/proc/sys/vm/drop_caches";
    fs::write(path, "3").map_err(failed(path))
}

/// Blocks of the file that the floor writes to.
const FLOOR_BLOCKS: u64 = 16 << 10;
/// The file to which a program of a cell appends its records.
pub const LOG: &str = "log";
/// The floor file's alignment, and the unit of its writes, in bytes.
pub const BLOCK: usize = 4096;

/// Where the next block of a file of this many bytes is, in no order. Any full-period generator
/// will do.
pub fn any_block(random: &mut u64, bytes: u64) -> u64 {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    (*random >> 33) % (bytes / BLOCK as u64) * BLOCK as u64
}

/// The floor: synchronous direct writes to a file whose blocks are all written already.
pub struct Floor {
    file: File,
    buffer: Vec<u8>,
    aligned: usize,
    next: u64,
}

impl Floor {
    /// Makes the file in a directory.
    pub fn new(path: &Path) -> Result<Self> {
        let what = || failed(format!("floor file {}", path.display()));
        let file = File::create_new(path).map_err(what())?;
        let zeros = vec![0; 1 << 20];
        for at in (0..FLOOR_BLOCKS * BLOCK as u64).step_by(zeros.len()) {
            file.write_all_at(&zeros, at).map_err(what())?;
        }
        file.sync_all().map_err(what())?;
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(libc::O_DIRECT | libc::O_DSYNC);
        let file = options.open(path).map_err(what())?;
        let buffer = vec![7; 65 * BLOCK];
        let aligned = buffer.as_ptr().align_offset(BLOCK);
        Ok(Self { file, buffer, aligned, next: 0 })
    }

    /// `writes` writes of `bytes` in all (in whole blocks, as even as can be, 256 KiB each at
    /// most), one after the other.
    pub fn write(&mut self, writes: u64, bytes: usize) -> io::Result<()> {
        let blocks = bytes.div_ceil(BLOCK) as u64;
        for n in 0..writes {
            let more = u64::from(n < blocks % writes);
            let blocks = (blocks / writes + more).clamp(1, 64);
            if self.next + blocks > FLOOR_BLOCKS {
                self.next = 0;
            }
            let bytes = usize::try_from(blocks).unwrap_or(1) * BLOCK;
            let data = &self.buffer[self.aligned..self.aligned + bytes];
            self.file.write_all_at(data, self.next * BLOCK as u64)?;
            self.next += blocks;
        }
        Ok(())
    }
}

/// The disk below a path.
pub fn disk_of(path: &Path) -> Result<Disk> {
    let stat = rustix::fs::stat(path).map_err(|e| Failed(format!("{}: {e}", path.display())))?;
    Ok(Disk::new(rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev)))
}
