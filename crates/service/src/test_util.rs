//! A small volume, a stand-in for the Runtime that stages and submits random transactions, and a
//! byte-array model of the area after each of them.

use crate::{Service, ServiceOptions, ServiceParts};
use siftfs_base::*;
use siftfs_device::*;
use siftfs_log::*;
use siftfs_volume::*;
use siftfs_wire::*;
use std::sync::Arc;

pub const AREA: u64 = 64 * BLOCK_BYTES;
pub const JOURNAL: u64 = 256 << 10;
pub const LANE: u64 = 256 << 10;
pub const VOLUME: [u8; 16] = *b"service-test-vol";
pub const KEY: LogKey = LogKey { epoch: Epoch(5), nonce: 0xfeed };
pub const SIZE: u64 = AREA + JOURNAL + 2 * LANE + 2 * HEADER_LEN;

/// Small deterministic generator.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.below(256) as u8).collect()
    }
}

pub fn header() -> StaticHeader {
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
        incompat: 0,
        volume: VOLUME,
        area_uuid: [0; 16],
        area_offset: 0,
        area_len: AREA,
        journal_offset: at,
        journal_len: JOURNAL,
        header_offsets: [AREA, SIZE - HEADER_LEN],
        lanes: vec![lane(0), lane(1)],
    }
}

/// Writes an empty volume; tails start in the middle of a lap.
pub fn format(dev: &dyn Device) {
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
    format_headers(dev, &header(), &host, &service).unwrap();
}

/// What a Service over `dev` is made of, and what else its storage hands out.
pub fn parts_of(dev: &Arc<dyn Device>) -> Result<(ServiceParts, ServiceOptions, Storage)> {
    let view = read_headers(&**dev)?;
    if view.needs_repair() {
        repair_headers(&**dev, &view)?;
    }
    let storage = Storage::new(Arc::clone(dev), &region_descs(&view.header))?;
    let parts = ServiceParts {
        area: storage.take_area()?,
        journal: storage.take_journal()?,
        lanes: vec![storage.staging_reader(LaneId(0))?, storage.staging_reader(LaneId(1))?],
        slots: ServiceSlots::new(storage.take_header(HEADER_SERVICE)?, &view),
    };
    let options = ServiceOptions {
        step_transactions: 3,
        emergency_transactions: 2,
        ..ServiceOptions::new(VOLUME, Arc::new(ManualClock::new(1)))
    };
    Ok((parts, options, storage))
}

/// A Service over `dev` and what else its storage hands out.
pub fn open(dev: &Arc<dyn Device>) -> Result<(Service, Storage)> {
    let (parts, options, storage) = parts_of(dev)?;
    Ok((Service::open(parts, options)?, storage))
}

/// Where the next record of a lane goes.
struct Lane {
    writer: StagingWriter,
    end: u64,
    crc: u32,
    tail: u64,
}

