//! A ready-prefix batch (SIFT §3.3.1): what is left of the transactions added to it.

use crate::digested::Digested;
use crate::images::{Images, InodeTables};
use crate::piece::{Origin, Piece, Src};
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, BlockRun, Lsn, TxnSeq};
use siftfs_intervals::IntervalMap;
use siftfs_log::{CopyTag, StagedRef, Transaction};
use siftfs_log::{DATA_CHUNK, DataSums, JournalData, JournalRecord};
use siftfs_wire::CheckpointReport;

/// Where a record lies.
pub(crate) enum Place {
    /// The record lies in its lane, staged.
    Lane(StagedRef),
    /// The journal repeats the record's bytes, and they lie there.
    Journal(Repeated),
}

/// A part of a transaction's data section in the journal.
pub(crate) struct Repeated {
    /// Position of its first byte.
    pub pos: u64,
    pub sums: DataSums,
}

/// A record that the batch names.
pub(crate) struct Record {
    place: Place,
    txn: u32,
}

/// Chunks of a data section that are one record: a window holds at least one, whatever it is
/// opened for, as it holds the longest staged record.
const REPEATED_CHUNKS: usize = siftfs_log::MAX_RECORD_LEN as usize / DATA_CHUNK;

/// A committed transaction as the journal has it.
pub(crate) struct Committed<'a> {
    pub txn: &'a Transaction,
    /// What its digest names.
    pub digested: &'a Digested,
    pub images: &'a [u8],
    /// End of its journal record.
    pub end: u64,
    /// Where its data section lies, and its checksums, if the journal repeats staged data.
    pub data: Option<(u64, &'a DataSums)>,
}

impl<'a> Committed<'a> {
    pub fn new(record: &'a JournalRecord<'_>, digested: &'a Digested) -> Self {
        let d = &record.descriptor;
        let copy = d.header.layout.form == JournalData::Copy;
        let data = copy.then_some((d.header.data_pos(), &d.data));
        Self { txn: &d.txn, digested, images: record.images, end: d.header.end(), data }
    }

    /// What is added one after the other: `ordered` replays the staged ranges, then their
    /// repetition.
    pub fn parts(&self, ordered: bool) -> &'static [Part] {
        match ordered && self.data.is_some() {
            true => &[Part::Staged, Part::Journaled],
            false => &[Part::Both],
        }
    }
}

/// Which representations of a transaction to add (SIFT §3.3.2): `ordered` replays staged state and
/// what the journal has, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// Both; the journal's wins.
    Both,
    /// What is freed or in the area already, zeroes, staged data.
    Staged,
    /// Staged data as the journal repeats it, images.
    Journaled,
}

/// What reclaiming up to the end of a transaction means.
#[derive(Clone, Debug)]
pub(crate) struct TxnEnd {
    pub seq: TxnSeq,
    /// Position of the journal record's end.
    pub pos: u64,
    pub ops_cut: Lsn,
    pub staged_cut: Lsn,
    pub lane_upto: Vec<u64>,
}

/// Transactions while they are added.
enum Collector {
    /// Resolved at once.
    Map(IntervalMap<Src>),
    /// In the order of coming; resolved at the end if any two overlap.
    Log(Log),
}

/// The light path's collector.
#[derive(Default)]
struct Log {
    pieces: Vec<Piece>,
    /// Blocks whose older content is dead, each with the number of pieces that are older.
    dead: Vec<(BlockRun, usize)>,
}

/// A batch: first added to, then sealed and replayed piece by piece.
pub(crate) struct Batch {
    collector: Option<Collector>,
    records: Vec<Record>,
    pub images: Images,
    txns: Vec<TxnEnd>,
    /// Memory of the checksums in `records`.
    sums: usize,
    /// What is left, by transaction; once sealed.
    pub pieces: Vec<Piece>,
    /// Pieces before this one are in the area.
    pub cursor: usize,
    /// Transactions before this one are reclaimed.
    reclaimed: usize,
}

/// Blocks that the bytes `[dst, dst + len)` touch.
fn blocks_of(dst: u64, len: u32) -> u64 {
    (dst + u64::from(len)).div_ceil(BLOCK_BYTES) - dst / BLOCK_BYTES
}

