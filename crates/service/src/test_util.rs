//! A small volume, a stand-in for the Runtime that stages and submits random transactions, and a
//! byte-array model of the area after each of them.

use crate::{ReplayMode, Service, ServiceOptions, ServiceParts};
use siftfs_base::*;
use siftfs_device::*;
use siftfs_log::*;
use siftfs_volume::*;
use siftfs_wire::*;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

pub const AREA: u64 = 64 * BLOCK_BYTES;
pub const JOURNAL: u64 = 256 << 10;
pub const LANE: u64 = 256 << 10;
pub const VOLUME: [u8; 16] = *b"service-test-vol";
pub const KEY: EpochKey = EpochKey { epoch: Epoch(5), nonce: 0xfeed };
pub const SIZE: u64 = AREA + JOURNAL + 2 * LANE + 2 * HEADER_LEN;

/// A volume's header whose journal holds `form` of staged data.
pub fn header(form: JournalData) -> StaticHeader {
    let at = AREA + HEADER_LEN;
    let lane = |i: u64| LaneEntry {
        id: LaneId(i as u16),
        medium: LaneMedium::Block,
        offset: at + JOURNAL + i * LANE,
        len: LANE,
        owner: 0,
    };
    StaticHeader {
        compat: 0,
        ro_compat: 0,
        incompat: if form == JournalData::Copy { INCOMPAT_JOURNAL_COPY } else { 0 },
        volume: VOLUME,
        area_uuid: [0; 16],
        area_offset: 0,
        area_len: AREA,
        journal_offset: at,
        journal_len: JOURNAL,
        header_offsets: [AREA, SIZE - HEADER_LEN],
        lanes: vec![lane(0), lane(1)],
        redo: None,
    }
}

/// Writes an empty volume; tails start in the middle of a lap.
pub fn format(dev: &dyn Device) {
    format_as(dev, JournalData::Ref);
}

/// What journals hold.
pub const FORMS: [JournalData; 2] = [JournalData::Ref, JournalData::Copy];

/// As [`format`], with a journal of this form.
pub fn format_as(dev: &dyn Device, form: JournalData) {
    let host = HostRecord {
        seq: 1,
        state: HostState::Clean,
        key: KEY,
        lane_key: KEY,
        journal_key: KEY,
        lsn_floor: Lsn(0),
        area_crc: 0,
        lane_ends: vec![OPEN_END; 2],
        lane_heads: vec![0; 2],
        superblock: Box::new([0; 1024]),
        registry: None,
    };
    let service = ServiceRecord {
        seq: 1,
        epoch: KEY.epoch,
        journal_tail: 3 * JOURNAL - 10 * BLOCK_BYTES,
        next_seq: TxnSeq(8),
        ops_cut: Lsn(100),
        staged_cut: Lsn(100),
        lane_tails: vec![LANE - 5 * BLOCK_BYTES, 0],
    };
    format_headers(dev, &header(form), &host, &service).unwrap();
}

/// How a Service of these tests replays.
#[derive(Clone, Copy, Debug)]
pub struct How {
    pub mode: ReplayMode,
    /// So small that a batch has many windows.
    pub window_bytes: u64,
    pub step_bytes: u64,
    pub memory: u64,
}

/// Beyond a checkpoint's fixed needs: batches end by memory after some transactions.
const TIGHT: u64 = (26 << 20) + (400 << 10);

pub const ORDERED: How =
    How { mode: ReplayMode::Ordered, window_bytes: 64 << 20, step_bytes: 8 << 20, memory: 1 << 28 };
pub const COALESCE: How = How { mode: ReplayMode::Coalesce, ..ORDERED };
/// All modes, with windows and steps of the usual and of the smallest size.
pub const ALL: [How; 6] = [
    ORDERED,
    COALESCE,
    How { window_bytes: 20 << 10, step_bytes: 8 << 10, ..COALESCE },
    How { window_bytes: 20 << 10, step_bytes: 8 << 10, memory: TIGHT, ..COALESCE },
    How { mode: ReplayMode::Auto, ..ORDERED },
    How { mode: ReplayMode::Auto, window_bytes: 20 << 10, ..ORDERED },
];