/// Submits transactions and knows what the area must hold after each.
pub struct Driver {
    pub service: Service,
    pub rng: Rng,
    lanes: Vec<Lane>,
    lsn: u64,
    pub seq: u64,
    /// Area after transaction `first + i`.
    pub models: Vec<Vec<u8>>,
    pub first: u64,
    /// Newest transaction whose `Journaled` arrived.
    pub acked: u64,
    /// Next block that was never used, for direct runs.
    fresh: u64,
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
        let (mut service, storage) = open(dev)?;
        service.begin_epoch(KEY, KEY);
        let hello =
            ToService::Hello { version: PROTOCOL_VERSION, volume: VOLUME, epoch: KEY.epoch };
        service.handle(hello);
        let durable = service.durable().clone();
        let lane = |i: usize| -> Result<Lane> {
            let (writer, tail) = (storage.take_staging(LaneId(i as u16))?, durable.lane_tails[i]);
            Ok(Lane { writer, end: tail, crc: 0, tail })
        };
        let first = durable.next_seq.0 - 1;
        Ok(Self {
            lanes: vec![lane(0)?, lane(1)?],
            service,
            rng: Rng::new(seed),
            lsn: durable.staged_cut.0,
            seq: first,
            models: vec![vec![0; AREA as usize]],
            first,
            acked: first,
            fresh: 48,
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
        let (parts, options, _) = parts_of(dev)?;
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
                FromService::Reclaimed { journal_tail, lane_tails, .. } => {
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

    /// Appends a record of `data` to a lane and flushes it.
    fn stage(&mut self, data: &[u8]) -> Result<StagedRef> {
        let lane = LaneId(self.rng.below(2) as u16);
        let item = Item::Data {
            ino: 12,
            generation: 1,
            offset: 0,
            len: data.len() as u32,
            data_offset: 0,
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
            durable_lsn: Lsn(0),
            durable_pos: l.end,
            pos,
            prev_end: l.end,
            prev_crc: l.crc,
        };
        let mut buf = vec![0; layout.len as usize];
        let builder = RecordBuilder { key: KEY, lane, owner: 0 };
        let crc = builder.encode(&p, &layout, &[item], &[data], &mut buf);
        l.writer.write(Origin::Foreground, pos % LANE, &buf)?;
        l.writer.flush(Origin::Foreground)?;
        (l.end, l.crc) = (pos + len, crc);
        Ok(StagedRef { lane, pos, len: layout.len, lsn, crc })
    }

    /// A random transaction, its records staged, its effect added to the models.
    pub fn transaction(&mut self) -> Result<Transaction> {
        let mut model = self.models.last().unwrap().clone();
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
        for _ in 0..self.rng.below(3) {
            let len = 1 + self.rng.below(9000);
            let dst = self.rng.below(48 * BLOCK_BYTES - len);
            txn.zeros.push(ZeroTag { dst, len: len as u32 });
            model[dst as usize..(dst + len) as usize].fill(0);
        }
        for (c, data) in copies {
            model[c.dst as usize..c.dst as usize + data.len()].copy_from_slice(&data);
            txn.copies.push(c);
        }
        self.images(&mut txn, &mut model);
        self.direct(&mut txn, &mut model);
        self.seq += 1;
        self.lsn += 1;
        txn.seq = TxnSeq(self.seq);
        (txn.ops_cut, txn.staged_cut) = (Lsn(self.lsn), Lsn(self.lsn));
        txn.lane_upto = self.lanes.iter().map(|l| l.end).collect();
        self.models.push(model);
        Ok(txn)
    }

    fn images(&mut self, txn: &mut Transaction, model: &mut [u8]) {
        let n = self.rng.below(4);
        let mut blocks: Vec<u64> = (0..n).map(|_| self.rng.below(48)).collect();
        blocks.sort_unstable();
        blocks.dedup();
        for b in &blocks {
            let image = self.rng.bytes(BLOCK_SIZE);
            let at = *b as usize * BLOCK_SIZE;
            model[at..at + BLOCK_SIZE].copy_from_slice(&image);
            txn.image_data.push(block(&image));
        }
        txn.images = blocks;
    }

    fn direct(&mut self, txn: &mut Transaction, model: &mut [u8]) {
        if self.fresh < 62 && self.rng.below(3) == 0 {
            let len = 1 + self.rng.below(2);
            let data = self.rng.bytes(len as usize * BLOCK_SIZE);
            let at = self.fresh as usize * BLOCK_SIZE;
            model[at..at + data.len()].copy_from_slice(&data);
            let run = BlockRun { start: self.fresh, len };
            txn.direct.push(run);
            self.ahead.push(DirectRun { run, data: data.chunks(BLOCK_SIZE).map(block).collect() });
            self.fresh += len;
        }
    }

    /// Submits a random transaction, having made room for it, and now and then checkpoints.
    pub fn round(&mut self) -> Result<()> {
        let txn = self.transaction()?;
        let len = encoded_len(&txn).unwrap();
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

    /// The area as it must be when `seq` is the newest committed transaction.
    pub fn model(&self, seq: u64) -> &[u8] {
        &self.models[(seq - self.first) as usize]
    }
}

/// Differences between the area on `dev` and `model`, as block numbers.
pub fn differing(dev: &dyn Device, model: &[u8]) -> Vec<u64> {
    let mut area = vec![0; AREA as usize];
    dev.read(0, &mut area).unwrap();
    let pairs = area.chunks(BLOCK_SIZE).zip(model.chunks(BLOCK_SIZE)).enumerate();
    pairs.filter(|(_, (a, m))| a != m).map(|(i, _)| i as u64).collect()
}

fn block(bytes: &[u8]) -> SharedBlock {
    let bytes: [u8; BLOCK_SIZE] = bytes.try_into().expect("a block's bytes");
    bytes.into()
}
