//! A host and a device process that lie to each other: real processes, and between them a relay
//! that passes their messages on and changes one. The lie is refused with one message on both
//! sides, logged and counted.

use crate::support::{Setup, siftfs};
use crate::{
    Device, await_that, has, kill_host, link, mount, mount_by, mount_log, put, status, view,
};
use rustix::process::Signal;
use siftfs_base::TxnSeq;
use siftfs_device::RegionKind;
use siftfs_log::StagedRef;
use siftfs_placement::Listener;
use siftfs_transport::{Address, Received, Receiver, Sender, TransportOptions, connect};
use siftfs_wire::{BlockProtocol, FromService, ToService};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Changes a message; false if it is not of the kind that it lies about.
type Lie<M> = fn(&mut M) -> bool;

/// Passes on what goes between a mount and a device process.
struct Between {
    address: String,
    /// One lie is to be told.
    lying: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Between {
    fn start(setup: &Setup, there: Lie<ToService>, back: Lie<FromService>) -> Self {
        let address = format!("unix:{}", setup.tmp.path().join("between").display());
        let options = TransportOptions::default();
        let listener = Listener::bind(&address.parse().unwrap(), &options).unwrap();
        let device: Address = crate::address(setup).parse().unwrap();
        let (lying, stop) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (armed, ending) = (lying.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let mut carriers = Vec::new();
            while !ending.load(Ordering::SeqCst) {
                let Ok(Some(host)) = listener.accept(Some(Duration::from_millis(50))) else {
                    continue;
                };
                let Ok(end) = connect::<BlockProtocol>(&device, &TransportOptions::default())
                else {
                    continue;
                };
                let (a, b, c, d) = (armed.clone(), armed.clone(), ending.clone(), ending.clone());
                let (to, from) = (end.sender, end.receiver);
                let (hears, says) = (host.receiver, host.sender);
                carriers.push(std::thread::spawn(move || carry(hears, &to, there, &a, &c)));
                carriers.push(std::thread::spawn(move || carry(from, &says, back, &b, &d)));
            }
            for carrier in carriers {
                carrier.join().unwrap();
            }
        });
        Self { address, lying, stop, thread: Some(thread) }
    }

    fn lie(&self) {
        self.lying.store(true, Ordering::SeqCst);
    }

    fn has_lied(&self) -> bool {
        !self.lying.load(Ordering::SeqCst)
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_none_or(|e| e.is_ok()));
    }
}

fn carry<M>(
    mut from: Box<dyn Receiver<M>>,
    to: &Arc<dyn Sender<M>>,
    lie: Lie<M>,
    lying: &AtomicBool,
    stop: &AtomicBool,
) {
    while !stop.load(Ordering::SeqCst) {
        match from.recv(Some(Duration::from_millis(50))) {
            Ok(Received::Message(mut message)) => {
                if lying.load(Ordering::SeqCst) && lie(&mut message) {
                    lying.store(false, Ordering::SeqCst);
                }
                if to.send(message).is_err() {
                    break;
                }
            }
            Ok(Received::Timeout) => {}
            Ok(Received::Closed) | Err(_) => break,
        }
    }
    to.close();
}

/// A device process lies once: its host says why it does not believe it, both write that down and
/// count it, and go on with another connection.
fn a_lie_of_the_device(lie: Lie<FromService>, reason: &str) {
    let setup = Setup::new();
    let device = Device::start(&setup, &[]);
    let between = Between::start(&setup, |_| false, lie);
    mount_by(&setup, &between.address, &["-o", "commit=3600"]).ok();
    put(&setup, "before");
    siftfs(&["checkpoint", setup.dir()]).ok();
    between.lie();
    put(&setup, "behind");
    siftfs(&["checkpoint", setup.dir()]).ok();
    assert!(between.has_lied());
    for (side, log) in [("host", mount_log(&setup)), ("device", device.log())] {
        assert!(log.contains(reason), "no `{reason}` in the {side}'s log:\n{log}");
    }
    let status = status(&setup);
    let runtime = &status["runtime"];
    assert_eq!(runtime["link"]["objections"], 1, "{}", runtime["link"]);
    assert_eq!(runtime["service"]["device"]["refusals"], 1, "{}", runtime["service"]["device"]);
    assert!(runtime["failed"].is_null());
    put(&setup, "after");
    has(&setup, &["before", "behind", "after"]);
    setup.umount();
    assert_eq!(device.end(Signal::TERM), 0);
    setup.assert_plain_ext4();
}

