use super::*;
use crate::test_util::*;
use siftfs_base::{BLOCK_SIZE, Epoch, Error};
use siftfs_device::{Device, MemDevice};
use siftfs_log::EpochKey;
use std::sync::Arc;

/// LSNs found, and where the lane ended.
fn scan(dev: &Arc<MemDevice>, tail: u64, end: u64) -> Result<(Vec<u64>, LaneEnd, ReadCounts)> {
    let storage = storage(dev);
    let reader = storage.staging_reader(LaneId(0))?;
    let mut s = LaneScanner::new(
        &reader,
        (LaneId(0), LaneMedium::Block),
        KEY.lane(LaneId(0)),
        tail,
        end,
        ScanData::Keep,
        Origin::Admin,
    )?;
    let mut found = Vec::new();
    while let Some(r) = s.next_record()? {
        let lsn = r.head.header.params.lsn.0;
        assert!(r.data.iter().all(|b| *b == lsn as u8));
        assert_eq!(r.data.len(), r.head.header.layout.data_len as usize);
        found.push(lsn);
    }
    assert!(s.next_record()?.is_none());
    Ok((found, s.end(), s.counts()))
}

fn device() -> Arc<MemDevice> {
    Arc::new(volume())
}

fn rot(r: Result<(Vec<u64>, LaneEnd, ReadCounts)>) -> bool {
    matches!(r, Err(Error::Corrupt { detail, .. }) if detail.contains("lost acknowledged data"))
}

#[test]
fn an_empty_lane_ends_at_its_tail() {
    let (found, end, _) = scan(&device(), 8192, OPEN_END).unwrap();
    assert_eq!((found, end.pos, end.last_crc), (vec![], 8192, 0));
}

#[test]
fn records_come_in_order_across_the_wrap_each_byte_read_once() {
    for tail in (0..RING).step_by(4096) {
        let dev = device();
        let mut a = Appender::new(&dev, RING * 2 + tail);
        let mut bytes = 0;
        for i in 0..9 {
            let before = a.end;
            a.append([100, 4000, 9000][i % 3]);
            bytes += a.end - before;
        }
        let (found, end, counts) = scan(&dev, RING * 2 + tail, OPEN_END).unwrap();
        assert_eq!(found, (10..19).collect::<Vec<_>>(), "tail {tail}");
        assert_eq!((end.pos, end.last_crc, end.last_lsn.0), (a.end, a.crc, 18));
        assert!(counts.record_bytes <= bytes && counts.bytes <= RING + 2 * BLOCK_BYTES);
    }
}

#[test]
fn a_full_ring_is_read_whole_and_no_further() {
    let dev = device();
    let mut a = Appender::new(&dev, 4096);
    (0..31).for_each(|_| {
        a.append(100);
    });
    let at = a.append(100);
    assert_eq!(at, RING);
    let (found, end, _) = scan(&dev, 4096, OPEN_END).unwrap();
    assert_eq!((found.len(), end.pos), (32, RING + 4096));
}

/// R3, R8: a torn record ends the lane; intact ones behind it that were never acknowledged stay
/// dead.
#[test]
fn r08_a_torn_record_ends_the_lane() {
    for hurt in [10, 130, 4096, 5000] {
        let dev = device();
        let mut a = Appender::new(&dev, 0);
        a.append(50);
        let torn = a.append(6000);
        a.append(70);
        flip(&dev, torn + hurt);
        let (found, end, _) = scan(&dev, 0, OPEN_END).unwrap();
        assert_eq!((found, end.pos), (vec![10], 4096), "byte {hurt}");
        assert_eq!(end.torn.is_some(), hurt >= 4096, "the head survived: byte {hurt}");
    }
}

/// R14: the same, but a later record says that it was durable.
#[test]
fn r14_rot_is_not_a_torn_tail() {
    for hurt in [10, 130, 4096, 5000] {
        let dev = device();
        let mut a = Appender::new(&dev, RING - 8192);
        a.append(50);
        let torn = a.append(6000);
        a.append(70);
        a.durable_pos = a.end - 4096;
        a.append(70);
        flip(&dev, torn + hurt);
        assert!(rot(scan(&dev, RING - 8192, OPEN_END)), "byte {hurt}");
        // A record that claims less proves nothing.
        let dev = device();
        let mut a = Appender::new(&dev, RING - 8192);
        a.append(50);
        let torn = a.append(6000);
        a.durable_pos = torn - 4096;
        a.append(70);
        flip(&dev, torn + hurt);
        assert_eq!(scan(&dev, RING - 8192, OPEN_END).unwrap().0, vec![10]);
    }
}

