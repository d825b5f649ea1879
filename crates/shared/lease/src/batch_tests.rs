//! A log is written, torn, damaged and made up.

use super::*;
use proptest::prelude::*;
use std::io::{Error, ErrorKind, Result};

const SHAPE: LogShape = LogShape { len: 4 << 20, key: 7, medium: LogMedium::File };
/// The same in memory.
const BYTES: LogShape = LogShape { medium: LogMedium::Byte, ..SHAPE };

/// A log's file.
#[derive(Clone)]
struct File(Vec<u8>);

impl File {
    fn new() -> Self {
        Self(vec![0; SHAPE.len as usize])
    }

    fn write(&mut self, batch: &Batch<'_>) -> (usize, usize) {
        let at = batch.place as usize;
        // Its memory is aligned for O_DIRECT on every medium.
        assert!(at.is_multiple_of(64) && batch.bytes.as_ptr().addr().is_multiple_of(4096));
        self.0[at..at + batch.bytes.len()].copy_from_slice(batch.bytes);
        (at, batch.bytes.len())
    }

    fn read(&self) -> impl FnMut(u64, &mut [u8]) -> Result<()> + '_ {
        |at, into| {
            let from = usize::try_from(at).ok().and_then(|at| self.0.get(at..at + into.len()));
            into.copy_from_slice(from.ok_or(Error::from(ErrorKind::UnexpectedEof))?);
            Ok(())
        }
    }

    /// What is found, and what of it.
    fn scan(&self, shape: &LogShape, begin: u64) -> (Scanned, Vec<(Logged, Vec<u8>)>) {
        let mut found = Vec::new();
        let mut each = |logged: &Logged, bytes: &[u8]| {
            found.push((*logged, bytes.to_vec()));
            Ok(())
        };
        (scan(&mut self.read(), shape, begin, &mut each).unwrap(), found)
    }
}

fn logged(number: u64) -> Logged {
    let held = Held { slot: (number % 9) as u32, number };
    Logged { held, offset: number * 100, time: -(number as i64) }
}

/// Writes a batch of records of these lengths, each with a number of its own.
fn batch(
    batches: &mut Batches,
    file: &mut File,
    numbers: &mut u64,
    lens: &[usize],
) -> (usize, usize) {
    for len in lens {
        *numbers += 1;
        assert!(batches.push(&logged(*numbers), *len, |into| into.fill(*numbers as u8)));
    }
    file.write(&batches.seal(0).unwrap())
}

fn all(upto: u64, lens: &[usize]) -> Vec<(Logged, Vec<u8>)> {
    (1..=upto).zip(lens).map(|(n, len)| (logged(n), vec![n as u8; *len])).collect()
}

#[test]
fn what_was_written_is_found_in_order() {
    let (mut batches, mut file, mut numbers) = (Batches::new(SHAPE).unwrap(), File::new(), 0);
    let lens = [1, 4096, 700, 8, MOST_BYTES, 13];
    batch(&mut batches, &mut file, &mut numbers, &lens[..3]);
    batch(&mut batches, &mut file, &mut numbers, &lens[3..4]);
    batch(&mut batches, &mut file, &mut numbers, &lens[4..5]);
    batch(&mut batches, &mut file, &mut numbers, &lens[5..]);
    let (scanned, found) = file.scan(&SHAPE, 0);
    assert_eq!(found, all(6, &lens));
    assert_eq!((scanned.batches, scanned.records, scanned.lost), (4, 6, None));
    assert_eq!(
        (scanned.end, scanned.bytes),
        (batches.position(), lens.iter().sum::<usize>() as u64)
    );
    // From the second on; under another key; nothing was written behind the end.
    assert_eq!(file.scan(&SHAPE, 8192).1, all(6, &lens)[3..]);
    assert_eq!(file.scan(&LogShape { key: 8, ..SHAPE }, 0).0, Scanned::default());
    assert_eq!(file.scan(&SHAPE, scanned.end).0.batches, 0);
}

/// A batch that does not fit begins at the file's begin. A batch of the lap before is not found.
#[test]
fn a_log_goes_round() {
    let (mut batches, mut file) = (Batches::new(SHAPE).unwrap(), File::new());
    let (mut begin, mut number, mut live) = (0, 0, Vec::new());
    for turn in 0..40u64 {
        let len = if turn % 3 == 0 { 900_000 } else { 5000 };
        number += 1;
        assert!(batches.push(&logged(number), len, |into| into.fill(number as u8)));
        let before = batches.position();
        if batches.seal(begin).map(|batch| file.write(&batch)).is_none() {
            assert_eq!(batches.position(), before, "nothing has changed");
            begin = before;
            live.clear();
            file.write(&batches.seal(begin).unwrap());
        }
        live.push((logged(number), vec![number as u8; len]));
        let (scanned, found) = file.scan(&SHAPE, begin);
        assert_eq!((scanned.lost.as_deref(), scanned.end), (None, batches.position()));
        assert!(found == live, "turn {turn}");
    }
    assert!(batches.position() > 2 * SHAPE.len);
}

