//! Opening the devices that a volume lies on, its log's and its record area's among them.

use crate::options::OpenOptions;
use crate::storage::spare::{self, NOT_SHARED};
use crate::storage::{self, How};
use crate::volume::members::{Reached, open_members};
use crate::volume::record_area::{self, Access};
use crate::volume::{find, place};
use siftfs_base::{Error, Result};
use siftfs_device::{ByteDevice, BytePlace, Device};
use siftfs_device_stripe::{Standing, StripePlace, StripedDevice, is_member, parts_of};
use siftfs_device_target::{Opened, Target, TargetPlace};
use siftfs_log::{EpochKey, HostState};
use siftfs_volume::{AreaSuper, HeaderView, Media};
use siftfs_wire::Access as StorageAccess;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a member alone is no volume.
const A_MEMBER: &str =
    "it is a member of a striped volume: name all of them, stripe:MEMBER,MEMBER,...";

/// A volume's devices, opened exclusively.
pub struct OpenedMedia {
    /// The devices.
    pub media: Media,
    /// Where those are that have a place of their own.
    pub places: Places,
    /// The target that has them, if it is not this process.
    pub target: Option<Arc<Target>>,
    /// The members of the area, where it is striped over several devices.
    pub stripes: Option<Arc<StripedDevice>>,
    /// The targets that have members.
    pub reached: Reached,
}

/// The devices of blocks, where the log and its spare one are, and the members of the area.
#[derive(Clone)]
struct Blocks {
    media: Media,
    log: Option<PathBuf>,
    spare: Option<PathBuf>,
    stripes: Option<Arc<StripedDevice>>,
    reached: Reached,
}

/// Where the parts of a volume are that have a file or device of their own.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// The log.
    pub log: Option<PathBuf>,
    /// The spare log.
    pub spare: Option<PathBuf>,
    /// The record area.
    pub record_area: Option<BytePlace>,
}

impl Places {
    /// So that they are found without being told the next time. `uuid` is the volume's, as text.
    pub(crate) fn remember(&self, uuid: &str) {
        if let Some(log) = &self.log {
            find::remember(uuid, log);
        }
        if let Some(spare) = &self.spare {
            find::remember_spare(uuid, spare);
        }
        if let Some(area) = &self.record_area {
            find::remember_area(uuid, area);
        }
    }
}

/// Opens the file or block device `path` and, where the volume's log lies elsewhere, that of the
/// log: the one that `opts.log` says, else the one found by the UUID that the superblock names. A
/// log that is not found is not opened; reading the header then says so. A record area likewise:
/// the one at `opts.record_area_at`, else where it was remembered to be.
///
/// # Errors
/// Refused if one of them cannot be had alone, several devices hold the log, or the record area's
/// place does not keep what it is given and is not named volatile.
pub fn open_media(path: &Path, opts: &OpenOptions) -> Result<OpenedMedia> {
    open_media_for(path, opts, true)
}

/// As [`open_media`], to write or only to read.
pub fn open_media_for(path: &Path, opts: &OpenOptions, rw: bool) -> Result<OpenedMedia> {
    if let Some(place) = &opts.target {
        return open_target(place, opts, rw);
    }
    let blocks = with_spare(path, opts, open_blocks(path, opts, rw)?, rw)?;
    let access = if rw { Access::Alone } else { Access::ReadOnly };
    let bytes = record_area::open(path, opts, &blocks.media, access)?;
    Ok(opened(blocks, bytes))
}

/// The same with the spare log, if the volume has one that is found.
fn with_spare(path: &Path, opts: &OpenOptions, blocks: Blocks, rw: bool) -> Result<Blocks> {
    let access = if rw { StorageAccess::Alone } else { StorageAccess::ReadOnly };
    let Some((device, place)) = spare::open(path, opts, &blocks.media, access)? else {
        return Ok(blocks);
    };
    tracing::debug!(spare = %place.display(), "the volume has a spare log");
    let media = blocks.media.with_spare(Some(device)).paired(rw)?;
    Ok(Blocks { media, spare: Some(place), ..blocks })
}

