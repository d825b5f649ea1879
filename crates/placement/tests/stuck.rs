//! A storage that does not answer is told of in the status, which answers meanwhile.

use siftfs_base::SystemClock;
use siftfs_device::{Device, FaultDevice, Stalls};
use siftfs_placement::{LocalVolume, MkfsOptions, OpenOptions, Threads, mkfs_on};
use siftfs_proto::*;
use siftfs_status::RuntimeStatus;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any test takes that is not wrong.
const LONG: Duration = Duration::from_secs(20);

fn status(volume: &LocalVolume) -> RuntimeStatus {
    let asked = volume.endpoint().call(&Credentials::default(), Request::Status);
    asked.unwrap().status().unwrap()
}

#[test]
fn an_fsync_that_does_not_return_is_told_of_by_its_age() {
    let fault = Arc::new(FaultDevice::new(32 << 20, 1));
    let device = fault.clone() as Arc<dyn Device>;
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let (clock, options) = (Arc::new(SystemClock::default()), OpenOptions::default());
    let volume = LocalVolume::open_on(device, clock, &options, Threads::None).unwrap();
    let endpoint = volume.endpoint();
    let ask = move |request| endpoint.call(&Credentials::default(), request);
    let create = Request::Create { parent: ROOT_INO, name: "f".into(), perm: 0o644 };
    let (attr, _) = ask(create).unwrap().created().unwrap();
    ask(Request::write(attr.ino, 0, b"stuck".to_vec())).unwrap();
    assert_eq!(status(&volume).queues.oldest_call_ms, 0);
    fault.set_stalls(Some(Stalls::new(2 * LONG, LONG)));
    let begun = Instant::now();
    let fsync = Request::Fsync { file: attr.ino.into(), datasync: false };
    let waits = thread::spawn(move || ask(fsync));
    while status(&volume).queues.oldest_call_ms < 50 {
        assert!(begun.elapsed() < LONG / 2, "it is not told of");
        thread::sleep(Duration::from_millis(5));
    }
    let told = Duration::from_millis(status(&volume).queues.oldest_call_ms);
    assert!(told <= begun.elapsed(), "{told:?}");
    fault.set_stalls(None);
    waits.join().unwrap().unwrap();
    assert_eq!(status(&volume).queues.oldest_call_ms, 0);
    volume.close().unwrap();
}
