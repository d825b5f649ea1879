use super::*;
use crate::MemDevice;

fn desc(kind: RegionKind, index: u16, offset: u64, len: u64) -> RegionDesc {
    RegionDesc { kind, index, offset, len }
}

fn layout() -> Vec<RegionDesc> {
    vec![
        desc(RegionKind::Area, 0, 0, 1 << 20),
        desc(RegionKind::Header, 0, 1 << 20, 4096),
        desc(RegionKind::Header, 1, (1 << 20) + 4096, 4096),
        desc(RegionKind::Staging, 0, 2 << 20, 65536),
        desc(RegionKind::Staging, 1, (2 << 20) + 65536, 65536),
        desc(RegionKind::Journal, 0, 3 << 20, 65536),
        desc(RegionKind::Header, 0, (4 << 20) - 4096, 4096),
    ]
}

fn storage() -> (Arc<MemDevice>, Storage) {
    let device = Arc::new(MemDevice::new(4 << 20));
    let storage = Storage::new(device.clone(), &layout()).unwrap();
    (device, storage)
}

#[test]
fn each_writer_is_taken_once() {
    let (_, s) = storage();
    let service = s.take_service(1).unwrap();
    assert_eq!(service.record.copies().len(), 1);
    s.take_staging(LaneId(0)).unwrap();
    s.take_staging(LaneId(1)).unwrap();
    assert_eq!(s.take_header(0).unwrap().copies().len(), 2);
    assert!(s.take_header(1).is_err());
    let refused =
        |r: Result<()>| matches!(r, Err(Error::Refused(m)) if m.contains("file-system area"));
    assert!(refused(s.take_service(1).map(drop)));
    drop(service);
    assert!(refused(s.take_superblocks().map(drop)), "what the Service had stays its own");
    assert!(s.take_staging(LaneId(1)).is_err());
    assert!(s.take_staging(LaneId(2)).is_err());
    assert!(s.take_header(0).is_err());
    s.area_reader().unwrap();
}

/// Superblocks and nothing else, by one writer at a time, and by none beside the Service.
#[test]
fn superblocks_are_written_while_nobody_serves() {
    let (device, s) = storage();
    let admin = Origin::Admin;
    let writer = s.take_superblocks().unwrap();
    assert!(s.take_superblocks().is_err() && s.take_service(1).is_err());
    let before = device.snapshot();
    let mut superblock = [7; 1024];
    let invalid = |r| matches!(r, Err(Error::Io { errno: libc::EINVAL, .. }));
    assert!(invalid(writer.write(admin, 1024, &superblock)), "no magic");
    superblock[0x38..0x3a].copy_from_slice(&[0x53, 0xEF]);
    for elsewhere in [0, 512, 2048, 5120, 1 << 20] {
        assert!(invalid(writer.write(admin, elsewhere, &superblock)), "{elsewhere}");
    }
    assert!(device.snapshot() == before, "a refused write changed something");
    for at in [1024, 8192] {
        writer.write(admin, at, &superblock).unwrap();
        let mut read = [0; 1024];
        writer.read(admin, at, &mut read).unwrap();
        assert_eq!(read, superblock);
    }
    writer.flush(admin).unwrap();
    drop(writer);
    drop(s.take_superblocks().unwrap());
    s.take_service(1).unwrap();
}

#[test]
fn overlaps_and_outsiders_are_refused() {
    let device: Arc<dyn Device> = Arc::new(MemDevice::new(8192));
    let overlap = [desc(RegionKind::Area, 0, 0, 4097), desc(RegionKind::Journal, 0, 4096, 10)];
    assert!(matches!(Storage::new(device.clone(), &overlap), Err(Error::Refused(_))));
    let outside = [desc(RegionKind::Area, 0, 4096, 4097)];
    assert!(matches!(Storage::new(device.clone(), &outside), Err(Error::Io { .. })));
    let wraps = [desc(RegionKind::Area, 0, 4096, u64::MAX)];
    assert!(Storage::new(device.clone(), &wraps).is_err());
    let twice = [desc(RegionKind::Area, 0, 0, 1), desc(RegionKind::Area, 0, 1, 1)];
    assert!(Storage::new(device, &twice).is_err());
}

