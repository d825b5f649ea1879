//! What a small write costs, on a volume in memory.

use crate::world::{Setting, World};
use siftfs_accel::{Session, Through};
use std::time::{Duration, Instant};

const COUNT: u32 = 20_000;

/// Prints times of single writes of 512 bytes under a lease, with and without a sync of each, and
/// of the same by requests in the process.
pub fn measure() {
    let world = World::new(Setting { size: 256 << 20, ..Setting::default() });
    let user = world.user();
    let ino = user.make("f", &[0; 1 << 20]);
    let own = std::process::id();
    let token = || world.tokens.mint(ino, own, true);
    let session = Session::enter_with(&world.socket(), &token()).expect("enter");
    let file = session.lease_with(&token()).expect("lease");
    let at = |i: u32| u64::from(i % 2048) * 512;
    let bytes = [7; 512];
    print("write_at", |i| assert_eq!(file.write_at(at(i), &bytes), Through::Lease(512)));
    assert_eq!(file.sync(true).expect("sync"), Through::Lease(()));
    print("write_at and sync", |i| {
        assert_eq!(file.write_at(at(i), &bytes), Through::Lease(512));
        assert_eq!(file.sync(true).expect("sync"), Through::Lease(()));
    });
    file.close().expect("close");
    print("write by request", |i| user.write(ino, at(i), &bytes).expect("write"));
    print("write and fsync by request", |i| {
        user.write(ino, at(i), &bytes).expect("write");
        let fsync = siftfs_proto::Request::Fsync { file: ino.into(), datasync: true };
        user.ask(fsync).expect("fsync");
    });
    world.close();
}

fn print(what: &str, mut act: impl FnMut(u32)) {
    let mut times: Vec<Duration> = (0..COUNT)
        .map(|i| {
            let start = Instant::now();
            act(i);
            start.elapsed()
        })
        .collect();
    times.sort();
    let mean = times.iter().sum::<Duration>() / COUNT;
    let (half, most) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    println!("{what}: {half:?} at the middle, {mean:?} on average, {most:?} at 99 of 100");
}
