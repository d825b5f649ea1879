//! A directory of volumes, or a pool of them: which there are, making one, removing one.

mod listed;
mod look;
mod pool;
mod shelf;

pub use listed::{ListedVolume, VolumeState};
pub use shelf::{Shelf, list_volumes};

use crate::options::{MkfsOptions, MkfsReport, Progress};
use crate::volume::files::io;
use crate::volume::find::{self, books_of_clients};
use crate::volume::mkfs::mkfs;
use listed::known;
use look::looked_at;
use siftfs_base::{Error, Result};
use siftfs_device::{FileOptions, open_exclusive};
use siftfs_device_rbd::RbdPlace;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Longest name of a new volume, in bytes: files beside it have longer ones.
const LONGEST_NAME: usize = 200;

/// Makes a volume in the new file, or on the new image, `path`. It has its name when it is whole: a
/// crash before that leaves a file whose name begins with a dot and ends with `.making`, which may
/// be deleted, or such an image, which [`remove_volume`] removes, and the next call for the same
/// name. The volume and its name are durable when this returns.
///
/// # Errors
/// Refused if the name is taken or no volume may have it, or as [`mkfs`].
pub fn create_volume(
    path: &Path,
    opts: &MkfsOptions,
    progress: Progress<'_>,
) -> Result<MkfsReport> {
    check_name(path)?;
    if let Some(place) = RbdPlace::parse(path) {
        return pool::create(&place?, opts, progress);
    }
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

/// Removes the volume in the file, or on the image, `path`, and what this machine remembers of it.
/// Its log stays where it has a file of its own. Returns what it was; its name is durably gone
/// then.
///
/// # Errors
/// Refused if it is in use, no volume, damaged, or neither a file nor an image; an image that was
/// not made to its end is removed.
pub fn remove_volume(path: &Path) -> Result<ListedVolume> {
    if let Some(place) = RbdPlace::parse(path) {
        let volume = pool::remove(&place?)?;
        forget(&volume);
        return Ok(volume);
    }
    let refuse = |why: &str| Err(Error::Refused(why.into()));
    let meta = path.symlink_metadata().map_err(|e| io("look at", path, &e))?;
    if !meta.is_file() {
        return refuse("only a volume that is a file of this directory is removed");
    }
    let volume = known(looked_at(path)?)?;
    // Held until the name is gone, so that nobody opens it in between.
    let held = open_exclusive(path, true, FileOptions::default())?;
    let again = path.symlink_metadata().map_err(|e| io("look at", path, &e))?;
    if (again.dev(), again.ino()) != (meta.dev(), meta.ino()) {
        return refuse("it was replaced meanwhile: nothing was removed");
    }
    std::fs::remove_file(path).map_err(|e| io("remove", path, &e))?;
    sync(directory_of(path))?;
    drop(held);
    forget(&volume);
    Ok(volume)
}

/// Forgets what this machine remembers of a removed volume.
fn forget(volume: &ListedVolume) {
    if let Some(uuid) = &volume.uuid {
        find::forget(uuid);
        let _ = std::fs::remove_file(books_of_clients().join(uuid));
    }
}

/// Is this a name under which a volume is listed and served?
fn check_name(path: &Path) -> Result<()> {
    let image = RbdPlace::parse(path).transpose()?.map(|place| place.image);
    let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = image.as_deref().unwrap_or(file);
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
