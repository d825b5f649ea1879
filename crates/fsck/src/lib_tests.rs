use super::*;
use siftfs_base::*;
use siftfs_device::*;
use siftfs_log::*;

#[path = "record_area_tests.rs"]
mod record_areas;

#[path = "digest_tests.rs"]
mod digests;

#[path = "redo_tests.rs"]
mod redo_lanes;

#[path = "header_tests.rs"]
mod headers;

const AREA: u64 = 64 * BLOCK_BYTES;
const RING: u64 = 128 << 10;
const SIZE: u64 = AREA + 2 * RING + 2 * HEADER_LEN;
const KEY: EpochKey = EpochKey { epoch: Epoch(3), nonce: 9 };
const UUID: [u8; 16] = *b"uuid-of-the-area";
const LANE: u64 = AREA + HEADER_LEN + RING;
const JOURNAL: u64 = AREA + HEADER_LEN;
const BACKUPS: [u64; 3] = [1024, 16 * BLOCK_BYTES, 48 * BLOCK_BYTES];

/// A sound, dirty volume: three records in the lane, two transactions in the journal.
pub(crate) struct Fixture {
    pub dev: MemDevice,
    header: StaticHeader,
    host: HostRecord,
    service: ServiceRecord,
    end: u64,
    crc: u32,
    lsn: u64,
    /// What the next records say of the order of all lanes.
    prev_lsn: u64,
    durable_lsn: u64,
    journal_end: u64,
    journal_crc: u32,
    staged: Vec<StagedRef>,
}

fn superblock(marker: bool, blocks: u32) -> [u8; 1024] {
    let mut s = [0; 1024];
    let mut put = |at: usize, v: u32| s[at..at + 4].copy_from_slice(&v.to_le_bytes());
    put(4, blocks);
    put(24, 2);
    put(32, 16);
    put(56, 0xef53);
    put(96, 0x80 | if marker { EXT4_MARKER } else { 0 });
    put(100, 0x401);
    s[104..120].copy_from_slice(&UUID);
    let crc = !siftfs_base::crc32c(&s[..1020]);
    s[1020..].copy_from_slice(&crc.to_le_bytes());
    s
}

impl Fixture {
    pub fn empty(state: HostState) -> Self {
        let lane = LaneEntry {
            id: LaneId(0),
            medium: LaneMedium::Block,
            offset: LANE,
            len: RING,
            owner: 0,
        };
        let header = StaticHeader {
            compat: 0,
            ro_compat: 0,
            incompat: 0,
            volume: [1; 16],
            area_uuid: UUID,
            area_offset: 0,
            area_len: AREA,
            journal_offset: JOURNAL,
            journal_len: RING,
            header_offsets: [AREA, SIZE - HEADER_LEN],
            lanes: vec![lane],
            redo: None,
        };
        let dirty = state != HostState::Clean;
        let host = HostRecord {
            seq: 7,
            state,
            key: KEY,
            lane_key: KEY,
            journal_key: KEY,
            lsn_floor: Lsn(5),
            area_crc: siftfs_base::crc32c(&superblock(false, 64)[..1020]),
            lane_ends: vec![OPEN_END],
            lane_heads: vec![RING - 8192],
            superblock: Box::new(superblock(true, 64)),
            registry: None,
        };
        let service = ServiceRecord {
            seq: 5,
            epoch: KEY.epoch,
            journal_tail: RING,
            next_seq: TxnSeq(4),
            ops_cut: Lsn(5),
            staged_cut: Lsn(5),
            lane_tails: vec![RING - 8192],
        };
        let f = Self {
            dev: MemDevice::new(SIZE),
            header,
            host,
            end: service.lane_tails[0],
            crc: 0,
            lsn: 10,
            prev_lsn: 0,
            durable_lsn: 0,
            journal_end: service.journal_tail,
            journal_crc: 0,
            service,
            staged: Vec::new(),
        };
        BACKUPS.iter().for_each(|at| f.put(*at, &superblock(dirty, 64)));
        f.headers();
        f
    }

