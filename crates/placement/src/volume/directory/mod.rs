//! A directory of volumes: which there are, making one, removing one.

mod look;

use crate::options::{MkfsOptions, MkfsReport, Progress};
use crate::volume::files::io;
use crate::volume::find::{self, books_of_clients};
use crate::volume::mkfs::mkfs;
use look::looked_at;
use siftfs_base::{Error, Result};
use siftfs_device::{FileOptions, open_exclusive};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Longest name of a new volume, in bytes: files beside it have longer ones.
const LONGEST_NAME: usize = 200;

/// What is to be said of a volume without opening it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum VolumeState {
    /// It is plain ext4 at the moment, and nobody has it open.
    Clean,
    /// It was not unmounted; its next use recovers it.
    Dirty,
    /// A process has it open and may write it.
    Used,
    /// It cannot be opened as it is.
    Damaged,
}

/// A volume of a directory.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ListedVolume {
    /// The file's name; what is no UTF-8 of it is replaced.
    pub name: String,
    /// Bytes of the file or block device.
    pub bytes: u64,
    /// Bytes of its file system; `None` where its superblock says nothing.
    pub area_bytes: Option<u64>,
    /// The volume's UUID, as text; `None` if it is damaged.
    pub uuid: Option<String>,
    /// What it is like.
    pub state: VolumeState,
    /// Does its log lie on a file or device of its own?
    pub log_elsewhere: bool,
    /// Why it is damaged.
    pub problem: Option<String>,
}

/// The volumes of the directory `dir`, by name. Files that are no volumes are passed over: logs,
/// members of striped volumes, names that begin with a dot. Nothing is locked and nothing is
/// written, so that volumes in use are listed as well.
///
/// # Errors
/// Refused if the directory, or a file in it, cannot be read.
pub fn list_volumes(dir: &Path) -> Result<Vec<ListedVolume>> {
    let unread = |e: &std::io::Error| io("read", dir, e);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(|e| unread(&e))? {
        let name = entry.map_err(|e| unread(&e))?.file_name();
        if !name.as_encoded_bytes().starts_with(b".") {
            found.extend(looked_at(&dir.join(&name))?);
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// The volume in the file or on the block device `path`; `None` if no volume is there. Nothing is
/// locked.
///
/// # Errors
/// Refused if it cannot be read.
pub fn volume_at(path: &Path) -> Result<Option<ListedVolume>> {
    looked_at(path)
}

/// Makes a volume in the new file `path`. It has its name when it is whole: a crash before that
/// leaves a file whose name begins with a dot and ends with `.making`, which may be deleted. The
/// volume and its name are durable when this returns.
///
/// # Errors
/// Refused if the name is taken or no volume may have it, or as [`mkfs`].
pub fn create_volume(
    path: &Path,
    opts: &MkfsOptions,
    progress: Progress<'_>,
) -> Result<MkfsReport> {
    check_name(path)?;
    let taken = || Error::Refused(format!("{} is there already", path.display()));
    if path.symlink_metadata().is_ok() {
        return Err(taken());
    }
    let dir = directory_of(path);
    let made = tempfile::Builder::new().prefix(".").suffix(".making").tempfile_in(dir);
    let made = made.map_err(|e| io("make a file in", dir, &e))?;
    let report = mkfs(made.path(), opts, progress)?;
    made.as_file().sync_all().map_err(|e| io("write", made.path(), &e))?;
    made.persist_noclobber(path).map_err(|e| match e.error.kind() {
        std::io::ErrorKind::AlreadyExists => taken(),
        _ => io("name", path, &e.error),
    })?;
    sync(dir)?;
    Ok(report)
}

/// Removes the volume in the file `path`, and what this machine remembers of it. Its log stays
/// where it has a file of its own. Returns what it was; its name is durably gone then.
///
/// # Errors
/// Refused if it is in use, no volume, damaged, or not a file.
pub fn remove_volume(path: &Path) -> Result<ListedVolume> {
    let refuse = |why: &str| Err(Error::Refused(why.into()));
    let meta = path.symlink_metadata().map_err(|e| io("look at", path, &e))?;
    if !meta.is_file() {
        return refuse("only a volume that is a file of this directory is removed");
    }
    let Some(volume) = looked_at(path)? else {
        return refuse("it is no volume: nothing was removed");
    };
    if let Some(problem) = &volume.problem {
        return Err(Error::Refused(format!(
            "it is damaged, and may be something else: {problem}. Nothing was removed"
        )));
    }
    // Held until the name is gone, so that nobody opens it in between.
    let held = open_exclusive(path, true, FileOptions::default())?;
    let again = path.symlink_metadata().map_err(|e| io("look at", path, &e))?;
    if (again.dev(), again.ino()) != (meta.dev(), meta.ino()) {
        return refuse("it was replaced meanwhile: nothing was removed");
    }
    std::fs::remove_file(path).map_err(|e| io("remove", path, &e))?;
    sync(directory_of(path))?;
    drop(held);
    if let Some(uuid) = &volume.uuid {
        find::forget(uuid);
        let _ = std::fs::remove_file(books_of_clients().join(uuid));
    }
    Ok(volume)
}

/// Is this a name under which a volume is listed and served?
fn check_name(path: &Path) -> Result<()> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let reserved = [".log", ".area", ".making"].iter().any(|end| name.ends_with(end));
    let plain = !name.is_empty() && !name.starts_with('.') && !name.chars().any(char::is_control);
    if plain && !reserved && name.len() <= LONGEST_NAME && !name.contains(':') {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "{}: a volume's name has at most {LONGEST_NAME} bytes, no colon and no control character, begins \
         with no dot, and does not end with .log, .area or .making",
        path.display()
    )))
}

/// The directory that has this file's name.
fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}

/// Makes the names of a directory durable.
fn sync(dir: &Path) -> Result<()> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(|e| io("write", dir, &e))
}

#[cfg(test)]
#[path = "directory_tests.rs"]
mod tests;