/// As [`open_media`], to give up what is lost: a record area that nobody named and that cannot be
/// opened is as good as none.
pub(crate) fn open_what_is_left(path: &Path, opts: &OpenOptions) -> Result<OpenedMedia> {
    if let Some(place) = &opts.target {
        return open_target(place, opts, true);
    }
    let blocks = open_blocks(path, opts, true)?;
    let blocks = match with_spare(path, opts, blocks.clone(), true) {
        Err(error) if opts.log_spare.is_none() => {
            tracing::warn!(%error, "the spare log is given up");
            blocks
        }
        with_spare => with_spare?,
    };
    let bytes = record_area::open(path, opts, &blocks.media, Access::Alone).or_else(|error| {
        tracing::warn!(%error, "the record area is given up");
        if opts.record_area_at.is_some() { Err(error) } else { Ok(None) }
    })?;
    Ok(opened(blocks, bytes))
}

fn opened(blocks: Blocks, bytes: Option<Arc<ByteDevice>>) -> OpenedMedia {
    let Blocks { media, log, spare, stripes, reached } = blocks;
    let record_area = bytes.as_ref().map(|device| device.place().clone());
    let media = media.with_bytes(bytes.map(|device| -> Arc<dyn Device> { device }));
    let places = Places { log, spare, record_area };
    OpenedMedia { media, places, target: None, stripes, reached }
}

/// The devices as a target has them, its volume's log and record area among them.
fn open_target(place: &TargetPlace, opts: &OpenOptions, rw: bool) -> Result<OpenedMedia> {
    if opts.log.is_some() || opts.log_spare.is_some() || opts.record_area_at.is_some() {
        let what = "the target has the volume's log and record area: leave their places out";
        return Err(Error::Refused(what.into()));
    }
    let target = Target::open(place.clone(), rw)?;
    let media = media_of(target.devices());
    if is_member(&*media.area)? {
        return Err(Error::Refused(A_MEMBER.into()));
    }
    let (places, stripes, reached) = Default::default();
    Ok(OpenedMedia { media, places, target: Some(target), stripes, reached })
}

pub(crate) fn media_of(opened: Opened) -> Media {
    let Opened { area, log, record_area } = opened;
    Media { log, bytes: record_area, ..Media::from(area) }
}

/// From now on a lost target is waited for: its volume is this host's as long as the header names
/// the epoch `key` (rule R9). What was written before is made durable first.
pub(crate) fn outlive(target: &Target, media: &Media, key: EpochKey) -> Result<()> {
    media.flush()?;
    target
        .keep(Box::new(move |opened| still_ours(&media_of(opened.clone()).read_to_write()?, key)));
    Ok(())
}

/// Is the volume the host's whose epoch is `key`?
fn still_ours(view: &HeaderView, key: EpochKey) -> Result<()> {
    let (found, own) = (view.host.key, key.epoch.0);
    if found != key {
        let found = found.epoch.0;
        let what = format!("another host has had the volume: epoch {found}, not {own}");
        return Err(Error::Refused(what));
    }
    // While it is being closed, its area becomes plain ext4, which others may use. They do not use
    // one whose superblock was written in part.
    let unused =
        |area: AreaSuper| area.marker || !area.checksum_ok || area.crc == view.host.area_crc;
    if view.host.state == HostState::Mounted || view.area.is_some_and(unused) {
        return Ok(());
    }
    let what = "its file system was used by another program after it had been closed";
    Err(Error::Refused(what.into()))
}

