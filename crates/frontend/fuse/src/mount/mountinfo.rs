//! What is mounted where, from `/proc/self/mountinfo`: works when a mount's daemon is dead or
//! hangs, because it asks the kernel and not the mount.

use siftfs_base::bounded::ask_each;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One mount of this mount namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// The mount's own number, whatever it is moved to.
    pub id: u64,
    /// The number of the mount on which its mount point lies.
    pub parent: u64,
    /// Device number's major part (0 for FUSE).
    pub major: u32,
    /// Device number's minor part.
    pub minor: u32,
    /// Which directory or file of the file system it shows: `/` for all of it.
    pub root: PathBuf,
    /// Where the file system is mounted.
    pub mount_point: PathBuf,
    /// Options of this mount: `rw,nosuid,relatime`.
    pub options: String,
    /// Type, such as `fuse.siftfs`.
    pub fs_type: String,
    /// Source: the volume's path for a SiftFS mount.
    pub source: PathBuf,
}

impl MountEntry {
    /// Do both show the same file system? Its number is given out again when its last mount has
    /// gone.
    pub fn is_same_as(&self, other: &Self) -> bool {
        (self.major, self.minor, &self.source) == (other.major, other.minor, &other.source)
            && self.fs_type == other.fs_type
    }

    /// Has it this option, such as `ro`?
    pub fn has_option(&self, option: &str) -> bool {
        self.options.split(',').any(|o| o == option)
    }

    /// Is it a FUSE mount of any subtype?
    pub fn is_fuse(&self) -> bool {
        self.fs_type == "fuse" || self.fs_type.starts_with("fuse.")
    }
}

/// All mounts, in mount order: of two on one directory the later one is visible.
pub fn mounts() -> io::Result<Vec<MountEntry>> {
    mounts_in(Path::new("/proc/self/mountinfo"))
}

/// The mounts that a table like that lists.
pub(crate) fn mounts_in(table: &Path) -> io::Result<Vec<MountEntry>> {
    let text = std::fs::read(table)?;
    Ok(text.split(|b| *b == b'\n').filter_map(parse_line).collect())
}

/// All mounts that show the same file system as `of`, in mount order.
pub fn mounts_of(of: &MountEntry) -> io::Result<Vec<MountEntry>> {
    Ok(mounts()?.into_iter().filter(|m| m.is_same_as(of)).collect())
}

/// A mount in another mount namespace, and a process there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// The process.
    pub pid: u32,
    /// The program's name; empty if it cannot be read.
    pub program: String,
    /// Where the file system is mounted for that process.
    pub mount_point: PathBuf,
}

/// A mount of the same file system as `of` in another mount namespace; none if there is no such
/// namespace that this process may read. A process that keeps the readers of its /proc waiting, as
/// one does that closes files of a mount that hangs, is passed over.
pub fn mounted_elsewhere(of: &MountEntry) -> Option<Elsewhere> {
    mounted_in(Path::new("/proc"), of)
}

fn mounted_in(proc: &Path, of: &MountEntry) -> Option<Elsewhere> {
    let namespace = |process: &Path| std::fs::read_link(process.join("ns/mnt")).ok();
    let own = namespace(&proc.join("self"))?;
    let entries = std::fs::read_dir(proc).ok()?.flatten().map(|entry| entry.path());
    let processes: Vec<PathBuf> = entries.filter(|path| number(path).is_some()).collect();
    let looked = ask_each(processes, move |process: &PathBuf| {
        let shown = namespace(process)?;
        (shown != own).then(|| (shown, process.clone()))
    });
    let others: BTreeMap<PathBuf, PathBuf> = looked.given.into_iter().flatten().collect();
    let wanted = of.clone();
    let looked = ask_each(others.into_values().collect(), move |process: &PathBuf| {
        let all = mounts_in(&process.join("mountinfo")).unwrap_or_default();
        let mount_point = all.into_iter().find(|m| m.is_same_as(&wanted))?.mount_point;
        let program = std::fs::read_to_string(process.join("comm")).unwrap_or_default();
        Some(Elsewhere { pid: number(process)?, program: program.trim_end().into(), mount_point })
    });
    looked.given.into_iter().flatten().next()
}

/// Which process a directory of `/proc` shows.
fn number(process: &Path) -> Option<u32> {
    process.file_name()?.to_str()?.parse().ok()
}

/// The visible mount whose mount point is exactly `dir` (an absolute path without links).
pub fn top_mount(dir: &Path) -> io::Result<Option<MountEntry>> {
    Ok(mounts()?.into_iter().rev().find(|m| m.mount_point == dir))
}

/// The mount with this number, wherever it is now; `None` if it is gone.
pub fn mount_of_id(id: u64) -> io::Result<Option<MountEntry>> {
    Ok(mounts()?.into_iter().find(|m| m.id == id))
}

/// The visible mount that `path` (absolute, without links) lies on.
pub fn containing(path: &Path) -> io::Result<Option<MountEntry>> {
    let mut best: Option<MountEntry> = None;
    for m in mounts()? {
        let len = |p: &Path| p.components().count();
        if path.starts_with(&m.mount_point)
            && best.as_ref().is_none_or(|b| len(&m.mount_point) >= len(&b.mount_point))
        {
            best = Some(m);
        }
    }
    Ok(best)
}

fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|b| *b == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let parent = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let dev = std::str::from_utf8(fields.next()?).ok()?;
    let (major, minor) = dev.split_once(':')?;
    let root = unescape(fields.next()?);
    let mount_point = unescape(fields.next()?);
    let options = String::from_utf8_lossy(fields.next()?).into_owned();
    let mut rest = fields.skip_while(|f| *f != b"-").skip(1);
    let fs_type = String::from_utf8_lossy(rest.next()?).into_owned();
    let source = unescape(rest.next()?);
    Some(MountEntry {
        id,
        parent,
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
        root,
        mount_point,
        options,
        fs_type,
        source,
    })
}

/// The kernel writes space, tab, newline and backslash as `\ooo`.
fn unescape(field: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(field.len());
    let mut at = 0;
    while let Some(&b) = field.get(at) {
        let octal =
            field.get(at + 1..at + 4).filter(|d| d.iter().all(|c| (b'0'..=b'7').contains(c)));
        match octal {
            Some(digits) if b == b'\\' => {
                let v = digits.iter().fold(0u32, |v, d| v * 8 + u32::from(d - b'0'));
                out.push(u8::try_from(v & 0xff).unwrap_or(b'?'));
                at += 4;
            }
            _ => {
                out.push(b);
                at += 1;
            }
        }
    }
    PathBuf::from(OsString::from_vec(out))
}

#[cfg(test)]
#[path = "mountinfo_tests.rs"]
mod tests;