/// Any of the sectors of the newest batch may be those of the lap before: it is there as a whole,
/// or not at all.
#[test]
fn a_torn_batch_is_none() {
    let (mut batches, mut old) = (Batches::new(SHAPE).unwrap(), File::new());
    // A lap of blocks that end in the checksum of what is before it: a CRC alone is blind to them.
    let mut block = vec![5; 4092];
    block.extend_from_slice(&crc32c(&block.clone()).to_le_bytes());
    while batches.position() < SHAPE.len {
        assert!(batches.push(&logged(1), 4096, |into| into.copy_from_slice(&block)));
        let begin = batches.position();
        old.write(&batches.seal(begin).unwrap());
    }
    let begin = batches.position();
    let mut other = vec![6; 4092];
    other.extend_from_slice(&crc32c(&other.clone()).to_le_bytes());
    assert!(batches.push(&logged(2), 4096, |into| into.copy_from_slice(&other)));
    let mut new = old.clone();
    let (at, len) = new.write(&batches.seal(begin).unwrap());
    assert_eq!(new.scan(&SHAPE, begin).1.len(), 1);
    let sectors = len / 512;
    let mut rng = siftfs_base::Rng::new(1);
    let drawn = (0..300).map(|_| rng.bits() as u32);
    let single = (0..sectors).flat_map(|sector| [1 << sector, !(1 << sector)]);
    for kept in single.chain(drawn).chain([0, !0]) {
        let mut torn = new.clone();
        for sector in (0..sectors).filter(|sector| kept >> sector & 1 == 0) {
            let range = at + sector * 512..at + (sector + 1) * 512;
            torn.0[range.clone()].copy_from_slice(&old.0[range]);
        }
        let whole = torn.0 == new.0;
        let (scanned, found) = torn.scan(&SHAPE, begin);
        assert_eq!((found.len(), scanned.lost), (usize::from(whole), None), "{kept:b}");
    }
}

/// In memory a batch takes whole cache lines and no more. Any of its words of 8 bytes may be those
/// of before the power went: it is there as a whole, or not at all, and what is before it is there.
///
/// Seen to fail when the checksum covers the header and the records only.
#[test]
fn a_batch_in_memory_is_torn_at_words() {
    let (mut batches, mut file, mut numbers) = (Batches::new(BYTES).unwrap(), File::new(), 0);
    let first = batch(&mut batches, &mut file, &mut numbers, &[100, 30]);
    assert_eq!(first, (0, 320), "64, two records of 32, 104 and 32 bytes");
    let old = file.clone();
    let (at, len) = batch(&mut batches, &mut file, &mut numbers, &[500, 16]);
    assert_eq!((at, len), (320, 704));
    let all = all(4, &[100, 30, 500, 16]);
    let (mut rng, words) = (siftfs_base::Rng::new(1), len / 8);
    for round in 0..2 * words + 300 {
        let kept: Vec<bool> = (0..words)
            .map(|word| match round / 2 {
                single if single < words => (word == single) == (round % 2 == 0),
                _ => rng.below(2) == 0,
            })
            .collect();
        let mut torn = file.clone();
        for word in (0..words).filter(|word| !kept[*word]) {
            let range = at + word * 8..at + word * 8 + 8;
            torn.0[range.clone()].copy_from_slice(&old.0[range]);
        }
        let whole = torn.0 == file.0;
        let (scanned, found) = torn.scan(&BYTES, 0);
        assert!(found == all[..if whole { 4 } else { 2 }], "round {round}: {}", found.len());
        assert_eq!(scanned.lost, None, "round {round}");
    }
}

#[test]
fn a_log_in_memory_goes_round_and_is_told_when_damaged() {
    let (mut batches, mut file) = (Batches::new(BYTES).unwrap(), File::new());
    for turn in 0..9000u64 {
        assert!(batches.push(&logged(turn), 800, |into| into.fill(turn as u8)));
        let begin = batches.position();
        file.write(&batches.seal(begin).unwrap());
    }
    assert!(batches.position() > BYTES.len, "{}", batches.position());
    let begin = batches.position();
    let mut numbers = 0;
    let places: Vec<_> =
        (0..3).map(|_| batch_from(&mut batches, &mut file, &mut numbers, begin)).collect();
    assert_eq!(file.scan(&BYTES, begin).1.len(), 3);
    let mut damaged = file.clone();
    damaged.0[places[1].0 + 70] ^= 1;
    let (scanned, found) = damaged.scan(&BYTES, begin);
    assert!(found.len() == 1 && scanned.lost.is_some_and(|why| why.contains("is damaged")));
    // One that is read by another unit is another log.
    assert_eq!(file.scan(&SHAPE, begin).0.batches, 0);
}

/// Writes a batch of one record, where the log is forgotten up to `begin`.
fn batch_from(
    batches: &mut Batches,
    file: &mut File,
    numbers: &mut u64,
    begin: u64,
) -> (usize, usize) {
    *numbers += 1;
    assert!(batches.push(&logged(*numbers), 5, |into| into.fill(*numbers as u8)));
    file.write(&batches.seal(begin).unwrap())
}

