//! What one cut takes is bounded (rule R10), and what must go along with it finds a way (rule R20).

use siftfs_base::{Clock, ManualClock};
use siftfs_device::{Device, MemDevice};
use siftfs_placement::{JournalData, LocalVolume, MkfsOptions, OpenOptions, Threads, mkfs_on};
use siftfs_proto::*;
use siftfs_status::RuntimeStatus;
use std::sync::Arc;

struct World {
    dev: Arc<dyn Device>,
    clock: Arc<dyn Clock>,
}

impl World {
    fn new(size: u64, log: u64) -> Self {
        Self::made(size, &MkfsOptions { log_size: Some(log), ..MkfsOptions::default() })
    }
    fn made(size: u64, options: &MkfsOptions) -> Self {
        let dev: Arc<dyn Device> = Arc::new(MemDevice::new(size));
        mkfs_on(dev.clone(), options).expect("mkfs");
        Self { dev, clock: Arc::new(ManualClock::new(1_700_000_000)) }
    }
    fn open(&self) -> LocalVolume {
        let opts = OpenOptions::default();
        LocalVolume::open_on(self.dev.clone(), self.clock.clone(), &opts, Threads::None)
            .expect("open")
    }
}

fn call(v: &LocalVolume, req: Request) -> Reply {
    v.endpoint().call(&Credentials::default(), req).expect("the request")
}

fn status(v: &LocalVolume) -> RuntimeStatus {
    match call(v, Request::Status) {
        Reply::Status(status) => *status,
        other => panic!("{other:?}"),
    }
}

fn create(v: &LocalVolume, name: &str) -> u32 {
    match call(v, Request::Create { parent: ROOT_INO, name: name.into(), perm: 0o644 }) {
        Reply::Created { attr, handle } => {
            call(v, Request::Release { handle });
            call(v, Request::Forget { ino: attr.ino, count: 1 });
            attr.ino
        }
        other => panic!("{other:?}"),
    }
}

fn write(v: &LocalVolume, ino: u32, offset: u64, data: &[u8]) {
    let len = data.len() as u32;
    let data = siftfs_proto::WriteData::copy_of(offset, data);
    let req = Request::write(ino, offset, data);
    assert_eq!(call(v, req), Reply::Written { len });
}

fn read(v: &LocalVolume, ino: u32, offset: u64, len: u32) -> Vec<u8> {
    match call(v, Request::Read { file: ino.into(), offset, len }) {
        Reply::Data(data) => data,
        Reply::Blocks(blocks) => blocks.to_vec(),
        other => panic!("{other:?}"),
    }
}

fn lookup(v: &LocalVolume, name: &str) -> u32 {
    match call(v, Request::Lookup { parent: ROOT_INO, name: name.into() }) {
        Reply::Entry(attr) => attr.ino,
        other => panic!("{other:?}"),
    }
}

/// Every other byte of three megabytes overwritten, then synced: hundreds of thousands of ranges.
#[test]
fn r10_scattered_overwrites_do_not_outgrow_a_transaction() {
    let world = World::new(48 << 20, 8 << 20);
    let v = world.open();
    let f = create(&v, "f");
    write(&v, f, 0, &vec![1; 3 << 20]);
    call(&v, Request::SyncAll);
    for i in (0..3u64 << 20).step_by(8) {
        write(&v, f, i, &[2]);
    }
    call(&v, Request::SyncAll);
    v.abandon();
    let v = world.open();
    let f = lookup(&v, "f");
    let data = read(&v, f, 0, 3 << 20);
    assert!(data.iter().enumerate().all(|(i, b)| *b == if i % 8 == 0 { 2 } else { 1 }));
    v.close().expect("close");
}

