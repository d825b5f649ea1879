//! A pool of a cluster as a directory of volumes, which are its images.

use super::listed::{ListedVolume, VolumeState, known};
use super::look::looked_at_device;
use crate::options::{MkfsOptions, MkfsReport, Progress};
use crate::volume::layout::down;
use crate::volume::mkfs::mkfs;
use siftfs_base::{Error, Result};
use siftfs_device::Device;
use siftfs_device_rbd::{RbdImages, RbdPlace};
use std::path::Path;

/// How the name of an image ends that is being made; it begins with a dot.
const MAKING: &str = ".making";

/// The volumes among the images, in no order.
pub(super) fn list(images: &RbdImages) -> Result<Vec<ListedVolume>> {
    let mut found = Vec::new();
    for name in images.names()?.iter().filter(|name| !name.starts_with('.')) {
        match volume(images, name) {
            Ok(volume) => found.extend(volume),
            Err(error) => tracing::warn!(image = name, %error, "an image that cannot be looked at"),
        }
    }
    Ok(found)
}

/// The volume on the image of this name; `None` if no image has it, or if it is no volume.
pub(super) fn volume(images: &RbdImages, name: &str) -> Result<Option<ListedVolume>> {
    let Some(looked) = images.look(name)? else { return Ok(None) };
    looked_at_device(&looked.device, name, looked.used)
}

/// Makes an image with a volume on it. It has another name until it is whole, by which no process
/// serves it; what is left under that name of a try before is removed.
///
/// # Errors
/// Refused if the name is taken, or if another process makes it, or as [`mkfs`]: no image is left.
pub(super) fn create(
    place: &RbdPlace,
    opts: &MkfsOptions,
    progress: Progress<'_>,
) -> Result<MkfsReport> {
    let Some(size) = opts.size.map(down) else {
        return Err(Error::Refused("say how large the image shall be".into()));
    };
    let (pool, name) = (place.pool(), &place.image);
    let images = RbdImages::of(&pool)?;
    if images.look(name)?.is_some() {
        return Err(Error::Refused(format!("{place} is there already")));
    }
    let making = pool.image(&format!(".{name}{MAKING}"))?;
    if let Some(left) = images.look(&making.image)? {
        images.remove(left, |_| Ok(()))?;
    }
    images.create(&making.image, size)?;
    let opts = MkfsOptions { size: Some(size), ..opts.clone() };
    let made = mkfs(Path::new(&making.to_string()), &opts, progress);
    let named = made.and_then(|made| images.rename(&making.image, name).map(|()| made));
    named.inspect_err(|_| {
        let left = images.look(&making.image);
        let remove = |left| images.remove(left, |_| Ok(()));
        let removed = left.and_then(|left| left.map_or(Ok(()), remove));
        if let Err(error) = removed {
            tracing::warn!(image = %making, %error, "an image that was not made to its end stays");
        }
    })
}

/// Removes an image that is a volume, or that was not made to its end.
///
/// # Errors
/// Refused if it is in use, no volume, or damaged.
pub(super) fn remove(place: &RbdPlace) -> Result<ListedVolume> {
    let images = RbdImages::of(&place.pool())?;
    let Some(looked) = images.look(&place.image)? else {
        return Err(Error::Refused("no image of the pool is called so".into()));
    };
    let judge = |device: &dyn Device, used| {
        let found = looked_at_device(device, &place.image, used)?;
        match is_half_made(&place.image) {
            true => Ok(found.unwrap_or_else(|| nothing_yet(place, device.size()))),
            false => known(found),
        }
    };
    // Nobody is fenced for what is no volume.
    judge(&looked.device, looked.used)?;
    images.remove(looked, |owned| judge(owned, false))
}

/// Is this the name of an image that is being made, or was not made to its end?
fn is_half_made(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(MAKING)
}

/// An image that was removed before a volume was on it.
fn nothing_yet(place: &RbdPlace, bytes: u64) -> ListedVolume {
    ListedVolume {
        name: place.image.clone(),
        bytes,
        area_bytes: None,
        uuid: None,
        state: VolumeState::Damaged,
        log_elsewhere: false,
        problem: Some("it was not made to its end".into()),
    }
}
