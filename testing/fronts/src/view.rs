//! What a front end shows.

use siftfs::Volume;
use siftfs_proto::FileKind;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// One file or directory, as far as a plain file system shows the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// Size in bytes; 0 for a directory.
    pub size: u64,
    /// Type and permission bits.
    pub mode: u32,
    /// Names of a file; 0 for a directory.
    pub links: u64,
    /// What is in a file.
    pub bytes: Vec<u8>,
}

/// All there is, by path.
pub type View = BTreeMap<String, Seen>;

/// Times by path, which only front ends of one volume have alike.
pub type Times = BTreeMap<String, (i64, i64, i64, i64)>;

/// What lies below a directory of a mount, or of a plain file system. Names that are no UTF-8 are
/// left out: the embedding program's paths cannot have them.
///
/// # Errors
/// What a call says.
pub fn of_directory(root: &Path) -> io::Result<(View, Times)> {
    let (mut view, mut times) = (View::new(), Times::new());
    let mut todo = vec![String::new()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(root.join(&dir))? {
            let Ok(name) = entry?.file_name().into_string() else { continue };
            if name == "lost+found" {
                continue;
            }
            let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
            let meta = fs::symlink_metadata(root.join(&path))?;
            let is_dir = meta.is_dir();
            let bytes = if meta.is_file() { fs::read(root.join(&path))? } else { Vec::new() };
            let size = if is_dir { 0 } else { meta.size() };
            let links = if is_dir { 0 } else { meta.nlink() };
            view.insert(path.clone(), Seen { size, mode: meta.mode(), links, bytes });
            let moments = (meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec());
            times.insert(path.clone(), moments);
            if is_dir {
                todo.push(path);
            }
        }
    }
    Ok((view, times))
}

fn mode(kind: FileKind, perm: u16) -> u32 {
    let kind = match kind {
        FileKind::Directory => libc::S_IFDIR,
        FileKind::Symlink => libc::S_IFLNK,
        FileKind::Regular => libc::S_IFREG,
        FileKind::CharDevice => libc::S_IFCHR,
        FileKind::BlockDevice => libc::S_IFBLK,
        FileKind::Fifo => libc::S_IFIFO,
        FileKind::Socket => libc::S_IFSOCK,
    };
    kind | u32::from(perm)
}

/// What a program that embeds the volume sees, as [`of_directory`].
///
/// # Errors
/// What a call says.
pub fn of_volume(volume: &Volume) -> siftfs_base::Result<(View, Times)> {
    let (mut view, mut times) = (View::new(), Times::new());
    let mut todo = vec![String::new()];
    while let Some(dir) = todo.pop() {
        for entry in volume.read_dir(&format!("/{dir}"))? {
            let Ok(name) = String::from_utf8(entry.name) else { continue };
            if matches!(name.as_str(), "." | ".." | "lost+found") {
                continue;
            }
            let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
            let attr = volume.stat(&format!("/{path}"))?;
            let is_dir = attr.kind == FileKind::Directory;
            let bytes = match attr.kind {
                FileKind::Regular => {
                    let file = volume.open_file(&format!("/{path}"))?;
                    file.read_at(0, usize::try_from(attr.size).unwrap_or(0))?
                }
                _ => Vec::new(),
            };
            let size = if is_dir { 0 } else { attr.size };
            let links = if is_dir { 0 } else { u64::from(attr.nlink) };
            view.insert(
                path.clone(),
                Seen { size, mode: mode(attr.kind, attr.perm), links, bytes },
            );
            let (m, c) = (attr.mtime, attr.ctime);
            times.insert(path.clone(), (m.sec, m.nsec.into(), c.sec, c.nsec.into()));
            if is_dir {
                todo.push(path);
            }
        }
    }
    Ok((view, times))
}

/// Where two views differ first.
#[must_use]
pub fn difference(wanted: &View, seen: &View) -> Option<String> {
    for (path, want) in wanted {
        match seen.get(path) {
            None => return Some(format!("{path} is missing")),
            Some(found) if found != want => {
                let at = want.bytes.iter().zip(&found.bytes).position(|(a, b)| a != b);
                return Some(format!(
                    "{path}: size {} instead of {}, mode {:o} instead of {:o}, links {} instead \
                     of {}, {} bytes instead of {}, first other byte {at:?}",
                    found.size,
                    want.size,
                    found.mode,
                    want.mode,
                    found.links,
                    want.links,
                    found.bytes.len(),
                    want.bytes.len(),
                ));
            }
            Some(_) => {}
        }
    }
    seen.keys().find(|path| !wanted.contains_key(*path)).map(|path| format!("{path} is left"))
}
