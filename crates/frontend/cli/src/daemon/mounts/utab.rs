//! The table of mounts that umount(8) reads (`/run/mount/utab`, libmount's own). Without a line
//! there umount(8) asks the kernel alone, is told `fuse`, and returns without its helper, long
//! before the volume is plain ext4. With `helper=siftfs` it runs `umount.siftfs`, which waits.
//!
//! One line per mount: `SRC=... TARGET=... ROOT=/ OPTS=...`. Writers hold a lock on `utab.lock` and
//! replace the table as a whole. It is a hint: that it cannot be written is no error.

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

const DIRECTORY: &str = "/run/mount";
const OPTIONS: &[u8] = b" ROOT=/ OPTS=helper=siftfs";
/// How long another writer is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// A longer file is not a table of mounts.
const MAX_LEN: u64 = 16 << 20;

/// A mount's line in the table; it goes with this value.
pub struct Line {
    dir: PathBuf,
    /// What the line begins with: source and target.
    begin: Vec<u8>,
}

impl Line {
    /// Writes the line of a volume mounted on `target`, in place of those that a dead daemon left.
    pub fn write(volume: &Path, target: &Path) -> Self {
        Self::write_in(Path::new(DIRECTORY), volume, target)
    }

    /// Writes the line of one more mount of the volume.
    pub fn add(volume: &Path, target: &Path) -> Self {
        Self::add_in(Path::new(DIRECTORY), volume, target)
    }

    fn write_in(dir: &Path, volume: &Path, target: &Path) -> Self {
        if let Err(error) = replace(dir, &source(volume), b"") {
            tracing::debug!(%error, "old lines stay in umount(8)'s table");
        }
        Self::add_in(dir, volume, target)
    }

    fn add_in(dir: &Path, volume: &Path, target: &Path) -> Self {
        let begin = [&source(volume)[..], b"TARGET=", &mangled(target), b" "].concat();
        let line = [begin.trim_ascii_end(), OPTIONS, b"\n"].concat();
        if let Err(error) = replace(dir, &begin, &line) {
            tracing::debug!(%error, "umount(8) will not wait: its table cannot be written");
        }
        Self { dir: dir.to_path_buf(), begin }
    }
}

/// What the lines of a volume begin with.
fn source(volume: &Path) -> Vec<u8> {
    [b"SRC=", &mangled(volume)[..], b" "].concat()
}

impl Drop for Line {
    fn drop(&mut self) {
        // umount(8) may have taken it out already.
        if let Err(error) = replace(&self.dir, &self.begin, b"") {
            tracing::debug!(%error, "the line in umount(8)'s table stays");
        }
    }
}

/// A path as it stands in the table.
fn mangled(path: &Path) -> Vec<u8> {
    let mut out = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' | b'#' | b'\r' => {
                out.extend(format!("\\{byte:03o}").bytes());
            }
            other => out.push(*other),
        }
    }
    out
}

/// Takes our lines that begin with `begin` out and puts `line` in.
fn replace(dir: &Path, begin: &[u8], line: &[u8]) -> io::Result<()> {
    let _turn = lock(dir)?;
    let path = dir.join("utab");
    let old = match File::open(&path) {
        Ok(file) => read(file)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(e) => return Err(e),
    };
    let ours = |l: &[u8]| l.starts_with(begin) && l.trim_ascii_end().ends_with(OPTIONS);
    let others = old.split_inclusive(|b| *b == b'\n').filter(|l| !ours(l));
    let new = others.chain([line]).collect::<Vec<_>>().concat();
    if new == old {
        return Ok(());
    }
    let mut file = tempfile::Builder::new().prefix("utab.").tempfile_in(dir)?;
    file.write_all(&new)?;
    file.as_file().set_permissions(Permissions::from_mode(0o644))?;
    file.persist(path).map_err(|e| e.error)?;
    Ok(())
}

/// Waits for its turn, but not long: no mount hangs on a hint.
fn lock(dir: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // As libmount makes it, whatever the umask: a user that may write the table may lock it.
    options.mode(0o644);
    let file = options.write(true).create(true).truncate(false).open(dir.join("utab.lock"))?;
    let end = Instant::now() + PATIENCE;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < end => {
                thread::sleep(Duration::from_millis(10));
            }
            Err(e) => return Err(e.into()),
        }
    }
}

fn read(file: File) -> io::Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    file.take(MAX_LEN + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_LEN {
        return Err(io::Error::other("the table is too long"));
    }
    Ok(bytes)
}

#[cfg(test)]
#[path = "utab_tests.rs"]
mod tests;
