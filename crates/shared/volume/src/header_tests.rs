use super::*;
use crate::test_util::*;
use crate::{HostSlots, ServiceSlots};
use siftfs_base::TxnSeq;
use siftfs_device::{Cut, Fate, FaultDevice, MemDevice, Origin, PendingWrite, Storage};
use std::sync::Arc;

fn bad(v: &HeaderView) -> Vec<usize> {
    [0, 1].into_iter().filter(|c| v.copies[*c] != CopyState::Good).collect()
}

#[test]
fn a_new_volume_reads_back() {
    let v = read_headers(&volume()).unwrap();
    assert_eq!((&v.header, &v.host, &v.service), (&header(), &host(), &service()));
    assert!(!v.needs_repair());
    assert!(v.area.is_some_and(|a| a.marker && a.checksum_ok && a.len == AREA));
}

#[test]
fn one_corrupt_copy_is_served_by_the_other_and_repaired() {
    for copy in 0..2 {
        for block in [0u64, 1, 3] {
            let dev = volume();
            flip_at(&dev, header().header_offsets[copy] + block * BLOCK_BYTES + 50);
            let v = read_headers(&dev).unwrap();
            assert_eq!(bad(&v), vec![copy], "block {block}");
            assert_eq!((&v.host, &v.service), (&host(), &service()));
            repair_headers(&dev, &v).unwrap();
            assert!(!read_headers(&dev).unwrap().needs_repair());
        }
    }
}

