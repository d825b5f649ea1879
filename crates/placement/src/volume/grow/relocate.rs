//! Moving an empty log behind its old end, on the device that also holds the area.

use crate::options::Progress;
use crate::volume::files::nonce;
use siftfs_base::{Error, Result};
use siftfs_device::{Device, zero_fill};
use siftfs_log::{HEADER_LEN, LaneMedium, StaticHeader};
use siftfs_volume::{HeaderView, Media, RedoMedium, write_moved_headers};

/// Bytes that are written at a time.
const PIECE: u64 = 16 << 20;

/// Bytes of the log, headers included.
///
/// # Errors
/// Refused if its parts do not lie between its two headers.
pub(super) fn log_len(header: &StaticHeader) -> Result<u64> {
    let [first, last] = header.header_offsets;
    let end = last + HEADER_LEN;
    let inside = |(_, offset, len): &(String, u64, u64)| *offset >= first && offset + len <= end;
    let mut parts = header.regions().into_iter().filter(|(name, ..)| name != "area");
    if header.area_offset != 0 || first < header.area_len || !parts.all(|part| inside(&part)) {
        let what = "its log does not lie in one piece behind its file system";
        return Err(Error::Refused(what.into()));
    }
    let parts = header.regions().into_iter().filter(|(name, ..)| name != "area");
    Ok(parts.map(|(_, _, len)| len).sum())
}

/// The header of a log that lies behind an area of `area` bytes on a device of `total`; `None` if
/// it lies there already, or on a device of its own.
///
/// # Errors
/// Refused if it would overlap where it lies now.
pub(super) fn moved(header: &StaticHeader, area: u64, total: u64) -> Result<Option<StaticHeader>> {
    let [first, last] = header.header_offsets;
    if header.external_log() || (area, total) == (header.area_len, last + HEADER_LEN) {
        return Ok(None);
    }
    if area < last + HEADER_LEN {
        let least = last + HEADER_LEN + log_len(header)?;
        return Err(Error::Refused(super::too_small(total, Some(least))));
    }
    let by = area - first;
    let mut moved = header.clone();
    moved.area_len = area;
    moved.journal_offset += by;
    moved.header_offsets = [area, total - HEADER_LEN];
    let block = |medium| medium == LaneMedium::Block;
    moved.lanes.iter_mut().filter(|lane| block(lane.medium)).for_each(|lane| lane.offset += by);
    moved.redo.iter_mut().for_each(|redo| redo.offset += by);
    moved.check_geometry()?;
    Ok(Some(moved))
}

/// Writes the log at its new place and makes it the log, durably. It is empty, and its records
/// stay as they are. The old header is still there: the next read of the volume that may write
/// erases it.
pub(super) fn relocate(
    media: &Media,
    view: &HeaderView,
    header: &StaticHeader,
    progress: Progress<'_>,
) -> Result<()> {
    let dev: &dyn Device = &*media.area;
    let (start, end) = (header.header_offsets[0], header.header_offsets[1] + HEADER_LEN);
    let mut at = start;
    while at < end {
        let len = (end - at).min(PIECE);
        progress("writing the log regions", at - start, end - start);
        zero_fill(dev, at, len)?;
        at += len;
    }
    if let Some(redo) = RedoMedium::of(media, header) {
        redo.format(nonce()?)?;
    }
    dev.flush()?;
    write_moved_headers(dev, view, header)
}