#[test]
fn regions_are_relative_bounded_and_counted() {
    let (device, s) = storage();
    let lane = s.take_staging(LaneId(1)).unwrap();
    lane.write_fua(Origin::Foreground, 100, b"abc").unwrap();
    let mut buf = [0; 3];
    device.read((2 << 20) + 65536 + 100, &mut buf).unwrap();
    assert_eq!(&buf, b"abc");
    lane.read(Origin::Admin, 100, &mut buf).unwrap();
    assert!(lane.write(Origin::Foreground, 65535, b"ab").is_err());
    assert!(lane.read(Origin::Foreground, u64::MAX, &mut buf).is_err());
    lane.flush(Origin::Background).unwrap();

    let counts = s.counters().snapshot();
    let expect = IoCountsOf { writes: 1, write_bytes: 3, flushes: 1 };
    assert_eq!(expect.of(), counts.staging.foreground);
    assert_eq!(counts.staging.background.flushes, 1);
    assert_eq!(counts.staging.admin.reads, 1);
    assert_eq!(counts.total().writes, 1);
    assert_eq!(counts.sum(|o| o.background).flushes, 1);

    let ops = [WriteOp { offset: 0, data: &[1; 10] }, WriteOp { offset: 4096, data: &[2; 20] }];
    lane.write_batch(Origin::Background, &ops).unwrap();
    let delta = s.counters().snapshot().since(&counts);
    assert_eq!(delta.total().writes, 2);
    assert_eq!(delta.staging.background.write_bytes, 30);
    assert_eq!(delta.total().flushes, 0);

    let json = serde_json::to_value(counts).unwrap();
    assert_eq!(json["staging"]["foreground"]["writes"], 1);
}

struct IoCountsOf {
    writes: u64,
    write_bytes: u64,
    flushes: u64,
}

impl IoCountsOf {
    fn of(&self) -> crate::IoCounts {
        crate::IoCounts {
            writes: self.writes,
            write_bytes: self.write_bytes,
            flushes: self.flushes,
            ..Default::default()
        }
    }
}

#[test]
fn two_devices_share_counters_but_not_flushes() {
    let area: Arc<dyn Device> = Arc::new(MemDevice::new(1 << 20));
    let log: Arc<dyn Device> = Arc::new(MemDevice::new(1 << 20));
    let s = Storage::on(&[
        (area, vec![desc(RegionKind::Area, 0, 0, 1 << 20)]),
        (
            log,
            vec![
                desc(RegionKind::Journal, 0, 0, 4096),
                desc(RegionKind::Staging, 0, 4096, 4096),
                desc(RegionKind::Header, 1, 8192, 4096),
            ],
        ),
    ])
    .unwrap();
    let ServiceWriters { area, journal, .. } = s.take_service(1).unwrap();
    let lane = s.staging_reader(LaneId(0)).unwrap();
    assert!(!area.shares_device(&journal));
    assert!(journal.shares_device(&lane));
    area.write(Origin::Background, 0, &[1]).unwrap();
    assert_eq!(s.counters().snapshot().area.background.writes, 1);
}

#[test]
fn zero_writes_every_byte_of_the_range_only() {
    let device: Arc<dyn Device> = Arc::new(MemDevice::new(20 << 20));
    for at in (0..20u64 << 20).step_by(4096) {
        device.write(at, &[0xff; 4096], false).unwrap();
    }
    let (from, len) = (4096 * 3, (10 << 20) + 12);
    zero_fill(&*device, from, len).unwrap();
    let mut all = vec![0; 20 << 20];
    device.read(0, &mut all).unwrap();
    let zeroes = all.iter().filter(|b| **b == 0).count() as u64;
    assert_eq!(zeroes, len);
    assert_eq!(all[from as usize], 0);
    assert_eq!(all[(from + len) as usize], 0xff);
}

/// A reader of a lane may say what is coming there, on the device where it lies and on no other.
#[test]
fn a_lane_passes_on_what_is_expected() {
    let area = RegionDesc { kind: RegionKind::Area, index: 0, offset: 0, len: 8192 };
    let lane = RegionDesc { kind: RegionKind::Staging, ..area };
    let devices = [(); 2].map(|()| Arc::new(crate::FaultDevice::new(8192, 1)));
    let [on_area, on_lane] = devices.clone().map(|d| d as Arc<dyn Device>);
    let storage = Storage::on(&[(on_area, vec![area]), (on_lane, vec![lane])]).unwrap();
    storage.staging_reader(LaneId(0)).unwrap().expect_urgent(Duration::from_millis(9));
    let expected = devices.map(|d| d.stats().expected);
    assert_eq!(expected, [None, Some(Duration::from_millis(9))]);
}