/// All modes over a journal of references, and some over one of copies.
pub fn all_forms() -> impl Iterator<Item = (How, JournalData)> {
    let refs = ALL.map(|how| (how, JournalData::Ref));
    refs.into_iter().chain([ALL[0], ALL[2], ALL[5]].map(|how| (how, JournalData::Copy)))
}

/// An empty volume in memory.
pub fn mem() -> (Arc<MemDevice>, Arc<dyn Device>) {
    let mem = Arc::new(MemDevice::new(SIZE));
    format(&*mem);
    let dev: Arc<dyn Device> = Arc::clone(&mem) as _;
    (mem, dev)
}

/// A Service over `dev` that replays in order, and what else its storage hands out.
pub fn open(dev: &Arc<dyn Device>) -> Result<(Service, Storage)> {
    open_as(dev, ORDERED)
}

/// What a Service over `dev` is made of, and what else its storage hands out.
pub fn parts_of(
    dev: &Arc<dyn Device>,
    how: How,
) -> Result<(ServiceParts, ServiceOptions, Storage)> {
    let view = read_headers(&**dev)?;
    if view.needs_repair() {
        repair_headers(&**dev, &view)?;
    }
    let storage = Storage::new(Arc::clone(dev), &region_descs(&view.header))?;
    let parts = ServiceParts::take(&storage, &view)?;
    let options = ServiceOptions {
        step_transactions: 3,
        emergency_transactions: 2,
        mode: how.mode,
        journal_data: view.header.journal_data(),
        window_bytes: how.window_bytes,
        step_bytes: how.step_bytes,
        memory: how.memory,
        ..ServiceOptions::new(VOLUME, Arc::new(ManualClock::new(1)))
    };
    Ok((parts, options, storage))
}

/// A Service over `dev` and what else its storage hands out.
pub fn open_as(dev: &Arc<dyn Device>, how: How) -> Result<(Service, Storage)> {
    let (parts, options, storage) = parts_of(dev, how)?;
    Ok((Service::open(parts, options)?, storage))
}

/// Where the next record of a lane goes.
struct Lane {
    writer: StagingWriter,
    end: u64,
    crc: u32,
    tail: u64,
    /// `end` and `crc` as the newest transaction has them.
    cut: (u64, u32),
}

/// What the area must hold.
#[derive(Clone)]
pub struct Model {
    pub area: Vec<u8>,
    /// Blocks without an owner, with the transaction that freed them.
    pub free: BTreeMap<u64, u64>,
}

/// Bytes, and where in the area they go.
type Writes = Vec<(u64, Vec<u8>)>;

/// Submits transactions and knows what the area must hold after each.
pub struct Driver {
    pub service: Service,
    how: How,
    pub form: JournalData,
    pub counters: Arc<Counters>,
    pub rng: Rng,
    lanes: Vec<Lane>,
    lsn: u64,
    pub seq: u64,
    /// Area after transaction `first + i`.
    pub models: Vec<Model>,
    /// Newest transaction whose space came back.
    reclaimed: u64,
    pub first: u64,
    /// Newest transaction whose `Journaled` arrived.
    pub acked: u64,
    /// Direct data of the transaction made last, not sent yet.
    ahead: Vec<DirectRun>,
    journal_tail: u64,
    journal_head: u64,
    request: u64,
    pub messages: Vec<FromService>,
    pub failed: Option<Error>,
}

impl Driver {
    pub fn new(dev: &Arc<dyn Device>, seed: u64) -> Result<Self> {
        Self::with(dev, seed, ORDERED)
    }

