//! A redo lane that somebody has damaged, or written by hand with right checksums: its row in the
//! header, its slots, its records. Transactions come back as a whole and in order, or the volume is
//! refused, and no other file has changed.

use super::disk::{BLOCK, Disk, put, with_header_at, with_marker};
use siftfs_base::checksum;
use siftfs_crash::{
    Back, Bench, VolumeKind, deterministic, devices, mem_media, open, recover_image,
};
use siftfs_device::{Cut, Image};
use siftfs_fsck::{Severity, check_on};
use siftfs_log::{
    REDO_RING, REDO_SLOT_LEN, RedoPlace, RedoRegion, RedoSlot, encode_redo, redo_record_len,
};
use siftfs_model::pattern;
use siftfs_placement::recover_on;

const KIND: VolumeKind = VolumeKind::SMALL.with_redo_lane();
/// Where the row of the redo lane lies in the header's first block: behind that of the one lane.
const ROW: usize = 256 + 64;

/// A record: its transaction, its index in that, whether it commits that, and its writes, as places
/// and lengths.
type Planned<'a> = (u64, u32, bool, &'a [(u64, usize)]);

/// A volume with a history, and three records of two transactions in its lane.
struct Case {
    image: Image,
    lane: RedoRegion,
    slot: RedoSlot,
    /// Where the records lie, and their checksummed heads' lengths.
    records: Vec<(u64, usize)>,
    /// The file that the transactions change, after none of them, one, and both.
    states: Vec<Vec<u8>>,
    files: Vec<(String, Vec<u8>)>,
}

fn headers(image: &Image) -> siftfs_log::StaticHeader {
    siftfs_volume::read_headers(&*mem_media(image).0).expect("a header").header
}

fn slot(image: &Image, lane: RedoRegion, nr: u64) -> RedoSlot {
    let bytes = image.bytes(lane.offset + nr * BLOCK, REDO_SLOT_LEN);
    RedoSlot::decode(&bytes.try_into().expect("a slot's length")).expect("a slot")
}

impl Case {
    /// Files in home and in the log alone, a host that died, and a target that died.
    fn new() -> Self {
        let b = Bench::new(KIND);
        let mut files = Vec::new();
        b.durable("changed", &vec![7; 3 * BLOCK as usize]);
        let ino = b.ino("changed");
        for i in 0..12 {
            let (name, data) = (format!("f{i}"), pattern(i, 0, 2900));
            b.durable(&name, &data);
            files.push((name, data));
            if i == 5 {
                b.commit(true);
                b.checkpoint();
            }
        }
        let image = b.crash(Cut::KeepAll);
        let lane = headers(&image).redo.expect("a lane");
        let slot = (0..2).map(|nr| slot(&image, lane, nr)).max_by_key(|s| s.seq).expect("two");
        let states = vec![vec![7; 3 * BLOCK as usize]];
        let mut case = Self { image, lane, slot, records: Vec::new(), states, files };
        case.write(ino);
        case
    }

    fn write(&mut self, ino: u32) {
        let disk = Disk { image: self.image.clone() };
        let home = |at: u64| disk.mapped(ino, (at / BLOCK) as u32) * BLOCK + at % BLOCK;
        let records: [Planned<'_>; 3] = [
            (0, 0, true, &[(100, 2000), (2 * BLOCK, 4096)]),
            (1, 0, false, &[(0, 4096)]),
            (1, 1, true, &[(BLOCK + 10, 50)]),
        ];
        let (mut pos, mut crc) = (self.slot.tail, self.slot.prev_crc);
        let mut state = self.states[0].clone();
        for (transaction, index, commit, writes) in records {
            let bytes = vec![transaction as u8 + 1; BLOCK as usize];
            let all: Vec<(u64, &[u8])> =
                writes.iter().map(|(at, len)| (home(*at), &bytes[..*len])).collect();
            let data = writes.iter().map(|(_, len)| *len as u64).sum();
            let mut record = vec![0; redo_record_len(all.len(), data) as usize];
            let number = self.slot.number + transaction;
            let (prev_end, prev_crc, durable) = (pos, crc, pos);
            let place = RedoPlace { pos, prev_end, prev_crc, number, index, commit, durable };
            crc = encode_redo(&self.slot.key(), &place, &all, &mut record);
            self.image.write(self.lane.offset + REDO_RING + pos, &record);
            let head = 128 + 16 * all.len() + 4 * data.div_ceil(4096) as usize;
            self.records.push((pos, head));
            pos += record.len() as u64;
            for (at, len) in writes {
                state[*at as usize..][..*len].fill(transaction as u8 + 1);
            }
            if commit {
                self.states.push(state.clone());
            }
        }
    }

