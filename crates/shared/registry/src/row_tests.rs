use super::*;
use proptest::prelude::*;
use std::fmt::Write as _;

pub(crate) const PLACE: Place = Place { registry: *b"registry-uuid-01", row: 3 };

pub(crate) fn entry(leases: u64) -> LogEntry {
    let lease = |n: u64| RegisteredLease {
        slot: n as u32 % 7,
        number: n,
        ino: 100 + n as u32,
        generation: 9,
    };
    LogEntry {
        number: 17,
        key: 0x0102_0304_0506_0708,
        len: 8 << 20,
        medium: LogMedium::File,
        begin: 12 << 20,
        process: Process { id: 4711, started: 815, boot: *b"boot-id-of-16-by", namespace: 77 },
        leases: (1..=leases).map(lease).collect(),
    }
}

fn row(leases: u64) -> Row {
    Row { seq: 5, entry: Some(entry(leases)) }
}

fn resealed(mut slot: Slot, at: usize, bytes: &[u8]) -> Slot {
    slot[at..at + bytes.len()].copy_from_slice(bytes);
    seal(&mut slot);
    slot
}

#[test]
fn rows_come_back() {
    for row in [row(0), row(2), row(MOST_LEASES as u64), Row { seq: 6, entry: None }] {
        assert_eq!(Row::decode(&row.encode(PLACE), PLACE), Ok(Some(row)));
    }
    assert_eq!(Row::decode(&[0; SLOT], PLACE), Ok(None));
}

/// Builds that know of files only refuse a row of a mapped log by its version.
#[test]
fn rows_of_mapped_logs_have_a_version_of_their_own() {
    for medium in [LogMedium::File, LogMedium::Byte, LogMedium::Volatile] {
        let begin = if medium.is_mapped() { 64 } else { 4096 };
        let row = Row { seq: 1, entry: Some(LogEntry { medium, begin, ..entry(1) }) };
        let slot = row.encode(PLACE);
        assert_eq!(slot[8], if medium.is_mapped() { 2 } else { 1 });
        assert_eq!(Row::decode(&slot, PLACE), Ok(Some(row)));
        let other = resealed(slot, 8, &(3 - u32::from(slot[8])).to_le_bytes());
        assert!(matches!(Row::decode(&other, PLACE), Err(Error::Corrupt { .. })));
    }
    let unknown = resealed(row(1).encode(PLACE), 112, &3u32.to_le_bytes());
    assert!(matches!(Row::decode(&unknown, PLACE), Err(Error::Corrupt { .. })));
}

#[test]
fn every_byte_counts() {
    let good = row(2).encode(PLACE);
    for at in 0..SLOT {
        let mut bad = good;
        bad[at] ^= 1;
        assert_eq!(Row::decode(&bad, PLACE), Ok(None), "byte {at}");
    }
}

#[test]
fn other_versions_and_places_are_refused() {
    let newer = resealed(row(2).encode(PLACE), 8, &3u32.to_le_bytes());
    assert!(matches!(Row::decode(&newer, PLACE), Err(Error::Incompatible(_))));
    let others = [Place { row: 4, ..PLACE }, Place { registry: [1; 16], ..PLACE }];
    for other in others {
        let decoded = Row::decode(&row(2).encode(PLACE), other);
        assert!(matches!(decoded, Err(Error::Corrupt { .. })), "{decoded:?}");
    }
}

#[test]
fn what_no_row_can_be_is_refused() {
    let places: [(usize, &[u8]); 8] = [
        (92, &(MOST_LEASES as u32 + 1).to_le_bytes()),
        (92, &u32::MAX.to_le_bytes()),
        (56, &0u64.to_le_bytes()),
        (56, &4097u64.to_le_bytes()),
        (56, &u64::MAX.to_le_bytes()),
        (64, &1u64.to_le_bytes()),
        // Longer than any log is: recovery would look for batches up to there.
        (56, &((8u64 << 20) + 4096).to_le_bytes()),
        (56, &(1u64 << 61).to_le_bytes()),
    ];
    for (at, bytes) in places {
        let decoded = Row::decode(&resealed(row(2).encode(PLACE), at, bytes), PLACE);
        assert!(matches!(decoded, Err(Error::Corrupt { .. })), "{at}: {decoded:?}");
    }
    let mut unaligned = entry(0);
    unaligned.begin += 1;
    let row = Row { seq: 1, entry: Some(unaligned) };
    assert!(std::panic::catch_unwind(|| row.encode(PLACE)).is_err(), "no reader takes it");
}

proptest! {
    #[test]
    fn a_row_with_any_fields_does_no_harm(at in 8usize..SLOT - 8, bytes: [u8; 8]) {
        let _ = Row::decode(&resealed(row(2).encode(PLACE), at, &bytes), PLACE);
    }

    /// Any block is refused, or holds a row that has bounds and that can be written again.
    #[test]
    fn any_block_is_a_row_or_refused(
        mut slot in proptest::collection::vec(any::<u8>(), SLOT),
        known in 0usize..=90,
        from in 0usize..=96,
        leases in 0u64..=MOST_LEASES as u64,
        sealed in proptest::bool::weighted(0.9),
    ) {
        // The first fields are often right, one of the others at times.
        let good = row(leases).encode(PLACE);
        slot[..known].copy_from_slice(&good[..known]);
        slot[from.min(known)..96].copy_from_slice(&good[from.min(known)..96]);
        let mut slot: Slot = slot.try_into().unwrap();
        if sealed {
            seal(&mut slot);
        }
        if let Ok(Some(row)) = Row::decode(&slot, PLACE) {
            if let Some(entry) = &row.entry {
                prop_assert!(entry.leases.len() <= MOST_LEASES && entry.len <= LOG_BYTES);
            }
            prop_assert_eq!(Row::decode(&row.encode(PLACE), PLACE), Ok(Some(row)));
        }
        let head = crate::head::Head { registry: PLACE.registry, volume: [2; 16] };
        prop_assert!(head.check(&slot).is_err(), "a row is no head");
    }
}

/// The bytes on storage as they were first shipped, in `golden/`: a change needs a new version.
#[test]
fn golden_images() {
    let head = crate::head::Head { registry: PLACE.registry, volume: [2; 16] };
    let free = Row { seq: 6, entry: None };
    let images =
        [("row", row(2).encode(PLACE)), ("row-free", free.encode(PLACE)), ("head", head.encode())];
    for (name, bytes) in images {
        let mut dump = String::new();
        let lines = bytes.chunks(32).enumerate();
        for (i, line) in lines.filter(|(_, line)| line.iter().any(|byte| *byte != 0)) {
            write!(dump, "{:06x} ", i * 32).unwrap();
            line.iter().for_each(|byte| write!(dump, "{byte:02x}").unwrap());
            dump.push('\n');
        }
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
        let path = folder.join(format!("{name}.v{VERSION}.hex"));
        if std::env::var_os("SIFTFS_BLESS").is_some() && !path.exists() {
            std::fs::write(&path, &dump).unwrap();
        }
        assert_eq!(dump, std::fs::read_to_string(&path).unwrap(), "{name}: raise the version");
    }
}
