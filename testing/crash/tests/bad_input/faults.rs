//! Every write and every flush of a volume's life fails once, recovery's included. The caller is
//! told EIO, nothing is promised afterwards, no thread hangs, and what was acknowledged is there.

use super::{dirty, layout};
use siftfs_base::Error;
use siftfs_crash::{Back, Bench, base_image, deterministic, open};
use siftfs_device::{Cut, Fault, FaultDevice, Image, OpClass, OpKind, OpRecord};
use siftfs_model::{Control, pattern};
use siftfs_placement::recover_on;
use siftfs_proto::{ROOT_INO, Request};
use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// What a life came to.
#[derive(Default)]
struct Life {
    /// Files whose fsync returned, with their pattern and length.
    acknowledged: Vec<(String, u64, u64)>,
    /// What callers were told, in order; closing and opening are calls too.
    errors: Vec<Error>,
    /// Calls that succeeded after the first error and must not have: changes and fsyncs.
    promised: u64,
}

impl Life {
    fn told(&mut self, result: Result<(), Error>) -> bool {
        match result {
            Ok(()) => {
                self.promised += u64::from(!self.errors.is_empty());
                true
            }
            Err(e) => {
                self.errors.push(e);
                false
            }
        }
    }

    /// A volume that has stopped says so, since when, and what to do; one that serves does not.
    fn status_is_told(&self, b: &Bench) {
        let status = b.status();
        let latched = self.errors.iter().any(|e| matches!(e, Error::Latched(_)));
        assert!(!latched || status.failed.is_some(), "not told: {:?}", self.errors);
        let told = (status.failed.is_some(), status.failed_s.is_some(), status.remedy.is_some());
        assert!(told == (true, true, true) || told == (false, false, false), "{told:?}");
    }

    /// Makes a file, or writes it anew, and makes it durable.
    fn durable(&mut self, b: &Bench, name: &str, id: u64, len: u64) {
        if b.try_ino(name).is_none() {
            let req = Request::Create { parent: ROOT_INO, name: name.into(), perm: 0o644 };
            if !self.told(b.call(req).map(drop)) {
                return;
            }
        }
        self.acknowledged.retain(|(n, ..)| n != name);
        let written = b.try_write(name, 0, &pattern(id, 0, len));
        if self.told(written.and_then(|()| b.try_fsync(name))) {
            self.acknowledged.push((name.into(), id, len));
        }
    }
}

/// Mount, fsyncs, background transactions with data of their own, checkpoints, unmount.
fn live(device: Arc<FaultDevice>) -> Life {
    let mut life = Life::default();
    let driver = match open(device.clone()) {
        Ok(driver) => driver,
        Err(e) => {
            life.told(Err(e));
            return life;
        }
    };
    let b = Bench { service: driver.volume.endpoint(), driver, device };
    for round in 0..2u64 {
        for i in 0..3 {
            life.durable(&b, &format!("f{i}"), 10 * round + i, 3000 + 2000 * i);
        }
        let name = format!("unsynced{round}");
        let req = Request::Create { parent: ROOT_INO, name: name.clone().into(), perm: 0o644 };
        if life.told(b.call(req).map(drop)) {
            life.told(b.try_write(&name, 0, &pattern(99, 0, 40_000)));
        }
        life.told(b.driver.commit(true));
        life.durable(&b, "g", 50 + round, 700);
        // What was journaled before a lane failed may still be checkpointed: that promises nothing.
        life.errors.extend(b.driver.checkpoint().err());
    }
    life.durable(&b, "last", 60, 900);
    life.status_is_told(&b);
    let Bench { driver, service, .. } = b;
    drop(service);
    life.told(driver.volume.close());
    life
}

/// Runs `what` with a limit of time: a hang is a failure.
pub fn in_time<T: Send + 'static>(name: &str, what: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = mpsc::channel();
    let thread = thread::spawn(move || {
        let result = what();
        done.send(()).expect("somebody waits");
        result
    });
    let hung = wait.recv_timeout(Duration::from_secs(60)) == Err(mpsc::RecvTimeoutError::Timeout);
    assert!(!hung, "{name}: hangs");
    thread.join().unwrap_or_else(|_| panic!("{name}: panicked"))
}

/// What kind of write `op` is.
fn kind(op: &OpRecord, after: &Image) -> &'static str {
    let layout = layout();
    let data = |id, len| pattern(id, 0, len);
    let content = || after.bytes(op.offset, op.len.min(600));
    let is_data = || {
        let found = content();
        (0..70).any(|id| data(id, 600).starts_with(&found)) || data(99, 600).starts_with(&found)
    };
    match op.kind {
        OpKind::Read => "read",
        OpKind::Flush => "flush",
        _ if layout.staging.contains(&op.offset) => "staging",
        _ if layout.journal.contains(&op.offset) => "journal",
        _ if layout.in_header(op) => {
            let start = if layout.header.contains(&op.offset) {
                layout.header.start
            } else {
                layout.tail.start
            };
            if (op.offset - start) / 4096 < 3 { "host record" } else { "service record" }
        }
        _ if op.offset == 1024 => "superblock",
        _ if is_data() => "file data",
        _ => "metadata image",
    }
}

