//! Opening the devices that a volume lies on, its log's among them.

use crate::options::OpenOptions;
use crate::volume::{find, place};
use siftfs_base::{Error, Result};
use siftfs_device::{Device, FileOptions, open_exclusive, open_for_service};
use siftfs_volume::Media;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A volume's devices, opened exclusively.
pub struct OpenedMedia {
    /// The devices.
    pub media: Media,
    /// Where the log is, if on a file or device of its own.
    pub log: Option<PathBuf>,
}

/// Opens the file or block device `path` and, where the volume's log lies elsewhere, that of the
/// log: the one that `opts.log` says, else the one found by the UUID that the superblock names. A
/// log that is not found is not opened; reading the header then says so.
///
/// # Errors
/// Refused if one of both cannot be had alone, or several devices hold the log.
pub fn open_media(path: &Path, opts: &OpenOptions) -> Result<OpenedMedia> {
    open_media_for(path, opts, true)
}

/// As [`open_media`], to write or only to read.
pub fn open_media_for(path: &Path, opts: &OpenOptions, rw: bool) -> Result<OpenedMedia> {
    let options = FileOptions { direct: opts.direct, uring: opts.uring, ..FileOptions::default() };
    if opts.log.as_ref().is_some_and(|log| place::same_storage(path, log)) {
        return Err(Error::Refused("the log given is the volume itself".into()));
    }
    let area = open_exclusive(path, rw, options)?;
    let link = find::link_of(&area)?;
    let log = match (&opts.log, &link) {
        (Some(log), _) => Some(log.clone()),
        (None, Some(link)) => find::find_log(path, link)?,
        (None, None) => None,
    };
    let Some(log) = log else { return Ok(OpenedMedia { media: Arc::new(area).into(), log: None }) };
    let device = open_exclusive(&log, rw, options)?;
    tracing::debug!(log = %log.display(), "the log lies elsewhere");
    Ok(OpenedMedia { media: Media::split(Arc::new(area), Arc::new(device)), log: Some(log) })
}

/// Opens a volume's devices for a process that serves a host elsewhere, without any role.
///
/// # Errors
/// As [`open_media`], other SiftFS processes excepted.
pub fn open_media_for_service(path: &Path, opts: &OpenOptions) -> Result<Media> {
    let options = FileOptions { direct: opts.direct, uring: opts.uring, ..FileOptions::default() };
    let area = open_for_service(path, options)?;
    let link = find::link_of(&area)?;
    let log = match (&opts.log, &link) {
        (Some(log), _) => Some(log.clone()),
        (None, Some(link)) => find::find_log(path, link)?,
        (None, None) => None,
    };
    let Some(log) = log else { return Ok(Arc::new(area).into()) };
    Ok(Media::split(Arc::new(area), Arc::new(open_for_service(&log, options)?)))
}

/// What the volume lies on, and how a write is made durable there, for the log.
pub(crate) fn tell_storage(device: &dyn Device) {
    let d = device.describe();
    tracing::info!(
        path = d.path,
        kind = d.kind,
        volatile_cache = d.volatile_cache,
        fua = d.fua,
        direct = d.direct,
        uring = d.uring,
        durable_write = d.durable_write,
        why = d.why,
        "storage"
    );
}