fn message(dev: &dyn Device) -> String {
    read_headers(dev).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn both_copies_corrupt_is_said() {
    let dev = volume();
    header().header_offsets.iter().for_each(|o| flip_at(&dev, o + 50));
    assert!(message(&dev).contains("both copies are damaged"));
    let dev = volume();
    header().header_offsets.iter().for_each(|o| flip_at(&dev, o + BLOCK_BYTES + 50));
    assert!(message(&dev).contains("no valid host record"));
}

#[test]
fn what_is_no_volume_is_said() {
    assert!(message(&MemDevice::new(1 << 20)).contains("not a SiftFS volume"));
    assert!(message(&MemDevice::new(4096)).contains("not a SiftFS volume"));
    assert!(message(&MemDevice::new(0)).contains("not a SiftFS volume"));
    let ext4 = MemDevice::new(SIZE);
    ext4.write(1024, &superblock(64, false), false).unwrap();
    assert!(message(&ext4).contains("an ext4 file system, but not a SiftFS volume"));
}

fn resized(size: u64) -> MemDevice {
    let (old, new) = (volume(), MemDevice::new(size));
    let mut bytes = vec![0; SIZE.min(size) as usize];
    old.read(0, &mut bytes).unwrap();
    new.write(0, &bytes, false).unwrap();
    new
}

#[test]
fn a_truncated_volume_is_said_and_a_longer_device_serves() {
    assert!(message(&resized(SIZE - 4096)).contains("truncated: header copy 1"));
    assert!(message(&resized(AREA / 2)).contains("truncated: its file system"));
    let longer = resized(SIZE + (1 << 20));
    assert_eq!(read_headers(&longer).unwrap().header, header());
}

#[test]
fn a_torn_superblock_does_not_hide_the_header() {
    let dev = volume();
    dev.write(1024, &[0xff; 512], false).unwrap();
    let v = read_headers(&dev).unwrap();
    assert!(v.area.is_none() && !v.needs_repair());
}

#[test]
fn an_area_grown_over_the_header_is_said_and_not_repaired_over() {
    let dev = volume();
    dev.write(1024, &superblock(80, false), false).unwrap();
    dev.write(AREA, &vec![0xaa; HEADER_LEN as usize], false).unwrap();
    assert!(message(&dev).contains("grown over header and log"));
}

#[test]
fn another_file_system_in_the_area_is_said() {
    let dev = volume();
    let mut s = superblock(64, false);
    s[104] ^= 1;
    let crc = !siftfs_base::crc32c(&s[..1020]);
    s[1020..].copy_from_slice(&crc.to_le_bytes());
    dev.write(1024, &s, false).unwrap();
    assert!(message(&dev).contains("UUIDs differ"));
}

#[test]
fn the_future_is_refused() {
    let dev = MemDevice::new(SIZE);
    let newer = StaticHeader { incompat: 1 << 31, ..header() };
    format_headers(&dev, &header(), &host(), &service()).unwrap();
    for base in newer.header_offsets {
        dev.write(base, &newer.encode_unchecked()[..], false).unwrap();
    }
    assert!(matches!(read_headers(&dev), Err(Error::Incompatible(_))));
}

fn storage_on(dev: &Arc<dyn Device>) -> Storage {
    Storage::new(Arc::clone(dev), &region_descs(&header())).unwrap()
}

/// A cut at any operation of slot updates leaves the record before or the record being written.
#[test]
fn a_cut_slot_update_leaves_the_record_before_or_after() {
    for cut in 0..20 {
        let fault = Arc::new(FaultDevice::from_image(volume().snapshot(), cut));
        let dev: Arc<dyn Device> = Arc::clone(&fault) as _;
        let view = read_headers(&*dev).unwrap();
        let storage = storage_on(&dev);
        let mut hosts = HostSlots::new(storage.take_header(HEADER_HOST).unwrap(), &view);
        let mut services = ServiceSlots::new(storage.take_header(HEADER_SERVICE).unwrap(), &view);
        fault.cut_at(cut);
        let (mut h, mut s) = (host().seq, service().seq);
        for i in 1..4 {
            let record = ServiceRecord { journal_tail: i * 4096, ..service() };
            if hosts.write(Origin::Admin, &host()).is_err() {
                break;
            }
            h += 1;
            if services.write(Origin::Background, &record).is_err() {
                break;
            }
            s += 1;
        }
        for kind in [Cut::LoseAll, Cut::KeepAll, Cut::Random(cut)] {
            let left = MemDevice::from_image(fault.image(kind));
            let v = read_headers(&left).unwrap();
            assert!(v.host.seq == h || v.host.seq == h + 1, "cut {cut}");
            assert!(v.service.seq == s || v.service.seq == s + 1, "cut {cut}");
            assert_eq!(v.service.journal_tail, (v.service.seq - service().seq) * 4096);
            repair_headers(&left, &v).unwrap();
            let again = read_headers(&left).unwrap();
            assert!(!again.needs_repair());
            assert_eq!((again.host.seq, again.service.seq), (v.host.seq, v.service.seq));
        }
    }
}

#[test]
fn a_slot_update_is_two_writes_and_one_flush() {
    let fault = Arc::new(FaultDevice::from_image(volume().snapshot(), 1));
    let dev: Arc<dyn Device> = Arc::clone(&fault) as _;
    let view = read_headers(&*dev).unwrap();
    let writer = storage_on(&dev).take_header(HEADER_SERVICE).unwrap();
    let mut slots = ServiceSlots::new(writer, &view);
    slots.write(Origin::Background, &ServiceRecord { next_seq: TxnSeq(9), ..service() }).unwrap();
    assert_eq!((fault.stats().writes, fault.stats().flushes), (2, 1));
    assert_eq!(read_headers(&*dev).unwrap().service, *slots.newest());
}

/// The header after the log was moved behind its old end, on a device that is twice as long.
fn moved_header() -> StaticHeader {
    let mut moved = header();
    moved.header_offsets = moved.header_offsets.map(|at| at + SIZE);
    moved.journal_offset += SIZE;
    moved.lanes[0].offset += SIZE;
    moved.area_len += SIZE;
    moved
}

#[test]
fn a_moved_log_counts_until_the_old_header_is_erased() {
    let dev = resized(2 * SIZE);
    let old = read_headers(&dev).unwrap();
    write_moved_headers(&dev, &old, &moved_header()).unwrap();
    let v = read_headers(&dev).unwrap();
    assert_eq!((&v.header, &v.host, &v.service), (&moved_header(), &host(), &service()));
    assert_eq!(v.superseded, Some(header()));
    assert!(v.needs_repair() && bad(&v).is_empty());
    repair_headers(&dev, &v).unwrap();
    let v = read_headers(&dev).unwrap();
    assert_eq!((&v.header, v.superseded.is_none()), (&moved_header(), true));
    assert!(!v.needs_repair());
    for base in header().header_offsets {
        let mut bytes = vec![1; HEADER_LEN as usize];
        dev.read(base, &mut bytes).unwrap();
        assert!(bytes.iter().all(|b| *b == 0), "erased at {base}");
    }
}

#[test]
fn two_headers_that_no_move_explains_are_refused() {
    let moved = || {
        let dev = resized(2 * SIZE);
        write_moved_headers(&dev, &read_headers(&dev).unwrap(), &moved_header()).unwrap();
        dev
    };
    let other = |change: &dyn Fn(&mut StaticHeader, &mut HostRecord)| {
        let dev = moved();
        let (mut header, mut host) = (header(), host());
        change(&mut header, &mut host);
        header.header_offsets.iter().for_each(|base| {
            dev.write(base + STATIC_OFFSET, &header.encode()[..], false).unwrap();
            dev.write(base + HOST_SLOTS[0], &host.encode()[..], false).unwrap();
        });
        message(&dev)
    };
    let contradict = "its two copies describe different volumes";
    // An older copy of the volume was put back under a newer header, or the other way round.
    assert!(other(&|_, host| host.seq += 1).contains(contradict));
    assert!(other(&|_, host| host.state = HostState::Mounted).contains(contradict));
    assert!(other(&|header, _| header.volume[0] ^= 1).contains(contradict));
    assert!(other(&|header, _| header.area_uuid[0] ^= 1).contains(contradict));
    let whole = read_headers(&moved()).unwrap();
    assert!(whole.superseded.is_some(), "unchanged, they are explained");
}

#[test]
fn a_power_cut_anywhere_in_a_move_leaves_the_old_header_or_the_new_one() {
    let start = || FaultDevice::from_image(resized(2 * SIZE).snapshot(), 3);
    let whole = start();
    write_moved_headers(&whole, &read_headers(&whole).unwrap(), &moved_header()).unwrap();
    let (ops, mut seen) = (whole.ops(), [0, 0]);
    for cut in 0..=ops {
        let dev = start();
        let old = read_headers(&dev).unwrap();
        dev.cut_at(cut);
        assert_eq!(write_moved_headers(&dev, &old, &moved_header()).is_ok(), cut == ops);
        // Of the device's last bytes the first block alone survives, and of all else nothing.
        let first_block = |write: &PendingWrite| match write.offset + HEADER_LEN >= 2 * SIZE {
            true => Fate::Prefix(BLOCK_SIZE / 512),
            false => Fate::Lose,
        };
        let torn = (0..20).map(|seed| dev.power_cut_image(seed));
        for image in torn.chain([dev.image_with(first_block)]) {
            let v = read_headers(&MemDevice::from_image(image)).unwrap();
            assert_eq!((&v.host, &v.service), (&host(), &service()));
            let new = v.header == moved_header();
            assert!(new || v.header == header(), "cut at {cut}");
            assert_eq!(v.superseded.is_some(), new);
            seen[usize::from(new)] += 1;
        }
    }
    assert!(seen.iter().all(|times| *times > 0), "{seen:?}");
}
