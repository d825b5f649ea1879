//! A log and a spare one on two parts of one device, whose power fails together.

use super::store::MIN_SPARE;
use super::*;
use crate::format_headers;
use crate::test_util as small;
use siftfs_base::Epoch;
use siftfs_device::{Cut, Device, Fault, FaultDevice, Gate, Image, OpClass, Part};
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
        Self::made(MIN_SPARE)
    }

    /// The same with a spare log that has room for an image of the log.
    pub fn roomy() -> Self {
        Self::made(MIN_SPARE + LOG)
    }

    fn made(spare: u64) -> Self {
        let rig = Self::of(Image::new(LOG + spare));
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
        let size = image.size();
        let device = Arc::new(FaultDevice::from_image(image, 1));
        let first = Arc::new(Part::new(device.clone(), 0..LOG));
        let spare = Arc::new(Part::new(device.clone(), LOG..size));
        Self { device, first, spare }
    }

    pub fn open(&self) -> Arc<LogPair> {
        LogPair::open(Some(self.first.clone()), self.spare.clone(), true).unwrap()
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

/// Power cuts, two of which take one device each.
pub fn cuts(seed: u64) -> [Cut; 5] {
    [Cut::LoseAll, Cut::KeepAll, Cut::KeepBefore(LOG), Cut::KeepFrom(LOG), Cut::Random(seed)]
}

/// Power fails behind every operation of the run that was recorded, in each of the ways of
/// [`cuts`]. Returns how many states there were.
pub fn each_cut(rig: &Rig, mut judge: impl FnMut(u64, &str, Image)) -> usize {
    let mut states = 0;
    rig.device.take_history().unwrap().each_cut(|cut, cache| {
        for kind in cuts(cut) {
            judge(cut, &format!("cut {cut}, {kind:?}"), cache.image(kind));
            states += 1;
        }
    });
    states
}

/// Six callers at once write 1 to 120 to a block each and read it, while `beside` goes on.
pub fn six_callers(pair: &LogPair, beside: impl FnOnce()) {
    std::thread::scope(|scope| {
        for number in 0..6 {
            scope.spawn(move || {
                for written in 1..=120 {
                    pair.write(at(number), &block(written), written % 4 != 0).unwrap();
                    if written % 8 == 0 {
                        pair.flush().unwrap();
                    }
                    assert_eq!(value(pair, number), written);
                }
            });
        }
        beside();
    });
}

/// What was written to each of the blocks, and when it was durable: by the number of the device's
/// next operation then.
#[derive(Default)]
pub struct History {
    writes: Vec<(u64, u8, u64, Option<u64>)>,
    drawn: u8,
}

impl History {
    pub fn work(&mut self, rig: &Rig, pair: &LogPair, round: u64, count: u64) {
        let mut plain = Vec::new();
        for i in 0..count {
            self.drawn += 1;
            let (number, durable) = ((i + round) % 5, i % 3 != 0);
            self.writes.push((number, self.drawn, rig.device.ops(), None));
            pair.write(at(number), &block(self.drawn), durable).unwrap();
            match durable {
                true => self.writes.last_mut().unwrap().3 = Some(rig.device.ops()),
                false => plain.push(self.writes.len() - 1),
            }
            if i % 4 == 3 {
                pair.flush().unwrap();
                plain.drain(..).for_each(|i| self.writes[i].3 = Some(rig.device.ops()));
            }
        }
    }

    /// Writes so far.
    pub fn count(&self) -> usize {
        self.writes.len()
    }

    /// The first time when one of the writes from this one on was durable.
    pub fn answered_since(&self, first: usize) -> u64 {
        self.writes[first..].iter().filter_map(|write| write.3).min().unwrap()
    }

    /// Each sector has a value that was written at the durable one or behind it.
    pub fn judge(&self, device: &dyn Device, cut: u64, what: &str) {
        for number in 0..5 {
            let mut bytes = block(0);
            device.read(at(number), &mut bytes).unwrap();
            let own = || self.writes.iter().filter(|w| w.0 == number);
            let durable = own().filter(|w| w.3.is_some_and(|ops| ops <= cut)).map(|w| w.1).max();
            let begun = own().filter(|w| w.2 <= cut).map(|w| w.1).max().unwrap_or(0);
            for sector in bytes.chunks(512) {
                let value = sector[0];
                assert!(sector.iter().all(|byte| *byte == value), "{what}: a torn sector");
                let known = value == 0 || own().any(|w| w.1 == value);
                let fits = (durable.unwrap_or(0)..=begun).contains(&value);
                assert!(
                    known && fits,
                    "{what}: block {number} has {value}, durable is {durable:?}"
                );
            }
        }
    }
}