    /// Says how many of the transactions are there, or that the volume is refused: by recovery and
    /// mount with a message, and by fsck as an error.
    fn judge(&self, what: &str, image: &Image) -> Option<usize> {
        let media = mem_media(image).1;
        let errors = check_on(devices(&media));
        let errors = errors.iter().filter(|f| f.severity == Severity::Error).count();
        if recover_image(image).is_ok() {
            assert_eq!(errors, 0, "{what}: fsck finds errors in what recovers");
            let back = Back::from(image);
            for (name, data) in &self.files {
                assert!(back.bytes(name) == *data, "{what}: {name} has changed");
            }
            let changed = back.bytes("changed");
            let state = self.states.iter().position(|state| *state == changed);
            return Some(state.unwrap_or_else(|| panic!("{what}: a part of a transaction")));
        }
        let Err(error) = recover_on(mem_media(image).1, &deterministic()) else {
            panic!("{what}: refused once")
        };
        let text = error.to_string();
        assert!(text.len() > 25 && text.len() < 500, "{what}: no clear message: {text}");
        assert!(open(mem_media(image).1).is_err(), "{what}: recovery refuses, mount does not");
        assert!(errors > 0, "{what}: recovery refuses ({text}), fsck finds nothing");
        None
    }

    fn refuses(&self, what: &str, image: &Image) {
        assert_eq!(self.judge(what, image), None, "{what}");
    }

    fn slot_at(&self, nr: u64) -> u64 {
        self.lane.offset + nr * BLOCK
    }

    fn record_at(&self, nr: usize) -> u64 {
        self.lane.offset + REDO_RING + self.records[nr].0
    }

    fn flipped(&self, at: u64) -> Image {
        let mut image = self.image.clone();
        image.write(at, &[image.bytes(at, 1)[0] ^ 0x10]);
        image
    }

    /// The newest slot with these bytes at `at`, its checksum right.
    fn with_slot(&self, at: usize, value: &[u8]) -> Image {
        let mut bytes = self.slot.encode().to_vec();
        assert_eq!(bytes[124..], checksum(0, &bytes[..124]).to_le_bytes());
        put(&mut bytes, at, value);
        let sum = checksum(0, &bytes[..124]).to_le_bytes();
        put(&mut bytes, 124, &sum);
        let mut image = self.image.clone();
        image.write(self.lane.offset + RedoSlot::place(self.slot.seq), &bytes);
        image
    }

    /// A record with these bytes at `at` of its head, its checksum right.
    fn with_record(&self, nr: usize, at: usize, value: &[u8]) -> Image {
        let mut bytes = self.image.bytes(self.record_at(nr), self.records[nr].1);
        let sum = |bytes: &[u8]| {
            let fixed = self.slot.key().crc(&bytes[..124]);
            checksum(fixed, &bytes[128..]).to_le_bytes()
        };
        assert_eq!(bytes[124..128], sum(&bytes), "the checksum is computed rightly here");
        put(&mut bytes, at, value);
        let sum = sum(&bytes);
        put(&mut bytes, 124, &sum);
        let mut image = self.image.clone();
        image.write(self.record_at(nr), &bytes);
        image
    }

    /// The lane's row, or what lies before it in the block, is other in both copies.
    fn with_row(&self, changes: &[(usize, &[u8])]) -> Image {
        let copies = headers(&self.image).header_offsets;
        copies.iter().fold(self.image.clone(), |image, copy| {
            changes
                .iter()
                .fold(image, |image, (at, value)| with_header_at(&image, *copy, *at, value))
        })
    }
}

/// Values that a field of eight bytes may have, besides what it has.
const HOSTILE: [u64; 9] =
    [0, 1, 4095, 4096, 1 << 20, (1 << 20) + 4096, 1 << 62, u64::MAX - 4095, u64::MAX];

#[test]
fn a_sound_lane_comes_back() {
    let case = Case::new();
    assert_eq!(case.judge("undamaged", &case.image), Some(2));
}

/// One bit of any field: of a slot it is refused, and so of a record behind which there are others.
#[test]
fn damage_at_any_place() {
    let case = Case::new();
    for nr in 0..2 {
        for at in (0..124).step_by(4).chain([124, 127]) {
            let image = case.flipped(case.slot_at(nr) + at);
            case.refuses(&format!("slot {nr}, byte {at}"), &image);
        }
    }
    for nr in 0..3 {
        let (head, data) = (case.records[nr].1 as u64, [8, 40, 49]);
        let places = (0..head).step_by(3).chain(data.map(|at| head + at));
        for at in places {
            let what = format!("record {nr}, byte {at}");
            let came = case.judge(&what, &case.flipped(case.record_at(nr) + at));
            match nr {
                // The last record of all: nobody can know that it was once written.
                2 => assert_eq!(came, Some(1), "{what}"),
                // What continues the chain behind it was written when this was durable.
                _ => assert_eq!(came, None, "{what}"),
            }
        }
    }
    let mut image = case.flipped(case.slot_at(0) + 17);
    image.write(case.slot_at(1), &[0; REDO_SLOT_LEN]);
    case.refuses("both slots", &image);
}

