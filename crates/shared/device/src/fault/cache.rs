//! The volatile cache of a device, and what a power cut leaves of it.

use std::ops::Range;
use std::sync::Arc;

use siftfs_base::{Bytes, RangeSet, SECTOR_SIZE};

use crate::{Image, Medium};
use siftfs_base::Rng;

const SECTOR: u64 = SECTOR_SIZE as u64;
/// What memory that is addressed by bytes keeps or loses at once.
const WORD: u64 = Medium::Bytes.atomic_unit();
/// What a processor writes back to it at once.
const LINE: u64 = Medium::Bytes.record_unit();

/// What becomes of the writes that were not flushed, at a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// No write survives.
    LoseAll,
    /// All survive, the ones in flight included.
    KeepAll,
    /// Each is kept, lost or torn by itself, as the seed says.
    Random(u64),
    /// Writes that begin before this byte survive, the others do not: of two parts of a device,
    /// only one had its cache backed.
    KeepBefore(u64),
    /// Writes that begin at this byte or behind it survive.
    KeepFrom(u64),
}

/// What becomes of one write at a power cut. Its units are sectors of 512 bytes, and words of 8
/// where the device is addressed by bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Every unit survives.
    Keep,
    /// No unit survives.
    Lose,
    /// This many units survive, the first ones.
    Prefix(usize),
    /// Each unit survives or not by itself, as the seed says. Where the device is addressed by
    /// bytes, the seed also says whether whole cache lines of 64 bytes do, or words.
    Torn(u64),
}

/// A write that a power cut may lose.
#[derive(Clone, Debug)]
pub struct PendingWrite {
    /// Number of the operation.
    pub op: u64,
    /// First byte, a multiple of the unit (a sector, or a word).
    pub offset: u64,
    /// Length in bytes, a multiple of the unit.
    pub len: usize,
    /// The write had not returned yet.
    pub in_flight: bool,
    /// A flush that should have covered it failed: no later flush makes it durable.
    pub abandoned: bool,
}

/// Something that happened to a device.
#[derive(Clone)]
pub(super) enum Event {
    /// A write begins.
    StartWrite {
        /// Number of the operation.
        op: u64,
        /// First byte.
        offset: u64,
        /// What is written.
        data: Arc<[u8]>,
        /// Is the write durable when it returns?
        fua: bool,
    },
    /// All writes of the operation return.
    FinishWrite { op: u64 },
    /// A flush begins, of the writes that begin in this range.
    StartFlush { op: u64, range: Range<u64> },
    /// A flush succeeds.
    FinishFlush { op: u64 },
    /// A flush fails.
    FailFlush { op: u64 },
    /// Bits at rest flip: each byte is combined with its mask by exclusive or.
    Rot { offset: u64, mask: Arc<[u8]> },
}

#[derive(Clone)]
struct Pending {
    info: PendingWrite,
    data: Arc<[u8]>,
    /// When it returned, in [`VolatileCache::clock`] ticks.
    returned: u64,
    /// Byte ranges that a newer durable write replaced.
    dead: RangeSet<Bytes>,
}

/// A flush that is under way.
#[derive(Clone)]
struct Flushing {
    op: u64,
    /// When it began.
    began: u64,
    range: Range<u64>,
}

impl Flushing {
    /// Does it cover this write?
    fn covers(&self, p: &Pending) -> bool {
        p.returned <= self.began && self.range.contains(&p.info.offset)
    }
}

#[derive(Clone)]
struct InFlight {
    op: u64,
    offset: u64,
    data: Arc<[u8]>,
    fua: bool,
}

/// State of a device with a volatile cache: what is durable, what reads see, and what is
/// between the two.
///
/// Everything is kept in whole units, sectors or words: a write of part of one rewrites the rest
/// of it with what the cache holds, as a bounced request does. A write over the place where bytes
/// begin is two. A clone is cheap.
#[derive(Clone)]
pub struct VolatileCache {
    durable: Image,
    cached: Image,
    /// In the order in which they returned.
    pending: Vec<Pending>,
    in_flight: Vec<InFlight>,
    flushing: Vec<Flushing>,
    clock: u64,
    /// From here on the device is addressed by bytes.
    bytes_from: u64,
}

impl VolatileCache {
    /// A device whose contents are all durable.
    ///
    /// # Panics
    /// When the size is not a multiple of the sector size.
    pub fn new(image: Image) -> Self {
        assert!(image.size().is_multiple_of(SECTOR), "a device consists of whole sectors");
        Self {
            durable: image.clone(),
            cached: image,
            pending: Vec::new(),
            in_flight: Vec::new(),
            flushing: Vec::new(),
            clock: 0,
            bytes_from: u64::MAX,
        }
    }