impl Batch {
    fn with(collector: Collector) -> Self {
        Self {
            collector: Some(collector),
            records: Vec::new(),
            images: Images::default(),
            txns: Vec::new(),
            sums: 0,
            pieces: Vec::new(),
            cursor: 0,
            reclaimed: 0,
        }
    }

    /// An empty batch with an interval map.
    pub fn coalescing() -> Self {
        Self::with(Collector::Map(IntervalMap::new()))
    }

    /// An empty batch without.
    pub fn light() -> Self {
        Self::with(Collector::Log(Log::default()))
    }

    /// Does the batch have no interval map?
    pub fn is_light(&self) -> bool {
        matches!(self.collector, Some(Collector::Log(_)))
    }

    /// Empties the batch for one more transaction; the map's memory stays.
    pub fn restart(&mut self, collector: Option<IntervalMap<Src>>) {
        let mut map = collector.unwrap_or_default();
        map.clear();
        self.collector = Some(Collector::Map(map));
        self.records.clear();
        self.images.clear();
        self.txns.clear();
        self.pieces.clear();
        (self.cursor, self.reclaimed, self.sums) = (0, 0, 0);
    }

    /// Number of transactions.
    pub fn len(&self) -> usize {
        self.txns.len()
    }

    /// Has the batch been sealed?
    pub fn is_sealed(&self) -> bool {
        self.collector.is_none()
    }

    pub fn record(&self, nr: u32) -> &Place {
        &self.records[nr as usize].place
    }

    /// Bytes of memory that the batch takes, or will when it is sealed.
    pub fn memory(&self) -> u64 {
        let lanes = self.txns.last().map_or(0, |t| t.lane_upto.capacity());
        let pieces = match &self.collector {
            Some(Collector::Map(map)) => map.memory() + map.len() * size_of::<Piece>(),
            // Sorted in a copy; if any two overlap, put into a map instead.
            Some(Collector::Log(log)) => {
                log.pieces.capacity() * (size_of::<Piece>() + 64) + log.dead.capacity() * 24
            }
            None => self.pieces.capacity() * size_of::<Piece>(),
        };
        let all = pieces
            + self.records.capacity() * size_of::<Record>()
            + self.sums
            + self.images.memory()
            + self.txns.capacity() * (size_of::<TxnEnd>() + lanes * 8);
        all as u64
    }

    /// Adds the next transaction in commit order, or a part of it. Its physical ranges come first:
    /// they are older than all else that it says of their blocks (rule R42). Drops and direct runs
    /// kill what is older, then zero tags, copy tags and images apply in this order (SIFT
    /// §3.3.2); where the journal repeats what copy tags name, that comes after the staged bytes.
    pub fn add(
        &mut self,
        tables: &InodeTables,
        c: &Committed<'_>,
        part: Part,
        report: &mut CheckpointReport,
    ) {
        let txn = c.txn;
        assert_eq!(c.images.len(), txn.images.len() * BLOCK_SIZE, "one block per image");
        if part != Part::Journaled {
            self.add_ranges(&c.digested.staged, &c.digested.copies, report);
            self.add_staged(txn, c.data.is_some(), report);
        }
        if part != Part::Staged {
            self.add_repeated(c, report);
            self.add_images(tables, txn, c.images, report);
        }
        self.txns.push(TxnEnd {
            seq: txn.seq,
            pos: c.end,
            ops_cut: txn.ops_cut,
            staged_cut: txn.staged_cut,
            lane_upto: txn.lane_upto.clone(),
        });
    }

    /// Number of the transaction being added.
    fn nr(&self) -> u32 {
        u32::try_from(self.txns.len()).expect("memory ends long before numbers do")
    }

    fn collector(&mut self) -> &mut Collector {
        self.collector.as_mut().expect("nothing is added to a sealed batch")
    }

