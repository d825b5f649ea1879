//! The directory on the machine's file system: what may serve, and files by names in it.

use crate::turns::Slots;
use crate::{MOST_LOGS, SLOT, Slot};
use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};
use siftfs_base::{Error, Result};
use siftfs_log::show_uuid;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Bytes of a registry: its head and two slots of each row.
pub(crate) const REGISTRY_BYTES: u64 = (1 + 2 * MOST_LOGS as u64) * SLOT as u64;

/// File systems in memory: what is durable there is gone when the machine is.
const IN_MEMORY: [u32; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];

/// An error about a file or directory, as a refusal.
pub(crate) fn about(path: &Path, what: &str, error: &io::Error) -> Error {
    Error::Refused(format!("private logs: cannot {what} {}: {error}", path.display()))
}

/// A directory, held open, so that its path is looked up once.
pub(crate) struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

impl Folder {
    /// Opens a directory, which is made, for its owner alone, if it is missing.
    ///
    /// # Errors
    /// `Refused` if it cannot be, lies in memory and is not to be `volatile`, or others may write
    /// to it.
    pub fn make(path: &Path, volatile: bool) -> Result<Self> {
        let absolute = std::path::absolute(path).map_err(|e| about(path, "find", &e))?;
        match rustix::fs::mkdir(&absolute, Mode::RWXU) {
            Ok(()) => sync_parent(&absolute)?,
            Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(about(&absolute, "make", &error.into())),
        }
        let path = absolute.canonicalize().map_err(|e| about(&absolute, "find", &e))?;
        let folder = Self::open(&path)?;
        folder.check(volatile)?;
        Ok(folder)
    }

    /// Opens a directory that is there.
    pub fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty());
        let fd = fd.map_err(|error| about(path, "open", &error.into()))?;
        Ok(Self { fd, path: path.into() })
    }

    fn check(&self, volatile: bool) -> Result<()> {
        let path = self.path.display();
        let look = |error: rustix::io::Errno| about(&self.path, "look at", &error.into());
        if !volatile && is_in_memory(&self.fd)? {
            return Err(Error::Refused(format!(
                "private logs: {path} lies in memory, where nothing is durable: name another \
                 directory, or volatile:{path}, to measure and for what need not outlive the machine"
            )));
        }
        let stat = rustix::fs::fstat(&self.fd).map_err(look)?;
        let others = stat.st_mode & 0o022 != 0;
        if others || stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(Error::Refused(format!(
                "private logs: others than the user of this process own {path} or may write to it; \
                 what is durable in logs there would be theirs to change"
            )));
        }
        Ok(())
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a file that was not there, for its owner alone.
    pub fn create(&self, name: &str) -> Result<File> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let made = openat(&self.fd, name, flags | OFlags::NOFOLLOW, mode);
        made.map(File::from).map_err(|error| self.about(name, "make", error))
    }

    /// Opens a regular file by its name, with these flags besides.
    pub fn file(&self, name: &str, flags: OFlags) -> Result<File> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(&self.fd, name, flags, Mode::empty());
        let file = file.map(File::from).map_err(|error| self.about(name, "open", error))?;
        match file.metadata() {
            Ok(found) if found.is_file() => Ok(file),
            _ => {
                let path = self.path.join(name);
                Err(Error::Refused(format!("private logs: {} is no file", path.display())))
            }
        }
    }

    /// Opens what a daemon that died has left, to be read. Whatever stands there instead is not
    /// waited for.
    pub fn left(&self, name: &str) -> Result<File> {
        self.file(name, OFlags::RDONLY | OFlags::NONBLOCK)
    }

    /// Removes a file.
    pub fn unlink(&self, name: &str) -> Result<()> {
        let gone = unlinkat(&self.fd, name, AtFlags::empty());
        gone.map_err(|error| self.about(name, "remove", error))
    }

    /// Puts a new empty file in a file's place, durably; it is made as `new`.
    pub fn replace(&self, name: &str, new: &str) -> Result<()> {
        let made = self.create(new)?;
        let synced = made.sync_all().map_err(|error| about(&self.path.join(new), "sync", &error));
        let renamed = synced.and_then(|()| {
            renameat(&self.fd, new, &self.fd, name)
                .map_err(|error| self.about(new, "rename", error))
        });
        renamed.inspect_err(|_| drop(self.unlink(new)))?;
        self.sync()
    }

    /// Makes the names in it durable.
    pub fn sync(&self) -> Result<()> {
        let synced = rustix::fs::fsync(&self.fd);
        synced.map_err(|error| about(&self.path, "sync", &error.into()))
    }

    /// Removes a registry and all logs of it that are there, the registry last. What cannot be
    /// removed is told, and stays: nothing names it any more.
    pub fn sweep(&self, uuid: &[u8; 16]) {
        let prefix = log_name(uuid, "");
        let entries = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let logs = names.filter(|name| name.starts_with(&prefix));
        for name in logs.chain([registry_name(uuid)]) {
            if let Err(error) = self.unlink(&name) {
                tracing::warn!(%error, "a file of private logs that is not needed any more is left");
            }
        }
    }

    fn about(&self, name: &str, what: &str, error: rustix::io::Errno) -> Error {
        about(&self.path.join(name), what, &error.into())
    }
}

