//! One planted damage per finding about physical ranges (rule R42).

use super::record_areas::{LEN, change, volume};
use super::*;

/// Bytes of each range of a record.
const RANGE: u32 = 100;
/// A place in the file system that a range may name.
const HOME: Option<u64> = Some(5 * BLOCK_BYTES);

/// What changes a record's links before it is written.
type Links = fn(&mut RecordParams);

/// A volume in use, the records of its record area, and its newest transaction.
struct Area {
    f: Fixture,
    dev: MemDevice,
    /// Of the records, which the fixture's other lane has under [`KEY`].
    key: EpochKey,
    /// Where the next record may begin.
    end: u64,
    /// Checksum of the newest record.
    crc: u32,
    /// Where the newest transaction ended, and the checksum of the record there.
    cut: (u64, u32),
    /// Physical ranges since then.
    ranges: u32,
    /// Of each record, its position and the checksum of the one before.
    records: Vec<(u64, u32)>,
}

impl Area {
    fn empty() -> Self {
        Self::from(HostState::Mounted, 0)
    }

    /// Without records; the lane's tail is at `tail`.
    fn from(state: HostState, tail: u64) -> Self {
        let (mut f, dev) = volume(state);
        f.service.lane_tails[1] = tail;
        f.headers();
        let (cut, ranges, records) = ((tail, 0), 0, Vec::new());
        Self { f, dev, key: KEY, end: tail, crc: 0, cut, ranges, records }
    }

    /// Four records: the first two and the last have physical ranges, three in all.
    fn new() -> Self {
        let mut a = Self::empty();
        a.record(&[HOME]);
        a.record(&[None, HOME]);
        a.record(&[None]);
        a.record(&[HOME]);
        a
    }

    fn record(&mut self, homes: &[Option<u64>]) {
        self.record_linked(homes, |_| {});
    }

    /// A record with a range for each of these homes.
    fn record_linked(&mut self, homes: &[Option<u64>], links: Links) {
        let range = |(data_offset, home): (u32, &Option<u64>)| Item::Data {
            ino: 12,
            generation: 0,
            offset: home.unwrap_or(0) % BLOCK_BYTES,
            len: RANGE,
            data_offset,
            home: *home,
        };
        let items: Vec<_> = (0..).step_by(RANGE as usize).zip(homes).map(range).collect();
        let data = vec![7; homes.len() * RANGE as usize];
        let layout = RecordLayout::on(LaneMedium::Bytes, &items, data.len() as u64).unwrap();
        let mut p = RecordParams {
            lsn: Lsn(self.f.lsn),
            pos: place_record(self.end, layout.len.into(), LEN).unwrap(),
            prev_end: self.end,
            prev_crc: self.crc,
            ..RecordParams::default()
        };
        links(&mut p);
        let mut buf = vec![0; layout.len as usize];
        let builder = RecordBuilder { key: self.key.lane(LaneId(1)), lane: LaneId(1) };
        self.records.push((p.pos, self.crc));
        self.crc = builder.encode(&p, &layout, &items, &[&data], &mut buf);
        self.dev.write(RECORD_AREA_LANE + p.pos % LEN, &buf, false).unwrap();
        self.end = p.pos + u64::from(layout.len);
        self.f.lsn += 1;
        self.ranges += homes.iter().flatten().count() as u32;
    }

    /// The next transaction, which contains all records that there are.
    fn txn(&self) -> Transaction {
        let (from, prev_crc) = self.cut;
        let (lane, crc, ranges) = (LaneId(1), self.crc, self.ranges);
        let digest = (ranges > 0).then_some(Digest { lane, from, prev_crc, crc, ranges });
        Transaction {
            seq: self.seq(),
            lane_upto: vec![self.f.end, self.end],
            digest,
            copies: Vec::new(),
            ..self.f.txn(0, Vec::new())
        }
    }

    fn seq(&self) -> TxnSeq {
        let journal = inspect(self.devices()).journal.unwrap();
        TxnSeq(self.f.service.next_seq.0 + journal.transactions.len() as u64)
    }

    fn journal(&mut self, txn: &Transaction) {
        self.f.journal(txn);
        (self.cut, self.ranges) = ((self.end, self.crc), 0);
    }

    /// As the next transaction, with `plant` in it.
    fn journal_with(&mut self, plant: impl Fn(&mut Transaction)) {
        let mut txn = self.txn();
        plant(&mut txn);
        self.journal(&txn);
    }

