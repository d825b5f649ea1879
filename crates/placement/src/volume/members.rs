//! The members of a striped volume, each by its way: a path of this machine, or a target.

use crate::options::{OpenOptions, Progress};
use crate::volume::files::{io, make_file, refuse_existing};
use crate::volume::place::same_storage;
use siftfs_base::{Error, Result};
use siftfs_device::{Device, FileOptions, open_exclusive};
use siftfs_device_stripe::{
    DATA_BEGIN, Member, StripePlace, StripedDevice, is_at_target, set_free,
};
use siftfs_device_target::{Opened, Target, TargetPlace, Waits};
use siftfs_transport::TransportOptions;
use siftfs_wire::Access;
use std::path::Path;
use std::sync::Arc;

/// The targets that have members of a volume, with the members' numbers.
#[derive(Clone, Default)]
pub struct Reached(Vec<(usize, Arc<Target>)>);

impl Reached {
    /// Ends the connections in order. Later calls learn that they are closed.
    pub(crate) fn close(&self) {
        self.0.iter().for_each(|(_, target)| target.close());
    }

    /// Has any member a target?
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// From now on what is written and not flushed is written again to a member that was lost and
    /// is reached again, if nobody else has had it meanwhile (rule R9). A lost one is waited for as
    /// long as `waits` says.
    fn keep(&self, striped: &StripedDevice, waits: &Waits) {
        for (at, target) in &self.0 {
            let Some(guard) = striped.guard(*at) else { continue };
            let keeper = move |opened: &Opened| guard.check(&*opened.area);
            target.keep_while(Box::new(keeper), waits.clone());
        }
    }
}

/// Opens the members of a set, in order, and puts them together: those that are paths with `open`.
/// With [`Access::Alone`] they are stamped for both roles.
///
/// # Errors
/// What `open` says, and each target; else as [`StripedDevice::open`].
pub(crate) fn open_members(
    place: &StripePlace,
    open: impl Fn(&Path) -> Result<Arc<dyn Device>>,
    opts: &OpenOptions,
    access: Access,
) -> Result<(StripedDevice, Reached)> {
    refuse_doubled(place)?;
    let (members, reached) = members(place, &opts.members, access, open)?;
    let striped = StripedDevice::open(members)?;
    if access == Access::Alone {
        striped.taken()?;
    }
    if access != Access::ReadOnly {
        reached.keep(&striped, &opts.waits);
    }
    Ok((striped, reached))
}

/// The members as they are opened, and the targets of those that have one.
pub(crate) fn members(
    place: &StripePlace,
    known: &[TargetPlace],
    access: Access,
    open: impl Fn(&Path) -> Result<Arc<dyn Device>>,
) -> Result<(Vec<Member>, Reached)> {
    let (mut members, mut reached) = (Vec::new(), Reached::default());
    for (at, path) in place.members().iter().enumerate() {
        let device: Arc<dyn Device> = match is_at_target(path) {
            false => open(path)?,
            true => {
                let target = open_at_target(path, known, access)?;
                reached.0.push((at, target.clone()));
                target.devices().area
            }
        };
        members.push(Member { name: path.display().to_string(), device });
    }
    Ok((members, reached))
}

/// Opens a member at its target.
///
/// # Errors
/// Refused if the name names no target, or the target serves something else than this member, or
/// does not admit this process; [`Error::Link`] if it is not there.
pub(crate) fn open_at_target(
    member: &Path,
    known: &[TargetPlace],
    access: Access,
) -> Result<Arc<Target>> {
    let parsed = member.to_str().and_then(TargetPlace::parse);
    let parsed = parsed.ok_or_else(|| about(member, &Error::Refused("it is no name".into())))?;
    let (address, volume) = parsed.map_err(Error::Refused)?;
    let usual =
        TargetPlace { address, volume, options: TransportOptions::default(), secured: None };
    let place = known.iter().find(|place| **place == usual).cloned().unwrap_or(usual);
    let target = Target::open_for(place, access).map_err(|error| match error {
        Error::Refused(_) => about(member, &error),
        other => other,
    })?;
    let opened = target.devices();
    if opened.log.is_some() || opened.record_area.is_some() {
        let what = "a whole volume with its log is there, and no member";
        return Err(about(member, &Error::Refused(what.into())));
    }
    Ok(target)
}

/// Refuses members that are one file or device under two names.
pub(crate) fn refuse_doubled(place: &StripePlace) -> Result<()> {
    let paths: Vec<_> = place.members().iter().filter(|member| !is_at_target(member)).collect();
    for (at, path) in (1..).zip(&paths) {
        if let Some(other) = paths.iter().skip(at).find(|other| same_storage(path, other)) {
            let (path, other) = (path.display(), other.display());
            let what = format!("the members {path} and {other} are the same file or device");
            return Err(Error::Refused(what));
        }
    }
    Ok(())
}

/// An error about one member of a set.
pub(crate) fn about(member: &Path, error: &Error) -> Error {
    Error::Refused(format!("member {}: {error}", member.display()))
}

/// Makes a file (created or resized) or block device a member of a striped volume that is of no set
/// yet, for a target to serve; durable when it returns. `size` is how much data a file shall hold.
/// Returns how much data it has room for, in bytes.
///
/// # Errors
/// `Refused` when it exists and is not empty (unless `force`), is in use, or its size is unfit.
pub fn mkfs_member(
    path: &Path,
    size: Option<u64>,
    force: bool,
    progress: Progress<'_>,
) -> Result<u64> {
    let meta = std::fs::metadata(path).ok();
    let file = meta.as_ref().is_none_or(std::fs::Metadata::is_file);
    let there = meta.as_ref().map_or(0, std::fs::Metadata::len);
    if meta.is_some() && (!file || there > 0) {
        let device = open_exclusive(path, true, FileOptions::default())?;
        refuse_existing(&device, force)?;
    }
    match (file, size) {
        (false, Some(_)) => {
            let what = "a block device is used as a whole: --size is for files";
            return Err(Error::Refused(what.into()));
        }
        (true, None) if there == 0 => {
            return Err(Error::Refused("say how much data it shall hold (--size)".into()));
        }
        (true, _) => {
            let whole = size.map_or(Some(there), |size| size.checked_add(DATA_BEGIN));
            let whole = whole.ok_or_else(|| Error::Refused("the size is too large".into()))?;
            make_file(path, whole)?;
            let file = std::fs::File::open(path).and_then(|file| file.sync_all());
            file.map_err(|e| io("make", path, &e))?;
        }
        (false, None) => {}
    }
    progress("making the member", 0, 1);
    let device = open_exclusive(path, true, FileOptions::default())?;
    set_free(&device)?;
    progress("making the member", 1, 1);
    Ok(device.size().saturating_sub(DATA_BEGIN))
}
