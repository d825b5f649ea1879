//! fsyncs of several callers beside a log's device that stalls again and again, with all threads of
//! a mounted volume.
//!
//! `SIFTFS_STALLS=SECONDS` makes it that long, with the usual bound of 100 ms and stalls of 2 s
//! every 10 s; without it, it is short, and the bound is one that a busy machine can keep.

use siftfs_base::SystemClock;
use siftfs_crash::open;
use siftfs_device::{Cut, FaultDevice, Stalls};
use siftfs_model::Caller;
use siftfs_placement::{LocalVolume, Media, MkfsOptions, OpenOptions, Threads, mkfs_on};
use siftfs_proto::{Credentials, FileService, ROOT_INO, Reply, Request, WriteData};
use std::sync::Arc;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const CALLERS: u64 = 4;

struct Run {
    lasts: Duration,
    bound: Duration,
    stalls: Stalls,
}

impl Run {
    fn wanted() -> Self {
        let seconds = Duration::from_secs;
        match std::env::var("SIFTFS_STALLS").ok().and_then(|text| text.parse().ok()) {
            Some(lasts) => Self {
                lasts: seconds(lasts),
                bound: Duration::from_millis(100),
                stalls: Stalls::new(seconds(10), seconds(2)),
            },
            None => Self {
                lasts: seconds(7),
                bound: Duration::from_millis(500),
                stalls: Stalls::new(seconds(3), seconds(1)),
            },
        }
    }
}

struct Disks([Arc<FaultDevice>; 3]);

impl Disks {
    fn new() -> Self {
        let disks = Self([64, 32, 256].map(|mib| Arc::new(FaultDevice::new(mib * MIB, 1))));
        mkfs_on(disks.media(), &MkfsOptions::default()).expect("mkfs");
        disks
    }

    fn media(&self) -> Media {
        let Self([area, log, spare]) = self;
        Media::split(area.clone(), log.clone()).with_spare(Some(spare.clone()))
    }

    /// What a power cut leaves.
    fn cut(&self) -> Self {
        let left = |disk: &Arc<FaultDevice>| FaultDevice::from_image(disk.image(Cut::LoseAll), 2);
        Self(self.0.each_ref().map(|disk| Arc::new(left(disk))))
    }
}

fn name(caller: u64) -> Vec<u8> {
    format!("f{caller}").into_bytes()
}

/// Writes and fsyncs until then; returns the last number that is durable and the longest fsync.
fn work(service: &dyn FileService, caller: u64, until: Instant) -> (u64, u64, Duration) {
    let by = Credentials::default();
    let call = |req| service.call(&by, req).unwrap_or_else(|e| panic!("caller {caller}: {e}"));
    let create = Request::Create { parent: ROOT_INO, name: name(caller), perm: 0o644 };
    let Reply::Created { attr, .. } = call(create) else { panic!("no file") };
    let (mut number, mut longest) = (0u64, Duration::ZERO);
    while Instant::now() < until {
        number += 1;
        let data = number.to_le_bytes().repeat(512);
        let at = number % 16 * 4096;
        call(Request::write(attr.ino, at, WriteData::copy_of(at, &data)));
        let since = Instant::now();
        call(Request::Fsync { file: attr.ino.into(), datasync: true });
        longest = longest.max(since.elapsed());
        std::thread::sleep(Duration::from_millis(1));
    }
    (caller, number, longest)
}

#[test]
fn no_fsync_takes_longer_than_twice_the_bound() {
    let run = Run::wanted();
    let disks = Disks::new();
    let opts = OpenOptions { log_stall: run.bound, ..OpenOptions::default() };
    let clock = Arc::new(SystemClock::default());
    let volume = LocalVolume::open_on(disks.media(), clock, &opts, Threads::Real).expect("open");
    let service = volume.endpoint();
    disks.0[1].set_stalls(Some(run.stalls));
    let until = Instant::now() + run.lasts;
    let done: Vec<(u64, u64, Duration)> = std::thread::scope(|scope| {
        let callers = (0..CALLERS).map(|caller| {
            let service = &*service;
            scope.spawn(move || work(service, caller, until))
        });
        let callers: Vec<_> = callers.collect();
        callers.into_iter().map(|caller| caller.join().expect("a caller")).collect()
    });
    println!("the callers are done");
    let left = disks.cut();
    let log = volume.spare_log()().expect("a spare log");
    disks.0[1].set_stalls(None);
    println!("the power is cut");
    drop(service);
    volume.abandon();
    let fsyncs: u64 = done.iter().map(|(_, number, _)| number).sum();
    let longest = done.iter().map(|(.., longest)| *longest).max().expect("callers");
    println!("{fsyncs} fsyncs, the longest {longest:?}, {} stalls; {log:?}", log.stalls);
    let begun = run.lasts.as_nanos().div_ceil(run.stalls.every.as_nanos());
    assert!(u128::from(log.stalls) >= begun, "each stall is met: {log:?}");
    assert!(longest <= 2 * run.bound, "{longest:?}");
    // What was answered is there.
    let driver = open(left.media()).expect("recovered");
    let service = driver.volume.endpoint();
    for (caller, number, _) in done {
        let by = Credentials::default();
        let lookup = Request::Lookup { parent: ROOT_INO, name: name(caller) };
        let Ok(Reply::Entry(attr)) = service.call(&by, lookup) else { panic!("no file") };
        let content = Caller::root(&*service).content(attr.ino, attr.size).expect("read");
        let at = number % 16 * 4096;
        assert_eq!(content.read(at, 8), number.to_le_bytes(), "caller {caller}");
    }
    drop(service);
    driver.volume.abandon();
}