    pub fn new() -> Self {
        let mut f = Self::empty(HostState::Mounted);
        for len in [100, 5000, 200] {
            f.append(len, 0);
        }
        let (s0, s1) = (f.staged[0].clone(), f.staged[1].clone());
        let first = f.txn(4, vec![s0]);
        f.journal(&first);
        let second = f.txn(5, vec![s1]);
        f.journal(&second);
        f
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        self.dev.write(at, bytes, false).unwrap();
    }

    /// Writes both copies: the records in slot A, the slots before them in slot B.
    fn headers(&self) {
        for base in self.header.header_offsets {
            self.put(base, &self.header.encode_unchecked()[..]);
            let host = HostRecord { seq: self.host.seq - 1, ..self.host.clone() };
            self.put(base + HOST_SLOTS[0], &self.host.encode()[..]);
            self.put(base + HOST_SLOTS[1], &host.encode()[..]);
            self.put(base + SERVICE_SLOTS[0], &self.service.encode()[..]);
        }
    }

    fn flip(&self, at: u64) {
        let mut b = [0];
        self.dev.read(at, &mut b).unwrap();
        self.put(at, &[b[0] ^ 1]);
    }

    pub fn append(&mut self, len: u32, durable_pos: u64) -> u64 {
        let item =
            Item::Data { ino: 12, generation: 0, offset: 0, len, data_offset: 0, home: None };
        self.append_spoilt(item, len, durable_pos, |_| {})
    }

    /// A record that `spoil` changes before its checksum is made.
    fn append_spoilt(
        &mut self,
        item: Item,
        len: u32,
        durable_pos: u64,
        spoil: fn(&mut [u8]),
    ) -> u64 {
        let layout = RecordLayout::new(std::slice::from_ref(&item), u64::from(len)).unwrap();
        let pos = place_record(self.end, u64::from(layout.len), RING).unwrap();
        let p = RecordParams {
            lsn: Lsn(self.lsn),
            prev_lsn: Lsn(self.prev_lsn),
            prev_compact: Lsn(0),
            durable_lsn: Lsn(self.durable_lsn),
            durable_pos,
            pos,
            prev_end: self.end,
            prev_crc: self.crc,
        };
        let mut buf = vec![0; layout.len as usize];
        let builder = RecordBuilder { key: KEY.lane(LaneId(0)), lane: LaneId(0) };
        builder.encode(&p, &layout, &[item], &[&vec![7; len as usize]], &mut buf);
        spoil(&mut buf);
        let peek = |buf: &[u8]| {
            RecordHeader::peek(buf, &KEY.lane(LaneId(0)), LaneId(0), pos, RING).unwrap()
        };
        let head = peek(&buf).head_len();
        RecordHeader::reseal(&KEY.lane(LaneId(0)), &mut buf[..head]);
        let crc = peek(&buf).crc;
        self.put(LANE + pos % RING, &buf);
        let lsn = Lsn(self.lsn);
        self.staged.push(StagedRef { lane: LaneId(0), pos, len: layout.len, lsn, crc });
        (self.end, self.crc, self.lsn) = (pos + u64::from(layout.len), crc, self.lsn + 1);
        pos
    }

    pub fn txn(&self, seq: u64, staged: Vec<StagedRef>) -> Transaction {
        Transaction {
            seq: TxnSeq(seq),
            ops_cut: Lsn(self.lsn),
            staged_cut: Lsn(self.lsn),
            lane_upto: vec![self.end],
            copies: vec![CopyTag { source: 0, data_offset: 0, dst: 8192, len: 10 }],
            staged,
            images: vec![1, 3],
            image_data: vec![[seq as u8; 4096].into(); 2],
            ..Default::default()
        }
    }

    pub fn journal(&mut self, txn: &Transaction) -> u64 {
        self.journal_as(txn, JournalData::Ref, 0)
    }

    /// A transaction, and what it repeats of staged data: bytes that are all `fill`.
    fn journal_as(&mut self, txn: &Transaction, form: JournalData, fill: u8) -> u64 {
        let layout = JournalLayout::new(txn, form).unwrap();
        let pos = place_record(self.journal_end, layout.len, RING).unwrap();
        let p = JournalParams { pos, prev_end: self.journal_end, prev_crc: self.journal_crc };
        let mut buf = vec![fill; layout.len as usize];
        self.journal_crc = encode_transaction_unchecked(&KEY.journal(), &p, &layout, txn, &mut buf);
        self.put(JOURNAL + pos % RING, &buf);
        self.journal_end = pos + layout.len;
        pos
    }

