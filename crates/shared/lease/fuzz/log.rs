//! What holds of every file log that a program may have left, for fuzzing and for the test of every
//! day (`tests/log.rs`).

use siftfs_base::{checksum, crc32c};
use siftfs_lease::{Batches, FULL, Held, LogMedium, LogShape, Logged, MOST_BYTES, Scanned, scan};

/// The length of logs whose writer is the library's: the shortest whole mebibytes that it takes.
const LEN: u64 = 3 << 20;
/// Bytes before the newest batch that are not forgotten: it and what is left before the log's end
/// have room beside them.
const KEPT: u64 = 512 << 10;
/// Where a batch has its checksum, and its length.
const CRC_AT: usize = 44;
const LEN_AT: usize = 24;

/// What was read of a log: each record and its bytes.
type Found = Vec<(Logged, Vec<u8>)>;

/// Takes what is drawn from the input; zeroes follow its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn number(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    fn short(&mut self) -> usize {
        usize::from(u16::from_le_bytes([self.byte(), self.byte()]))
    }

    fn medium(&mut self) -> LogMedium {
        LogMedium::of(u32::from(self.byte() % 3)).expect("there are three")
    }

    fn is_over(&self) -> bool {
        self.0.is_empty()
    }
}

/// Any bytes are a file, or say what is written to one and what becomes of it then. Whether the
/// checksums of damaged batches are right is drawn, too: the program knows its log's key.
pub fn any_log(bytes: &[u8]) {
    let mut input = Input(bytes);
    match input.byte() {
        0..64 => any_file(&mut input),
        _ => a_written_file(&mut input),
    }
}

fn any_file(input: &mut Input<'_>) {
    let medium = input.medium();
    let unit = medium.unit();
    let len = u64::from(input.byte()) * unit as u64;
    let (begin, key, sealed) = (position(input, medium), input.number(), input.byte() < 128);
    let mut file = input.0.to_vec();
    let shape = LogShape { len, key, medium };
    if sealed {
        file.resize(file.len().next_multiple_of(unit).max(unit), 0);
        seal(&mut file, 0, &shape);
    }
    read(&file, &shape, begin);
}

/// Batches as the library makes them, round the log's end if they are many; then some damage.
fn a_written_file(input: &mut Input<'_>) {
    let shape = LogShape { len: LEN, key: 7, medium: input.medium() };
    let mut batches = Batches::new(shape).expect("a length that a log may have");
    let mut file = vec![0; LEN as usize];
    let (mut places, mut written) = (Vec::new(), Vec::new());
    for _ in 0..input.byte() % 12 + 1 {
        // What was written before this batch is forgotten up to here.
        let begin = batches.position().saturating_sub(KEPT);
        let records = draw(input, &mut batches);
        let batch = batches.seal(begin).expect("there is room");
        let at = batch.place as usize;
        file[at..at + batch.bytes.len()].copy_from_slice(batch.bytes);
        places.push(at);
        written.push((batches.position(), records));
    }
    // The log is read from a batch's end on of which nothing was written over.
    let kept = |end: &u64| batches.position() - end < KEPT;
    let ends: Vec<u64> = written.iter().map(|(end, _)| *end).filter(kept).collect();
    let begin = match ends.get(usize::from(input.byte() % 16)) {
        Some(end) => *end,
        None if batches.position() < KEPT => 0,
        None => batches.position(),
    };
    if input.is_over() {
        let (scanned, found) = read(&file, &shape, begin);
        let later = written.into_iter().filter(|(end, _)| *end > begin);
        let all: Found = later.flat_map(|(_, records)| records).collect();
        assert!(found == all, "what was written is there, in order");
        assert_eq!((scanned.lost, scanned.end), (None, batches.position()));
        return;
    }
    damage(input, &mut file, &places, &shape);
    let begin = if input.byte() < 200 { begin } else { position(input, shape.medium) };
    read(&file, &shape, begin);
}

/// Any position that a registry's row may have.
fn position(input: &mut Input<'_>, medium: LogMedium) -> u64 {
    let any = input.number() >> (input.byte() % 64);
    any % (1 << 62) / medium.unit() as u64 * medium.unit() as u64
}