    /// From this byte on the device is memory that is addressed by bytes, not a disk.
    ///
    /// # Panics
    /// When the disk before it would not consist of whole sectors.
    #[must_use]
    pub fn with_bytes_from(mut self, offset: u64) -> Self {
        assert!(offset.is_multiple_of(SECTOR), "a disk consists of whole sectors");
        self.bytes_from = offset;
        self
    }

    /// What lies at this byte.
    pub fn medium_at(&self, offset: u64) -> Medium {
        if offset < self.bytes_from { Medium::Block } else { Medium::Bytes }
    }

    /// What is certain to survive.
    pub fn durable(&self) -> &Image {
        &self.durable
    }

    /// What reads see.
    pub fn cached(&self) -> &Image {
        &self.cached
    }

    /// Writes that may be lost: those that returned, in that order, then those in flight.
    pub fn pending(&self) -> Vec<PendingWrite> {
        let returned = self.pending.iter().map(|p| p.info.clone());
        let flying = self.in_flight.iter().map(|w| {
            let (offset, len) = units(self.unit_at(w.offset), w.offset, w.data.len());
            PendingWrite { op: w.op, offset, len, in_flight: true, abandoned: false }
        });
        returned.chain(flying).collect()
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Carries out one event.
    pub(super) fn apply(&mut self, event: &Event) {
        match event {
            Event::StartWrite { op, offset, data, fua } => {
                self.start_write(*op, *offset, Arc::clone(data), *fua);
            }
            Event::FinishWrite { op } => self.finish_write(*op),
            Event::StartFlush { op, range } => self.start_flush(*op, range.clone()),
            Event::FinishFlush { op } => self.finish_flush(*op),
            Event::FailFlush { op } => self.fail_flush(*op),
            Event::Rot { offset, mask } => self.rot(*offset, mask),
        }
    }

    /// A write begins.
    fn start_write(&mut self, op: u64, offset: u64, data: Arc<[u8]>, fua: bool) {
        let on_disk = self.bytes_from.saturating_sub(offset);
        let on_disk = usize::try_from(on_disk).unwrap_or(usize::MAX);
        if on_disk > 0 && on_disk < data.len() {
            let (disk, bytes) = data.split_at(on_disk);
            self.in_flight.push(InFlight { op, offset, data: disk.into(), fua });
            let offset = self.bytes_from;
            self.in_flight.push(InFlight { op, offset, data: bytes.into(), fua });
            return;
        }
        self.in_flight.push(InFlight { op, offset, data, fua });
    }

    /// All writes of this operation return.
    fn finish_write(&mut self, op: u64) {
        let (done, rest) =
            std::mem::take(&mut self.in_flight).into_iter().partition(|w| w.op == op);
        self.in_flight = rest;
        let done: Vec<InFlight> = done;
        for write in done {
            self.returned(&write);
        }
    }

    /// What survives or not at once at this byte.
    pub(super) fn unit_at(&self, offset: u64) -> u64 {
        self.medium_at(offset).atomic_unit()
    }

    /// A write as whole units, filled up with what the cache holds.
    fn whole_units(&self, offset: u64, data: &Arc<[u8]>) -> (u64, Arc<[u8]>) {
        let (start, len) = units(self.unit_at(offset), offset, data.len());
        if len == data.len() {
            return (offset, Arc::clone(data));
        }
        let mut whole = self.cached.bytes(start, len);
        let skip = (offset - start) as usize;
        whole[skip..skip + data.len()].copy_from_slice(data);
        (start, whole.into())
    }

    fn returned(&mut self, write: &InFlight) {
        let (offset, data) = self.whole_units(write.offset, &write.data);
        self.cached.write(offset, &data);
        if write.fua {
            self.durable.write(offset, &data);
            self.replaced(offset, data.len());
            return;
        }
        let len = data.len();
        let info = PendingWrite { op: write.op, offset, len, in_flight: false, abandoned: false };
        let returned = self.tick();
        self.pending.push(Pending { info, data, returned, dead: RangeSet::new() });
    }

    /// A newer durable write of these bytes: what pending writes hold of them can never come
    /// back.
    fn replaced(&mut self, offset: u64, len: usize) {
        let end = offset + len as u64;
        for p in &mut self.pending {
            let (from, to) = (p.info.offset, p.info.offset + p.info.len as u64);
            p.dead.insert(offset.max(from), end.min(to));
        }
    }

    /// A flush begins: it will cover what has returned by now.
    fn start_flush(&mut self, op: u64, range: Range<u64>) {
        let began = self.tick();
        self.flushing.push(Flushing { op, began, range });
    }

    fn end_flush(&mut self, op: u64) -> Flushing {
        let at = self.flushing.iter().position(|f| f.op == op).expect("a flush that began");
        self.flushing.swap_remove(at)
    }

    /// A flush succeeds: what had returned when it began is durable.
    fn finish_flush(&mut self, op: u64) {
        let flush = self.end_flush(op);
        for p in std::mem::take(&mut self.pending) {
            if p.info.abandoned || !flush.covers(&p) {
                self.pending.push(p);
                continue;
            }
            for (from, to) in p.dead.gaps(p.info.offset, p.info.offset + p.info.len as u64) {
                let skip = (from - p.info.offset) as usize;
                let len = (to - from) as usize;
                self.durable.write(from, &p.data[skip..skip + len]);
                // Those put back so far returned earlier.
                self.replaced(from, len);
            }
        }
    }

    /// A flush fails: what it should have covered is in doubt for good.
    fn fail_flush(&mut self, op: u64) {
        let flush = self.end_flush(op);
        for p in &mut self.pending {
            p.info.abandoned |= flush.covers(p);
        }
    }

    /// Bytes at rest change, in the cache and on the medium.
    fn rot(&mut self, offset: u64, mask: &[u8]) {
        for image in [&mut self.durable, &mut self.cached] {
            let mut bytes = image.bytes(offset, mask.len());
            bytes.iter_mut().zip(mask).for_each(|(b, m)| *b ^= m);
            image.write(offset, &bytes);
        }
    }

    /// What a power cut now leaves on the medium.
    pub fn image(&self, cut: Cut) -> Image {
        match cut {
            Cut::LoseAll => self.durable.clone(),
            Cut::KeepAll => self.image_with(|_| Fate::Keep),
            Cut::KeepBefore(at) => self.image_with(|w| keep_if(w.offset < at)),
            Cut::KeepFrom(at) => self.image_with(|w| keep_if(w.offset >= at)),
            Cut::Random(seed) => {
                let mut rng = Rng::new(seed);
                // Most of the writes kept, most lost, or half of them: uniform choices alone
                // would hardly ever lose one write of many.
                let keep = [1, 4, 7][rng.below(3) as usize];
                self.image_with(|w| random_fate(&mut rng, keep, self.prefixes(w)))
            }
        }
    }

    /// What a power cut now leaves when `fate` decides on each write of
    /// [`VolatileCache::pending`], in that order.
    pub fn image_with(&self, mut fate: impl FnMut(&PendingWrite) -> Fate) -> Image {
        let mut image = self.durable.clone();
        let infos = self.pending();
        let (returned, flying) = infos.split_at(self.pending.len());
        for (p, info) in self.pending.iter().zip(returned) {
            let unit = self.unit_at(info.offset);
            keep(&mut image, unit, info.offset, &p.data, &p.dead, &fate(info));
        }
        for (w, info) in self.in_flight.iter().zip(flying) {
            let (offset, data) = self.whole_units(w.offset, &w.data);
            let unit = self.unit_at(offset);
            keep(&mut image, unit, offset, &data, &RangeSet::new(), &fate(info));
        }
        image
    }

    /// How many prefixes of a write a random cut chooses from.
    fn prefixes(&self, write: &PendingWrite) -> u64 {
        match self.medium_at(write.offset) {
            Medium::Block => 9,
            Medium::Bytes => write.len as u64 / WORD + 1,
        }
    }
}

fn keep_if(kept: bool) -> Fate {
    if kept { Fate::Keep } else { Fate::Lose }
}

fn random_fate(rng: &mut Rng, keep_of_8: u64, prefixes: u64) -> Fate {
    match rng.below(10) {
        0 => Fate::Torn(rng.bits()),
        1 => Fate::Prefix(rng.below(prefixes) as usize),
        _ if rng.below(8) < keep_of_8 => Fate::Keep,
        _ => Fate::Lose,
    }
}

/// Writes the surviving units of one write.
fn keep(
    image: &mut Image,
    unit: u64,
    offset: u64,
    data: &[u8],
    dead: &RangeSet<Bytes>,
    fate: &Fate,
) {
    let mut rng = Rng::new(if let Fate::Torn(seed) = fate { *seed } else { 0 });
    let lines = unit == WORD && matches!(fate, Fate::Torn(_)) && rng.below(2) == 0;
    let mut line = (u64::MAX, false);
    for (index, part) in data.chunks(unit as usize).enumerate() {
        let at = offset + index as u64 * unit;
        let survives = match fate {
            Fate::Keep => true,
            Fate::Lose => false,
            Fate::Prefix(n) => index < *n,
            Fate::Torn(_) if lines => {
                if line.0 != at / LINE {
                    line = (at / LINE, rng.below(2) == 0);
                }
                line.1
            }
            Fate::Torn(_) => rng.below(2) == 0,
        };
        if survives && !dead.contains(at) {
            image.write(at, part);
        }
    }
}

/// The units that `[offset, offset + len)` touches: first byte and length.
fn units(unit: u64, offset: u64, len: usize) -> (u64, usize) {
    let start = offset - offset % unit;
    let end = (offset + len as u64).next_multiple_of(unit);
    (start, usize::try_from(end - start).expect("a write fits memory"))
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