/// The operations of a life without faults.
fn undisturbed() -> (Vec<OpRecord>, Image) {
    let device = Arc::new(FaultDevice::from_image(base_image(), 1));
    device.record();
    let life = live(device.clone());
    assert!(life.errors.is_empty(), "{:?}", life.errors);
    assert_eq!(life.acknowledged.len(), 5);
    let ops = device.take_log().into_iter().filter(|o| o.kind != OpKind::Read).collect();
    (ops, device.contents())
}

/// One error, at the `nr`th write or flush.
fn one_failure(name: &str, fault: Fault) {
    let device = Arc::new(FaultDevice::from_image(base_image(), 1));
    let id = device.inject(fault);
    let life = in_time(name, {
        let device = device.clone();
        move || live(device)
    });
    assert_eq!(device.fired(id), 1, "{name}");
    let Some(first) = life.errors.first() else { panic!("{name}: nobody was told") };
    for e in &life.errors {
        assert_eq!(e.errno(), libc::EIO, "{name}: {e}");
        assert!(e.to_string().len() > 25 && !e.to_string().contains('{'), "{name}: {e}");
    }
    assert!(first.to_string().contains("Input/output error"), "{name}: {first}");
    assert_eq!(life.promised, 0, "{name}: promised something after {first}");
    for cut in [Cut::LoseAll, Cut::KeepAll] {
        let back = Back::from(&device.image(cut));
        for (file, id, len) in &life.acknowledged {
            assert!(back.bytes(file) == pattern(*id, 0, *len), "{name}, {cut:?}: {file} is lost");
        }
    }
}

#[test]
fn an_error_on_every_write() {
    let (ops, after) = undisturbed();
    let writes: Vec<_> = ops.iter().filter(|o| o.kind != OpKind::Flush).collect();
    let mut kinds = BTreeSet::new();
    for (nr, op) in (0..).zip(&writes) {
        let kind = kind(op, &after);
        kinds.insert(kind);
        let name = format!("write {nr} of {} ({kind})", writes.len());
        one_failure(&name, Fault::fail(OpClass::Write, libc::EIO).after(nr).once());
        if nr % 3 == 0 {
            one_failure(&format!("{name}, torn"), Fault::fail_torn(libc::EIO).after(nr).once());
        }
    }
    let all = [
        "file data",
        "host record",
        "journal",
        "metadata image",
        "service record",
        "staging",
        "superblock",
    ];
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), all);
}

#[test]
fn an_error_on_every_flush() {
    let (ops, _) = undisturbed();
    let flushes = ops.iter().filter(|o| o.kind == OpKind::Flush).count() as u64;
    assert!(flushes > 10, "{flushes} flushes");
    for nr in 0..flushes {
        let fault = Fault::fail(OpClass::Flush, libc::EIO).after(nr).once();
        one_failure(&format!("flush {nr} of {flushes}"), fault);
    }
}

/// The same while recovering: it says so, and the next recovery finds everything.
#[test]
fn an_error_on_every_write_and_flush_of_a_recovery() {
    let image = dirty();
    let device = Arc::new(FaultDevice::from_image(image.clone(), 1));
    device.record();
    recover_on(device.clone(), &deterministic()).expect("recovers");
    let ops = device.take_log();
    for (class, flush) in [(OpClass::Write, false), (OpClass::Flush, true)] {
        let of_class = |o: &&OpRecord| o.kind != OpKind::Read && (o.kind == OpKind::Flush) == flush;
        let count = ops.iter().filter(of_class).count() as u64;
        assert!(count > 5, "{count} of {class:?}");
        for nr in 0..count {
            let name = format!("{class:?} {nr} of {count}");
            let device = Arc::new(FaultDevice::from_image(image.clone(), 1));
            let id = device.inject(Fault::fail(class, libc::EIO).after(nr).once());
            let error = in_time(&name, {
                let device = device.clone();
                move || recover_on(device, &deterministic()).expect_err("an error is told")
            });
            assert_eq!(device.fired(id), 1, "{name}");
            assert_eq!(error.errno(), libc::EIO, "{name}: {error}");
            for cut in [Cut::LoseAll, Cut::KeepAll] {
                let back = Back::from(&device.image(cut));
                for i in 0..10 {
                    let whole = back.bytes(&format!("g{i}")) == pattern(i, 0, 900);
                    assert!(whole, "{name}, {cut:?}: g{i} is lost");
                }
            }
        }
    }
}