    fn codes(&self) -> Vec<&'static str> {
        let mut codes: Vec<_> = check(&self.dev).iter().map(|f| f.code).collect();
        codes.dedup();
        codes
    }
}

#[test]
fn sound_volumes_have_no_findings() {
    assert_eq!(check(&Fixture::new().dev), vec![]);
    assert_eq!(check(&Fixture::empty(HostState::Clean).dev), vec![]);
}

#[test]
fn nothing_at_all() {
    let codes: Vec<_> = check(&MemDevice::new(1 << 20)).iter().map(|f| f.code).collect();
    assert_eq!(codes, ["header.none", "super.missing"]);
    check(&MemDevice::new(0));
}

/// R15: a cut may tear the superblock while the marker is set or cleared. Recovery has the header's
/// copy, so it is no error; without the copy it is one.
#[test]
fn r15_a_torn_superblock() {
    let found =
        |f: &Fixture| -> Vec<_> { check(&f.dev).iter().map(|f| (f.code, f.severity)).collect() };
    for state in [HostState::Mounted, HostState::Recovering, HostState::Clean] {
        let mut f = Fixture::empty(state);
        let whole = superblock(state != HostState::Clean, 64);
        f.flip(1024 + 300);
        assert_eq!(found(&f), [("super.torn", Severity::Warning)], "{state:?}");
        // The marker of a torn one may be of its old half: nothing is said of it.
        let other = superblock(state == HostState::Clean, 64);
        f.put(1024, &[&other[..512], &whole[512..]].concat());
        assert_eq!(found(&f), [("super.torn", Severity::Warning)], "{state:?}");
        f.put(1024, &[0; 1024]);
        assert_eq!(found(&f), [("super.missing", Severity::Warning)], "{state:?}");
        f.host.superblock[700] ^= 1;
        f.headers();
        assert!(found(&f).contains(&("super.missing", Severity::Error)), "{state:?}");
        f.put(1024, &whole);
        f.flip(1024 + 300);
        assert!(found(&f).contains(&("super.torn", Severity::Error)), "{state:?}");
    }
    let f = Fixture::new();
    f.flip(BACKUPS[2] + 300);
    assert_eq!(found(&f), [("super.backup", Severity::Warning)]);
}

/// R16: a log elsewhere, and whether it is this area's.
#[test]
fn r16_log_and_area_must_belong_together() {
    let f = Fixture::new();
    let with = |link: Option<AreaLink>, marker| {
        let mut s = superblock(marker, 64);
        s[LINK_OFFSET..1020].copy_from_slice(&link.map_or([0; LINK_LEN], |l| l.encode()));
        let crc = !siftfs_base::crc32c(&s[..1020]);
        s[1020..].copy_from_slice(&crc.to_le_bytes());
        s
    };
    let link = AreaLink { volume: f.header.volume, epoch: KEY.epoch };
    let (area, log) = (MemDevice::new(AREA), MemDevice::new(SIZE - AREA));
    let mut header = StaticHeader { incompat: INCOMPAT_EXTERNAL_LOG, ..f.header.clone() };
    header.journal_offset -= AREA;
    header.header_offsets = header.header_offsets.map(|o| o - AREA);
    header.lanes.iter_mut().for_each(|l| l.offset -= AREA);
    let host = HostRecord { superblock: Box::new(with(Some(link), true)), ..f.host.clone() };
    for base in header.header_offsets {
        log.write(base, &header.encode_unchecked()[..], false).unwrap();
        log.write(base + HOST_SLOTS[0], &host.encode()[..], false).unwrap();
        log.write(base + SERVICE_SLOTS[0], &f.service.encode()[..], false).unwrap();
    }
    let codes = |primary: &[u8; 1024], log: Option<&dyn Device>| {
        area.write(1024, primary, false).unwrap();
        BACKUPS[1..].iter().for_each(|at| area.write(*at, &with(None, true), false).unwrap());
        check_on(Devices { area: &area, log, ..Devices::from(&area as &dyn Device) })
            .into_iter()
            .map(|f| f.code)
            .collect::<Vec<_>>()
    };
    let marked = with(Some(link), true);
    assert_eq!(codes(&marked, Some(&log)), Vec::<&str>::new());
    // A spare log is needed to say more.
    let spared = StaticHeader { incompat: header.incompat | INCOMPAT_SPARE_LOG, ..header.clone() };
    let write = |header: &StaticHeader| {
        header.header_offsets.iter().for_each(|base| {
            log.write(*base, &header.encode_unchecked()[..], false).unwrap();
        });
    };
    write(&spared);
    assert_eq!(codes(&marked, Some(&log)), ["spare.missing"]);
    write(&header);
    let older = AreaLink { epoch: siftfs_base::Epoch(KEY.epoch.0 - 1), ..link };
    assert_eq!(codes(&with(Some(older), true), Some(&log)), ["link.epoch"]);
    let other = AreaLink { volume: [0xee; 16], ..link };
    assert_eq!(codes(&with(Some(other), true), Some(&log)), ["link.volume", "link.epoch"]);
    assert_eq!(codes(&with(None, true), Some(&log)), ["link.none", "link.epoch"]);
    assert_eq!(codes(&marked, None), ["log.missing"]);
    assert_eq!(codes(&marked, Some(&f.dev)), ["header.kind"]);
    assert!(check(&log).iter().any(|f| f.code == "header.kind"));
}