    fn devices(&self) -> Devices<'_> {
        Devices { area: &self.f.dev, log: None, bytes: Some(&self.dev), spare: false }
    }

    fn findings(&self) -> Vec<(&'static str, String)> {
        check_on(self.devices()).into_iter().map(|f| (f.code, f.text)).collect()
    }

    /// There is one finding about digests or homes, it has this code, and its text says so. The
    /// rest is `beside`.
    fn expect(&self, code: &str, says: &str, beside: &[&str]) {
        let found = self.findings();
        let ours = ["journal.digest", "lane.home"];
        let (about, rest): (Vec<_>, Vec<_>) = found.iter().partition(|f| ours.contains(&f.0));
        assert_eq!(about.iter().map(|f| f.0).collect::<Vec<_>>(), [code], "{says}: {found:?}");
        assert!(about[0].1.contains(says), "{says}: {found:?}");
        assert_eq!(rest.iter().map(|f| f.0).collect::<Vec<_>>(), beside, "{says}: {found:?}");
    }
}

/// Records without physical ranges among those with, a transaction without a digest between two
/// with one, records that no transaction contains yet, and the ring's end between two of a digest.
#[test]
fn sound_digests_have_no_findings() {
    for tail in [0, LEN - 512, LEN] {
        let mut a = Area::from(HostState::Mounted, tail);
        for homes in [[HOME, HOME], [None, None], [None, HOME]] {
            a.record(&homes);
            a.record(&[None]);
            a.journal_with(|_| {});
        }
        a.record(&[HOME]);
        assert_eq!(a.findings(), [], "from {tail}");
        let wraps = a.records.windows(2).any(|r| r[1].0 % LEN == 0);
        assert_eq!(wraps, tail == LEN - 512, "{:?}", a.records);
    }
}

#[test]
fn inspect_shows_digests_and_physical_ranges() {
    let mut a = Area::empty();
    a.record(&[None]);
    a.journal_with(|_| {});
    let from = a.end;
    a.record(&[HOME, None, HOME]);
    a.journal_with(|_| {});
    let seen = inspect(a.devices());
    assert_eq!(seen.lanes[1].records.iter().map(|r| r.physical).collect::<Vec<_>>(), [0, 2]);
    let digests: Vec<_> = seen.journal.unwrap().transactions.iter().map(|txn| txn.digest).collect();
    assert_eq!(digests, [None, Some(DigestView { lane: 1, from, ranges: 2 })]);
}

