//! A volume's log on a device: finding and repairing the header, writing its slots, and reading
//! lanes, journal and redo lane back.
//!
//! Formats come from `siftfs-log`. Nothing here knows what a staged item or a metadata image
//! means. Everything read is checked; memory is bounded by the longest record.

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used))]

mod belong;
mod header;
mod journal;
mod lane;
mod media;
mod record_area;
mod redo;
mod ring;
mod slots;
mod spare;
mod superblock;

pub use belong::first_backup;
pub use header::{
    CopyState, HEADER_HOST, HEADER_SERVICE, HEADER_STATIC, HeaderView, OlderHost, erase_headers,
    format_headers, read_headers, read_log_header, read_media, region_descs, repair_headers,
    write_moved_headers,
};
pub use journal::{JournalEnd, JournalScanner};
pub use lane::{LaneEnd, LaneRecord, LaneScanner, ScanData, check_lane_ends};
pub use media::Media;
pub use record_area::{RecordArea, erase_record_area, format_record_area};
pub use redo::{RedoEnd, RedoMedium, RedoScanner};
pub use ring::ReadCounts;
pub use slots::{HostSlots, ServiceSlots};
pub use spare::{
    LogPair, MIN_SPARE, SpareReport, SpareState, erase_spare, format_spare, read_spare_header,
    require_room_for_spare,
};
pub use superblock::AreaSuper;

#[cfg(test)]
#[path = "test_util.rs"]
pub(crate) mod test_util;
