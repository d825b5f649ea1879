//! Waiting for commits, credits and checkpoints under every order of the threads: every waiter is
//! woken (a thread that nothing will wake fails the test), and a latched failure reaches all of
//! them.
//!
//! Gate, alarm and sequencer are the product's files. The state behind them is the part of the
//! Runtime's that is waited for: the place in a lane, transactions, and the answers to checkpoints,
//! with the same order of locks and messages as `runtime.rs` has.

use loom::sync::{Arc, Mutex, MutexGuard};
use loom::thread;
use siftfs_base::{Error, Result};
use siftfs_interleave::gate::{Alarm, Gate};
use siftfs_interleave::sequencer::Sequencer;
use std::collections::BTreeSet;
use std::time::Duration;

/// Records that the lane holds.
const PLACES: u64 = 1;

#[derive(Default)]
struct State {
    head: u64,
    tail: u64,
    /// Transactions handed over, and known durable.
    submitted: u64,
    journaled: u64,
    /// A background checkpoint is under way.
    background: bool,
    /// Checkpoints asked for, and answered, by number.
    asked: u64,
    done: BTreeSet<u64>,
}

/// What the Service has to do.
#[derive(Default)]
struct Inbox {
    submitted: u64,
    background: bool,
    emergency: BTreeSet<u64>,
    stop: bool,
}

struct Runtime {
    state: Mutex<State>,
    progress: Gate,
    sequencer: Sequencer,
    wake: Alarm,
    inbox: Mutex<Inbox>,
    service: Alarm,
}

fn eio() -> Error {
    Error::Io { op: "test", offset: 0, len: 0, errno: 5 }
}

impl Runtime {
    fn new() -> Self {
        Self {
            state: Mutex::default(),
            progress: Gate::default(),
            sequencer: Sequencer::for_tests(),
            wake: Alarm::default(),
            inbox: Mutex::default(),
            service: Alarm::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("not poisoned")
    }

    /// A message to the Service, without the state lock.
    fn send(&self, message: impl FnOnce(&mut Inbox)) {
        message(&mut self.inbox.lock().expect("not poisoned"));
        self.service.ring();
    }

    fn wait_until<T>(&self, ready: impl FnMut(&mut State) -> Option<T>) -> Result<T> {
        self.progress.wait_until(self.lock(), || self.sequencer.check(), ready)
    }

    fn submit(&self) -> Result<()> {
        let mut st = self.lock();
        st.submitted += 1;
        let seq = st.submitted;
        drop(st);
        self.send(|inbox| inbox.submitted = inbox.submitted.max(seq));
        self.wait_until(|st| (st.journaled >= seq).then_some(()))
    }

    fn emergency(&self) -> Result<()> {
        let mut st = self.lock();
        st.asked += 1;
        let id = st.asked;
        drop(st);
        self.send(|inbox| inbox.emergency.extend([id]));
        self.wait_until(|st| st.done.remove(&id).then_some(()))
    }

    /// A record for the lane. While it is full, what is in it is journaled and checkpointed.
    fn stage(&self) -> Result<()> {
        loop {
            self.sequencer.check()?;
            let mut st = self.lock();
            if st.head - st.tail < PLACES {
                st.head += 1;
                return Ok(());
            }
            drop(st);
            self.submit()?;
            self.emergency()?;
        }
    }

    /// The commit thread's turn: a checkpoint in the background.
    fn tick(&self) {
        let mut st = self.lock();
        let ask = !st.background;
        st.background = true;
        drop(st);
        if ask {
            self.send(|inbox| inbox.background = true);
        }
    }

    fn fail(&self) {
        self.sequencer.fail(&eio());
        self.progress.tell(self.lock());
    }

    /// The Service, until it is stopped: each answer is a message of its own.
    fn serve(&self) {
        loop {
            self.service.wait(Duration::ZERO);
            let inbox = std::mem::take(&mut *self.inbox.lock().expect("not poisoned"));
            let stop = inbox.stop;
            self.answer(inbox);
            if stop {
                return;
            }
        }
    }

    fn answer(&self, inbox: Inbox) {
        if inbox.submitted > 0 {
            let mut st = self.lock();
            st.journaled = st.journaled.max(inbox.submitted);
            self.progress.tell(st);
        }
        for id in inbox.emergency {
            self.reclaim();
            let mut st = self.lock();
            st.done.insert(id);
            self.progress.tell(st);
        }
        if inbox.background {
            self.reclaim();
            let mut st = self.lock();
            st.background = false;
            self.progress.tell(st);
        }
    }

    fn reclaim(&self) {
        let mut st = self.lock();
        st.tail = st.head;
        self.progress.tell(st);
    }
}

/// Runs `work` under every order of the threads, with at most `preemptions` interruptions where
/// bounded.
fn every_order(preemptions: Option<usize>, work: impl Fn(&Arc<Runtime>) + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = preemptions;
    model.check(move || work(&Arc::new(Runtime::new())));
}

/// The same beside the Service.
fn served(preemptions: usize, work: impl Fn(&Arc<Runtime>) + Sync + Send + 'static) {
    every_order(Some(preemptions), move |runtime| {
        let service = spawn(runtime, Runtime::serve);
        work(runtime);
        runtime.send(|inbox| inbox.stop = true);
        service.join().expect("does not panic");
    });
}

fn spawn<T: 'static>(
    runtime: &Arc<Runtime>,
    work: impl FnOnce(&Runtime) -> T + 'static,
) -> thread::JoinHandle<T> {
    let runtime = runtime.clone();
    thread::spawn(move || work(&runtime))
}