/// R15: marker and header disagree.
#[test]
fn r15_the_marker_must_agree_with_the_header() {
    let f = Fixture::new();
    f.put(1024, &superblock(false, 64));
    assert_eq!(f.codes(), ["marker.missing"]);
    // A mount that wrote its header and nothing else; then a superblock that is not the one it
    // found.
    let f = Fixture::empty(HostState::Mounted);
    f.put(1024, &superblock(false, 64));
    assert_eq!(f.codes(), ["marker.pending"]);
    f.put(1024, &superblock(false, 63));
    assert_eq!(f.codes(), ["marker.missing"]);
    let f = Fixture::new();
    f.put(BACKUPS[1], &superblock(false, 64));
    assert_eq!(f.codes(), ["marker.backup"]);
    let f = Fixture::empty(HostState::Clean);
    f.put(1024, &superblock(true, 64));
    assert_eq!(f.codes(), ["marker.stale", "super.changed"]);
    let mut f = Fixture::new();
    *f.host.superblock = superblock(false, 64);
    f.headers();
    assert_eq!(f.codes(), ["host.superblock"]);
}

/// A journal that repeats staged data: the form the header says, the same bytes, none damaged.
#[test]
fn repeated_data_must_be_what_was_staged() {
    let copies = |form, fill: u8, hurt: Option<u64>| {
        let mut f = Fixture::empty(HostState::Mounted);
        f.header.incompat = INCOMPAT_JOURNAL_COPY;
        f.headers();
        f.append(100, 0);
        let staged = f.staged.clone();
        let txn = f.txn(4, staged);
        let pos = f.journal_as(&txn, form, fill);
        if let Some(at) = hurt {
            f.flip(JOURNAL + (pos + at) % RING);
        }
        f
    };
    // Descriptor, two images, ten bytes of data.
    assert_eq!(copies(JournalData::Copy, 7, None).codes(), Vec::<&str>::new());
    assert_eq!(copies(JournalData::Copy, 8, None).codes(), ["journal.copy"]);
    assert_eq!(copies(JournalData::Ref, 7, None).codes(), ["journal.form"]);
    let torn = copies(JournalData::Copy, 7, Some(3 * 4096 + 9));
    assert_eq!(crate::inspect(&torn.dev as &dyn Device).journal.unwrap().transactions.len(), 0);
    let seen =
        crate::inspect(&copies(JournalData::Copy, 7, None).dev as &dyn Device).journal.unwrap();
    assert_eq!((seen.data.as_str(), seen.transactions[0].repeated), ("copy", 10));
}

