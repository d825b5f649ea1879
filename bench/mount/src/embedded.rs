//! SiftFS in this process, without a mount.

use crate::system::{Handle, Mode, System, drop_caches};
use siftfs::{File, RenameMode, Volume};
use siftfs_rig::place::{Failed, Result};
use siftfs_status::Status;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::RwLock;

/// A volume opened by the embedded handle; closed when dropped.
pub struct Embedded {
    image: PathBuf,
    volume: RwLock<Option<Volume>>,
}

fn io_error(e: siftfs::Error) -> io::Error {
    io::Error::other(e.to_string())
}

/// O_DSYNC is the kernel's matter; without a mount it is a write and a sync of the data.
struct Open {
    file: File,
    durable: bool,
}

impl Embedded {
    /// Opens a volume that is not mounted.
    pub fn open(image: &Path) -> Result<Self> {
        let embedded = Self { image: image.to_path_buf(), volume: RwLock::new(None) };
        embedded.reopen()?;
        Ok(embedded)
    }

    fn reopen(&self) -> Result<()> {
        let what = |e: siftfs::Error| Failed(format!("{}: {e}", self.image.display()));
        let mut volume = self.volume.write().map_err(|_| Failed("a worker panicked".into()))?;
        if let Some(open) = volume.take() {
            open.close().map_err(what)?;
        }
        *volume = Some(Volume::open(&self.image).map_err(what)?);
        Ok(())
    }

    fn with<T>(&self, work: impl FnOnce(&Volume) -> siftfs::Result<T>) -> io::Result<T> {
        let volume = self.volume.read().map_err(|_| io::Error::other("a worker panicked"))?;
        let volume = volume.as_ref().ok_or_else(|| io::Error::other("volume is closed"))?;
        work(volume).map_err(io_error)
    }
}

impl Handle for Open {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_at(offset, data).map_err(io_error)?;
        if self.durable { self.file.sync_data().map_err(io_error) } else { Ok(()) }
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let data = self.file.read_at(offset, into.len()).map_err(io_error)?;
        if data.len() != into.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        into.copy_from_slice(&data);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_all().map_err(io_error)
    }
}

impl System for Embedded {
    fn open(&self, path: &str, mode: Mode) -> io::Result<Box<dyn Handle>> {
        let path = format!("/{path}");
        let file = self.with(|v| match mode {
            Mode::Create => v.create(&path, 0o644),
            Mode::Open | Mode::Durable => v.open_file(&path),
        })?;
        Ok(Box::new(Open { file, durable: mode == Mode::Durable }))
    }

    fn make_dir(&self, path: &str) -> io::Result<()> {
        self.with(|v| v.create_dir(&format!("/{path}"), 0o755)).map(drop)
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        self.with(|v| v.sync_dir(&format!("/{path}")))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.with(|v| v.rename(&format!("/{from}"), &format!("/{to}"), RenameMode::Replace))
    }

    fn publish(&self, _dir: &str, names: &[(String, String)]) -> io::Result<()> {
        self.with(|v| {
            let all = names.iter().fold(v.publish(), |all, (from, to)| all.replace(from, to));
            all.durable()
        })
    }

    fn remove_all(&self, path: &str) -> io::Result<()> {
        self.with(|v| {
            for entry in v.read_dir(&format!("/{path}"))? {
                v.remove_file(&format!("/{path}/{}", String::from_utf8_lossy(&entry.name)))?;
            }
            v.remove_dir(&format!("/{path}"))
        })
    }

    fn settle(&self) -> Result<()> {
        self.with(Volume::sync).map_err(|e| Failed(format!("{}: {e}", self.image.display())))
    }

    fn rest(&self) -> Result<()> {
        let done = self.with(|v| v.checkpoint().map(drop));
        done.map_err(|e| Failed(format!("{}: {e}", self.image.display())))
    }

    fn forget(&self) -> Result<()> {
        self.reopen()?;
        drop_caches()
    }

    fn directory(&self) -> Option<&Path> {
        None
    }

    /// Only the Runtime's part: there is no daemon.
    fn status(&self) -> Result<Option<Status>> {
        let runtime = self
            .with(Volume::status)
            .map_err(|e| Failed(format!("{}: {e}", self.image.display())))?;
        Ok(Some(Status { runtime, ..Status::default() }))
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        let volume = self.volume.get_mut().ok().and_then(Option::take);
        if let Some(Err(e)) = volume.map(Volume::close) {
            eprintln!("{}: {e}", self.image.display());
        }
    }
}