/// More overwritten files than the lane holds, each renamed over another: the cut takes all their
/// data along, and the background goes on.
#[test]
fn r20_replacing_files_may_exceed_the_lane() {
    let world = World::new(48 << 20, 4 << 20);
    let v = world.open();
    for i in 0..60 {
        let f = create(&v, &format!("old{i}"));
        write(&v, f, 0, &[1; 60_000]);
        let f = create(&v, &format!("new{i}"));
        write(&v, f, 0, &[2; 60_000]);
    }
    call(&v, Request::SyncAll);
    for i in 0..60 {
        write(&v, lookup(&v, &format!("new{i}")), 0, &[3; 60_000]);
        call(
            &v,
            Request::Rename {
                parent: ROOT_INO,
                name: format!("new{i}").into(),
                new_parent: ROOT_INO,
                new_name: format!("old{i}").into(),
                mode: RenameMode::Replace,
            },
        );
    }
    v.commit(false).expect("commit");
    v.abandon();
    let v = world.open();
    for i in 0..60 {
        let f = lookup(&v, &format!("old{i}"));
        assert_eq!(read(&v, f, 0, 100_000), vec![3; 60_000], "file {i}");
    }
    v.close().expect("close");
}

/// Dirty memory is counted in pages: single bytes in many pages are pushed out in time.
#[test]
fn sparse_dirty_bytes_are_bounded_by_their_pages() {
    let world = World::new(128 << 20, 16 << 20);
    let opts = OpenOptions { page_cache: 8 << 20, ..OpenOptions::default() };
    let v = LocalVolume::open_on(world.dev.clone(), world.clock.clone(), &opts, Threads::None)
        .expect("open");
    let f = create(&v, "f");
    for i in 0..10_000u64 {
        write(&v, f, i * 4096 + 7, &[9]);
    }
    let pages = status(&v).cache.pages;
    assert!(pages <= 2 * 2048, "{pages} pages with a limit of 2048");
    for i in (0..10_000u64).step_by(97) {
        assert_eq!(
            read(&v, f, i * 4096, 9),
            [0, 0, 0, 0, 0, 0, 0, 9, 0][..if i == 9999 { 8 } else { 9 }]
        );
    }
    v.close().expect("close");
}

/// A cut tags every staged range under the state lock: there are never very many of them.
#[test]
fn many_staged_ranges_are_journaled_early() {
    let world = World::new(160 << 20, 64 << 20);
    let v = world.open();
    let f = create(&v, "f");
    write(&v, f, 0, &vec![1; 1 << 20]);
    call(&v, Request::SyncAll);
    let before = status(&v).transaction;
    let scattered = |times: u64| {
        for _ in 0..times {
            (0..256).for_each(|page| write(&v, f, page << 12, &[2; 100]));
            call(&v, Request::Fsync { file: f.into(), datasync: false });
        }
        v.tick().expect("tick");
    };
    scattered(15);
    assert_eq!(status(&v).transaction, before, "neither old nor much");
    let lane = status(&v).log.lanes[0];
    assert!(lane.used < lane.bytes / 8);
    scattered(1);
    assert_eq!(status(&v).transaction, before + 1);
    v.close().expect("close");
}

/// A file of thousands of pieces, whose extent tree is deep, is overwritten all over and synced on
/// the smallest logs, too: each record is one that a transaction has room for.
#[test]
fn r10_a_file_of_pieces_is_synced_on_a_small_log() {
    for (log, journal_data) in [3, 4, 6, 8, 16]
        .into_iter()
        .flat_map(|log| [JournalData::Ref, JournalData::Copy].map(|data| (log, data)))
    {
        let options =
            MkfsOptions { log_size: Some(log << 20), journal_data, ..MkfsOptions::default() };
        let world = World::made(96 << 20, &options);
        let v = world.open();
        let f = create(&v, "f");
        for block in (0..4000).step_by(2) {
            write(&v, f, block * 4096, &[1; 4096]);
        }
        call(&v, Request::SyncAll);
        call(&v, Request::Checkpoint);
        let before = status(&v).transaction;
        for round in 0..3 {
            for block in (0..4000).step_by(14) {
                write(&v, f, block * 4096 + round, &[2; 2000]);
            }
            let synced = Request::Fsync { file: f.into(), datasync: true };
            let synced = v.endpoint().call(&Credentials::default(), synced);
            assert_eq!(synced, Ok(Reply::Done), "{log} MiB, {journal_data:?}, round {round}");
        }
        let cuts = status(&v).transaction - before;
        assert!(cuts < 200, "{log} MiB, {journal_data:?}: {cuts} transactions");
        for block in (0..4000).step_by(14) {
            assert_eq!(read(&v, f, block * 4096 + 1000, 1), [2], "{log} MiB, {journal_data:?}");
        }
        v.close().expect("close");
    }
}
