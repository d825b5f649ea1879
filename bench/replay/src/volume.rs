//! A volume of bare regions and a producer that stages and submits as a Runtime would.

use siftfs_base::{BLOCK_BYTES, Epoch, LaneId, Lsn, Result, SystemClock, TxnSeq};
use siftfs_device::{Device, FileDevice, FileOptions, Origin, StagingWriter, Storage, zero_fill};
use siftfs_device::{open_exclusive, preallocate};
use siftfs_log::*;
use siftfs_service::{InodeTables, ReplayMode, Service, ServiceOptions, ServiceParts};
use siftfs_volume::{format_headers, read_headers, region_descs};
use siftfs_wire::*;
use std::path::Path;
use std::sync::Arc;

const VOLUME: [u8; 16] = *b"replay-bench-vol";
const KEY: EpochKey = EpochKey { epoch: Epoch(1), nonce: 7 };

/// Sizes of a volume in bytes.
#[derive(Clone, Copy)]
pub struct Sizes {
    /// What the journal holds of staged data.
    pub form: JournalData,
    pub area: u64,
    pub journal: u64,
    pub lane: u64,
}

impl Sizes {
    pub fn total(&self) -> u64 {
        self.area + self.journal + self.lane + 2 * HEADER_LEN
    }

    fn header(&self) -> StaticHeader {
        let journal_offset = self.area + HEADER_LEN;
        let lane = LaneEntry {
            id: LaneId(0),
            medium: LaneMedium::Block,
            offset: journal_offset + self.journal,
            len: self.lane,
            owner: 0,
        };
        StaticHeader {
            compat: 0,
            ro_compat: 0,
            incompat: if self.form == JournalData::Copy { INCOMPAT_JOURNAL_COPY } else { 0 },
            volume: VOLUME,
            area_uuid: [0; 16],
            area_offset: 0,
            area_len: self.area,
            journal_offset,
            journal_len: self.journal,
            header_offsets: [self.area, self.total() - HEADER_LEN],
            redo: None,
            lanes: vec![lane],
        }
    }
}

/// A file of `size` bytes, all written once, opened for direct I/O.
pub fn device(path: &Path, size: u64) -> Result<Arc<FileDevice>> {
    preallocate(path, size)?;
    let device = open_exclusive(path, true, FileOptions::default())?;
    zero_fill(&device, 0, size)?;
    device.flush()?;
    Ok(Arc::new(device))
}

/// A Service on a fresh volume, and what stages for it.
pub struct Volume {
    pub service: Service,
    pub storage: Storage,
    lane: StagingWriter,
    lane_len: u64,
    end: u64,
    crc: u32,
    lsn: u64,
    seq: u64,
}

impl Volume {
    pub fn new(
        device: Arc<dyn Device>,
        sizes: &Sizes,
        mode: ReplayMode,
        inode_tables: InodeTables,
    ) -> Result<Self> {
        let host = HostRecord {
            seq: 1,
            state: HostState::Clean,
            key: KEY,
            lane_key: KEY,
            journal_key: KEY,
            lsn_floor: Lsn(0),
            area_crc: 0,
            lane_ends: vec![OPEN_END],
            lane_heads: vec![0],
            superblock: Box::new([0; 1024]),
            registry: None,
        };
        let record = ServiceRecord {
            seq: 1,
            epoch: KEY.epoch,
            journal_tail: 0,
            next_seq: TxnSeq(1),
            ops_cut: Lsn(0),
            staged_cut: Lsn(0),
            lane_tails: vec![0],
        };
        format_headers(&*device, &sizes.header(), &host, &record)?;
        let (parts, storage) = parts_of(device)?;
        let journal_data = sizes.form;
        let options = ServiceOptions { journal_data, ..options(mode, inode_tables) };
        let mut service = Service::open(parts, options)?;
        service.begin_epoch(KEY, KEY);
        greet(&mut service);
        let lane = storage.take_staging(LaneId(0))?;
        let lane_len = sizes.lane;
        Ok(Self { service, storage, lane, lane_len, end: 0, crc: 0, lsn: 0, seq: 0 })
    }