/// R14 with several damaged records in a row, and by number where the head survived.
#[test]
fn r14_the_witness_may_be_far_behind() {
    let dev = device();
    let mut a = Appender::new(&dev, 0);
    let hurt: Vec<u64> = (0..4).map(|_| a.append(9000)).collect();
    a.append(10);
    a.append(10);
    a.durable_lsn = 10;
    a.append(10);
    hurt.iter().for_each(|p| flip(&dev, p + 9000));
    assert!(rot(scan(&dev, 0, OPEN_END)));
}

#[test]
fn r14_another_lanes_witness_counts() {
    let end = |lane: u16, torn: Option<u64>, durable: u64| LaneEnd {
        lane: LaneId(lane),
        pos: 0,
        last_crc: 0,
        last_lsn: Lsn(0),
        durable_lsn: Lsn(durable),
        torn: torn.map(Lsn),
    };
    assert!(check_lane_ends(&[end(0, Some(7), 0), end(1, None, 6)]).is_ok());
    assert!(check_lane_ends(&[end(0, Some(7), 0), end(1, None, 7)]).is_err());
    assert!(check_lane_ends(&[end(0, None, 9), end(1, None, 7)]).is_ok());
}

/// R8: an old epoch's lane is valid up to the end recorded then: no further, and no less.
#[test]
fn r08_a_recorded_end_is_kept() {
    let dev = device();
    let mut a = Appender::new(&dev, 0);
    a.append(10);
    let second = a.append(10);
    a.append(10);
    let (found, end, _) = scan(&dev, 0, second + 4096).unwrap();
    assert_eq!((found, end.pos), (vec![10, 11], 8192));
    flip(&dev, second + 20);
    assert!(matches!(scan(&dev, 0, second + 4096), Err(Error::Corrupt { .. })));
    assert!(scan(&dev, 4096, 0).is_err());
    assert!(scan(&dev, 0, 2 * RING).is_err());
}

/// A record with the key of another lane is invalid, however much else fits.
fn none_under(key: LogKey) {
    let dev = device();
    let mut a = Appender::new(&dev, 0);
    a.append(10);
    a.key = key;
    a.append(10);
    assert_eq!(scan(&dev, 0, OPEN_END).unwrap().0, vec![10], "{key:?}");
}

#[test]
fn another_epochs_or_nonces_records_are_none() {
    none_under(EpochKey { epoch: Epoch(2), ..KEY }.lane(LaneId(0)));
    none_under(EpochKey { nonce: 1, ..KEY }.lane(LaneId(0)));
}

/// Bytes from the owner of another log of the same epoch may be such a record.
#[test]
fn r35_what_another_logs_key_made_is_none() {
    for key in [KEY.lane(LaneId(1)), KEY.lane(LaneId(15)), KEY.journal()] {
        none_under(key);
    }
}

/// An older build must not take a newer one's record for the lane's end: what it acknowledged would
/// be cut off.
#[test]
fn a_record_of_an_unknown_kind_is_not_the_end() {
    for at in [8, 10, 14] {
        let dev = device();
        let mut a = Appender::new(&dev, 0);
        a.append(10);
        let pos = a.end;
        a.append(10);
        a.append(10);
        let place = header().lanes[0].offset + pos;
        let mut block = [0; BLOCK_SIZE];
        dev.read(place, &mut block).unwrap();
        block[at] = 9;
        let head =
            RecordHeader::peek(&block, &KEY.lane(LaneId(0)), LaneId(0), pos, BLOCK_BYTES).unwrap();
        RecordHeader::reseal(&KEY.lane(LaneId(0)), &mut block[..head.head_len()]);
        dev.write(place, &block, false).unwrap();
        let found = scan(&dev, 0, OPEN_END);
        assert!(matches!(found, Err(siftfs_base::Error::Incompatible(_))), "{at}: {found:?}");
    }
}
