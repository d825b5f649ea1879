use super::*;
use siftfs_device::{Device, MemDevice, RegionDesc, RegionKind, Storage};

const BLOCKS: u64 = 96;

/// A cache over an area in which each block holds its number.
fn cache() -> (MetaCache, Storage) {
    let area = BLOCKS * BLOCK_BYTES;
    let device = Arc::new(MemDevice::new(3 * area));
    for nr in 0..BLOCKS {
        let bytes = [u8::try_from(nr).unwrap(); BLOCK_SIZE];
        device.write(nr * BLOCK_BYTES, &bytes, false).unwrap();
    }
    let region = |kind, index, offset, len| RegionDesc { kind, index, offset, len };
    let regions = [
        region(RegionKind::Area, 0, 0, area),
        region(RegionKind::Journal, 0, area, area),
        region(RegionKind::Header, 1, 2 * area, BLOCK_BYTES),
    ];
    let storage = Storage::new(device, &regions).unwrap();
    let (area, journal) = (storage.area_reader().unwrap(), storage.journal_reader().unwrap());
    let readers = Arc::new(Readers { area, journal, lanes: Vec::new() });
    (MetaCache::new(readers, 1 << 20), storage)
}

fn reads(storage: &Storage) -> u64 {
    storage.counters().get(RegionKind::Area, Origin::Foreground).reads
}

fn run(start: u64, end: u64) -> BlockRun {
    BlockRun { start, len: end - start }
}

#[test]
fn one_read_brings_the_blocks_near_it() {
    let (mut cache, storage) = cache();
    for nr in 33..60 {
        assert_eq!(cache.read_ahead(nr, run(33, 96)).unwrap()[0], nr as u8);
    }
    assert_eq!(
        (reads(&storage), cache.len()),
        (1, 31),
        "from the run's start to the cluster's end"
    );
    assert_eq!(cache.read_ahead(2, run(0, 3)).unwrap()[7], 2);
    assert_eq!((reads(&storage), cache.len()), (2, 34), "not beyond the run");
    assert_eq!(cache.read(3).unwrap()[0], 3);
    assert_eq!(reads(&storage), 3);
}

/// What the storage has of a block that is newer in the cache or in the journal is old.
#[test]
fn newer_blocks_stay() {
    let (mut cache, storage) = cache();
    cache.modify(5).unwrap()[0] = 105;
    cache.create(9).unwrap()[0] = 109;
    let taken = cache.snapshot(TxnSeq(1));
    let images: Vec<u8> = taken.data.iter().flat_map(|d| d.iter().copied()).collect();
    storage_journal(&storage).write(Origin::Foreground, 0, &images).unwrap();
    cache.journaled(TxnSeq(1), &taken.blocks, 0);
    // The journal alone has them now.
    cache.set_limit(0);
    for nr in taken.blocks {
        assert!(cache.blocks.remove(&nr).is_some());
    }
    let around = run(0, 32);
    assert_eq!(cache.read_ahead(7, around).unwrap()[0], 7);
    assert_eq!(cache.len(), 3, "6 to 8: what lies beyond 5 and 9 would be another read");
    for (nr, first) in [(5, 105), (9, 109), (4, 4), (10, 10)] {
        assert_eq!(cache.read_ahead(nr, around).unwrap()[0], first);
    }
    cache.modify(20).unwrap()[0] = 120;
    assert_eq!(cache.read_ahead(21, around).unwrap()[0], 21);
    assert_eq!(cache.read_ahead(20, around).unwrap()[0], 120);
}

fn storage_journal(storage: &Storage) -> siftfs_device::JournalWriter {
    storage.take_service(1).unwrap().journal
}