/// A commit that is answered while its caller is about to wait.
#[test]
fn a_commit_is_told_that_it_is_journaled() {
    served(4, |runtime| assert_eq!(runtime.submit(), Ok(())));
}

/// Two callers at the emergency gate: each gets its own answer.
#[test]
fn each_caller_gets_its_own_checkpoint() {
    served(2, |runtime| {
        let other = spawn(runtime, Runtime::emergency);
        assert_eq!(runtime.emergency(), Ok(()));
        assert_eq!(other.join().expect("does not panic"), Ok(()));
        assert!(runtime.lock().done.is_empty());
    });
}

/// A lane of one place: the second record waits for credits, and gets them.
#[test]
fn who_waits_for_credits_gets_them() {
    served(3, |runtime| {
        assert_eq!(runtime.stage(), Ok(()));
        assert_eq!(runtime.stage(), Ok(()));
    });
}

/// A checkpoint in the background has a gate of its own: an emergency one is answered all the same,
/// and so is the other.
#[test]
fn the_background_gate_holds_up_nobody() {
    served(3, |runtime| {
        runtime.tick();
        assert_eq!(runtime.emergency(), Ok(()));
        assert_eq!(runtime.wait_until(|st| (!st.background).then_some(())), Ok(()));
    });
}

/// Rule R21: a failure ends every wait, whenever it comes.
#[test]
fn r21_a_failure_ends_every_wait() {
    every_order(Some(3), |runtime| {
        let waits = [spawn(runtime, Runtime::submit), spawn(runtime, Runtime::emergency)];
        runtime.fail();
        for wait in waits {
            let answer = wait.join().expect("does not panic");
            assert!(matches!(answer, Err(Error::Latched(_))), "{answer:?}");
        }
    });
}

/// A ring of the alarm wakes the commit thread, even if it comes before that thread waits. Nothing
/// here times out, so the test would wait for ever for an alarm that got lost.
#[test]
fn an_alarm_is_not_lost() {
    every_order(None, |runtime| {
        let worker = spawn(runtime, |runtime| {
            runtime.wake.wait(Duration::ZERO);
            runtime.lock().head
        });
        runtime.lock().head = 1;
        runtime.wake.ring();
        assert_eq!(worker.join().expect("does not panic"), 1);
    });
}
