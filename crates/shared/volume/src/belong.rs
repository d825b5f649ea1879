//! Do this log and this area belong together (rule R16)?

use crate::header::{HeaderView, super_at};
use crate::superblock::AreaSuper;
use siftfs_base::{BLOCK_BYTES, Epoch, Error, Result, corrupt};
use siftfs_device::Device;
use siftfs_log::{AreaLink, HostState, StaticHeader, show_uuid};

/// The error when the caller did not say where the log is, and it was not found.
pub(crate) fn without_log(link: &AreaLink, marked: bool) -> Error {
    let log = show_uuid(&link.volume);
    if marked {
        return corrupt(
            "volume",
            format!(
                "its log {log} lies elsewhere, was not found, and may hold changes that are not in \
                 the file system: connect the log's device, or say where it is with --log. Only if \
                 it is lost for good: siftfs recover --discard-log gives these changes up"
            ),
        );
    }
    Error::Refused(format!(
        "its log {log} lies elsewhere and was not found: connect the log's device, or say where it \
         is with --log. If it is lost: nothing is missing in the file system, and siftfs recover \
         --discard-log makes it forget the log"
    ))
}

/// The area in front of its log is the one that the header speaks of, and is all there.
pub(crate) fn check_area(header: &StaticHeader, area: Option<&AreaSuper>) -> Result<()> {
    match area.filter(|a| a.checksum_ok) {
        Some(a) if a.len > header.area_len => Err(corrupt(
            "volume",
            format!(
                "its ext4 file system has {} bytes and was grown over header and log, which begin \
                 at byte {}; shrink it again with resize2fs",
                a.len, header.area_len
            ),
        )),
        Some(a) if a.uuid != header.area_uuid => Err(corrupt(
            "volume",
            "its ext4 file system is not the one that the log belongs to (UUIDs differ)",
        )),
        _ => Ok(()),
    }
}

/// The same for a log elsewhere, and both are of the same time.
///
/// A torn superblock is believed about the volume it belongs to: each of its sectors is an old or a
/// new one, and both say the same of that. One that rotted is not; then a backup says it.
pub(crate) fn check_linked(view: &HeaderView, device: &dyn Device) -> Result<()> {
    let header = &view.header;
    let primary = match &view.area {
        Some(area) => check_identity(header, area),
        None => Err(Error::Refused(
            "no ext4 superblock is here, so nothing says that the log belongs to this volume"
                .into(),
        )),
    };
    if let Err(e) = primary {
        let whole = view.area.is_some_and(|a| a.checksum_ok);
        match first_backup(view, device)? {
            Some(backup) if !whole => check_identity(header, &backup).map_err(|_| e)?,
            _ => return Err(e),
        }
    }
    let Some(area) = view.area.filter(|a| a.checksum_ok) else {
        return match first_backup(view, device)? {
            Some(backup) => check_backup_times(view, &backup),
            None => Ok(()),
        };
    };
    if area.len > device.size() {
        let (len, have) = (area.len, device.size());
        return Err(corrupt(
            "volume",
            format!("truncated: its file system has {len} bytes, the device {have}"),
        ));
    }
    check_times(view, &area)
}

/// The first backup superblock, if it is whole, where the header's copy of the primary says that it
/// is.
pub fn first_backup(view: &HeaderView, device: &dyn Device) -> Result<Option<AreaSuper>> {
    const BLOCKS_PER_GROUP: std::ops::Range<usize> = 32..36;
    let bytes = view.host.superblock.get(BLOCKS_PER_GROUP).and_then(|b| b.try_into().ok());
    let at = u64::from(bytes.map_or(0, u32::from_le_bytes)) * BLOCK_BYTES;
    if at == 0 {
        return Ok(None);
    }
    Ok(super_at(device, at)?.filter(|s| s.checksum_ok))
}

/// Do log and superblock name each other?
fn check_identity(header: &StaticHeader, area: &AreaSuper) -> Result<()> {
    let log = show_uuid(&header.volume);
    match area.link {
        Some(link) if link.volume != header.volume => {
            return Err(Error::Refused(format!(
                "the log given is {log}, and belongs to another volume: this one's is {}",
                show_uuid(&link.volume)
            )));
        }
        _ if area.uuid == header.area_uuid => {}
        Some(_) => {
            return Err(corrupt(
                "volume",
                format!(
                    "its log {log} knows the file system by the UUID {}: give it that one again \
                     (tune2fs -U)",
                    show_uuid(&header.area_uuid)
                ),
            ));
        }
        None => {
            return Err(Error::Refused(format!(
                "the log given is {log}, and belongs to another volume: its file system has the \
                 UUID {}, this one {}",
                show_uuid(&header.area_uuid),
                show_uuid(&area.uuid)
            )));
        }
    }
    Ok(())
}

/// The same by a backup, where the primary superblock is damaged. A mount marks the backups last
/// and an unmount clears them first: they may be older than the log, and never newer.
fn check_backup_times(view: &HeaderView, backup: &AreaSuper) -> Result<()> {
    let ours = AreaLink::of_super(&view.host.superblock[..]);
    let epoch = |link: Option<AreaLink>| link.map_or(Epoch(0), |link| link.epoch);
    let newer = epoch(backup.link) > epoch(ours) && view.host.state != HostState::Clean;
    check_times(view, &AreaSuper { marker: backup.marker || newer, ..*backup })
}

/// A marked area and its log are of the same mount. Where one of both was put back from a copy,
/// what the log says does not fit what the area holds; replaying it would destroy the file system.
fn check_times(view: &HeaderView, area: &AreaSuper) -> Result<()> {
    let ours = AreaLink::of_super(&view.host.superblock[..]);
    if !area.marker || area.link == ours {
        return Ok(());
    }
    let epoch = |link: Option<AreaLink>| link.map_or(0, |l| l.epoch.0);
    let (of_area, of_log) = (epoch(area.link), epoch(ours));
    let older = if of_area > of_log { "log" } else { "volume" };
    Err(corrupt(
        older,
        format!(
            "it is an older copy: the volume was last mounted in epoch {of_area}, the log knows epoch \
             {of_log}. Bring the newest of both together again; if that {older} is lost for good, \
             siftfs recover --discard-log gives up what is only in the log"
        ),
    ))
}

#[cfg(test)]
#[path = "belong_tests.rs"]
mod tests;