    pub fn with(dev: &Arc<dyn Device>, seed: u64, how: How) -> Result<Self> {
        let (mut service, storage) = open_as(dev, how)?;
        service.begin_epoch(KEY, KEY);
        let hello =
            ToService::Hello { version: PROTOCOL_VERSION, volume: VOLUME, epoch: KEY.epoch };
        service.handle(hello);
        let durable = service.durable().clone();
        let lane = |i: usize| -> Result<Lane> {
            let (writer, tail) = (storage.take_staging(LaneId(i as u16))?, durable.lane_tails[i]);
            Ok(Lane { writer, end: tail, crc: 0, tail, cut: (tail, 0) })
        };
        let first = durable.next_seq.0 - 1;
        Ok(Self {
            lanes: vec![lane(0)?, lane(1)?],
            form: service.options.journal_data,
            counters: storage.counters().clone(),
            service,
            how,
            rng: Rng::new(seed),
            lsn: durable.staged_cut.0,
            seq: first,
            models: vec![Model {
                area: vec![0; AREA as usize],
                free: (48..AREA / BLOCK_BYTES).map(|b| (b, first)).collect(),
            }],
            reclaimed: first,
            first,
            acked: first,
            ahead: Vec::new(),
            journal_tail: durable.journal_tail,
            journal_head: durable.journal_tail,
            request: 0,
            messages: Vec::new(),
            failed: None,
        })
    }

    /// Another Service takes over; its answers to a Hello.
    pub fn take_over(&mut self, dev: &Arc<dyn Device>) -> Result<Vec<FromService>> {
        let (parts, options, _) = parts_of(dev, self.how)?;
        self.service = Service::resume(parts, options, KEY, KEY)?;
        self.failed = None;
        let hello =
            ToService::Hello { version: PROTOCOL_VERSION, volume: VOLUME, epoch: KEY.epoch };
        self.service.handle(hello);
        Ok(self.service.drain())
    }

    /// Sends the direct data of the transaction made last.
    pub fn send_ahead(&mut self) {
        let runs = std::mem::take(&mut self.ahead);
        if !runs.is_empty() {
            let seq = TxnSeq(self.seq);
            self.service.handle(ToService::Direct { seq, runs, waited: false });
        }
    }

    /// Sends the transaction made last, its direct data first.
    pub fn submit(&mut self, txn: &Transaction) {
        self.send_ahead();
        self.service.handle(ToService::Submit { txn: Box::new(txn.clone()), waited: false });
    }

    /// Takes the Service's answers.
    pub fn pump(&mut self) {
        for m in self.service.drain() {
            match &m {
                FromService::Journaled { seq, bytes, .. } => {
                    self.acked = seq.0;
                    self.journal_head += bytes;
                }
                FromService::Reclaimed { seq, journal_tail, lane_tails } => {
                    self.reclaimed = seq.0;
                    assert!(*journal_tail >= self.journal_tail, "credits only grow");
                    self.journal_tail = *journal_tail;
                    for (lane, tail) in self.lanes.iter_mut().zip(lane_tails) {
                        assert!(*tail >= lane.tail);
                        lane.tail = *tail;
                    }
                }
                FromService::Failed { error } => self.failed = Some(error.clone()),
                _ => {}
            }
            self.messages.push(m);
        }
    }

    pub fn checkpoint(&mut self, upto: u64, urgency: Urgency) {
        self.request += 1;
        let upto = TxnSeq(upto);
        self.service.handle(ToService::Checkpoint { id: self.request, upto, urgency });
        self.pump();
    }

    /// Runs steps until the Service is idle.
    pub fn settle(&mut self) {
        while self.service.has_work() {
            self.service.step();
            self.pump();
        }
    }

    /// A transaction of one staged record, which goes to `dst`.
    pub fn copying(&mut self, data: &[u8], dst: u64) -> Result<Transaction> {
        let staged = vec![self.stage(data)?];
        let len = data.len() as u32;
        let copies = vec![CopyTag { source: 0, data_offset: 0, dst, len }];
        (self.seq, self.lsn) = (self.seq + 1, self.lsn + 1);
        let mut model = self.models.last().unwrap().clone();
        model.area[dst as usize..dst as usize + data.len()].copy_from_slice(data);
        self.models.push(model);
        Ok(Transaction {
            seq: TxnSeq(self.seq),
            ops_cut: Lsn(self.lsn),
            staged_cut: Lsn(self.lsn),
            lane_upto: self.cut(),
            staged,
            copies,
            ..Transaction::default()
        })
    }

