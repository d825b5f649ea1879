//! `siftfs publish`: files of a mount get new names, all of them or none.

use crate::options::args;
use crate::show::failure::{Failure, Outcome};
use rustix::fs::{Mode, OFlags};
use siftfs_client::{Entry, Level, Publish, Source};
use siftfs_fuse::{MountEntry, containing};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// `siftfs publish`.
pub fn publish(a: &args::Publish) -> Outcome {
    let pairs: Vec<(&Path, &Path)> = a
        .names
        .chunks_exact(2)
        .filter_map(|pair| Some((pair.first()?.as_path(), pair.last()?.as_path())))
        .collect();
    if pairs.len() * 2 != a.names.len() {
        let last = a.names.last().map(|p| p.display().to_string()).unwrap_or_default();
        return Err(Failure::plain(format!("{last} has no new name"))
            .with_code(crate::show::failure::USAGE));
    }
    let mount = mount_of(pairs.first().map_or(Path::new("."), |(from, _)| from))?;
    let mut entries = Vec::new();
    for (from, to) in pairs {
        let path = |path| below(&mount, path);
        let (source, to) = (Source::Path(path(from)?), path(to)?);
        entries.push(Entry { source, to, replace: !a.no_replace });
    }
    let level = match a.level {
        args::PublishLevel::Visible => Level::Visible,
        args::PublishLevel::Atomic => Level::Atomic,
        args::PublishLevel::Durable => Level::Durable,
    };
    let about = |e: &dyn std::fmt::Display| Failure::about(&mount.mount_point, e);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(&mount.mount_point, flags, Mode::empty()).map_err(|e| about(&e))?;
    let done = siftfs_client::publish(root.as_fd(), &Publish { entries, level });
    done.map(|()| 0).map_err(|e| about(&explain(&e)))
}

/// The mount on which `path` lies.
fn mount_of(path: &Path) -> Result<MountEntry, Failure> {
    let dir = directory_of(path)?;
    let mount = containing(&dir).map_err(|e| Failure::about(&dir, e))?;
    mount.filter(MountEntry::is_fuse).ok_or_else(|| Failure::about(path, "not on a SiftFS mount"))
}

/// The real path of the directory that a path's last name is in.
fn directory_of(path: &Path) -> Result<PathBuf, Failure> {
    let above = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::canonicalize(above).map_err(|e| Failure::about(path, e))
}

/// The path from the mount's own directory on.
fn below(mount: &MountEntry, path: &Path) -> Result<Vec<u8>, Failure> {
    let name = path.file_name().ok_or_else(|| Failure::about(path, "it does not end in a name"))?;
    let whole = directory_of(path)?.join(name);
    let there = containing(whole.parent().unwrap_or(Path::new("/")));
    let same = there.ok().flatten().is_some_and(|m| m.id == mount.id);
    match whole.strip_prefix(&mount.mount_point) {
        Ok(rest) if same => Ok(rest.as_os_str().as_bytes().to_vec()),
        _ => {
            let mount = mount.mount_point.display();
            Err(Failure::about(path, format!("not on the mount {mount}, as the first file is")))
        }
    }
}

/// The error in the words of this command.
fn explain(error: &std::io::Error) -> String {
    let text = match error.raw_os_error() {
        Some(libc::ENOENT) => "a source, or the directory of a name, does not exist",
        Some(libc::EEXIST) => "a new name is another file's already",
        Some(libc::EISDIR) => "a source or a new name is a directory; only files can be published",
        Some(libc::EINVAL) => "a name is used twice",
        Some(libc::E2BIG) => "more than one record takes (64 files, fewer with a small journal)",
        Some(libc::EAGAIN) => {
            "too many at a time, or directories above are moved all the time; try again"
        }
        Some(libc::ENOTTY) => "the mount does not know this call; is its daemon older?",
        _ => return format!("{error}; nothing was changed"),
    };
    format!("{text}; nothing was changed")
}