    fn add_staged(&mut self, txn: &Transaction, repeated: bool, report: &mut CheckpointReport) {
        let nr = self.nr();
        let zeros: u64 = txn.zeros.iter().map(|z| blocks_of(z.dst, z.len)).sum();
        report.raw_tags += txn.zeros.len() as u64;
        report.raw_blocks += zeros;
        for run in txn.drops.iter().chain(&txn.direct) {
            self.collector().kill(run);
        }
        for z in &txn.zeros {
            self.collector().put(Piece { start: z.dst, len: z.len, source: Src::zero(nr) });
        }
        if repeated && self.is_light() {
            // Without a map to find it out: what the journal repeats is dead here.
            report.staged += txn.staged.len() as u64;
            count_copies(&txn.copies, report);
            return;
        }
        self.add_ranges(&txn.staged, &txn.copies, report);
    }

    /// Adds ranges of staged records of the transaction being added.
    fn add_ranges(
        &mut self,
        staged: &[StagedRef],
        copies: &[CopyTag],
        report: &mut CheckpointReport,
    ) {
        let nr = self.nr();
        let first = u32::try_from(self.records.len()).expect("bounded by memory");
        report.staged += staged.len() as u64;
        count_copies(copies, report);
        let records = staged.iter().map(|s| Record { place: Place::Lane(s.clone()), txn: nr });
        self.records.extend(records);
        for c in copies {
            let source = Src::staged(first + c.source, c.data_offset);
            self.collector().put(Piece { start: c.dst, len: c.len, source });
        }
    }

    /// What the journal repeats: the copy tags' bytes, one tag's behind the other's.
    fn add_repeated(&mut self, c: &Committed<'_>, report: &mut CheckpointReport) {
        const SECTION: u64 = (REPEATED_CHUNKS * DATA_CHUNK) as u64;
        let Some((pos, sums)) = c.data else { return };
        let (nr, first) =
            (self.nr(), u32::try_from(self.records.len()).expect("bounded by memory"));
        count_copies(&c.txn.copies, report);
        for (i, sums) in (0u64..).zip(sums.split(REPEATED_CHUNKS)) {
            self.sums += sums.memory();
            let place = Place::Journal(Repeated { pos: pos + i * SECTION, sums });
            self.records.push(Record { place, txn: nr });
        }
        let mut at = 0u64;
        for tag in &c.txn.copies {
            let end = at + u64::from(tag.len);
            let mut start = tag.dst;
            while at < end {
                let offset = at % SECTION;
                // Both fit: a section and its number are far below 2^32.
                let len = (end - at).min(SECTION - offset) as u32;
                let source = Src::staged(first + (at / SECTION) as u32, offset as u32);
                self.collector().put(Piece { start, len, source });
                start += u64::from(len);
                at += u64::from(len);
            }
        }
    }

    fn add_images(
        &mut self,
        tables: &InodeTables,
        txn: &Transaction,
        images: &[u8],
        report: &mut CheckpointReport,
    ) {
        let nr = self.nr();
        report.raw_images += txn.images.len() as u64;
        report.raw_tags += txn.images.len() as u64;
        report.raw_blocks += txn.images.len() as u64;
        let raw_inodes = self.images.raw_inodes;
        for (block, image) in txn.images.iter().zip(images.chunks_exact(BLOCK_SIZE)) {
            let source = Src::image(self.images.put(tables, *block, image, nr));
            let (start, len) = (block * BLOCK_BYTES, BLOCK_SIZE as u32);
            self.collector().put(Piece { start, len, source });
        }
        report.raw_inodes += self.images.raw_inodes - raw_inodes;
    }

    /// Ends adding: what is left is put in the order of its transactions, and inside one in
    /// the order of destinations. The map, if there is one, is given back.
    pub fn seal(&mut self) -> Option<IntervalMap<Src>> {
        let collector = self.collector.take().expect("a batch is sealed once");
        let map = match collector {
            Collector::Map(map) => map,
            Collector::Log(log) => match log.sorted() {
                Ok(sorted) => {
                    self.order(sorted.len(), || sorted.iter().copied());
                    return None;
                }
                Err(log) => log.resolve(),
            },
        };
        self.order(map.len(), || map.iter());
        Some(map)
    }

    /// Which transaction a piece belongs to.
    fn txn_of(&self, p: &Piece) -> u32 {
        match p.source.origin() {
            Origin::Staged { record, .. } => self.records[record as usize].txn,
            Origin::Image { slot, .. } => self.images.txn(slot),
            Origin::Zero { txn } => txn,
        }
    }

