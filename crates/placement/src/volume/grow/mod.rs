//! Growing a volume that nobody has open.
//!
//! Two steps, each with one write that switches. First the log, which is empty, moves behind its
//! old end: everything of the new one is durable before the new header's static part at the
//! device's end makes it the log. Then the file system takes what is in front of it: new groups are
//! written where nothing names them, and one transaction of the journal has every block of the old
//! file system that changes. Between the two there is a volume of the old size with a gap in front
//! of its log. A log elsewhere stays where it is.

mod area;
mod relocate;

use crate::mount::open::Volume;
use crate::options::{OpenOptions, Progress, Shortage};
use crate::storage;
use crate::volume::layout::down;
use crate::volume::marker;
use crate::volume::media::open_media;
use crate::volume::mkfs::shortage;
use siftfs_base::{BLOCK_BYTES, Clock, Error, Result, SystemClock};
use siftfs_device::reserve_blocks;
use siftfs_device_stripe::StripePlace;
use siftfs_log::{HEADER_LEN, StaticHeader, show_uuid};
use siftfs_volume::Media;
use std::path::Path;
use std::sync::Arc;

/// What growing made of a volume. Lengths are in bytes.
#[derive(Clone, Debug, serde::Serialize)]
pub struct GrowReport {
    /// UUID of the volume, as text.
    pub uuid: String,
    /// Did something have to be brought from the log into the file system first?
    pub recovered: bool,
    /// Did the log move? One on a device of its own does not.
    pub log_moved: bool,
    /// Length of the file system before.
    pub area_bytes_before: u64,
    /// Length of the file system.
    pub area_bytes: u64,
    /// The longest file system that it can be grown to in place.
    pub most_area_bytes: u64,
    /// The file system below has less room than the volume's file may come to need.
    pub shortage: Option<Shortage>,
}

/// What is to be done to fill a device.
struct Plan {
    /// Blocks of the larger file system.
    blocks: u64,
    /// Its blocks before.
    before: u64,
    /// The most blocks it can have.
    most: u64,
    /// The header of the log where it moves to; `None` if it stays.
    header: Option<StaticHeader>,
}

/// Grows the volume on the file, image or block device `path`, which nobody has open, to `size`
/// bytes. A file or an image becomes that long; a block device has to be, and `None` is all of what
/// is there. A dirty volume is recovered first. After a crash at any step the volume has its old or
/// its new size and all of its files; it is the larger one durably when this returns.
///
/// # Errors
/// Refused if the volume is in use, striped or at a target, would not be larger, or cannot become
/// as large: the message names the bound. Nothing but a recovery has changed then. Other errors are
/// as of [`crate::recover`]; the volume opens, and growing may be tried again.
pub fn grow(
    path: &Path,
    size: Option<u64>,
    opts: &OpenOptions,
    progress: Progress<'_>,
) -> Result<GrowReport> {
    if StripePlace::parse(path).is_some() {
        let what = "a striped volume is not grown: its members keep the size they were made with";
        return Err(Error::Refused(what.into()));
    }
    if opts.target.is_some() {
        let what = "a target serves a volume as it is: grow it where its storage is, while nobody \
                    serves it";
        return Err(Error::Refused(what.into()));
    }
    let becomes_longer = storage::can_become_longer(path)?;
    let prepared = match size.map(down).filter(|_| becomes_longer) {
        Some(size) => lengthen(path, size, opts, progress)?,
        None => false,
    };
    let opened = open_media(path, opts)?;
    let have = opened.media.area.size();
    if let Some(size) = size.filter(|size| !becomes_longer && *size != have) {
        return Err(Error::Refused(format!(
            "the device has {have} bytes, and a volume is grown to its device's end: not to {size}"
        )));
    }
    let report = grow_on(opened.media, opts, progress)?;
    opened.places.remember(&report.uuid);
    let recovered = prepared || report.recovered;
    Ok(GrowReport { recovered, shortage: shortage(path)?, ..report })
}

/// As [`grow`], on any devices, of which the area's has its new size already.
///
/// # Errors
/// As [`grow`].
pub fn grow_on(
    media: impl Into<Media>,
    opts: &OpenOptions,
    progress: Progress<'_>,
) -> Result<GrowReport> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let media = media.into();
    let mut volume = Volume::read(media.clone(), true)?;
    let recovered = !volume.recover(&clock, opts, progress)?.clean;
    let plan = plan(&volume, media.area.size())?;
    if let Some(header) = &plan.header {
        relocate::relocate(&media, volume.view(), header, progress)?;
        volume = Volume::read(media.clone(), true)?;
        assert_eq!(volume.view().header, *header, "the log is where it was moved to");
    }
    progress("growing the file system", 0, 1);
    area::grow_area(&volume, &clock, opts, plan.blocks)?;
    progress("growing the file system", 1, 1);
    Ok(GrowReport {
        uuid: show_uuid(&volume.view().header.volume),
        recovered,
        log_moved: plan.header.is_some(),
        area_bytes_before: plan.before * BLOCK_BYTES,
        area_bytes: plan.blocks * BLOCK_BYTES,
        most_area_bytes: plan.most * BLOCK_BYTES,
        shortage: None,
    })
}

