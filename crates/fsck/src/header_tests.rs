//! Tests of the header: its copies, its slots, and what they say.

use super::*;

#[test]
fn damaged_header_copies() {
    let f = Fixture::new();
    f.flip(AREA + 9);
    assert_eq!(f.codes(), ["header.copy"]);
    f.flip(SIZE - HEADER_LEN + 9);
    assert_eq!(f.codes(), ["header.none"]);
    let f = Fixture::new();
    let other = StaticHeader { volume: [2; 16], ..f.header.clone() };
    f.put(AREA, &other.encode()[..]);
    assert_eq!(f.codes(), ["header.disagree"]);
    let f = Fixture::new();
    let newer = StaticHeader { incompat: 0x40, ..f.header.clone() };
    f.header.header_offsets.iter().for_each(|o| f.put(*o, &newer.encode_unchecked()[..]));
    assert_eq!(f.codes(), ["incompatible"]);
}

/// A log that was moved, on a device twice as long, and the header that it had before.
fn moved() -> Fixture {
    let mut f = Fixture::empty(HostState::Clean);
    let longer = MemDevice::new(2 * SIZE);
    let mut bytes = vec![0; SIZE as usize];
    f.dev.read(0, &mut bytes).unwrap();
    longer.write(0, &bytes, false).unwrap();
    f.dev = longer;
    f.header.header_offsets = f.header.header_offsets.map(|at| at + SIZE);
    f.header.journal_offset += SIZE;
    f.header.lanes[0].offset += SIZE;
    f.headers();
    f
}

#[test]
fn a_header_from_before_the_log_was_moved() {
    assert_eq!(moved().codes(), ["header.moved"]);
    let mut f = moved();
    f.host.seq += 1;
    f.headers();
    assert_eq!(f.codes(), ["header.disagree"]);
    let mut f = moved();
    f.header.volume = [2; 16];
    f.headers();
    assert_eq!(f.codes(), ["header.disagree"]);
    // Once it is erased nothing is left to say.
    let f = moved();
    f.put(AREA, &[0; 4096]);
    assert_eq!(f.codes(), [""; 0]);
}

#[test]
fn damaged_slots() {
    let f = Fixture::new();
    f.flip(AREA + HOST_SLOTS[0] + 100);
    assert_eq!(f.codes(), ["slot.behind"]);
    for base in f.header.header_offsets {
        f.put(base + SERVICE_SLOTS[0], &[0; 4096]);
    }
    assert_eq!(f.codes(), ["slot.behind", "slot.none"]);
    let f = Fixture::new();
    let other = ServiceRecord { staged_cut: Lsn(6), ..f.service.clone() };
    f.put(AREA + SERVICE_SLOTS[0], &other.encode()[..]);
    assert_eq!(f.codes(), ["slot.conflict"]);
}

#[test]
fn impossible_geometry_and_records() {
    let f = Fixture::new();
    BACKUPS.iter().for_each(|at| f.put(*at, &superblock(true, 70)));
    assert_eq!(f.codes()[0], "geometry.grown");
    let mut f = Fixture::new();
    f.header.area_uuid = [3; 16];
    f.headers();
    assert_eq!(f.codes(), ["geometry.uuid", "host.superblock"]);
    let mut f = Fixture::new();
    f.host.lane_ends = vec![4096];
    f.headers();
    assert_eq!(f.codes(), ["lane.tail"]);
    let mut f = Fixture::new();
    f.service.epoch = Epoch(4);
    f.headers();
    assert_eq!(f.codes(), ["record.epoch"]);
    let mut f = Fixture::new();
    f.service.ops_cut = Lsn(6);
    f.headers();
    assert_eq!(f.codes(), ["record.cut"]);
    let mut f = Fixture::new();
    (f.host.lane_ends, f.host.lane_heads) = (vec![OPEN_END; 2], vec![0; 2]);
    f.headers();
    assert_eq!(f.codes(), ["record.lanes"]);
}

