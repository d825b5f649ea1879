//! Taking an existing ext4 volume as it is, with a log elsewhere, and giving a volume back.

use crate::mount::open::Volume;
use crate::options::{MkfsOptions, MkfsReport, OpenOptions, Progress};
use crate::storage::open_alone;
use crate::volume::find;
use crate::volume::layout::write_log;
use crate::volume::marker;
use crate::volume::media::open_media;
use crate::volume::mkfs::{refuse_what_would_die, with_places};
use crate::volume::place::{new_log, require_apart};
use siftfs_base::{BLOCK_BYTES, Clock, Error, Result, SystemClock};
use siftfs_device::{Device, RegionDesc, RegionKind, Storage};
use siftfs_device_stripe::StripePlace;
use siftfs_ext4::{Fs, set_own_bytes};
use siftfs_log::{LINK_LEN, show_uuid};
use siftfs_volume::{
    AreaSuper, Media, erase_headers, erase_record_area, erase_spare, read_headers,
};
use std::path::Path;
use std::sync::Arc;

/// What was given back.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ReleaseReport {
    /// UUID of the log that is one no more.
    pub uuid: String,
    /// Was something in the log, and brought into the file system first?
    pub recovered: bool,
    /// Did the log lie on a file or device of its own?
    pub external_log: bool,
    /// Was there a record area? Its header is no more.
    pub record_area: bool,
}

/// Makes a log on the file or device `log` for the clean ext4 file system on `path`, which becomes
/// a SiftFS volume. Nothing of the file system changes but the superblock, which names the log.
/// `opts.log_size` is how much the log takes, `opts.record_area_at` where a record area goes;
/// `size`, `label` and `log` mean nothing here.
///
/// # Errors
/// `Incompatible` for what the ext4 profile does not take, `Corrupt` for a damaged file system,
/// `Refused` if it is not clean, in use, or a SiftFS volume already, or the log's place is unfit.
/// Nothing has changed then.
pub fn adopt(
    path: &Path,
    log: &Path,
    opts: &MkfsOptions,
    progress: Progress<'_>,
) -> Result<MkfsReport> {
    if StripePlace::parse(path).is_some() {
        let what = "a file system on one device is not turned into stripes: siftfs mkfs makes a striped \
                    volume";
        return Err(Error::Refused(what.into()));
    }
    require_apart(path, log)?;
    refuse_what_would_die(path, &MkfsOptions { log: Some(log.to_owned()), ..opts.clone() })?;
    let area = open_alone(path)?;
    let len = adoptable(&area)?;
    let opts = MkfsOptions { log: Some(log.to_path_buf()), ..opts.clone() };
    with_places(path, &opts, |opts, others| {
        let (log, layout) = new_log(log, len, opts)?;
        write_log(&others.beside(Media::split(area, log)), &layout, progress)
    })
}

/// As [`adopt`], on any devices.
pub fn adopt_on(
    area: &Arc<dyn Device>,
    log: &Arc<dyn Device>,
    opts: &MkfsOptions,
) -> Result<MkfsReport> {
    let len = adoptable(area)?;
    let size = opts.log_size.unwrap_or(log.size()).min(log.size());
    let layout = crate::volume::layout::Layout::apart(len, size, opts)?;
    write_log(&Media::split(area.clone(), log.clone()), &layout, &mut |_, _, _| {})
}

/// The length of the file system, if it can be taken.
fn adoptable(area: &Arc<dyn Device>) -> Result<u64> {
    let mut bytes = [0; 1024];
    if area.size() >= 2048 {
        area.read(1024, &mut bytes)?;
    }
    let Some(found) = AreaSuper::parse(&bytes) else {
        return Err(Error::Refused(
            "no ext4 file system is here: siftfs mkfs --log makes a volume with a log elsewhere"
                .into(),
        ));
    };
    if let Some(link) = found.link {
        return Err(Error::Refused(format!(
            "it is a SiftFS volume already, with the log {}: siftfs release gives it back; if that \
             log is lost, siftfs recover --discard-log",
            show_uuid(&link.volume)
        )));
    }
    if found.marker || matches!(read_headers(&**area), Ok(_) | Err(Error::Incompatible(_))) {
        return Err(Error::Refused(
            "it is a SiftFS volume already, with its own log: siftfs release gives it back".into(),
        ));
    }
    if found.len > area.size() {
        let (len, have) = (found.len, area.size());
        return Err(siftfs_base::corrupt(
            "volume",
            format!("truncated: its file system has {len} bytes, the device {have}"),
        ));
    }
    let len = area.size() / BLOCK_BYTES * BLOCK_BYTES;
    let desc = RegionDesc { kind: RegionKind::Area, index: 0, offset: 0, len };
    let storage = Storage::new(area.clone(), &[desc])?;
    let reader = storage.area_reader()?;
    let fs = marker::look(&reader)?;
    refuse_unclean(&fs)?;
    if fs.superblock.own_bytes() != [0; LINK_LEN] {
        return Err(Error::Incompatible(
            "bytes 0x3d0 to 0x3fb of the superblock, where a log is named, are in use by something \
             else"
                .into(),
        ));
    }
    Ok(found.len)
}

fn refuse_unclean(fs: &Fs) -> Result<()> {
    match fs.superblock.unclean() {
        None => Ok(()),
        Some(why) => Err(Error::Refused(format!("the file system {why}"))),
    }
}

/// Gives a volume back: everything in the log is brought into the file system, the superblock
/// forgets SiftFS, and the log is made invalid, in this order.
///
/// # Errors
/// As [`crate::recover`]. A volume whose log is lost cannot be released: see
/// [`crate::discard_log`].
pub fn release(path: &Path, opts: &OpenOptions, progress: Progress<'_>) -> Result<ReleaseReport> {
    let report = release_on(open_media(path, opts)?.media, opts, progress)?;
    find::forget(&report.uuid);
    Ok(report)
}

/// As [`release`], on any devices.
pub fn release_on(
    media: impl Into<Media>,
    opts: &OpenOptions,
    progress: Progress<'_>,
) -> Result<ReleaseReport> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let media = media.into();
    let mut volume = Volume::read(media.clone(), true)?;
    let recovered = !volume.recover(&clock, opts, progress)?.clean;
    let header = volume.view().header.clone();
    let area = volume.storage()?.take_superblocks()?;
    // Nothing else of it changes: then it cannot be torn, for the link and the checksum share a
    // sector.
    let mut plain = marker::read_primary(&area)?;
    set_own_bytes(&mut plain, &marker::link_bytes(None));
    marker::clear(&area, &plain)?;
    erase_headers(media.log_device(), &header)?;
    if let Some(bytes) = &media.bytes {
        erase_record_area(&**bytes)?;
    }
    if let Some(spare) = &media.spare {
        erase_spare(&**spare)?;
    }
    Ok(ReleaseReport {
        uuid: show_uuid(&header.volume),
        recovered,
        external_log: header.external_log(),
        record_area: header.record_area().is_some(),
    })
}