/// Records of the next batch.
fn draw(input: &mut Input<'_>, batches: &mut Batches) -> Found {
    let mut records = Vec::new();
    for _ in 0..input.byte() % 4 + 1 {
        let kind = input.byte();
        let len = match kind {
            0..8 => MOST_BYTES / 4,
            8..64 => input.short() + 1,
            _ => usize::from(input.byte()) + 1,
        };
        let held = Held { slot: u32::from(kind), number: u64::from(input.byte()) + 1 };
        let logged = Logged { held, offset: u64::from(kind) * 1000, time: 1 };
        let data = vec![input.byte(); len];
        if batches.push(&logged, len, |into| into.copy_from_slice(&data)) {
            records.push((logged, data));
        }
    }
    records
}

/// Changes bytes, mostly of headers and records, and makes some checksums right again.
fn damage(input: &mut Input<'_>, file: &mut [u8], places: &[usize], shape: &LogShape) {
    let unit = shape.medium.unit();
    for _ in 0..input.byte() % 8 + 1 {
        let place = places[usize::from(input.byte()) % places.len()];
        match input.byte() {
            // The begin of a batch lies somewhere else, too.
            0..32 => {
                let from = places[usize::from(input.byte()) % places.len()];
                let to = input.short() % (file.len() / unit) * unit;
                file.copy_within(from..from + unit, to);
            }
            32..48 => file[place..place + unit].fill(0),
            how => {
                let at = place + input.short() % if how < 200 { 256 } else { 4096 };
                let value = input.number().to_le_bytes();
                let len = usize::from(how % 8) + 1;
                let at = at.min(file.len() - 8);
                file[at..at + len].copy_from_slice(&value[..len]);
            }
        }
        if input.byte() < 192 {
            seal(file, place, shape);
        }
    }
}

/// Makes the checksum of the batch at a place right, whatever else it says.
fn seal(file: &mut [u8], place: usize, shape: &LogShape) {
    let says = &file[place + LEN_AT..place + LEN_AT + 8];
    let says = u64::from_le_bytes(says.try_into().expect("eight bytes"));
    let most = file.len() - place;
    let len = usize::try_from(says).unwrap_or(most).clamp(shape.medium.unit(), most);
    let batch = &mut file[place..place + len];
    batch[CRC_AT..CRC_AT + 4].fill(0);
    let crc = checksum(crc32c(&shape.key.to_le_bytes()), batch);
    batch[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Reads a log, and checks what holds of any. Zeroes follow the file's end.
fn read(file: &[u8], shape: &LogShape, begin: u64) -> (Scanned, Found) {
    let mut found = Vec::new();
    let mut bytes_read = 0;
    let mut source = |at: u64, into: &mut [u8]| {
        assert!(at + into.len() as u64 <= shape.len, "what is read lies in the log");
        bytes_read += into.len() as u64;
        let there = file.get(at as usize..).unwrap_or_default();
        let len = there.len().min(into.len());
        into[..len].copy_from_slice(&there[..len]);
        into[len..].fill(0);
        Ok(())
    };
    let mut each = |logged: &Logged, bytes: &[u8]| {
        assert!((1..=MOST_BYTES).contains(&bytes.len()), "a record has bounds");
        found.push((*logged, bytes.to_vec()));
        Ok(())
    };
    let scanned = scan(&mut source, shape, begin, &mut each).expect("every read succeeds");
    // Each place's header, each batch, and what lies behind the end once more.
    assert!(bytes_read <= 5 * shape.len + (4 << 20), "{bytes_read} bytes are read");
    assert!(scanned.end >= begin && scanned.end - begin <= shape.len, "{scanned:?}");
    let bytes: usize = found.iter().map(|(_, bytes)| bytes.len()).sum();
    assert!(bytes as u64 <= shape.len, "records lie in the log");
    assert_eq!((scanned.records, scanned.bytes), (found.len() as u64, bytes as u64));
    // The last batch may have ended the log in its middle.
    let batches = scanned.batches + u64::from(scanned.lost.is_some());
    assert!(scanned.records <= batches * FULL.records as u64, "{scanned:?}");
    (scanned, found)
}