/// An end that a recovery wrote down is a whole block within the ring, whatever state the volume is
/// in.
#[test]
fn ends_of_lanes_that_cannot_be() {
    for state in [HostState::Mounted, HostState::Recovering] {
        for off in [1, 512, 4095] {
            let mut f = Fixture::new();
            f.host.state = state;
            f.host.lane_ends = vec![f.end];
            f.headers();
            assert_eq!(f.codes(), Vec::<&str>::new(), "{state:?}");
            f.host.lane_ends = vec![f.end - off];
            f.headers();
            assert_eq!(f.codes(), ["lane.tail"], "{state:?}, {off} bytes before a block's end");
        }
        let mut f = Fixture::new();
        (f.host.state, f.host.lane_ends) = (state, vec![f.service.lane_tails[0] + RING + 4096]);
        f.headers();
        assert_eq!(f.codes(), ["lane.tail"], "{state:?}, more than the ring holds");
    }
}

/// A header block's checksum, as the format's page has it.
fn block_sum(bytes: &[u8]) -> u32 {
    let step = |x: u64| x.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().next_multiple_of(32), 0);
    let mut lanes = [1, 2, 3, 4];
    for (i, word) in padded.chunks_exact(8).enumerate() {
        lanes[i % 4] = step(lanes[i % 4] ^ u64::from_le_bytes(word.try_into().unwrap()));
    }
    siftfs_base::crc32c(bytes) ^ (lanes.iter().fold(0, |h, lane| step(h ^ lane)) >> 32) as u32
}

#[test]
fn a_truncated_device() {
    let f = Fixture::new();
    let short = MemDevice::new(SIZE - BLOCK_BYTES);
    let mut bytes = vec![0; short.size() as usize];
    f.dev.read(0, &mut bytes).unwrap();
    short.write(0, &bytes, false).unwrap();
    let codes: Vec<_> = check(&short).iter().map(|f| f.code).collect();
    assert_eq!(codes, ["geometry.truncated"]);
}

#[test]
fn a_torn_lane_is_no_error() {
    let mut f = Fixture::new();
    let torn = f.append(6000, 0);
    f.append(10, 0);
    f.flip(LANE + (torn + 5000) % RING);
    assert_eq!(f.codes(), ["lane.torn"]);
    assert_eq!(check(&f.dev)[0].severity, Severity::Info);
}

/// R14: rot in a lane and in the journal.
#[test]
fn r14_rot_is_an_error() {
    let mut f = Fixture::new();
    let torn = f.append(6000, 0);
    let end = f.end;
    f.append(10, end);
    f.flip(LANE + (torn + 5000) % RING);
    assert_eq!(f.codes(), ["lane.rot"]);
    let f = Fixture::new();
    f.flip(JOURNAL + 5000);
    assert_eq!(f.codes(), ["journal.rot"]);
}

/// R14, R24: a record whose predecessor is in no lane. Above what was durable a cut may leave it.
#[test]
fn r24_a_gap_in_the_order_of_all_lanes() {
    for (durable, severity) in [(0, Severity::Info), (40, Severity::Error)] {
        let mut f = Fixture::new();
        f.lsn = 40;
        f.append(100, 0);
        (f.prev_lsn, f.durable_lsn) = (40, durable);
        f.append(100, 0);
        assert_eq!(f.codes(), [""; 0], "each follows the one before");
        // 50 was in the other lane, and is gone.
        (f.lsn, f.prev_lsn) = (60, 50);
        f.durable_lsn = if durable > 0 { 50 } else { 0 };
        f.append(100, 0);
        let found = check(&f.dev);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].code, found[0].severity), ("lane.gap", severity), "{found:?}");
    }
}

/// R4: a journaled transaction names a record that is not there.
#[test]
fn r04_a_named_record_is_damaged() {
    let f = Fixture::new();
    f.flip(LANE + f.staged[1].pos % RING + 5000);
    assert_eq!(f.codes(), ["lane.torn", "journal.staged"]);
}

