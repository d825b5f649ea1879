//! The record area of a volume: making it, and finding it where the caller does not say where.
//!
//! Tried in this order: the place that was remembered, the file of the volume's name with `.area`
//! behind it. Only a header with the volume's UUID is taken for the area; whether it is the right
//! *state* of it is judged when it is read (rule R16).

use crate::options::{MkfsOptions, OpenOptions, RECORD_AREA};
use crate::volume::files::refuse_existing;
use crate::volume::find;
use crate::volume::place::same_storage;
use siftfs_base::{Error, Result};
use siftfs_device::{ByteDevice, ByteOptions, BytePlace, Device};
use siftfs_device_stripe::{parts_of, principal};
use siftfs_log::show_uuid;
use siftfs_volume::{Media, RecordArea, read_media};
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A place's name, in front of a problem with it.
fn about(place: &BytePlace, e: &Error) -> Error {
    Error::Refused(format!("record area {place}: {e}"))
}

/// The record area is neither the volume nor its log.
fn require_apart(place: &BytePlace, volume: &Path, log: Option<&Path>) -> Result<()> {
    let Some(path) = place.path() else { return Ok(()) };
    let volume = parts_of(volume).into_iter().map(|part| (part, "the volume"));
    for (other, what) in volume.chain(log.map(|log| (log.to_owned(), "the log"))) {
        if same_storage(path, &other) {
            return Err(about(place, &Error::Refused(format!("it is {what} itself"))));
        }
    }
    Ok(())
}

/// A record area for a volume that is being made.
pub(crate) struct NewArea {
    device: Arc<ByteDevice>,
    /// Its file was made for this volume.
    fresh: bool,
}

impl NewArea {
    /// Makes the area that `opts` asks for, if it does. A file that holds something, and a device
    /// that holds a record area, are refused unless `opts.force`.
    pub fn make(volume: &Path, opts: &MkfsOptions) -> Result<Option<Self>> {
        let Some(place) = &opts.record_area_at else { return Ok(None) };
        require_apart(place, volume, opts.log.as_deref())?;
        Self::make_at(place, opts).map(Some).map_err(|e| about(place, &e))
    }

    fn make_at(place: &BytePlace, opts: &MkfsOptions) -> Result<Self> {
        let meta = place.path().and_then(|path| fs::metadata(path).ok());
        let file = place.path().is_some() && meta.as_ref().is_none_or(fs::Metadata::is_file);
        let there = meta.as_ref().map_or(0, fs::Metadata::len);
        if (!file || there > 0) && !opts.force {
            let device = ByteDevice::open_exclusive(place, READ_ONLY)?;
            refuse_used(&device)?;
            if file {
                refuse_existing(&device, false)?;
            }
        }
        let size = match (opts.record_area, file) {
            (Some(size), _) => size,
            (None, true) if there > 0 => there,
            (None, true) => RECORD_AREA,
            (None, false) => 0,
        };
        let made = ByteDevice::create(place, size, ByteOptions::default());
        let fresh = file && meta.is_none();
        if made.is_err() && fresh {
            discard(place);
        }
        Ok(Self { device: Arc::new(made?), fresh })
    }

    /// The device.
    pub fn device(&self) -> Arc<dyn Device> {
        self.device.clone()
    }

    /// Takes a file away that was made for a volume that was not.
    pub fn undo(&self) {
        if self.fresh {
            discard(self.device.place());
        }
    }
}

/// The caller did not ask for an empty file.
fn discard(place: &BytePlace) {
    let _ = place.path().map(fs::remove_file);
}

const READ_ONLY: ByteOptions = ByteOptions { modelled_read_back: Duration::ZERO, read_only: true };

/// Refuses a record area that belongs to a volume.
fn refuse_used(device: &ByteDevice) -> Result<()> {
    let of = match RecordArea::read(device) {
        Ok(area) => format!("volume {}", show_uuid(&area.header.volume)),
        Err(Error::Incompatible(newer)) => format!("a volume of a newer SiftFS ({newer})"),
        Err(_) => return Ok(()),
    };
    Err(Error::Refused(format!(
        "it is the record area of {of} already: siftfs release that volume, or use --force to \
         overwrite the area, which makes that volume lose it"
    )))
}

/// How a record area is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// With both roles.
    Alone,
    /// With both roles, shared with other readers, and nothing is written.
    ReadOnly,
    /// Without any role.
    Service,
}

/// Opens the record area of the volume at `volume`, whose other devices are `media`: the place that
/// the caller said, else the one that is found; `None` if the volume has no record area, or it is
/// nowhere, which reading the header then says.
///
/// # Errors
/// Refused if the volume has none and a place was said; if what is there cannot be had, or does not
/// keep what it is given.
pub(crate) fn open(
    volume: &Path,
    opts: &OpenOptions,
    media: &Media,
    access: Access,
) -> Result<Option<Arc<ByteDevice>>> {
    if let Some(place) = &opts.record_area_at {
        require_apart(place, volume, opts.log.as_deref())?;
    }
    // What is wrong with the header is said when it is read to be used.
    let Ok(view) = read_media(&*media.area, media.log.as_deref()) else { return Ok(None) };
    let uuid = view.header.volume;
    match (view.header.record_area(), &opts.record_area_at) {
        (None, None) => Ok(None),
        (None, Some(place)) => Err(about(
            place,
            &Error::Refused(format!(
                "volume {} has no record area: leave it out, or make a volume with one (siftfs mkfs \
                 --record-area, siftfs adopt --record-area)",
                show_uuid(&uuid)
            )),
        )),
        (Some(_), Some(place)) => {
            open_at(place, opts.record_read_back, access).map(Some).map_err(|e| about(place, &e))
        }
        (Some(_), None) => find_area(volume, &uuid, opts.record_read_back, access),
    }
}

fn open_at(place: &BytePlace, read_back: Duration, access: Access) -> Result<Arc<ByteDevice>> {
    let options = ByteOptions { modelled_read_back: read_back, ..ByteOptions::default() };
    let device = match access {
        Access::Alone => ByteDevice::open_exclusive(place, options),
        Access::ReadOnly => ByteDevice::open_exclusive(place, READ_ONLY),
        Access::Service => ByteDevice::open(place, options),
    };
    device.map(Arc::new)
}

fn find_area(
    volume: &Path,
    uuid: &[u8; 16],
    read_back: Duration,
    access: Access,
) -> Result<Option<Arc<ByteDevice>>> {
    let mut beside = OsString::from(principal(volume));
    beside.push(".area");
    let places = find::remembered_area(uuid).into_iter().chain([BytePlace::Path(beside.into())]);
    for place in places {
        let gone = |path: &Path| {
            fs::metadata(path).is_err_and(|e| matches!(e.kind(), ErrorKind::NotFound))
        };
        if place.path().is_some_and(gone) {
            continue;
        }
        let probed = ByteDevice::open(&place, READ_ONLY).map_err(|e| about(&place, &e))?;
        let wanted = RecordArea::read(&probed).is_ok_and(|area| area.header.volume == *uuid);
        drop(probed);
        if wanted {
            tracing::debug!(%place, "the record area is found");
            return open_at(&place, read_back, access).map(Some).map_err(|e| about(&place, &e));
        }
    }
    Ok(None)
}
