//! Opening one device, whatever names it: a file or a block device of this machine, or an image of
//! a cluster (`rbd:POOL/IMAGE`).

pub(crate) mod spare;
pub(crate) mod standby;

use crate::options;
use crate::volume::files::io;
use siftfs_base::{Error, Result};
use siftfs_device::{Device, FileOptions, open_exclusive, open_for_service};
use siftfs_device_rbd::{Access as RbdAccess, RbdDevice, RbdPlace, Whom, is_rbd};
use siftfs_wire::Access;
use std::fs::OpenOptions;
use std::path::Path;
use std::sync::Arc;

/// How one device is opened.
#[derive(Clone)]
pub(crate) struct How {
    /// Of a file or a block device.
    pub options: FileOptions,
    /// What for.
    pub access: Access,
    /// With [`Access::Alone`], this owner of an image is fenced even if it lives.
    pub take_over: Option<Whom>,
}

impl How {
    /// As `opts` say.
    pub fn of(opts: &options::OpenOptions, access: Access) -> Self {
        let options =
            FileOptions { direct: opts.direct, uring: opts.uring, ..FileOptions::default() };
        Self { options, access, take_over: opts.take_over.clone() }
    }

    /// With the usual options.
    pub fn usual(access: Access) -> Self {
        Self { options: FileOptions::default(), access, take_over: None }
    }
}

/// Opens the device `path`, which is not a set of several and not at a target.
///
/// # Errors
/// Refused, saying why: it is not there, in use, or a cluster does not let this process in.
pub(crate) fn open(path: &Path, how: How) -> Result<Arc<dyn Device>> {
    if let Some(place) = RbdPlace::parse(path) {
        return open_image(&place?, how);
    }
    let options = how.options;
    Ok(match how.access {
        Access::Alone => Arc::new(open_exclusive(path, true, options)?),
        Access::ReadOnly => Arc::new(open_exclusive(path, false, options)?),
        Access::Shared => Arc::new(open_for_service(path, options)?),
    })
}

/// Opens the device `path` for this process alone, with the usual options.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_alone(path: &Path) -> Result<Arc<dyn Device>> {
    open(path, How::usual(Access::Alone))
}

fn open_image(place: &RbdPlace, how: How) -> Result<Arc<dyn Device>> {
    let access = match how.access {
        Access::Alone => how.take_over.map_or(RbdAccess::Alone, RbdAccess::TakeOver),
        Access::ReadOnly => RbdAccess::ReadOnly,
        Access::Shared => {
            let what = "the lock of an image is one process's: a host reaches it by its target \
                        (target:ADDRESS/VOLUME), and not beside it";
            return Err(Error::Refused(format!("{place}: {what}")));
        }
    };
    Ok(Arc::new(RbdDevice::open(place, access)?))
}

/// Does [`lengthen`] make this longer? It does so with a file and with an image, and not with a
/// block device.
///
/// # Errors
/// Refused if a file or a device is not there.
pub(crate) fn can_become_longer(path: &Path) -> Result<bool> {
    if is_rbd(path) {
        return Ok(true);
    }
    std::fs::metadata(path).map(|meta| meta.is_file()).map_err(|e| io("look at", path, &e))
}

/// Makes a file or an image longer, to `size` bytes, durably. An image's owner alone does so: this
/// process is that for as long as it takes.
///
/// # Errors
/// Refused, saying why: an image is in use, or there is no room. Its length is the old or the new
/// one then.
pub(crate) fn lengthen(path: &Path, size: u64) -> Result<()> {
    if let Some(place) = RbdPlace::parse(path) {
        return RbdDevice::open(&place?, RbdAccess::Alone)?.lengthen(size).map(drop);
    }
    let file = OpenOptions::new().write(true).open(path);
    let longer = file.and_then(|file| file.set_len(size).and_then(|()| file.sync_all()));
    longer.map_err(|e| io("lengthen", path, &e))
}

/// Refuses what would be lost with this machine for a volume that outlives it.
///
/// # Errors
/// `volume` lies on a cluster, and `part`, which holds fsyncs that were answered, does not.
pub(crate) fn refuse_what_dies(
    volume: &Path,
    what: &str,
    part: &Path,
    may_die: bool,
) -> Result<()> {
    if may_die || !is_rbd(volume) || is_rbd(part) {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "{what} {} dies with this machine, and the newest fsyncs with it, while the volume lives on \
         the cluster: put it on an image of fast devices (rbd:POOL/IMAGE), or say --log-may-die",
        part.display()
    )))
}

/// Do both name one image?
pub(crate) fn is_same_image(a: &Path, b: &Path) -> bool {
    match (RbdPlace::parse(a), RbdPlace::parse(b)) {
        (Some(Ok(a)), Some(Ok(b))) => a.is_same_image(&b),
        _ => false,
    }
}

#[cfg(test)]
#[path = "storage_tests.rs"]
mod tests;