    /// Stages `writes` pieces of `data`, of 4 KiB each, as one foreground transaction.
    pub fn stage(&mut self, data: &[u8]) -> Result<StagedRef> {
        let (items, sizes): (Vec<Item>, Vec<&[u8]>) = (0u32..)
            .zip(data.chunks(BLOCK_BYTES as usize))
            .map(|(i, d)| {
                let (len, data_offset) = (d.len() as u32, i * BLOCK_BYTES as u32);
                let offset = u64::from(data_offset);
                (Item::Data { ino: 12, generation: 1, offset, len, data_offset, home: None }, d)
            })
            .unzip();
        let layout = RecordLayout::new(&items, data.len() as u64).expect("a record holds it");
        let len = u64::from(layout.len);
        let pos = place_record(self.end, len, self.lane_len).expect("the lane takes it");
        assert!(pos + len <= self.lane_len, "the lane holds the whole backlog");
        self.lsn += 1;
        let p = RecordParams {
            lsn: Lsn(self.lsn),
            pos,
            prev_end: self.end,
            prev_crc: self.crc,
            ..RecordParams::default()
        };
        let mut buf = siftfs_device::AlignedBuf::zeroed(layout.len as usize);
        let builder = RecordBuilder { key: KEY.lane(LaneId(0)), lane: LaneId(0) };
        let crc = builder.encode(&p, &layout, &items, &sizes, &mut buf);
        self.lane.write(Origin::Foreground, pos, &buf)?;
        (self.end, self.crc) = (pos + len, crc);
        Ok(StagedRef { lane: LaneId(0), pos, len: layout.len, lsn: p.lsn, crc })
    }

    /// Numbers and submits a transaction.
    pub fn submit(&mut self, mut txn: Transaction) -> Result<()> {
        self.seq += 1;
        self.lsn += 1;
        txn.seq = TxnSeq(self.seq);
        (txn.ops_cut, txn.staged_cut) = (Lsn(self.lsn), Lsn(self.lsn));
        txn.lane_upto = vec![self.end];
        self.service.handle(ToService::Submit { txn: Box::new(txn), waited: false });
        self.service.drain();
        self.service.failure().map_or(Ok(()), |e| Err(e.clone()))
    }

    /// Checkpoints everything; the longest step in nanoseconds, and the report.
    pub fn checkpoint(&mut self) -> Result<(u64, CheckpointReport)> {
        checkpoint(&mut self.service)
    }
}

/// A Service that takes over what another process left on `device`.
pub fn resume(device: Arc<dyn Device>, mode: ReplayMode, memory: u64) -> Result<Service> {
    let (parts, _) = parts_of(device)?;
    let options = ServiceOptions { memory, ..options(mode, InodeTables::default()) };
    let mut service = Service::resume(parts, options, KEY, KEY)?;
    greet(&mut service);
    Ok(service)
}

fn parts_of(device: Arc<dyn Device>) -> Result<(ServiceParts, Storage)> {
    let view = read_headers(&*device)?;
    let storage = Storage::new(device, &region_descs(&view.header))?;
    Ok((ServiceParts::take(&storage, &view)?, storage))
}

fn options(mode: ReplayMode, inode_tables: InodeTables) -> ServiceOptions {
    let clock = Arc::new(SystemClock::default());
    ServiceOptions { mode, inode_tables, ..ServiceOptions::new(VOLUME, clock) }
}

fn greet(service: &mut Service) {
    let (version, epoch) = (PROTOCOL_VERSION, KEY.epoch);
    service.handle(ToService::Hello { version, volume: VOLUME, epoch });
}

/// Checkpoints everything; the longest step in nanoseconds, and the report.
pub fn checkpoint(service: &mut Service) -> Result<(u64, CheckpointReport)> {
    let (upto, urgency) = (TxnSeq(u64::MAX), Urgency::Background);
    service.handle(ToService::Checkpoint { id: 1, upto, urgency });
    let mut longest = 0;
    while service.has_work() {
        let start = std::time::Instant::now();
        service.step();
        longest = longest.max(start.elapsed().as_nanos() as u64);
    }
    match service.failure() {
        Some(e) => Err(e.clone()),
        None => Ok((longest, service.statistics().checkpoint_last.clone())),
    }
}
