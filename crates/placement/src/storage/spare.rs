//! The spare log of a volume: making it, and finding it where the caller does not say where.
//!
//! Tried in this order: the place that was remembered, the file of the volume's name with `.spare`
//! behind it. Only a header with the volume's UUID is taken for it; whether it is the right *state*
//! of it is judged when it is opened (rule R16).

use crate::options::{MkfsOptions, OpenOptions};
use crate::storage::{self, How, open_alone};
use crate::volume::files::{make_file, refuse_existing};
use crate::volume::find;
use crate::volume::place::{refuse_log, same_storage};
use siftfs_base::{Error, Result};
use siftfs_device::{Device, preallocate};
use siftfs_device_rbd::is_rbd;
use siftfs_device_stripe::{parts_of, principal};
use siftfs_log::{AreaLink, SpareHeader, show_uuid};
use siftfs_volume::{Media, read_log_header, read_spare_header, require_room_for_spare};
use siftfs_wire::Access;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a spare log's file that is made, at least.
const SPARE_LOG: u64 = 256 << 20;
/// What it has beyond an image of the log, at least.
const BEYOND_IMAGE: u64 = 64 << 20;

/// A problem with the spare log's place, which is not the one that the command is about.
fn about(place: &Path, e: &Error) -> Error {
    Error::Refused(format!("spare log {}: {e}", place.display()))
}

/// The spare log is neither the volume nor its log.
fn require_apart(place: &Path, volume: &Path, log: Option<&Path>) -> Result<()> {
    refuse_log(place)?;
    let volume = parts_of(volume).into_iter().map(|part| (part, "the volume"));
    for (other, what) in volume.chain(log.map(|log| (log.to_owned(), "the log"))) {
        if same_storage(place, &other) {
            return Err(about(place, &Error::Refused(format!("it is {what} itself"))));
        }
    }
    Ok(())
}

/// What a volume with a spare log cannot have beside it.
///
/// # Errors
/// Refused if `opts` asks for such a volume.
pub(crate) fn check_asked(opts: &MkfsOptions) -> Result<()> {
    if opts.log_spare.is_none() {
        return Ok(());
    }
    let what = match (&opts.log, opts.redo_lane) {
        (None, _) => {
            "a spare log is for a log on a file or device of its own (--log): one that lies with \
                      the file system stalls with that"
        }
        (_, Some(_)) => {
            "a volume with a redo lane is for a target, which opens no spare log: leave out one \
                         of both"
        }
        _ => return Ok(()),
    };
    Err(Error::Refused(what.into()))
}

/// A spare log for a volume that is being made.
pub(crate) struct NewSpare {
    device: Arc<dyn Device>,
    /// Its file, if that was made for this volume.
    fresh: Option<PathBuf>,
}

impl NewSpare {
    /// Opens the file (made if missing), block device or image that `opts` names, if it does, for a
    /// spare log. What holds something is refused unless `opts.force`.
    pub fn make(volume: &Path, opts: &MkfsOptions) -> Result<Option<Self>> {
        check_asked(opts)?;
        let Some(place) = &opts.log_spare else { return Ok(None) };
        require_apart(place, volume, opts.log.as_deref())?;
        Self::make_at(place, opts).map(Some).map_err(|e| about(place, &e))
    }

    fn make_at(place: &Path, opts: &MkfsOptions) -> Result<Self> {
        let meta = fs::metadata(place).ok();
        let there = is_rbd(place) || meta.as_ref().is_some_and(|m| !m.is_file() || m.len() > 0);
        if there {
            let device = open_alone(place)?;
            require_room_for_spare(&*device)?;
            refuse_used(&*device, opts.force)?;
            return Ok(Self { device, fresh: None });
        }
        make_file(place, 0)?;
        let made = preallocate(place, len_beside_log(opts)).and_then(|()| open_alone(place));
        let fresh = meta.is_none().then(|| place.to_owned());
        if made.is_err() {
            fresh.iter().for_each(|path| drop(fs::remove_file(path)));
        }
        Ok(Self { device: made?, fresh })
    }

    /// The device.
    pub fn device(&self) -> Arc<dyn Device> {
        self.device.clone()
    }

    /// Takes a file away that was made for a volume that was not.
    pub fn undo(self) {
        self.fresh.iter().for_each(|path| drop(fs::remove_file(path)));
    }
}

/// Bytes of a new spare log's file: with room for an image of the log.
fn len_beside_log(opts: &MkfsOptions) -> u64 {
    let there = |log: &PathBuf| storage::open(log, How::usual(Access::ReadOnly)).ok();
    let log = opts.log_size.or_else(|| Some(opts.log.as_ref().and_then(there)?.size()));
    SPARE_LOG.max(log.unwrap_or_default().saturating_add(BEYOND_IMAGE))
}

