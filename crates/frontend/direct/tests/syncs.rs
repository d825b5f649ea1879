//! Syncs of one file by several threads: none is answered before what it promises is durable.

#[path = "support/mod.rs"]
mod support;

use siftfs_base::Error;
use siftfs_direct::Session;
use siftfs_placement::LocalVolume;
use siftfs_proto::*;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;
use support::machine::{Machine, Way};
use support::{create, host, opening, reach, until_direct, volume};

const LONG: Duration = Duration::from_secs(20);

/// Fsyncs that have come, and whether they may go on.
#[derive(Default)]
struct Gate {
    state: Mutex<(u32, bool)>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |(_, open)| !*open).unwrap());
    }

    fn came(&self, count: u32) -> bool {
        let state = self.state.lock().unwrap();
        let waited = self.changed.wait_timeout_while(state, LONG, |(came, _)| *came < count);
        !waited.unwrap().1.timed_out()
    }

    fn set(&self, open: bool) {
        self.state.lock().unwrap().1 = open;
        self.changed.notify_all();
    }
}

/// Has the fsyncs of a session wait at a gate.
struct Gated {
    inner: Arc<dyn FileService>,
    gate: Arc<Gate>,
}

impl FileService for Gated {
    fn call(&self, cred: &Credentials, req: Request) -> Result<Reply, Error> {
        if let Request::Fsync { .. } = &req {
            self.gate.pass();
        }
        self.inner.call(cred, req)
    }
}

fn gated(v: &LocalVolume, gate: &Arc<Gate>) -> Session {
    let gate = gate.clone();
    let opened = Session::open(Box::new(reach), |holder| {
        let inner = v.holder(opening(), holder)?;
        Ok(Arc::new(Gated { inner, gate }) as Arc<dyn FileService>)
    });
    opened.unwrap()
}

/// What went to the host is durable when a sync is answered, also if another thread's sync was
/// under way when that came.
#[test]
fn a_sync_beside_another_one_is_no_shorter() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(volume(64 << 20), Way::SharedMemory, dir.path());
    let v = host(&machine);
    let gate = Arc::<Gate>::default();
    gate.set(true);
    let program = gated(&v, &gate);
    let file = create(&program, "f");
    file.write_at(0, &[1; 8192]).unwrap();
    file.sync_data().unwrap();
    until_direct(&file);
    // A little behind the end is the host's.
    file.write_at(8192, &[2; 100]).unwrap();
    gate.set(false);
    let before = gate.state.lock().unwrap().0;
    let came = thread::scope(|scope| {
        let both = [(); 2].map(|()| scope.spawn(|| file.sync_data()));
        let came = gate.came(before + 2);
        gate.set(true);
        both.into_iter().for_each(|sync| sync.join().unwrap().unwrap());
        came
    });
    assert!(came, "a sync was answered while the fsync that it stood on was under way");
    let before = gate.state.lock().unwrap().0;
    file.sync_data().unwrap();
    assert_eq!(gate.state.lock().unwrap().0, before, "and nothing is left for the next one");
    drop(file);
    v.close().unwrap();
}
