//! Making a volume: mke2fs makes the area with our own configuration, then header, journal and
//! lanes are laid out behind it, or on a device of their own, and written once.

use crate::options::{MkfsOptions, MkfsReport, Progress, Shortage};
use crate::storage::spare::NewSpare;
use crate::storage::{open_alone, refuse_what_dies};
use crate::volume::child::{Child, sensible_work};
use crate::volume::files::{io, make_file, refuse_existing};
use crate::volume::layout::{Layout, write_log};
use crate::volume::media::Places;
use crate::volume::place::{new_log, require_apart};
use crate::volume::record_area::NewArea;
use crate::volume::stripes;
use rustix::process::Signal;
use siftfs_base::{BLOCK_BYTES, Error, Result};
use siftfs_device::{Device, FileOptions, open_exclusive, reserve_blocks};
use siftfs_device_rbd::is_rbd;
use siftfs_device_stripe::StripePlace;
use siftfs_ext4::{MKE2FS_ARGS, MKE2FS_CONF};
use siftfs_volume::Media;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Runs mke2fs on the first `bytes` of `path`.
fn mke2fs(path: &Path, bytes: u64, label: Option<&str>) -> Result<()> {
    let mut conf = tempfile::NamedTempFile::new()
        .map_err(|e| io("write a configuration for mke2fs in", &std::env::temp_dir(), &e))?;
    conf.write_all(MKE2FS_CONF.as_bytes()).map_err(|e| io("write", conf.path(), &e))?;
    let mut command = Command::new("mke2fs");
    let path_var = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path_var}:/usr/sbin:/sbin"));
    command.env("MKE2FS_CONFIG", conf.path()).args(MKE2FS_ARGS).args(["-F", "-q"]);
    if let Some(label) = label {
        command.args(["-L", label]);
    }
    command.arg(path).arg((bytes / BLOCK_BYTES).to_string());
    let started = Child::start(&mut command, Signal::KILL);
    let ended = started.and_then(|c| c.wait(Some(sensible_work(bytes)), &AtomicU64::new(0)));
    let out = ended.map_err(|e| {
        Error::Refused(format!("cannot run mke2fs ({e}); is the package e2fsprogs installed?"))
    })?;
    if let Some(work) = out.given_up {
        let seconds = work.as_secs();
        return Err(Error::Refused(format!(
            "mke2fs did not end after {seconds} s of processor time and was killed; try it by hand"
        )));
    }
    if !out.status.success() {
        let text = String::from_utf8_lossy(&out.stderr);
        return Err(Error::Refused(format!("mke2fs failed: {}", text.trim())));
    }
    Ok(())
}

/// Makes a volume on a file (created or resized) or block device, its log with it, or, where
/// `opts.log` names one, on a file or block device of its own; `opts.log_size` is then how much of
/// that it takes, header included. So with a record area at `opts.record_area_at`.
///
/// # Errors
/// `Refused` when one of them exists and is not empty (unless `force`), is in use, a size is unfit,
/// two are the same, or the record area's place does not keep what it is given.
pub fn mkfs(path: &Path, opts: &MkfsOptions, progress: Progress<'_>) -> Result<MkfsReport> {
    if let Some(place) = StripePlace::parse(path) {
        return stripes::mkfs(&place?, opts, progress);
    }
    if opts.stripe_unit.is_some() {
        let what = "--stripe-unit is for a striped volume: name it stripe:MEMBER,MEMBER,...";
        return Err(Error::Refused(what.into()));
    }
    if let Some(log) = &opts.log {
        require_apart(path, log)?;
    }
    refuse_what_would_die(path, opts)?;
    if is_rbd(path) {
        return mkfs_image(path, opts, progress);
    }
    let size = volume_size(path, opts)?;
    with_places(path, opts, |opts, others| {
        let (log, layout) = match &opts.log {
            None => (None, Layout::together(size, opts)?),
            Some(log) => new_log(log, size, opts).map(|(log, layout)| (Some(log), layout))?,
        };
        let length = if log.is_some() { layout.area } else { layout.total };
        make_area(path, &layout, length, opts, progress)?;
        let area: Arc<dyn Device> = Arc::new(open_exclusive(path, true, FileOptions::default())?);
        let media = match log {
            None => Media::from(area),
            Some(log) => Media::split(area, log),
        };
        let report = write_log(&others.beside(media), &layout, progress)?;
        Ok(MkfsReport { shortage: shortage(path)?, ..report })
    })
}