/// Refuses a device that holds something, and says if that is another volume's spare log.
fn refuse_used(device: &dyn Device, force: bool) -> Result<()> {
    match header_of(device) {
        _ if force => Ok(()),
        Some(header) => Err(Error::Refused(format!(
            "it is the spare log of volume {} already: siftfs release that volume, or use --force to \
             overwrite it, which makes that volume lose it",
            show_uuid(&header.volume)
        ))),
        None => refuse_existing(device, false),
    }
}

/// The newest header of a spare log, if one is there.
fn header_of(device: &dyn Device) -> Option<SpareHeader> {
    read_spare_header(device).ok()
}

/// A spare log that was opened, and where it is.
pub(crate) type Found = (Arc<dyn Device>, PathBuf);

/// Opens the spare log of the volume at `volume`, whose other devices are `media`: the place that
/// the caller said, else the one that is found; `None` if the volume has none, or it is nowhere,
/// which reading the header then says.
///
/// # Errors
/// Refused if the volume has none and a place was said, or what is there cannot be had.
pub(crate) fn open(
    volume: &Path,
    opts: &OpenOptions,
    media: &Media,
    access: Access,
) -> Result<Option<Found>> {
    if let Some(place) = &opts.log_spare {
        require_apart(place, volume, opts.log.as_deref())?;
    }
    // What is wrong with the header is said when it is read to be used.
    let header = media.log.as_ref().and_then(|log| read_log_header(&**log).ok());
    let uuid = match &media.log {
        Some(_) => header.as_ref().filter(|header| header.spare_log()).map(|header| header.volume),
        None => find::link_of(&*media.area)?.map(|link| link.volume),
    };
    let place = match (uuid, &opts.log_spare, header) {
        (Some(uuid), _, None) => alone(volume, opts, &uuid),
        (Some(uuid), None, _) => find_spare(volume, &uuid),
        (None, Some(place), Some(_)) => {
            let what = "the volume has no spare log: leave it out, or make a volume with one (siftfs mkfs \
                        --log-spare, siftfs adopt --log-spare)";
            return Err(about(place, &Error::Refused(what.into())));
        }
        (Some(_), place, _) => place.clone(),
        (None, ..) => None,
    };
    let Some(place) = place else { return Ok(None) };
    if access == Access::Shared {
        return Err(Error::Refused(NOT_SHARED.into()));
    }
    let device = storage::open(&place, How::of(opts, access)).map_err(|e| about(&place, &e))?;
    Ok(Some((device, place)))
}

/// Where the spare log of the volume with this UUID is, if that is the log alone.
fn alone(volume: &Path, opts: &OpenOptions, uuid: &[u8; 16]) -> Option<PathBuf> {
    let place = opts.log_spare.clone().or_else(|| find_spare(volume, uuid))?;
    let header = header_of(&*storage::open(&place, How::usual(Access::ReadOnly)).ok()?)?;
    (header.alone && header.volume == *uuid).then_some(place)
}

/// Is the spare log the log alone? Then the log's device, which has failed, is not looked at.
pub(crate) fn is_alone(volume: &Path, opts: &OpenOptions, link: &AreaLink) -> bool {
    let place = alone(volume, opts, &link.volume);
    if let Some(place) = &place {
        let log = opts.log.as_ref().map(|log| log.display().to_string()).unwrap_or_default();
        let spare = place.display();
        tracing::warn!(%spare, log, "the log's device has failed: the spare log is the log alone");
    }
    place.is_some()
}

/// Why a volume with a spare log is used by one process alone.
pub(crate) const NOT_SHARED: &str = "the volume has a spare log, which one process has together with the log: it is \
     mounted from its files and devices, without a device process and not through a target";

/// The spare log of the volume with this UUID, if it is at one of the places where it should be.
fn find_spare(volume: &Path, uuid: &[u8; 16]) -> Option<PathBuf> {
    let mut beside = OsString::from(principal(volume));
    beside.push(".spare");
    let wanted = |path: &PathBuf| {
        let opened = is_rbd(path) || fs::metadata(path).is_ok();
        opened
            && storage::open(path, How::usual(Access::ReadOnly)).is_ok_and(|device| {
                header_of(&*device).is_some_and(|header| header.volume == *uuid)
            })
    };
    find::remembered_spare(uuid).into_iter().chain([beside.into()]).find(wanted)
}