/// Slots whose checksums are right and whose fields are not.
#[test]
fn hostile_slots() {
    let case = Case::new();
    let (mut refused, mut served) = (0, 0);
    for at in [8, 16, 24, 40, 48, 56] {
        for value in HOSTILE {
            let image = case.with_slot(at, &value.to_le_bytes());
            // What another slot says is durable may be any of the transactions.
            match case.judge(&format!("slot, byte {at}: {value}"), &image) {
                None => refused += 1,
                Some(_) => served += 1,
            }
        }
    }
    assert!(refused > 20 && served > 0, "{refused} refused, {served} served");
}

/// Records whose checksums are right and whose fields are not.
#[test]
fn hostile_records() {
    let case = Case::new();
    let mut refused = 0;
    for nr in 0..3 {
        for (at, len) in
            [(8, 2), (10, 2), (12, 4), (16, 8), (24, 8), (32, 8), (40, 8), (48, 4), (52, 4)]
                .into_iter()
                .chain([(56, 4), (60, 4), (64, 4), (128, 8), (136, 4)])
        {
            for value in HOSTILE {
                let now = case.image.bytes(case.record_at(nr) + at as u64, len);
                if value.to_le_bytes()[..len] == now {
                    continue;
                }
                // A writer that has the key may commit what it likes, anywhere in the area.
                let is_believed = match at {
                    12 => nr == 1 && value == 1,
                    128 => value < 1 << 22,
                    _ => false,
                };
                if is_believed {
                    continue;
                }
                let image = case.with_record(nr, at, &value.to_le_bytes()[..len]);
                let came = case.judge(&format!("record {nr}, byte {at}: {value}"), &image);
                refused += u32::from(came.is_none());
            }
        }
    }
    assert!(refused > 100, "{refused} refused");
}

/// A range that is not in the area is never written, wherever it leads.
#[test]
fn ranges_outside_the_area() {
    let case = Case::new();
    let area = headers(&case.image).area_len;
    let len = u64::from(u32::from_le_bytes(
        case.image.bytes(case.record_at(0) + 136, 4).try_into().expect("4 bytes"),
    ));
    for offset in [area, area - len + 1, area + 65_536, case.lane.offset, u64::MAX - len, 1 << 61] {
        let image = case.with_record(0, 128, &offset.to_le_bytes());
        case.refuses(&format!("a range at {offset}"), &image);
    }
}

/// Rows whose checksums are right and whose fields are not; a lane over what is another's (R34).
#[test]
fn hostile_rows() {
    let case = Case::new();
    assert_eq!(case.judge("unchanged", &case.with_row(&[(ROW, &1u16.to_le_bytes())])), Some(2));
    for (at, value) in [(0, 0u16), (0, 2), (2, 2), (2, 9), (4, 0), (4, 1), (6, 0), (6, 2)] {
        let image = case.with_row(&[(ROW + at, &value.to_le_bytes())]);
        case.refuses(&format!("row, byte {at}: {value}"), &image);
    }
    let header = headers(&case.image);
    let lane = &header.lanes[0];
    let others = [0, header.area_offset + 4096, header.journal_offset, lane.offset];
    let copies = header.header_offsets;
    let edges = [case.lane.offset - BLOCK, case.lane.offset + BLOCK, case.lane.offset + 1];
    for offset in HOSTILE.into_iter().chain(others).chain(copies).chain(edges) {
        let image = case.with_row(&[(ROW + 8, &offset.to_le_bytes())]);
        case.refuses(&format!("a lane at {offset}"), &image);
    }
    for len in HOSTILE.into_iter().filter(|len| *len != case.lane.len) {
        let image = case.with_row(&[(ROW + 16, &len.to_le_bytes())]);
        case.refuses(&format!("a lane of {len} bytes"), &image);
    }
    let without = (header.incompat & !siftfs_log::INCOMPAT_REDO_LANE).to_le_bytes();
    let image = case.with_row(&[(20, &without)]);
    case.judge("a row without its feature", &image);
    case.refuses("a feature without its row", &case.with_row(&[(ROW, &[0; 64])]));
}

/// Nothing may lie in the lane of a volume that was unmounted: others may have written the file
/// system since.
#[test]
fn a_clean_volume_with_something_in_its_lane() {
    let b = Bench::new(KIND);
    b.durable("f", b"once mounted");
    let clean = b.close();
    let lane = headers(&clean).redo.expect("a lane");
    let slot = (0..2).map(|nr| slot(&clean, lane, nr)).max_by_key(|s| s.seq).expect("two");
    let mut case = Case { image: clean.clone(), slot, lane, ..Case::new() };
    let (pos, prev_crc, number) = (slot.tail, slot.prev_crc, slot.number);
    let place =
        RedoPlace { pos, prev_end: pos, prev_crc, number, index: 0, commit: true, durable: pos };
    let mut record = vec![0; redo_record_len(1, 100) as usize];
    encode_redo(&slot.key(), &place, &[(8 << 20, &[9; 100])], &mut record);
    case.image.write(lane.offset + REDO_RING + pos, &record);
    case.refuses("a clean volume", &with_marker(&case.image, false));
    assert!(recover_image(&clean).is_ok());
}
