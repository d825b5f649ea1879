//! `siftfs_fsck::check` finds nothing wrong with a sound volume, whatever it is doing.

use siftfs_base::{Clock, ManualClock};
use siftfs_device::{Device, MemDevice};
use siftfs_fsck::{Finding, Severity};
use siftfs_placement::{LocalVolume, Media, MkfsOptions, OpenOptions, Threads, mkfs_on};
use siftfs_proto::{Credentials, ROOT_INO, Reply, Request};
use std::sync::Arc;

fn call(v: &LocalVolume, req: Request) -> Reply {
    v.endpoint().call(&Credentials::default(), req).expect("call")
}

fn check(media: &Media) -> Vec<Finding> {
    let (log, bytes) = (media.log.as_deref(), media.bytes.as_deref());
    siftfs_fsck::check_on(siftfs_fsck::Devices { area: &*media.area, log, bytes, spare: false })
}

fn sound(media: &Media, when: &str) {
    let found = check(media);
    assert!(found.iter().all(|f| f.severity == Severity::Info), "{when}: {found:#?}");
}

/// As [`sound`], without even a remark.
fn spotless(media: &Media, when: &str) {
    assert_eq!(check(media), vec![], "{when}");
}

fn open(dev: &Media) -> LocalVolume {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(1_700_000_000));
    LocalVolume::open_on(dev.clone(), clock, &OpenOptions::default(), Threads::None).expect("open")
}

#[test]
fn a_sound_volume_has_no_findings_at_any_time() {
    for (lanes, apart) in [(1, false), (2, false), (1, true), (2, true)] {
        let device = |size| -> Arc<dyn Device> { Arc::new(MemDevice::new(size)) };
        let log_size = Some(6 << 20);
        let opts = MkfsOptions { log_size, lanes, ..MkfsOptions::default() };
        let (area, log) = (device(24 << 20), device(6 << 20));
        let dev = if apart {
            mkfs_on(Media::split(area.clone(), log.clone()), &opts).expect("mkfs");
            Media::split(area, log)
        } else {
            mkfs_on(area.clone(), &opts).expect("mkfs");
            Media::from(area)
        };
        spotless(&dev, "fresh");
        let v = open(&dev);
        sound(&dev, "mounted");
        for i in 0..200u32 {
            let (parent, name) = (ROOT_INO, format!("file{i}").into_bytes());
            let Reply::Created { attr, handle } =
                call(&v, Request::Create { parent, name, perm: 0o644 })
            else {
                panic!("create")
            };
            let (ino, data) = (attr.ino, vec![i as u8; 3000 + 100 * i as usize]);
            let write = Request::write(ino, 0, data);
            call(&v, write);
            call(&v, Request::Fsync { file: ino.into(), datasync: false });
            call(&v, Request::Release { handle });
            if i % 50 == 20 {
                v.commit(i % 100 == 20).expect("commit");
                sound(&dev, "committed");
            }
            if i % 90 == 80 {
                v.checkpoint().expect("checkpoint");
                sound(&dev, "checkpointed");
            }
            if i % 40 == 0 {
                sound(&dev, "staged");
            }
        }
        v.abandon();
        sound(&dev, "abandoned");
        let v = open(&dev);
        sound(&dev, "recovered and mounted");
        v.close().expect("close");
        spotless(&dev, "unmounted");
    }
}