/// Makes the volume's file or image `size` bytes long, once it is known that the volume can be
/// grown to that; says whether it had to be recovered. The volume is found as before: by the end of
/// its file system, because the end of its file is another one now. One that has this length is
/// left alone.
fn lengthen(path: &Path, size: u64, opts: &OpenOptions, progress: Progress<'_>) -> Result<bool> {
    let media = open_media(path, opts)?.media;
    let have = media.area.size();
    if size < have {
        return Err(Error::Refused(format!(
            "what the volume lies on has {have} bytes: it can be grown, and not made shorter"
        )));
    }
    if size == have {
        return Ok(false);
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let mut volume = Volume::read(media, true)?;
    let recovered = !volume.recover(&clock, opts, progress)?.clean;
    if let Some(blocks) = cut_off(&volume, have)? {
        area::grow_area(&volume, &clock, opts, blocks)?;
        let media = volume.media.clone();
        volume = Volume::read(media, true)?;
    }
    let plan = plan(&volume, size)?;
    let header = &volume.view().header;
    if !header.external_log() && plan.before * BLOCK_BYTES != header.header_offsets[0] {
        return Err(Error::Refused(format!(
            "its file system ends at byte {}, and its log begins at byte {}: a longer file would hide \
             the log from its readers",
            plan.before * BLOCK_BYTES,
            header.header_offsets[0]
        )));
    }
    let reserved = header.reserved();
    drop(volume);
    storage::lengthen(path, size)?;
    if reserved {
        reserve_blocks(path, size)?;
    }
    Ok(recovered)
}

/// How long the file system would be by now, in blocks, if growing it to `have` bytes was cut off
/// after the log had moved; `None` if no growth can fill what lies in front of the log.
fn cut_off(volume: &Volume, have: u64) -> Result<Option<u64>> {
    let header = &volume.view().header;
    let fs = marker::look(&*volume.storage()?.area_reader()?)?;
    let blocks = header.area_len / BLOCK_BYTES;
    let here = !header.external_log() && header.header_offsets[1] + HEADER_LEN == have;
    let fits = fs.layout.block_count() < blocks && fs.fitting_blocks(blocks) == blocks;
    Ok((here && fits && blocks <= fs.most_blocks()).then_some(blocks))
}

/// What fills a device of `total` bytes.
fn plan(volume: &Volume, total: u64) -> Result<Plan> {
    let header = &volume.view().header;
    let fs = marker::look(&*volume.storage()?.area_reader()?)?;
    let (before, most) = (fs.layout.block_count(), fs.most_blocks());
    let log = if header.external_log() { 0 } else { relocate::log_len(header)? };
    if log > 0 && !total.is_multiple_of(BLOCK_BYTES) {
        return Err(Error::Refused(format!(
            "{total} bytes are no whole number of blocks of {BLOCK_BYTES}: the log would not be found \
             at the device's end"
        )));
    }
    let blocks = fs.fitting_blocks(total.saturating_sub(log) / BLOCK_BYTES);
    if blocks > most {
        let (most, area) = (most * BLOCK_BYTES + log, most * BLOCK_BYTES);
        return Err(Error::Refused(format!(
            "it cannot become {total} bytes: the table of group descriptors that it was made with has \
             room for a file system of {area} bytes, which is a volume of {most} (--size {}M)",
            most >> 20
        )));
    }
    if blocks <= before {
        let least = header.header_offsets[1] + HEADER_LEN + log;
        return Err(Error::Refused(too_small(total, if log > 0 { Some(least) } else { None })));
    }
    let header = relocate::moved(header, blocks * BLOCK_BYTES, total)?;
    Ok(Plan { blocks, before, most, header })
}

/// Why a volume cannot be grown to `total` bytes; `least` is what its log needs to move.
fn too_small(total: u64, least: Option<u64>) -> String {
    match least {
        None => format!("a device of {total} bytes has no room for a larger file system"),
        Some(least) => format!(
            "{total} bytes are too few to grow it: its log moves to behind its old end, which takes at \
             least {least} bytes in all (--size {}K)",
            least.div_ceil(1024)
        ),
    }
}
