//! The file or device that a new log goes to.

use crate::options::MkfsOptions;
use crate::storage::{is_same_image, open_alone};
use crate::volume::files::{io, make_file, refuse_existing};
use crate::volume::layout::Layout;
use siftfs_base::{Error, Result};
use siftfs_device::{Device, preallocate};
use siftfs_device_rbd::is_rbd;
use siftfs_device_stripe::{StripePlace, is_at_target, parts_of};
use siftfs_log::show_uuid;
use siftfs_volume::read_log_header;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

/// Are both the same file or the same block device, whatever they are called?
pub(crate) fn same_storage(a: &Path, b: &Path) -> bool {
    if is_rbd(a) && is_rbd(b) {
        return is_same_image(a, b);
    }
    let (Ok(x), Ok(y)) = (std::fs::metadata(a), std::fs::metadata(b)) else {
        // One of them is still to be made: two names may lead to the same new file.
        return std::path::absolute(a).ok() == std::path::absolute(b).ok();
    };
    let devices = x.file_type().is_block_device() && y.file_type().is_block_device();
    (devices && x.rdev() == y.rdev()) || (x.dev(), x.ino()) == (y.dev(), y.ino())
}

/// Refuses a log that is the volume itself, or one of several devices.
pub(crate) fn require_apart(volume: &Path, log: &Path) -> Result<()> {
    refuse_log(log)?;
    if parts_of(volume).iter().any(|part| same_storage(part, log)) {
        return Err(Error::Refused(
            "the log must be on another file or device than the volume".into(),
        ));
    }
    Ok(())
}

/// Refuses a log over several devices, and one at a target.
pub(crate) fn refuse_log(log: &Path) -> Result<()> {
    if StripePlace::parse(log).is_some() {
        return Err(Error::Refused("a log lies on one file or device, not on stripes".into()));
    }
    if is_at_target(log) {
        let what = "a log lies on a file or device of this machine, and not at a target: the one \
                    process that holds it is the volume's one writer";
        return Err(Error::Refused(what.into()));
    }
    Ok(())
}

/// A problem with the log's file or device, which is not the one that the command is about.
fn about(log: &Path, e: &Error) -> Error {
    Error::Refused(format!("log {}: {e}", log.display()))
}

/// Opens the file (made if missing), block device or image for a new log, exclusively, and lays the
/// log of a file system of `area` bytes out on it. A size that does not fit is refused before
/// anything is made.
pub(crate) fn new_log(
    log: &Path,
    area: u64,
    opts: &MkfsOptions,
) -> Result<(Arc<dyn Device>, Layout)> {
    let meta = std::fs::metadata(log).ok();
    let whole = is_rbd(log) || meta.as_ref().is_some_and(|m| !m.is_file());
    if whole || meta.as_ref().is_some_and(|m| m.len() > 0) {
        let dev = open_alone(log)?;
        refuse_used(&*dev, opts.force).map_err(|e| about(log, &e))?;
        if whole {
            let have = dev.size();
            let size = opts.log_size.unwrap_or(have);
            if size > have {
                let what = format!("the device has {have} bytes, fewer than asked for");
                return Err(about(log, &Error::Refused(what)));
            }
            let layout = Layout::apart(area, size, opts)?;
            return Ok((dev, layout));
        }
        let layout = Layout::apart(area, opts.log_size.unwrap_or(dev.size()), opts)?;
        drop(dev);
        return Ok((make_log_file(log, layout.total)?, layout));
    }
    let Some(size) = opts.log_size else {
        return Err(Error::Refused("say how large the log shall be (--log-size)".into()));
    };
    let layout = Layout::apart(area, size, opts)?;
    Ok((make_log_file(log, layout.total)?, layout))
}

fn make_log_file(log: &Path, size: u64) -> Result<Arc<dyn Device>> {
    make_file(log, 0)?;
    let made = preallocate(log, size).and_then(|()| {
        std::fs::File::open(log).and_then(|f| f.sync_all()).map_err(|e| io("make", log, &e))?;
        open_alone(log)
    });
    made.inspect_err(|_| {
        // Nothing of it is a log yet, and an unfinished one would stand in the next try's way.
        let _ = std::fs::remove_file(log);
    })
}

/// Refuses a device that holds something, and says if that is another volume's log.
fn refuse_used(dev: &dyn Device, force: bool) -> Result<()> {
    if force {
        return Ok(());
    }
    let found = read_log_header(dev);
    if let Err(error @ Error::Incompatible(_)) = &found {
        return Err(Error::Refused(format!(
            "it is the log of a volume already, made by a newer SiftFS ({error}); --force overwrites it"
        )));
    }
    if let Ok(header) = found {
        return Err(Error::Refused(format!(
            "it is the log {} of a volume already: siftfs release that volume, or use --force to \
             overwrite the log, which makes that volume lose it",
            show_uuid(&header.volume)
        )));
    }
    refuse_existing(dev, false)
}