#[test]
fn too_many_credits() {
    let lie: Lie<FromService> = |m| match m {
        FromService::Reclaimed { lane_tails, .. } => {
            lane_tails.iter_mut().for_each(|t| *t += 1 << 20);
            true
        }
        _ => false,
    };
    a_lie_of_the_device(lie, "too many credits");
}

#[test]
fn an_acknowledgement_of_what_was_not_sent() {
    let lie: Lie<FromService> = |m| match m {
        FromService::Journaled { seq, .. } => {
            *seq = TxnSeq(seq.0 + 5);
            true
        }
        _ => false,
    };
    a_lie_of_the_device(lie, "was never sent");
}

/// What the device process writes.
fn area_and_journal(setup: &Setup) -> Vec<u8> {
    let all = std::fs::read(setup.volume()).unwrap();
    let regions = siftfs_volume::region_descs(&view(setup).header);
    let mut out = Vec::new();
    for r in regions.iter().filter(|r| [RegionKind::Area, RegionKind::Journal].contains(&r.kind)) {
        out.extend_from_slice(&all[r.offset as usize..(r.offset + r.len) as usize]);
    }
    out
}

/// A host lies: the device process writes nothing of it, both stop with the same reason, and what
/// was acknowledged is recovered.
fn a_lie_of_the_host(lie: Lie<ToService>, reason: &str) {
    let setup = Setup::new();
    let device = Device::start(&setup, &[]);
    let between = Between::start(&setup, lie, |_| false);
    mount_by(&setup, &between.address, &["-o", "commit=3600"]).ok();
    put(&setup, "before");
    siftfs(&["checkpoint", setup.dir()]).ok();
    put(&setup, "kept");
    let before = area_and_journal(&setup);
    between.lie();
    siftfs(&["sync", setup.dir()]).fails(1, &["stopped"]);
    assert!(between.has_lied());
    for (side, log) in [("host", mount_log(&setup)), ("device", device.log())] {
        assert!(log.contains(reason), "no `{reason}` in the {side}'s log:\n{log}");
    }
    let failed = status(&setup)["runtime"]["failed"].as_str().unwrap_or_default().to_owned();
    assert!(failed.contains(reason), "{failed}");
    kill_host(&setup);
    assert!(area_and_journal(&setup) == before, "area or journal was written");
    await_that("the device process gives the volume up", || {
        let ran = siftfs(&["recover", setup.volume()]);
        assert!(ran.code == 0 || ran.err.contains("in use by"), "{ran:?}");
        ran.code == 0
    });
    setup.assert_plain_ext4();
    // The next host is told how often it refused, and has everything.
    mount(&setup, &[]).ok();
    has(&setup, &["before", "kept"]);
    let now = link(&setup);
    assert_eq!(now["objections"], 0);
    let device_says = status(&setup)["runtime"]["service"]["device"].clone();
    assert_eq!(device_says["refusals"], 1, "{device_says}");
    setup.umount();
    assert_eq!(device.end(Signal::TERM), 0);
    setup.assert_plain_ext4();
}

#[test]
fn a_descriptor_of_garbage() {
    let lie: Lie<ToService> = |m| match m {
        ToService::Submit { txn, .. } if !txn.images.is_empty() => {
            let last = txn.images.len() - 1;
            txn.images[last] = u64::MAX / 4096;
            true
        }
        _ => false,
    };
    a_lie_of_the_host(lie, "names bytes outside the file-system area");
}

#[test]
fn an_address_outside_the_hosts_lane() {
    let lie: Lie<ToService> = |m| match m {
        ToService::Submit { txn, .. } => {
            let lane = siftfs_base::LaneId(0);
            let pos = 1 << 40;
            txn.staged.push(StagedRef { lane, pos, len: 4096, lsn: txn.staged_cut, crc: 0 });
            true
        }
        _ => false,
    };
    a_lie_of_the_host(lie, "refers to an impossible staged record");
}