    /// Sorts pieces by transaction, by counting.
    fn order<I: Iterator<Item = Piece>>(&mut self, len: usize, pieces: impl Fn() -> I) {
        let mut next = vec![0usize; self.txns.len() + 1];
        for p in pieces() {
            next[self.txn_of(&p) as usize + 1] += 1;
        }
        for i in 1..next.len() {
            next[i] += next[i - 1];
        }
        let none = Piece { start: 0, len: 0, source: Src::default() };
        let mut sorted = std::mem::take(&mut self.pieces);
        sorted.clear();
        sorted.reserve_exact(len);
        sorted.resize(len, none);
        for p in pieces() {
            let at = &mut next[self.txn_of(&p) as usize];
            sorted[*at] = p;
            *at += 1;
        }
        self.pieces = sorted;
    }

    /// Sorts the pieces from `from` on that belong to one transaction by source; their end.
    pub fn sort_run(&mut self, from: usize) -> usize {
        let Some(first) = self.pieces.get(from) else { return from };
        let txn = self.txn_of(first);
        let len = self.pieces[from..].iter().take_while(|p| self.txn_of(p) == txn).count();
        self.pieces[from..from + len].sort_unstable_by_key(|p| p.source);
        from + len
    }

    /// Marks every transaction of which nothing is left to be replayed as reclaimed; the last
    /// of them, if there are new ones, and their number.
    pub fn reclaim(&mut self) -> Option<(TxnEnd, usize)> {
        let ready = match self.pieces.get(self.cursor) {
            Some(p) => self.txn_of(p) as usize,
            None => self.txns.len(),
        };
        let count = ready.checked_sub(self.reclaimed).filter(|c| *c > 0)?;
        self.reclaimed = ready;
        Some((self.txns[ready - 1].clone(), count))
    }

    /// Is everything replayed and reclaimed?
    pub fn is_done(&self) -> bool {
        self.is_sealed() && self.reclaimed == self.txns.len()
    }
}

impl Collector {
    /// Everything older in these blocks is dead.
    fn kill(&mut self, run: &BlockRun) {
        match self {
            Self::Map(map) => map.remove(run.start * BLOCK_BYTES, run.end() * BLOCK_BYTES),
            Self::Log(log) => log.dead.push((*run, log.pieces.len())),
        }
    }

    fn put(&mut self, p: Piece) {
        match self {
            Self::Map(map) => map.insert(p.start, p.len, p.source),
            Self::Log(log) => log.pieces.push(p),
        }
    }
}

impl Log {
    /// The pieces by destination; the log again if any two overlap, or one lies in dead blocks.
    fn sorted(self) -> Result<Vec<Piece>, Self> {
        let mut sorted = self.pieces.clone();
        // In place; those that start at the same byte overlap, in whatever order.
        sorted.sort_unstable_by_key(|p| p.start);
        // An image and its successor are one slot.
        sorted.dedup_by(|a, b| a == b);
        let apart = sorted.windows(2).all(|w| w[0].end() <= w[1].start);
        let alive = |(run, _): &(BlockRun, usize)| {
            let next = sorted.partition_point(|p| p.end() <= run.start * BLOCK_BYTES);
            sorted.get(next).is_none_or(|p| p.start >= run.end() * BLOCK_BYTES)
        };
        if apart && self.dead.iter().all(alive) { Ok(sorted) } else { Err(self) }
    }

    /// The map of what is left.
    fn resolve(self) -> IntervalMap<Src> {
        let mut map = Collector::Map(IntervalMap::new());
        let mut dead = self.dead.iter().peekable();
        for (i, p) in self.pieces.iter().enumerate() {
            while let Some((run, _)) = dead.next_if(|(_, older)| *older <= i) {
                map.kill(run);
            }
            map.put(*p);
        }
        dead.for_each(|(run, _)| map.kill(run));
        match map {
            Collector::Map(map) => map,
            Collector::Log(_) => unreachable!("made above"),
        }
    }
}

/// The copy tags' raw share of the report, once for each place where their bytes are.
fn count_copies(copies: &[CopyTag], report: &mut CheckpointReport) {
    report.raw_tags += copies.len() as u64;
    report.raw_blocks += copies.iter().map(|c| blocks_of(c.dst, c.len)).sum::<u64>();
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