    /// Appends a record of `data` to a lane and flushes it.
    fn stage(&mut self, data: &[u8]) -> Result<StagedRef> {
        let lane = LaneId(self.rng.below(2) as u16);
        self.stage_in(lane, data, None)
    }

    /// The same in this lane; with a `home`, a physical range.
    pub fn stage_in(&mut self, lane: LaneId, data: &[u8], home: Option<u64>) -> Result<StagedRef> {
        let item = Item::Data {
            ino: 12,
            generation: 1,
            offset: home.unwrap_or(0) % BLOCK_BYTES,
            len: data.len() as u32,
            data_offset: 0,
            home,
        };
        let layout = RecordLayout::new(std::slice::from_ref(&item), data.len() as u64).unwrap();
        let len = u64::from(layout.len);
        let l = &self.lanes[usize::from(lane.0)];
        let mut pos = place_record(l.end, len, LANE).unwrap();
        if pos + len - l.tail > LANE {
            self.checkpoint(u64::MAX, Urgency::Emergency);
            self.settle();
            if let Some(e) = &self.failed {
                return Err(e.clone());
            }
            pos = place_record(self.lanes[usize::from(lane.0)].end, len, LANE).unwrap();
        }
        self.lsn += 1 + self.rng.below(3);
        let l = &mut self.lanes[usize::from(lane.0)];
        assert!(pos + len - l.tail <= LANE, "the checkpoint returned the lane");
        let lsn = Lsn(self.lsn);
        let p = RecordParams {
            lsn,
            prev_lsn: Lsn(0),
            prev_compact: Lsn(0),
            durable_lsn: Lsn(0),
            durable_pos: l.end,
            pos,
            prev_end: l.end,
            prev_crc: l.crc,
        };
        let mut buf = vec![0; layout.len as usize];
        let builder = RecordBuilder { key: KEY.lane(lane), lane };
        let crc = builder.encode(&p, &layout, &[item], &[data], &mut buf);
        l.writer.write(Origin::Foreground, pos % LANE, &buf)?;
        l.writer.flush(Origin::Foreground)?;
        (l.end, l.crc) = (pos + len, crc);
        Ok(StagedRef { lane, pos, len: layout.len, lsn, crc })
    }

    /// What the next transaction digests of a lane, if it has `ranges` physical ranges in it.
    pub fn digest(&self, lane: LaneId, ranges: u32) -> Option<Digest> {
        let l = &self.lanes[usize::from(lane.0)];
        let (from, prev_crc) = l.cut;
        (ranges > 0).then_some(Digest { lane, from, prev_crc, crc: l.crc, ranges })
    }

    /// A number above all that are staged.
    pub fn next_lsn(&mut self) -> Lsn {
        self.lsn += 1;
        Lsn(self.lsn)
    }

    /// The lanes' ends: what is staged up to here is in the transaction being made.
    pub fn cut(&mut self) -> Vec<u64> {
        self.lanes.iter_mut().for_each(|l| l.cut = (l.end, l.crc));
        self.lanes.iter().map(|l| l.end).collect()
    }

    /// Physical ranges of the coming transaction, staged in one lane; what they write, and its
    /// digest.
    fn physical(&mut self) -> Result<(Writes, Option<Digest>)> {
        let lane = LaneId(self.rng.below(2) as u16);
        let mut writes = Vec::new();
        if self.form == JournalData::Ref {
            for _ in 0..self.rng.below(4) {
                let len = 1 + self.rng.below(700);
                let dst = self.rng.below(48 * BLOCK_BYTES - len);
                let blocks = dst / BLOCK_BYTES..(dst + len).div_ceil(BLOCK_BYTES);
                // Blocks with an owner alone are overwritten.
                if self.models.last().unwrap().free.range(blocks).next().is_none() {
                    let data = self.rng.bytes(len as usize);
                    self.stage_in(lane, &data, Some(dst))?;
                    writes.push((dst, data));
                }
            }
        }
        let digest = self.digest(lane, writes.len() as u32);
        Ok((writes, digest))
    }

