//! Where the regions of a test volume lie, read from what mkfs reports.

use crate::volume::VolumeKind;
use siftfs_device::{Device, MemDevice, OpRecord};
use siftfs_placement::{MkfsOptions, MkfsReport, mkfs_on};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of one header copy.
const HEADER: u64 = 65_536;

/// Byte ranges of the regions.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The file-system area.
    pub area: Range<u64>,
    /// The first header copy.
    pub header: Range<u64>,
    /// The journal.
    pub journal: Range<u64>,
    /// All lanes.
    pub staging: Range<u64>,
    /// The last header copy.
    pub tail: Range<u64>,
}

impl Layout {
    /// The layout of volumes of `kind`.
    ///
    /// # Panics
    /// If the log is a device of its own, or there is a record area or a redo lane.
    pub fn of(kind: VolumeKind) -> Self {
        assert!(!kind.apart && !kind.record_area && !kind.redo_lane, "regions of one device");
        let device: Arc<dyn Device> = Arc::new(MemDevice::new(kind.size));
        let opts = MkfsOptions {
            size: Some(kind.size),
            log_size: Some(kind.log),
            lanes: kind.lanes,
            journal_data: kind.journal_data,
            force: true,
            ..MkfsOptions::default()
        };
        let made =
            mkfs_on(device.clone(), &opts).unwrap_or_else(|e| panic!("mkfs of {kind:?}: {e}"));
        Self::from(&made, kind.size)
    }

    fn from(made: &MkfsReport, size: u64) -> Self {
        let header = made.area_bytes..made.area_bytes + HEADER;
        let journal = header.end..header.end + made.journal_bytes;
        let staging = journal.end..journal.end + made.staging_bytes;
        let tail = size - HEADER..size;
        assert!(staging.end <= tail.start, "regions: {made:?}");
        Self { area: 0..made.area_bytes, header, journal, staging, tail }
    }

    /// Does `op` touch a header copy?
    pub fn in_header(&self, op: &OpRecord) -> bool {
        self.header.contains(&op.offset) || self.tail.contains(&op.offset)
    }
}