/// Opens a volume's devices for a host that has no other way to them than this process, or without
/// any role for its Service. Members at targets that are lost are waited for from then on, until
/// [`OpenOptions::waits`] ends.
///
/// # Errors
/// As [`open_media`].
pub fn open_media_for_host(
    path: &Path,
    opts: &OpenOptions,
    access: StorageAccess,
) -> Result<Media> {
    let media = match access {
        StorageAccess::Alone => open_media(path, opts)?.media,
        StorageAccess::ReadOnly => open_media_for(path, opts, false)?.media,
        StorageAccess::Shared => open_media_for_service(path, opts)?,
    };
    match media.spare {
        Some(_) => Err(Error::Refused(NOT_SHARED.into())),
        None => Ok(media),
    }
}

/// Opens a member of a striped volume, label included, for the process that puts the members
/// together.
///
/// # Errors
/// Refused if it cannot be had so; `None` for what is no member.
pub fn open_member(
    path: &Path,
    opts: &OpenOptions,
    access: StorageAccess,
) -> Result<Option<(Media, Standing)>> {
    let device = storage::open(path, How::of(opts, access))?;
    let standing = Standing::of(&*device)?;
    Ok(standing.map(|standing| (Media::from(device), standing)))
}

/// The devices of blocks, exclusively, and where the log is.
fn open_blocks(path: &Path, opts: &OpenOptions, rw: bool) -> Result<Blocks> {
    if let Some(log) = &opts.log {
        place::refuse_log(log)?;
        if parts_of(path).iter().any(|part| place::same_storage(part, log)) {
            return Err(Error::Refused("the log given is the volume itself".into()));
        }
    }
    with_log(path, opts, if rw { StorageAccess::Alone } else { StorageAccess::ReadOnly })
}

/// Opens a volume's devices for a process that serves a host elsewhere, without any role.
///
/// # Errors
/// As [`open_media`], other SiftFS processes excepted.
pub fn open_media_for_service(path: &Path, opts: &OpenOptions) -> Result<Media> {
    let media = with_log(path, opts, StorageAccess::Shared)?.media;
    // It refuses a volume that has one.
    spare::open(path, opts, &media, StorageAccess::Shared)?;
    let bytes = record_area::open(path, opts, &media, Access::Service)?;
    Ok(media.with_bytes(bytes.map(|device| -> Arc<dyn Device> { device })))
}

fn with_log(path: &Path, opts: &OpenOptions, access: StorageAccess) -> Result<Blocks> {
    let open = |path: &Path| storage::open(path, How::of(opts, access));
    let stripes = StripePlace::parse(path).transpose()?;
    let stripes = stripes.map(|place| open_members(&place, open, opts, access)).transpose()?;
    let (stripes, reached) = stripes.map_or((None, Reached::default()), |(striped, reached)| {
        (Some(Arc::new(striped)), reached)
    });
    let area: Arc<dyn Device> = match &stripes {
        Some(striped) => striped.clone(),
        None => open(path)?,
    };
    if stripes.is_none() && is_member(&*area)? {
        return Err(Error::Refused(A_MEMBER.into()));
    }
    let link = find::link_of(&*area)?;
    let log = match (&opts.log, &link) {
        (_, Some(link)) if spare::is_alone(path, opts, link) => None,
        (Some(log), _) => Some(log.clone()),
        (None, Some(link)) => find::find_log(path, link)?,
        (None, None) => None,
    };
    let Some(log) = log else {
        return Ok(Blocks { media: area.into(), log: None, spare: None, stripes, reached });
    };
    let device = open(&log)?;
    tracing::debug!(log = %log.display(), "the log lies elsewhere");
    let media = Media::split(area, device);
    Ok(Blocks { media, log: Some(log), spare: None, stripes, reached })
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
        persistent = d.persistent,
        durable_write = d.durable_write,
        why = d.why,
        "storage"
    );
    if d.persistent == Some(false) {
        tracing::warn!(
            path = d.path,
            "a power cut loses what was fsynced to the record area: it is volatile"
        );
    }
}

#[cfg(test)]
#[path = "media_tests.rs"]
mod tests;
