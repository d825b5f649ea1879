//! The record area as a medium: there, the volume's, whole, and of the time of its lanes.

use crate::inspect::RecordAreaView;
use crate::superblock::Super;
use crate::{Check, Volume};
use siftfs_log::{
    DecodeError, HostState, LaneEntry, RECORD_AREA_SLOTS, RecordAreaHeader, show_uuid,
};

/// Checks the area that the header names.
pub(crate) fn check(c: &mut Check<'_>, v: &Volume, primary: Option<&Super>) {
    let Some(lane) = v.header.record_area() else { return };
    let unmarked = primary.is_some_and(|p| p.checksum_ok() && !p.marker());
    let in_use = v.host.state != HostState::Clean && !unmarked;
    let Some(size) = c.bytes.map(|bytes| bytes.size()) else {
        let text = "the record area was not found";
        return match in_use {
            true => {
                c.error("area.missing", format!("{text}; it may hold what was made durable last"))
            }
            false => c.warn("area.missing", text),
        };
    };
    let area = newest(c);
    let medium = c.bytes.map(|bytes| bytes.describe().kind).unwrap_or_default();
    c.see(|seen| seen.record_area = area.map(|area| RecordAreaView::of(&area, medium)));
    let Some(area) = area else {
        return c.error("area.header", "no slot of the record area's header is valid");
    };
    if area.volume != v.header.volume {
        let text = format!("the record area is that of volume {}", show_uuid(&area.volume));
        return c.error("area.foreign", text);
    }
    check_size(c, lane, &area, size);
    // A recovery that goes on to the logs of programs gives the area its next epoch first.
    let recovering = v.host.state == HostState::Recovering && v.host.registry.is_some();
    let ahead = recovering && area.epoch > v.host.lane_key.epoch;
    if in_use && area.epoch != v.host.lane_key.epoch && !ahead {
        let (found, wanted) = (area.epoch.0, v.host.lane_key.epoch.0);
        let text = format!("the record area is of mount {found}, the log of mount {wanted}");
        c.error("area.epoch", text);
    }
}

fn check_size(c: &mut Check<'_>, lane: &LaneEntry, area: &RecordAreaHeader, size: u64) {
    if area.len != lane.len {
        let text = format!(
            "the record area says that its lane has {} bytes, the header {}",
            area.len, lane.len
        );
        c.error("area.size", text);
    }
    if lane.offset.checked_add(lane.len).is_none_or(|end| end > size) {
        let text = format!("the record area has {size} bytes, fewer than its lane needs");
        c.error("area.size", text);
    }
}

/// The newest header; a slot that is not valid is worth a warning, because the other one serves.
fn newest(c: &mut Check<'_>) -> Option<RecordAreaHeader> {
    let mut newest: Option<RecordAreaHeader> = None;
    let mut bad = 0;
    for (slot, at) in RECORD_AREA_SLOTS.into_iter().enumerate() {
        let what = format!("slot {slot} of the record area's header");
        let bytes = c.read_bytes(at, 64, &what)?;
        match RecordAreaHeader::decode(bytes.as_slice().try_into().ok()?) {
            Ok(header) if newest.is_none_or(|other| header.seq > other.seq) => {
                newest = Some(header);
            }
            Ok(_) => {}
            Err(DecodeError::Invalid(_)) => bad += 1,
            Err(DecodeError::Stop(e)) => c.failed("area.header", &what, &e),
        }
    }
    if newest.is_some() && bad > 0 {
        c.warn("area.slot", "one slot of the record area's header is not valid");
    }
    newest
}