    /// A random transaction, its records staged, its effect added to the models.
    pub fn transaction(&mut self) -> Result<Transaction> {
        let mut txn = Transaction::default();
        let mut copies: Vec<(CopyTag, Vec<u8>)> = Vec::new();
        for source in 0..self.rng.below(4) as u32 {
            let most = [100, 5000, 12000][self.rng.below(3) as usize];
            let len = 1 + self.rng.below(most) as usize;
            let data = self.rng.bytes(len);
            txn.staged.push(self.stage(&data)?);
            for _ in 0..=self.rng.below(3) {
                let at = self.rng.below(len as u64);
                let n = 1 + self.rng.below(len as u64 - at);
                let dst = self.rng.below(48 * BLOCK_BYTES - n);
                let tag = CopyTag { source, data_offset: at as u32, dst, len: n as u32 };
                copies.push((tag, data[at as usize..(at + n) as usize].to_vec()));
            }
        }
        let (writes, digest) = self.physical()?;
        txn.digest = digest;
        self.seq += 1;
        let mut model = self.models.last().unwrap().clone();
        for (dst, data) in writes {
            model.area[dst as usize..dst as usize + data.len()].copy_from_slice(&data);
        }
        self.drops(&mut txn, &mut model);
        let zeros = (0..self.rng.below(3)).map(|_| {
            let len = 1 + self.rng.below(9000);
            (self.rng.below(48 * BLOCK_BYTES - len), len)
        });
        for (dst, len) in zeros.collect::<Vec<_>>() {
            if self.own(&mut txn, &mut model, dst, len) {
                txn.zeros.push(ZeroTag { dst, len: len as u32 });
                model.area[dst as usize..(dst + len) as usize].fill(0);
            }
        }
        if self.form == JournalData::Copy {
            // A record and the gap before it stay below what `has_room` leaves.
            let mut most = 32 << 10;
            copies.retain(|(c, _)| match c.len.cmp(&most) {
                Ordering::Greater => false,
                _ => {
                    most -= c.len;
                    true
                }
            });
        }
        copies.retain(|(c, _)| self.own(&mut txn, &mut model, c.dst, u64::from(c.len)));
        for (c, data) in copies {
            model.area[c.dst as usize..c.dst as usize + data.len()].copy_from_slice(&data);
            txn.copies.push(c);
        }
        self.images(&mut txn, &mut model);
        self.direct(&mut txn, &mut model);
        self.lsn += 1;
        txn.seq = TxnSeq(self.seq);
        (txn.ops_cut, txn.staged_cut) = (Lsn(self.lsn), Lsn(self.lsn));
        txn.lane_upto = self.cut();
        self.models.push(model);
        Ok(txn)
    }

    /// Frees some blocks.
    fn drops(&mut self, txn: &mut Transaction, model: &mut Model) {
        for _ in 0..self.rng.below(3) {
            let (start, len) = (self.rng.below(44), 1 + self.rng.below(4));
            if (start..start + len).all(|b| !model.free.contains_key(&b)) {
                txn.drops.push(BlockRun { start, len });
                model.free.extend((start..start + len).map(|b| (b, self.seq)));
            }
        }
    }

    /// May this transaction write these bytes? Blocks without an owner it takes, zeroed, if the
    /// transaction that freed them is reclaimed (rule R5).
    fn own(&mut self, txn: &mut Transaction, model: &mut Model, dst: u64, len: u64) -> bool {
        let blocks = dst / BLOCK_BYTES..(dst + len).div_ceil(BLOCK_BYTES);
        let freed: Vec<_> = model.free.range(blocks).map(|(b, by)| (*b, *by)).collect();
        if freed.iter().any(|(_, by)| *by > self.reclaimed) {
            return false;
        }
        for (b, _) in freed {
            model.free.remove(&b);
            let at = b * BLOCK_BYTES;
            txn.zeros.push(ZeroTag { dst: at, len: BLOCK_SIZE as u32 });
            model.area[at as usize..at as usize + BLOCK_SIZE].fill(0);
        }
        true
    }

