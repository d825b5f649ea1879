//! Making a volume on the members of a stripe.

use crate::options::{MkfsOptions, MkfsReport, Progress, Shortage};
use crate::storage::open_alone;
use crate::volume::files::{io, make_file, refuse_existing};
use crate::volume::layout::write_log;
use crate::volume::members::{about, members, open_at_target, refuse_doubled};
use crate::volume::mkfs::{copy_area, shortage, with_places};
use crate::volume::place::{new_log, require_apart};
use siftfs_base::{Error, Result};
use siftfs_device::{Device, FileOptions, open_exclusive, reserve_blocks};
use siftfs_device_stripe::{
    DATA_BEGIN, DEFAULT_UNIT, Geometry, Standing, StripePlace, StripedDevice, is_at_target,
    parts_of,
};
use siftfs_volume::Media;
use siftfs_wire::Access;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Makes a striped volume. Labels are written last: without them the members are no set.
///
/// # Errors
/// As [`crate::mkfs`]; refused without a place for the log.
pub(crate) fn mkfs(
    place: &StripePlace,
    opts: &MkfsOptions,
    progress: Progress<'_>,
) -> Result<MkfsReport> {
    refuse_doubled(place)?;
    let Some(log) = &opts.log else {
        let what =
            "the log of a striped volume lies on a file or device of its own: say where (--log)";
        return Err(Error::Refused(what.into()));
    };
    place.members().iter().try_for_each(|member| require_apart(member, log))?;
    let unit = opts.stripe_unit.unwrap_or(DEFAULT_UNIT);
    let each = member_len(place, unit, opts)?;
    // What cannot be is said before anything is made.
    let size = Geometry::new(place.members().len(), unit, each)?.size();
    with_places(&place.name(), opts, |opts, others| {
        let (log, layout) = new_log(log, size, opts)?;
        make_files(place, each, opts)?;
        let open = |path: &Path| open_alone(path);
        let (members, _) = members(place, &opts.members, Access::Alone, open)?;
        let striped = Arc::new(StripedDevice::make(members, unit, each)?);
        let area: Arc<dyn Device> = striped.clone();
        progress("making the ext4 area", 0, size);
        copy_area(&area, &layout, opts)?;
        for path in parts_of(&place.name()) {
            reserve(&path, opts)?;
        }
        let media = others.beside(Media::split(area, log));
        let report = write_log(&media, &layout, progress)?;
        media.flush()?;
        striped.seal(*uuid::Uuid::new_v4().as_bytes())?;
        Ok(MkfsReport { shortage: shortages(place)?, ..report })
    })
}

/// Bytes of data on each member: as asked for, else what the shortest has room for. None of them
/// holds data already.
fn member_len(place: &StripePlace, unit: u64, opts: &MkfsOptions) -> Result<u64> {
    let whole = |bytes: u64| bytes.checked_div(unit).unwrap_or(0) * unit;
    let wanted = opts.size.map(|size| whole(size / place.members().len() as u64));
    let mut least = u64::MAX;
    for path in place.members() {
        let data = match is_at_target(path) {
            true => room_at_target(path, wanted, opts)?,
            false => member_room(path, wanted, opts).map_err(|error| about(path, &error))?,
        };
        least = least.min(whole(data));
    }
    Ok(wanted.unwrap_or(least))
}

/// Bytes of data that this member has room for.
fn member_room(path: &Path, wanted: Option<u64>, opts: &MkfsOptions) -> Result<u64> {
    let meta = std::fs::metadata(path).ok();
    let file = meta.as_ref().is_none_or(std::fs::Metadata::is_file);
    let have = match &meta {
        Some(meta) if !file || meta.len() > 0 => {
            let device = open_exclusive(path, true, FileOptions::default())?;
            let free = Standing::of(&device).is_ok_and(|standing| standing == Some(Standing::Free));
            refuse_existing(&device, opts.force || free)?;
            device.size()
        }
        _ => 0,
    };
    if !file && opts.reserve {
        let what = "a block device has all of its blocks: --reserve is for files";
        return Err(Error::Refused(what.into()));
    }
    let data = have.saturating_sub(DATA_BEGIN);
    match wanted {
        // A file gets the size that is asked for.
        Some(wanted) if file => Ok(wanted),
        Some(wanted) if data < wanted => {
            Err(Error::Refused(format!("the device has {have} bytes, fewer than asked for")))
        }
        None if have == 0 => {
            Err(Error::Refused("say how large the volume shall be (--size)".into()))
        }
        _ => Ok(data),
    }
}

/// Bytes of data that a member at a target has room for, which is of no set yet. Of which set it
/// was is undone at its machine alone, whatever is asked here.
fn room_at_target(member: &Path, wanted: Option<u64>, opts: &MkfsOptions) -> Result<u64> {
    let refused = |what: &str| Err(about(member, &Error::Refused(what.into())));
    if opts.reserve {
        return refused("it is at a target: --reserve is for files of this machine");
    }
    let device = open_at_target(member, &opts.members, Access::ReadOnly)?.devices().area;
    match Standing::of(&*device)? {
        Some(Standing::Free) => {}
        Some(Standing::Of { .. }) => {
            return refused(
                "it is of a set already: `siftfs mkfs --member --force` at its machine takes it \
                 out of that, and with it all that it holds",
            );
        }
        None => return refused("the target serves a volume, and no member: siftfs mkfs --member"),
    }
    let data = device.size().saturating_sub(DATA_BEGIN);
    match wanted {
        Some(wanted) if data < wanted => {
            refused(&format!("it has room for {data} bytes of data, fewer than asked for"))
        }
        _ => Ok(data),
    }
}

/// Makes the files of the members that are to be files, or empties them. If one cannot be made,
/// none that is new stays.
fn make_files(place: &StripePlace, each: u64, opts: &MkfsOptions) -> Result<()> {
    let mut new = Vec::new();
    let make = |path: &PathBuf, new: &mut Vec<PathBuf>| {
        if is_at_target(path) {
            return Ok(());
        }
        let meta = std::fs::metadata(path).ok();
        if meta.as_ref().is_some_and(|meta| !meta.is_file()) {
            return Ok(());
        }
        let there = meta.as_ref().map_or(0, std::fs::Metadata::len);
        let size = if opts.size.is_some() { DATA_BEGIN + each } else { there };
        make_file(path, size)?;
        if meta.is_none() {
            new.push(path.clone());
        }
        reserve(path, opts)
    };
    place.members().iter().try_for_each(|path| make(path, &mut new)).inspect_err(|_| {
        new.iter().for_each(|path| drop(std::fs::remove_file(path)));
    })
}

/// Gives a member's file all of its blocks, where that is asked for.
fn reserve(path: &Path, opts: &MkfsOptions) -> Result<()> {
    if !opts.reserve {
        return Ok(());
    }
    let size = std::fs::metadata(path).map_err(|e| io("look at", path, &e))?.len();
    reserve_blocks(path, size)
}

/// What sparse members lack, the worst of them: each may lie on a file system of its own.
fn shortages(place: &StripePlace) -> Result<Option<Shortage>> {
    let mut worst: Option<Shortage> = None;
    for path in parts_of(&place.name()) {
        let lacks = |short: &Shortage| short.missing_bytes.saturating_sub(short.free_bytes);
        worst = worst.into_iter().chain(shortage(&path)?).max_by_key(lacks);
    }
    Ok(worst)
}
