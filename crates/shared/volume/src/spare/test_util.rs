//! A log and a spare one on two parts of one device, whose power fails together.

use super::store::MIN_SPARE;
use super::*;
use crate::format_headers;
use crate::test_util as small;
use siftfs_base::Epoch;
use siftfs_device::{Device, Fault, FaultDevice, Gate, Image, OpClass, Part};
use siftfs_log::{
    HEADER_LEN, INCOMPAT_EXTERNAL_LOG, INCOMPAT_SPARE_LOG, SpareHeader, StaticHeader,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of the log's device; the spare one's begin behind them.
pub const LOG: u64 = small::SIZE - small::AREA;
pub const BOUND: Duration = Duration::from_millis(40);
/// Longer than anything takes, on a machine that does a lot else.
pub const LONG: Duration = Duration::from_secs(60);

/// The header of a log elsewhere with a spare one.
pub fn header() -> StaticHeader {
    let incompat = INCOMPAT_EXTERNAL_LOG | INCOMPAT_SPARE_LOG;
    let mut header = StaticHeader { incompat, ..small::header() };
    header.journal_offset -= small::AREA;
    header.header_offsets = header.header_offsets.map(|o| o - small::AREA);
    header.lanes.iter_mut().for_each(|l| l.offset -= small::AREA);
    header
}

pub struct Rig {
    pub device: Arc<FaultDevice>,
    pub first: Arc<dyn Device>,
    pub spare: Arc<dyn Device>,
}

impl Rig {
    /// An empty log and an empty spare one, of one epoch.
    pub fn new() -> Self {
        let rig = Self::of(Image::new(LOG + MIN_SPARE));
        format_headers(&*rig.first, &header(), &small::host(), &small::service()).unwrap();
        format_spare(&*rig.spare, &header(), LOG, 5).unwrap();
        rig.open().begin_epoch(small::KEY.epoch, 6).unwrap();
        rig.device.flush().unwrap();
        rig
    }

    /// The same with a spare log of `len` bytes.
    pub fn with_spare(len: u64) -> Self {
        let rig = Self::new();
        let header = SpareHeader { len, generation: 100, ..rig.open().header() };
        rig.spare.write(0, &header.encode()[..], true).unwrap();
        rig
    }

    pub fn of(image: Image) -> Self {
        let device = Arc::new(FaultDevice::from_image(image, 1));
        let first = Arc::new(Part::new(device.clone(), 0..LOG));
        let spare = Arc::new(Part::new(device.clone(), LOG..LOG + MIN_SPARE));
        Self { device, first, spare }
    }

    pub fn open(&self) -> Arc<LogPair> {
        LogPair::open(self.first.clone(), self.spare.clone(), true).unwrap()
    }

    pub fn armed(&self) -> Arc<LogPair> {
        let pair = self.open();
        pair.set_bound(BOUND);
        pair.arm().unwrap();
        pair
    }

    /// Calls of this class stop at the first device until the gate is opened.
    pub fn stall(&self, class: OpClass) -> Gate {
        let gate = Gate::new();
        self.device.inject(Fault::hold(class, &gate).within(0..LOG));
        gate
    }

    /// The stall is over, for good.
    pub fn go_on(&self, gate: &Gate) {
        self.device.remove_all();
        gate.open();
    }
}

/// Byte offset of a block in the log's rings.
pub fn at(block: u64) -> u64 {
    HEADER_LEN + block * 4096
}

pub fn block(value: u8) -> [u8; 4096] {
    [value; 4096]
}

/// What a device has in a block, which is the same all over it.
pub fn value(device: &dyn Device, number: u64) -> u8 {
    let mut bytes = block(0);
    device.read(at(number), &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "block {number} is torn");
    bytes[0]
}

pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let since = Instant::now();
    while !done() {
        assert!(since.elapsed() < LONG, "{what} did not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub fn wait_for(pair: &LogPair, state: SpareState) {
    wait_until(state.text(), || pair.report().state == state);
}

pub const EPOCH: Epoch = small::KEY.epoch;
