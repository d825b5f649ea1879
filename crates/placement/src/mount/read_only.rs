//! Read-only mounts of volumes that cannot be written.

use crate::mount::open::Volume;
use crate::options::OpenOptions;
use crate::volume::media::{OpenedMedia, open_media, open_media_for};
use siftfs_base::{Error, Result};
use siftfs_device::BytePlace;
use siftfs_device_stripe::parts_of;
use siftfs_volume::Media;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Opens a volume to serve it, and says whether it may be written. One that cannot be (a
/// write-protected device, a file on a read-only file system) is opened all the same for a
/// read-only mount.
///
/// # Errors
/// As [`open_media`].
pub(crate) fn open_to_serve(path: &Path, opts: &OpenOptions) -> Result<(OpenedMedia, bool)> {
    let opened = open_media(path, opts);
    let places = match &opened {
        Ok(opened) => opened.places.clone(),
        Err(_) => open_media_for(path, opts, false).map(|o| o.places).unwrap_or_default(),
    };
    let area = places.record_area.as_ref().and_then(BytePlace::path);
    let others = [places.log.as_deref(), places.spare.as_deref(), area]
        .into_iter()
        .flatten()
        .map(Path::to_owned);
    let protected = parts_of(path).into_iter().chain(others).find(|p| is_protected(p));
    match (protected, opts.read_only) {
        (None, _) => Ok((opened?, true)),
        (Some(_), true) => {
            drop(opened);
            Ok((open_media_for(path, opts, false)?, false))
        }
        (Some(what), false) => Err(Error::Refused(format!(
            "{} is write-protected: only a read-only mount (-o ro) can use it",
            what.display()
        ))),
    }
}

/// Has a volume that is to be mounted read-only features that allow a build as this one nothing
/// else?
pub(crate) fn may_only_be_read(media: &Media, opts: &OpenOptions) -> Result<bool> {
    Ok(opts.read_only && media.read()?.header.unknown_ro_compat() != 0)
}

/// Does the system refuse every process to write it? A write-protected block device may be opened
/// for writing all the same.
fn is_protected(path: &Path) -> bool {
    let errors = [libc::EROFS, libc::EACCES, libc::EPERM];
    match std::fs::OpenOptions::new().write(true).open(path) {
        Err(e) => e.raw_os_error().is_some_and(|n| errors.contains(&n)),
        Ok(file) => file.metadata().is_ok_and(|m| {
            let (major, minor) = (libc::major(m.rdev()), libc::minor(m.rdev()));
            let flag = format!("/sys/dev/block/{major}:{minor}/ro");
            m.file_type().is_block_device()
                && std::fs::read_to_string(flag).is_ok_and(|ro| ro.trim() == "1")
        }),
    }
}

/// A volume that has to be recovered first cannot be served without writing: its area alone may be
/// half of a checkpoint.
pub(crate) fn refuse_dirty(path: &Path, volume: &Volume) -> Result<()> {
    if volume.is_clean() {
        return Ok(());
    }
    let path = path.display();
    Err(Error::Refused(format!(
        "{path} was not unmounted and has to be recovered first, also for a read-only mount, but it \
         cannot be written: make it writable, or run `siftfs recover` on a copy"
    )))
}