/// What a digest says of the records.
#[test]
fn r42_a_digest_of_other_records() {
    type Plant = (fn(&mut Transaction), &'static str);
    fn digest(txn: &mut Transaction) -> &mut Digest {
        txn.digest.as_mut().unwrap()
    }
    let plants: [Plant; 9] = [
        (|t| digest(t).from += 64, "the transaction before ended at"),
        (|t| digest(t).prev_crc ^= 1, "does not follow the one before"),
        (|t| digest(t).crc ^= 1, "is another one"),
        (|t| digest(t).ranges += 1, "have 3 ranges, not 4"),
        (|t| digest(t).ranges -= 1, "have 3 ranges, not 2"),
        (|t| t.lane_upto[1] += 64, "no record is whole"),
        (|t| t.lane_upto[1] -= 64, "record 13 reaches beyond"),
        (|t| t.staged_cut.0 -= 2, "record 13 is newer"),
        (|t| t.digest = None, "no digest says"),
    ];
    for (plant, says) in plants {
        let mut a = Area::new();
        a.journal_with(|_| {});
        assert_eq!(a.findings(), []);
        let mut a = Area::new();
        a.journal_with(|txn| {
            plant(txn);
            txn.ops_cut = txn.staged_cut;
        });
        a.expect("journal.digest", says, &[]);
    }
}

/// A digest begins where the transaction before ended, though it says of the records from elsewhere
/// on what they are: ranges would be written twice, or not at all.
#[test]
fn r42_digests_that_overlap_or_leave_a_gap() {
    for (record, ranges) in [(0, 5), (3, 3), (5, 1)] {
        let mut a = Area::new();
        a.journal_with(|_| {});
        a.record(&[HOME]);
        a.record(&[HOME]);
        let (ended, lane, crc) = (a.cut.0, LaneId(1), a.crc);
        let (from, prev_crc) = a.records[record];
        let digest = Digest { lane, from, prev_crc, crc, ranges };
        a.journal_with(|txn| txn.digest = Some(digest.clone()));
        let says = format!("begins at {from}, the transaction before ended at {ended}");
        a.expect("journal.digest", &says, &[]);
    }
}

/// A lane that does not exist breaks the format; one on block storage has no digest.
#[test]
fn r42_a_digest_of_another_lane() {
    let mut a = Area::new();
    a.journal_with(|txn| txn.digest.as_mut().unwrap().lane = LaneId(2));
    assert_eq!(a.findings().iter().map(|f| f.0).collect::<Vec<_>>(), ["journal.content"]);
    let mut a = Area::empty();
    a.f.append(100, 0);
    let (from, crc) = (a.f.service.lane_tails[0], a.f.crc);
    a.journal_with(|txn| {
        txn.digest = Some(Digest { lane: LaneId(0), from, prev_crc: 0, crc, ranges: 1 });
    });
    a.expect("journal.digest", "not the record area's", &[]);
}

/// A journal that repeats staged data would have to repeat the ranges'.
#[test]
fn r42_a_digest_beside_repeated_data() {
    let mut a = Area::new();
    a.f.header.incompat |= INCOMPAT_JOURNAL_COPY;
    a.f.headers();
    let txn = a.txn();
    a.f.journal_as(&txn, JournalData::Copy, 0);
    a.expect("journal.digest", "repeats staged data", &[]);
}

/// A record of a digest is damaged: in its head, and in its data, which its head does not show.
#[test]
fn r42_a_record_of_a_digest_is_damaged() {
    for at in [9, 260] {
        let mut a = Area::new();
        a.journal_with(|_| {});
        let at = RECORD_AREA_LANE + a.records[1].0 + at;
        let mut byte = [0];
        a.dev.read(at, &mut byte).unwrap();
        a.dev.write(at, &[byte[0] ^ 1], false).unwrap();
        let says = format!("at {} no record is whole", a.records[1].0);
        a.expect("journal.digest", &says, &["lane.torn"]);
    }
}

/// Whole records that name another one as the one before.
#[test]
fn r42_records_of_a_digest_that_do_not_follow() {
    let links: [Links; 2] = [|p| p.prev_crc ^= 1, |p| p.prev_end -= 64];
    for links in links {
        let mut a = Area::empty();
        a.record(&[HOME]);
        a.record_linked(&[HOME], links);
        a.journal_with(|_| {});
        a.expect("journal.digest", "does not follow the one before", &[]);
    }
}

/// A range that ends behind the file system is a finding of its record, and of the transaction that
/// would write it.
#[test]
fn r42_a_range_outside_the_file_system() {
    let last = AREA - u64::from(RANGE);
    for (home, wrong) in [(last, false), (last + 1, true), (AREA, true), (1 << 60, true)] {
        let mut a = Area::empty();
        a.record(&[HOME, Some(home)]);
        if !wrong {
            assert_eq!(a.findings(), []);
            continue;
        }
        a.expect("lane.home", "outside the file system", &[]);
        a.journal_with(|_| {});
        let found = a.findings();
        let digest = found.iter().find(|f| f.0 == "journal.digest");
        assert!(digest.is_some_and(|f| f.1.contains("outside the file system")), "{found:?}");
        assert_eq!(found.len(), 2, "{found:?}");
    }
}

/// Nothing digests a record on block storage.
#[test]
fn r42_a_physical_range_in_another_lane() {
    let mut a = Area::empty();
    let item =
        Item::Data { ino: 12, generation: 0, offset: 0, len: RANGE, data_offset: 0, home: HOME };
    a.f.append_spoilt(item, RANGE, 0, |_| {});
    a.expect("lane.home", "nothing digests it", &[]);
    a.journal_with(|_| {});
    a.expect("lane.home", "nothing digests it", &[]);
}

/// A range of a transaction without a digest never reaches the file system, whether transactions
/// with one come before and after, or records without ranges lie around its record.
#[test]
fn r42_ranges_that_no_digest_contains() {
    for before in [false, true] {
        let mut a = Area::empty();
        a.record(&[HOME]);
        if before {
            a.journal_with(|_| {});
        }
        a.record(&[None]);
        a.record(&[None, HOME]);
        let record = a.f.lsn - if before { 1 } else { 3 };
        a.journal_with(|txn| txn.digest = None);
        a.record(&[HOME]);
        a.journal_with(|_| {});
        a.expect("journal.digest", &format!("record {record} at"), &[]);
    }
}

/// A recovery that was cut off: its transactions, under a key of their own, contain what it applied
/// by file, and digest nothing.
#[test]
fn recovery_digests_nothing() {
    let mut a = Area::from(HostState::Recovering, 0);
    a.key = EpochKey { epoch: Epoch(KEY.epoch.0 - 1), nonce: 4 };
    a.f.host.lane_key = a.key;
    change(&a.f, &a.dev, |header| header.epoch = Epoch(KEY.epoch.0 - 1));
    a.record(&[HOME]);
    a.f.host.lane_ends = vec![a.f.end, a.end];
    a.f.headers();
    a.journal_with(|txn| {
        txn.digest = None;
        txn.ops_cut = Lsn(5);
    });
    assert_eq!(inspect(a.devices()).journal.unwrap().transactions.len(), 1);
    assert_eq!(a.findings(), []);
}