#[test]
fn a_damaged_batch_before_a_valid_one_is_told() {
    let (mut batches, mut file, mut numbers) = (Batches::new(SHAPE).unwrap(), File::new(), 0);
    let places: Vec<_> =
        (0..3).map(|_| batch(&mut batches, &mut file, &mut numbers, &[3000, 9])).collect();
    for (at, len) in &places {
        for byte in [0, 50, 70, 3000, len - 1] {
            let mut damaged = file.clone();
            damaged.0[at + byte] ^= 1;
            let (scanned, found) = damaged.scan(&SHAPE, 0);
            let before = places.iter().filter(|(place, _)| place < at).count();
            assert_eq!(found, all(6, &[3000, 9, 3000, 9, 3000, 9])[..2 * before]);
            assert_eq!(scanned.lost.is_some(), *at != places[2].0, "{at} {byte}");
        }
    }
}

#[test]
fn what_is_refused_ends_the_log() {
    let (mut batches, mut file, mut numbers) = (Batches::new(SHAPE).unwrap(), File::new(), 0);
    batch(&mut batches, &mut file, &mut numbers, &[1, 2]);
    let mut count = 0;
    let mut each = |_: &Logged, _: &[u8]| {
        count += 1;
        if count == 2 { Err("not that one".to_string()) } else { Ok(()) }
    };
    let scanned = scan(&mut file.read(), &SHAPE, 0, &mut each).unwrap();
    assert_eq!((scanned.records, scanned.lost.as_deref()), (1, Some("not that one")));
}

#[test]
fn a_batch_has_bounds() {
    let mut batches = Batches::new(SHAPE).unwrap();
    for _ in 0..FULL.records {
        assert!(batches.push(&logged(1), 1, |into| into.fill(1)));
    }
    assert!(!batches.push(&logged(1), 1, |_| {}), "too many records");
    batches.clear();
    assert!(batches.is_empty());
    assert!(batches.push(&logged(1), BATCH_DATA, |_| {}));
    assert!(!batches.push(&logged(1), 1, |_| {}), "too many bytes");
    assert!(batches.seal(0).unwrap().bytes.len() <= MOST_LEN);
}

/// Its program says at every place that a long batch begins there. Behind a log's end not much more
/// is read of that than the log has.
///
/// Seen to fail when each of them is read: 788 MiB of a log of 4 MiB.
#[test]
fn batches_that_lie_over_each_other_are_not_all_read() {
    let mut file = File::new();
    for at in (0..SHAPE.len - MOST_LEN as u64).step_by(BATCH_UNIT) {
        let header = RawHeader {
            magic: MAGIC,
            version: VERSION.into(),
            records: 1.into(),
            position: at.into(),
            len: (MOST_LEN as u64).into(),
            before_end: 0.into(),
            before_crc: 0.into(),
            crc: 0.into(),
            rest: [0; 16],
        };
        file.0[at as usize..][..HEADER].copy_from_slice(header.as_bytes());
    }
    let mut from = file.read();
    let mut bytes = 0;
    let mut read = |at: u64, into: &mut [u8]| {
        bytes += into.len() as u64;
        from(at, into)
    };
    let scanned = scan(&mut read, &SHAPE, 0, &mut |_, _| Ok(())).unwrap();
    assert!(bytes < 4 * SHAPE.len, "{bytes}");
    assert!(scanned.lost.unwrap().contains("lie over each other"));
}

/// A batch with these bytes in it, and a checksum that is right.
fn forged(file: &mut File, shape: &LogShape, at: usize, changes: &[(usize, u8)]) {
    let Ok((header, _)) = RawHeader::read_from_prefix(&file.0[at..]) else { return };
    for (place, value) in changes {
        file.0[at + place % 128] = *value;
    }
    let len = (header.len.get() as usize).clamp(BATCH_UNIT, MOST_LEN);
    let bytes = &mut file.0[at..at + len];
    bytes[CRC_AT..CRC_AT + 4].fill(0);
    let crc = checksum(shape.seed(), bytes);
    bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
}

proptest! {
    /// Its program knows the key, and may write anything: reading ends, with bounded records.
    #[test]
    fn a_log_may_say_what_it_likes(
        changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..6),
        begin in prop_oneof![Just(0u64), any::<u64>()],
        len in prop_oneof![Just(SHAPE.len), any::<u64>()],
    ) {
        let (mut batches, mut file, mut numbers) = (Batches::new(SHAPE).unwrap(), File::new(), 0);
        for _ in 0..3 {
            batch(&mut batches, &mut file, &mut numbers, &[100, 5]);
        }
        forged(&mut file, &SHAPE, 0, &changes);
        let mut each = |_: &Logged, bytes: &[u8]| {
            assert!((1..=MOST_BYTES).contains(&bytes.len()));
            Ok(())
        };
        // A file that is too short is an error of reading it.
        let scanned = scan(&mut file.read(), &LogShape { len, ..SHAPE }, begin, &mut each);
        if let Ok(scanned) = scanned {
            prop_assert!(scanned.end - begin <= len);
        }
    }
}