/// As [`mkfs`], on an image, which is there. All of its area is written by this process.
fn mkfs_image(path: &Path, opts: &MkfsOptions, progress: Progress<'_>) -> Result<MkfsReport> {
    if opts.reserve {
        let what = "--reserve is for files: rbd create --thick-provision does it for an image";
        return Err(Error::Refused(what.into()));
    }
    let area = open_alone(path)?;
    let have = area.size();
    let size = opts.size.unwrap_or(have);
    if size > have {
        return Err(Error::Refused(format!("the image has {have} bytes, fewer than asked for")));
    }
    refuse_existing(&*area, opts.force)?;
    with_places(path, opts, |opts, others| {
        let (media, layout) = match &opts.log {
            None => (Media::from(area.clone()), Layout::together(size, opts)?),
            Some(log) => {
                let (log, layout) = new_log(log, size, opts)?;
                (Media::split(area.clone(), log), layout)
            }
        };
        progress("making the ext4 area", 0, size);
        copy_area(&area, &layout, opts)?;
        write_log(&others.beside(media), &layout, progress)
    })
}

/// Refuses a log or a record area of this machine for a volume that outlives the machine.
pub(crate) fn refuse_what_would_die(path: &Path, opts: &MkfsOptions) -> Result<()> {
    if let Some(log) = &opts.log {
        refuse_what_dies(path, "the log", log, opts.log_may_die)?;
    }
    if let Some(spare) = &opts.log_spare {
        refuse_what_dies(path, "the spare log", spare, opts.log_may_die)?;
    }
    if let Some(area) = &opts.record_area_at {
        let area = area.to_string();
        refuse_what_dies(path, "the record area", Path::new(&area), opts.log_may_die)?;
    }
    Ok(())
}

/// What a sparse file may come to need, and what there is less of.
pub(crate) fn shortage(path: &Path) -> Result<Option<Shortage>> {
    if is_rbd(path) {
        return Ok(None);
    }
    let meta = std::fs::metadata(path).map_err(|e| io("look at", path, &e))?;
    if !meta.is_file() {
        return Ok(None);
    }
    let below = rustix::fs::statvfs(path).map_err(|e| io("look at", path, &e.into()))?;
    let missing_bytes = meta.len().saturating_sub(meta.blocks().saturating_mul(512));
    let free_bytes = below.f_bavail.saturating_mul(below.f_frsize);
    let short = missing_bytes > free_bytes;
    Ok(short.then_some(Shortage { missing_bytes, free_bytes }))
}

/// The devices of a new volume beside those of area and log.
#[derive(Default)]
pub(crate) struct Others {
    bytes: Option<Arc<dyn Device>>,
    spare: Option<Arc<dyn Device>>,
}

impl Others {
    /// All devices of the volume.
    pub fn beside(self, media: Media) -> Media {
        media.with_bytes(self.bytes).with_spare(self.spare)
    }
}

/// Makes record area and spare log, where they are asked for, and then the rest of the volume at
/// `path` with `make`. Places are remembered once the volume stands, and without a volume no new
/// file of these two stays.
pub(crate) fn with_places(
    path: &Path,
    opts: &MkfsOptions,
    make: impl FnOnce(&MkfsOptions, Others) -> Result<MkfsReport>,
) -> Result<MkfsReport> {
    let area = NewArea::make(path, opts)?;
    let spare = NewSpare::make(path, opts).inspect_err(|_| {
        area.as_ref().inspect(|area| area.undo());
    })?;
    let bytes = area.as_ref().map(NewArea::device);
    let options = with_record_area(opts, bytes.as_deref());
    let others = Others { bytes, spare: spare.as_ref().map(NewSpare::device) };
    let report = match make(&options, others) {
        Ok(report) => report,
        Err(error) => {
            area.iter().for_each(NewArea::undo);
            spare.into_iter().for_each(NewSpare::undo);
            return Err(error);
        }
    };
    let places = Places {
        log: opts.log.clone(),
        spare: opts.log_spare.clone(),
        record_area: opts.record_area_at.clone(),
    };
    places.remember(&report.uuid);
    Ok(report)
}