    fn images(&mut self, txn: &mut Transaction, model: &mut Model) {
        let n = self.rng.below(4);
        let mut blocks: Vec<u64> = (0..n).map(|_| self.rng.below(48)).collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks.retain(|b| model.free.get(b).is_none_or(|by| *by <= self.reclaimed));
        for b in &blocks {
            let image = self.rng.bytes(BLOCK_SIZE);
            let at = *b as usize * BLOCK_SIZE;
            model.area[at..at + BLOCK_SIZE].copy_from_slice(&image);
            model.free.remove(b);
            txn.image_data.push(block(&image));
        }
        txn.images = blocks;
    }

    /// Data straight to free blocks.
    fn direct(&mut self, txn: &mut Transaction, model: &mut Model) {
        if self.rng.below(3) != 0 {
            return;
        }
        let usable = model.free.iter().filter(|(_, by)| **by <= self.reclaimed).map(|(b, _)| *b);
        let usable: Vec<u64> = usable.collect();
        let Some(start) = usable.get(self.rng.below(8) as usize).copied() else { return };
        let len = 1 + u64::from(usable.contains(&(start + 1)));
        let data = self.rng.bytes(len as usize * BLOCK_SIZE);
        let at = start as usize * BLOCK_SIZE;
        model.area[at..at + data.len()].copy_from_slice(&data);
        model.free.retain(|b, _| *b < start || *b >= start + len);
        let run = BlockRun { start, len };
        txn.direct.push(run);
        self.ahead.push(DirectRun { run, data: data.chunks(BLOCK_SIZE).map(block).collect() });
    }

    /// Submits a random transaction, having made room for it, and now and then checkpoints.
    pub fn round(&mut self) -> Result<()> {
        let txn = self.transaction()?;
        let len = encoded_len(&txn, self.form).unwrap();
        let end = place_record(self.journal_head, len, JOURNAL).unwrap() + len;
        if end - self.journal_tail > JOURNAL {
            self.checkpoint(u64::MAX, Urgency::Emergency);
            self.settle();
        }
        self.submit(&txn);
        self.pump();
        if self.rng.below(4) == 0 {
            let upto = self.acked.saturating_sub(self.rng.below(3));
            self.checkpoint(upto, Urgency::Background);
        }
        for _ in 0..self.rng.below(2) {
            self.service.step();
            self.pump();
        }
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Is there room in journal and lanes for whatever the next transaction is?
    pub fn has_room(&self) -> bool {
        const MOST: u64 = 120 << 10;
        let lanes = self.lanes.iter().all(|l| l.end + MOST - l.tail <= LANE);
        lanes && self.journal_head + MOST - self.journal_tail <= JOURNAL
    }

    /// Transactions journaled and not reclaimed.
    pub fn unreclaimed(&self) -> u64 {
        self.acked - self.reclaimed
    }

    /// Allocated blocks in which the area on `dev` is not what it must be when `seq` is the newest
    /// committed transaction.
    pub fn differing(&self, dev: &dyn Device, seq: u64) -> Vec<u64> {
        let model = &self.models[(seq - self.first) as usize];
        let mut area = vec![0; AREA as usize];
        dev.read(0, &mut area).unwrap();
        let pairs = area.chunks(BLOCK_SIZE).zip(model.area.chunks(BLOCK_SIZE));
        let differ = (0u64..).zip(pairs).filter(|(_, (a, m))| a != m).map(|(i, _)| i);
        differ.filter(|b| !model.free.contains_key(b)).collect()
    }
}

fn block(bytes: &[u8]) -> SharedBlock {
    let bytes: [u8; BLOCK_SIZE] = bytes.try_into().expect("a block's bytes");
    bytes.into()
}