#[test]
fn records_that_contradict() {
    let mut f = Fixture::new();
    f.lsn = 5;
    f.append(10, 0);
    assert_eq!(f.codes(), ["lane.lsn"]);
    let mut f = Fixture::new();
    let inside =
        Item::Data { ino: 12, generation: 0, offset: 0, len: 9, data_offset: 1, home: None };
    // The offset of its data is the last field of the only item.
    f.append_spoilt(inside, 10, 0, |record| record[156] = 8);
    assert!(f.codes().contains(&"lane.item"), "{:?}", f.codes());
    let mut f = Fixture::new();
    f.host.lane_ends = vec![f.end + 4096];
    f.headers();
    assert_eq!(f.codes(), ["lane.end"]);
    let mut f = Fixture::empty(HostState::Clean);
    f.append(10, 0);
    let txn = Transaction { copies: vec![], ..f.txn(4, vec![]) };
    f.journal(&txn);
    assert_eq!(f.codes(), ["lane.not-empty", "journal.not-empty"]);
}

#[test]
fn transactions_that_contradict() {
    type Spoil = (fn(&mut Transaction), &'static str);
    let spoil: [Spoil; 6] = [
        (|t| t.ops_cut = Lsn(1), "journal.cut"),
        (|t| t.ops_cut = Lsn(t.staged_cut.0 + 1), "journal.cut"),
        (|t| t.lane_upto[0] += RING, "journal.lane"),
        (|t| t.copies[0].dst = AREA, "journal.range"),
        (|t| t.drops.push(BlockRun { start: 63, len: 2 }), "journal.range"),
        (|t| t.staged[0].crc ^= 1, "journal.staged"),
    ];
    for (spoil, code) in spoil {
        let mut f = Fixture::new();
        let mut txn = f.txn(6, vec![f.staged[2].clone()]);
        spoil(&mut txn);
        f.journal(&txn);
        assert_eq!(f.codes(), [code]);
    }
}

#[test]
fn a_transaction_that_breaks_the_format_is_an_error() {
    let mut f = Fixture::new();
    let mut txn = f.txn(6, vec![]);
    txn.copies[0].source = 9;
    f.journal(&txn);
    assert_eq!(f.codes(), ["journal.content"]);
}

#[test]
fn an_unreadable_block_is_said() {
    let f = Fixture::new();
    let image = f.dev.snapshot();
    let dev = FaultDevice::from_image(image, 1);
    dev.inject(Fault::fail(OpClass::Read, 5).within(LANE..LANE + 4096));
    assert!(check(&dev).iter().any(|f| f.code == "io" && f.severity == Severity::Error));
}

/// What the next mount would build on.
#[test]
fn a_clean_volume_that_would_go_wrong() {
    type Spoil = (fn(&mut Fixture), &'static str);
    let spoil: [Spoil; 4] = [
        (|f| f.host.lane_heads = vec![RING - 12288], "lane.head"),
        (|f| f.host.lane_heads = vec![2 * RING], "lane.head"),
        (|f| f.host.lane_heads = vec![RING - 8191], "lane.head"),
        (|f| f.host.lsn_floor = Lsn(4), "record.floor"),
    ];
    for (spoil, code) in spoil {
        let mut f = Fixture::empty(HostState::Clean);
        spoil(&mut f);
        f.headers();
        assert_eq!(f.codes(), [code]);
    }
}

/// The header's copy of the superblock is another file system's.
#[test]
fn r15_a_foreign_superblock_image() {
    let mut f = Fixture::new();
    f.host.superblock[104] ^= 1;
    let crc = !siftfs_base::crc32c(&f.host.superblock[..1020]);
    f.host.superblock[1020..].copy_from_slice(&crc.to_le_bytes());
    f.headers();
    assert_eq!(f.codes(), ["host.superblock"]);
}

/// A transaction may name only records that its own cut contains, in lanes that exist.
#[test]
fn r04_a_named_record_beyond_the_cut() {
    let mut f = Fixture::new();
    let mut txn = f.txn(6, vec![f.staged[2].clone()]);
    txn.lane_upto[0] = f.staged[2].pos;
    f.journal(&txn);
    let codes = f.codes();
    assert!(codes == ["journal.staged"] || codes.contains(&"journal.content"), "{codes:?}");
    let mut f = Fixture::new();
    f.staged[2].lsn = Lsn(99);
    let txn = f.txn(6, vec![f.staged[2].clone()]);
    f.journal(&txn);
    assert_eq!(f.codes(), ["journal.staged"]);
}
