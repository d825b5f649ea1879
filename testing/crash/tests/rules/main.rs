//! One test per rule of the crash model, built from the rule's scenario.
//!
//! A test's comment ends with the change to the product under which it was seen to fail. Tests
//! without one are companions of another test of their rule: several defences stand behind each
//! other there, and no single change lets them through.

mod apart;
mod byte_logs;
mod compounds;
mod durability;
mod frozen;
mod guards;
mod keys;
mod killed;
mod lanes;
mod leftovers;
mod lent;
mod log;
mod marker;
mod medium;
mod names;
mod orphans;
mod parallel;
mod physical;
mod private_logs;
mod private_logs_mixed;
mod programs;
mod publish;
mod record_area;
mod replies;
mod sections;
mod sizes;
mod space;
mod spare;
mod tickets;
mod together;

use siftfs_crash::{Back, Bench};
use siftfs_device::Cut;
use siftfs_proto::{Credentials, Request};
use std::thread::{self, JoinHandle};

/// The images that a cut of `bench` now may leave, as far as these tests check them: both extremes
/// and a few random ones.
fn images(bench: &Bench) -> Vec<siftfs_device::Image> {
    let mut out = vec![bench.device.image(Cut::LoseAll), bench.device.image(Cut::KeepAll)];
    out.extend((0..6).map(|seed| bench.device.image(Cut::Random(seed))));
    out
}

/// Recovers every one of [`images`] and hands it to `check`.
fn every_recovery(bench: Bench, check: impl Fn(&Back)) {
    let all = images(&bench);
    bench.stop();
    for image in &all {
        check(&Back::from(image));
    }
}

/// `len` bytes of pattern `id`, none of them zero.
fn bytes(id: u64, len: u64) -> Vec<u8> {
    siftfs_model::pattern(id, 0, len)
}

/// Starts an fsync on a thread of its own; did it succeed?
fn fsync_on_thread(b: &Bench, path: &str) -> JoinHandle<bool> {
    let (service, ino) = (b.service.clone(), b.ino(path));
    thread::spawn(move || {
        let req = Request::Fsync { file: ino.into(), datasync: false };
        service.call(&Credentials::default(), req).is_ok()
    })
}