/// Does a file or directory lie in memory?
///
/// # Errors
/// `Refused` if the system does not say.
pub(crate) fn is_in_memory(file: impl std::os::fd::AsFd) -> Result<bool> {
    let kind = rustix::fs::fstatfs(file).map_err(|error| {
        Error::Refused(format!("private logs: a file system cannot be looked at: {error}"))
    })?;
    // Its type is wider on some machines; the numbers have 32 bits.
    Ok(IN_MEMORY.contains(&(kind.f_type as u32)))
}

/// A new directory's own name.
fn sync_parent(path: &Path) -> Result<()> {
    let parent = path.parent().unwrap_or(path);
    let synced = File::open(parent).and_then(|dir| dir.sync_all());
    synced.map_err(|error| about(parent, "sync", &error))
}

/// The file of a registry.
pub(crate) fn registry_name(uuid: &[u8; 16]) -> String {
    format!("registry-{}", show_uuid(uuid))
}

/// The file of a log.
pub(crate) fn log_name(uuid: &[u8; 16], number: impl std::fmt::Display) -> String {
    format!("log-{}-{number}", show_uuid(uuid))
}

/// The registry's file.
pub(crate) struct RegistryFile(File);

impl RegistryFile {
    /// A new one with this head, whole and durable, its name included.
    pub fn create(folder: &Folder, uuid: &[u8; 16], head: &Slot) -> Result<Self> {
        let name = registry_name(uuid);
        let made = folder.create(&name)?;
        let fill = || {
            // Rows are not to fail for want of room. Where room cannot be kept they may.
            let kept = rustix::fs::fallocate(
                &made,
                rustix::fs::FallocateFlags::empty(),
                0,
                REGISTRY_BYTES,
            );
            match kept {
                Err(rustix::io::Errno::OPNOTSUPP) => made.set_len(REGISTRY_BYTES)?,
                other => other?,
            }
            made.write_all_at(head, 0)?;
            made.sync_all()
        };
        fill().map_err(|error| about(&folder.path.join(&name), "write", &error))?;
        folder.sync()?;
        let flags = OFlags::RDWR | OFlags::DSYNC;
        folder.file(&name, flags).map(Self)
    }

    /// One that is there, and its first block.
    pub fn open(folder: &Folder, uuid: &[u8; 16]) -> Result<(Self, Slot)> {
        let name = registry_name(uuid);
        let file = folder.left(&name)?;
        let path = || folder.path.join(&name);
        let len = file.metadata().map_err(|error| about(&path(), "look at", &error))?.size();
        if len != REGISTRY_BYTES {
            let what = format!("private logs: {} has {len} bytes", path().display());
            return Err(Error::Refused(what));
        }
        let registry = Self(file);
        let head = registry.read(0).map_err(|error| about(&path(), "read", &error))?;
        Ok((registry, head))
    }
}

impl Slots for RegistryFile {
    fn read(&self, block: u64) -> io::Result<Slot> {
        let mut slot = [0; SLOT];
        self.0.read_exact_at(&mut slot, block * SLOT as u64)?;
        Ok(slot)
    }

    fn write(&self, block: u64, slot: &Slot) -> io::Result<()> {
        self.0.write_all_at(slot, block * SLOT as u64)
    }
}
