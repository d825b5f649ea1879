//! Reading small files that decide who may do what, and writing them whole.

use siftfs_base::{Error, Result};
use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use zeroize::Zeroizing;

/// A file that was changed less long before it was read may be changed again without a trace: in
/// the same step of the kernel's clock.
const SETTLED: Duration = Duration::from_secs(2);

/// Which modes a file may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// Its owner alone may read and write it.
    Secret,
    /// Its owner alone may write it.
    Trusted,
}

/// By what a file is known to be the one that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(m: &Metadata) -> Self {
        Self {
            device: m.dev(),
            inode: m.ino(),
            size: m.size(),
            modified: (m.mtime(), m.mtime_nsec()),
            changed: (m.ctime(), m.ctime_nsec()),
        }
    }

    /// The stamp of the file that is there now, if there is one.
    pub(crate) fn now(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|m| Self::of(&m))
    }

    /// Would a change after `read` have given the file another stamp?
    fn tells_changes(&self, read: SystemTime) -> bool {
        let seconds = u64::try_from(self.changed.0).unwrap_or(0);
        let nanos = u32::try_from(self.changed.1).unwrap_or(0);
        let changed = SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos));
        changed.is_some_and(|c| read.duration_since(c).is_ok_and(|age| age > SETTLED))
    }
}

/// The text of a file, as it was at one time.
pub(crate) struct Text {
    /// All of it.
    pub(crate) text: Zeroizing<String>,
    /// By which a later change is noticed; `None`: the file is too fresh for that.
    pub(crate) stamp: Option<Stamp>,
}

/// Reads a regular file of root's or of the caller's, of at most `most` bytes of UTF-8.
///
/// # Errors
/// A message that names the file: it cannot be read, or is not such a file. `None`: there is no
/// such file.
pub(crate) fn read_if_there(path: &Path, guard: Guard, most: u64) -> Result<Option<Text>> {
    let refuse = |what: String| Error::Refused(format!("{}: {what}", path.display()));
    // A FIFO would have the open wait for its writer.
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).expect("flags of open(2) are an int");
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(refuse(e.to_string())),
    };
    let meta = file.metadata().map_err(|e| refuse(e.to_string()))?;
    check(&meta, guard).map_err(refuse)?;
    let room = usize::try_from(most).expect("a small bound");
    // Of its whole size from the start, so that no copy of a secret is left behind as it grows.
    let mut bytes = Zeroizing::new(Vec::with_capacity(room.saturating_add(1)));
    let read = SystemTime::now();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(|e| refuse(e.to_string()))?;
    if bytes.len() > room {
        return Err(refuse(format!("it has more than {most} bytes")));
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| refuse("it is not UTF-8".into()))?;
    let stamp = Some(Stamp::of(&meta)).filter(|s| s.tells_changes(read));
    Ok(Some(Text { text: Zeroizing::new(text.to_string()), stamp }))
}

/// As [`read_if_there`], where the file has to be there.
pub(crate) fn read(path: &Path, guard: Guard, most: u64) -> Result<Text> {
    let missing = || Error::Refused(format!("{}: there is no such file", path.display()));
    read_if_there(path, guard, most)?.ok_or_else(missing)
}

fn check(meta: &Metadata, guard: Guard) -> std::result::Result<(), String> {
    if !meta.is_file() {
        return Err("not a regular file".into());
    }
    let own = rustix::process::geteuid().as_raw();
    if ![0, own].contains(&meta.uid()) {
        return Err(format!("it belongs to user {}, and must to root or user {own}", meta.uid()));
    }
    let mode = meta.permissions().mode() & 0o7777;
    match guard {
        Guard::Secret if mode & 0o077 != 0 => Err(format!(
            "others may use this private key (mode {mode:04o}); say chmod 600, and make a new key \
             if others may have read it"
        )),
        Guard::Trusted if mode & 0o022 != 0 => {
            Err(format!("others may write it (mode {mode:04o}); say chmod go-w"))
        }
        _ => Ok(()),
    }
}

/// Makes a file of this mode with this text, and its directory if that is missing. Durable when it
/// returns; after a crash the file is there whole or not at all.
///
/// # Errors
/// A message that names the file. A file that is there is left as it is.
pub(crate) fn create(path: &Path, mode: u32, text: &str) -> Result<()> {
    let dir = folder(path)?;
    let fresh = written(path, &dir, mode, text)?;
    fresh.persist_noclobber(path).map_err(|e| match e.error.kind() {
        io::ErrorKind::AlreadyExists => {
            Error::Refused(format!("{}: it is there already, and is kept", path.display()))
        }
        _ => unwritten(path, &e.error),
    })?;
    sync(&dir).map_err(|e| unwritten(path, &e))
}

/// Gives a file this text; as [`create`] besides.
///
/// # Errors
/// A message that names the file.
pub(crate) fn replace(path: &Path, mode: u32, text: &str) -> Result<()> {
    let dir = folder(path)?;
    let fresh = written(path, &dir, mode, text)?;
    fresh.persist(path).map_err(|e| unwritten(path, &e.error))?;
    sync(&dir).map_err(|e| unwritten(path, &e))
}

/// The directory of a file, which is made if it is missing.
pub(crate) fn folder(path: &Path) -> Result<PathBuf> {
    let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let made = DirBuilder::new().recursive(true).mode(0o755).create(dir);
    made.map_err(|e| unwritten(path, &e))?;
    Ok(dir.to_path_buf())
}

/// A file without a lasting name that has all of the text, durably.
fn written(path: &Path, dir: &Path, mode: u32, text: &str) -> Result<tempfile::NamedTempFile> {
    let make = || {
        let mut file = tempfile::Builder::new().prefix(".siftfs-").tempfile_in(dir)?;
        file.write_all(text.as_bytes())?;
        file.as_file().set_permissions(std::fs::Permissions::from_mode(mode))?;
        file.as_file().sync_all()?;
        Ok(file)
    };
    make().map_err(|e: io::Error| unwritten(path, &e))
}

fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn unwritten(path: &Path, e: &io::Error) -> Error {
    Error::Refused(format!("{}: cannot be written: {e}", path.display()))
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