/// How large the volume shall be: as asked for, else as large as what is there, which must not hold
/// data already.
fn volume_size(path: &Path, opts: &MkfsOptions) -> Result<u64> {
    let meta = std::fs::metadata(path).ok();
    if meta.as_ref().is_some_and(|m| !m.is_file()) {
        if opts.reserve {
            let what = "a block device has all of its blocks: --reserve is for files";
            return Err(Error::Refused(what.into()));
        }
        let dev = open_exclusive(path, true, FileOptions::default())?;
        let have = dev.size();
        if opts.size.is_some_and(|s| s > have) {
            return Err(Error::Refused(format!(
                "the device has {have} bytes, fewer than asked for"
            )));
        }
        refuse_existing(&dev, opts.force)?;
        return Ok(opts.size.unwrap_or(have));
    }
    let there = meta.map_or(0, |m| m.len());
    if there > 0 {
        let dev = open_exclusive(path, true, FileOptions::default())?;
        refuse_existing(&dev, opts.force)?;
    }
    match opts.size.unwrap_or(there) {
        0 => Err(Error::Refused("say how large the volume shall be (--size)".into())),
        size => Ok(size),
    }
}

/// Makes the file, if it is to be one, and the file system in it.
fn make_area(
    path: &Path,
    layout: &Layout,
    size: u64,
    opts: &MkfsOptions,
    progress: Progress<'_>,
) -> Result<()> {
    let file = !std::fs::metadata(path).is_ok_and(|m| !m.is_file());
    if file {
        let new = !path.exists();
        make_file(path, size)?;
        reserve(path, size, opts).inspect_err(|_| {
            if new {
                let _ = std::fs::remove_file(path);
            }
        })?;
    }
    progress("making the ext4 area", 0, size);
    mke2fs(path, layout.area, opts.label.as_deref())?;
    // It gives what it does not write back to the file system below.
    if file { reserve(path, size, opts) } else { Ok(()) }
}

fn reserve(path: &Path, size: u64, opts: &MkfsOptions) -> Result<()> {
    if opts.reserve { reserve_blocks(path, size) } else { Ok(()) }
}

/// Makes a volume on any devices: the area is made in a temporary file and copied. The log, where
/// it has a device of its own, takes that as a whole unless `opts.log_size` says how much, and so
/// does the record area.
pub fn mkfs_on(media: impl Into<Media>, opts: &MkfsOptions) -> Result<MkfsReport> {
    let media = media.into();
    let opts = with_record_area(opts, media.bytes.as_deref());
    let size = opts.size.unwrap_or(media.area.size()).min(media.area.size());
    let layout = match &media.log {
        None => Layout::together(size, &opts)?,
        Some(log) => Layout::apart(size, opts.log_size.unwrap_or(log.size()), &opts)?,
    };
    copy_area(&media.area, &layout, &opts)?;
    write_log(&media, &layout, &mut |_, _, _| {})
}

/// The options with the size of the record area that `bytes` has room for; `None` without it.
pub(crate) fn with_record_area(opts: &MkfsOptions, bytes: Option<&dyn Device>) -> MkfsOptions {
    let there = bytes.map(Device::size);
    let record_area = there.map(|there| opts.record_area.unwrap_or(there).min(there));
    MkfsOptions { record_area, ..opts.clone() }
}

/// Makes the ext4 area in a temporary file, and copies what differs; durable when it returns.
pub(crate) fn copy_area(dev: &Arc<dyn Device>, layout: &Layout, opts: &MkfsOptions) -> Result<()> {
    let file = tempfile::NamedTempFile::new()
        .map_err(|e| io("create a file in", &std::env::temp_dir(), &e))?;
    make_file(file.path(), layout.area)?;
    mke2fs(file.path(), layout.area, opts.label.as_deref())?;
    let source = open_exclusive(file.path(), false, FileOptions::default())?;
    let mut piece = vec![0u8; 1 << 20];
    let mut there = vec![0u8; 1 << 20];
    let mut at = 0;
    while at < layout.area {
        let len = usize::try_from(layout.area - at).unwrap_or(piece.len()).min(piece.len());
        source.read(at, &mut piece[..len])?;
        dev.read(at, &mut there[..len])?;
        if piece[..len] != there[..len] {
            dev.write(at, &piece[..len], false)?;
        }
        at += len as u64;
    }
    dev.flush()
}