/// Bytes kept for later, in a block that is whole: worth a note, and nothing is wrong.
#[test]
fn reserved_bytes_of_the_header_that_are_not_zero() {
    let f = Fixture::new();
    let offsets = f.header.header_offsets;
    let slots = [HOST_SLOTS, SERVICE_SLOTS].map(|slots| slots[0]);
    for (block, at) in [
        (0, 28),
        (0, 112),
        (0, 4091),
        (slots[0], 344),
        (slots[0], 1023),
        (slots[0], 2048),
        (slots[0], 4091),
        (slots[1], 192),
        (slots[1], 4091),
    ] {
        let f = Fixture::new();
        for base in offsets {
            let mut bytes = [0; BLOCK_SIZE];
            f.dev.read(base + block, &mut bytes).unwrap();
            assert_eq!(bytes[at], 0);
            bytes[at] = 1;
            let sum = block_sum(&bytes[..4092]);
            bytes[4092..].copy_from_slice(&sum.to_le_bytes());
            f.put(base + block, &bytes);
        }
        let found = check(&f.dev);
        let codes: Vec<_> = found.iter().map(|f| (f.severity, f.code)).collect();
        assert_eq!(codes, [(Severity::Info, "header.reserved"); 2], "block {block}, byte {at}");
    }
}

#[test]
fn epochs_and_numbers_of_the_records() {
    let mut f = Fixture::empty(HostState::Mounted);
    f.lsn = 5;
    f.append(10, 0);
    assert_eq!(f.codes(), ["lane.floor"]);
    let mut f = Fixture::empty(HostState::Mounted);
    f.host.lane_key.epoch = Epoch(4);
    f.headers();
    assert_eq!(f.codes(), ["record.epoch"]);
    let mut f = Fixture::empty(HostState::Mounted);
    f.host.journal_key.epoch = Epoch(4);
    f.headers();
    assert_eq!(f.codes(), ["record.epoch"]);
}

/// A whole header with a geometry that cannot be.
#[test]
fn regions_that_overlap() {
    let mut f = Fixture::empty(HostState::Clean);
    f.header.lanes[0].offset = JOURNAL;
    f.headers();
    let codes = f.codes();
    assert!(codes.contains(&"header.content"), "{codes:?}");
}

fn naming(state: HostState) -> Fixture {
    let mut f = Fixture::empty(state);
    f.host.registry = RegistryName::new([7; 16], std::path::Path::new("/var/logs")).ok();
    f.headers();
    f
}

/// R36: a volume that waits for logs of programs is in use, and it is told where they are.
#[test]
fn r36_a_registry_that_is_named() {
    for state in [HostState::Mounted, HostState::Recovering] {
        let f = naming(state);
        let found = check(&f.dev);
        let found: Vec<_> = found.iter().map(|f| (f.code, f.severity)).collect();
        assert_eq!(found, [("registry.named", Severity::Info)]);
        let seen = crate::inspect(&f.dev as &dyn Device);
        assert!(seen.recovery.needed && seen.recovery.stops.is_none());
        let registry = seen.host.unwrap().registry.unwrap();
        assert_eq!((registry.uuid, registry.dir), (show_uuid(&[7; 16]), "/var/logs".into()));
    }
    // It was named after the marker was set: without that, somebody else was here.
    let f = naming(HostState::Mounted);
    f.put(1024, &superblock(false, 64));
    let codes = f.codes();
    assert!(codes.contains(&"marker.missing"), "{codes:?}");
}

/// R36: clean and a registry contradict each other, in either copy.
#[test]
fn r36_a_clean_record_that_names_a_registry() {
    let f = naming(HostState::Mounted);
    for base in f.header.header_offsets {
        let at = base + HOST_SLOTS[0];
        let mut bytes = [0; BLOCK_SIZE];
        f.dev.read(at, &mut bytes).unwrap();
        bytes[12] = 1;
        let sum = block_sum(&bytes[..4092]);
        bytes[4092..].copy_from_slice(&sum.to_le_bytes());
        f.put(at, &bytes);
    }
    let found = check(&f.dev);
    let bad = |f: &&Finding| f.code == "header.content" && f.severity == Severity::Error;
    assert_eq!(found.iter().filter(bad).count(), 2, "{found:?}");
}
