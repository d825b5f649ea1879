use super::*;
use siftfs_proto::{Handle, Request};
use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;
use std::thread::scope;

fn executors(executors: usize, schedule: Schedule) -> Executors {
    Executors::new(Execution { executors, schedule, ..Execution::default() })
}

const ANY: Request = Request::StatFs;

fn write() -> Request {
    Request::write(Handle(1), 0, vec![1])
}

/// A thread for each slot, of several sessions, and never more at work than executors.
#[test]
fn threads_take_turns() {
    for schedule in [Schedule::Fcfs, Schedule::Fair] {
        let (all, at_work) = (executors(2, schedule), AtomicUsize::new(0));
        let sessions = [(); 4].map(|()| all.open());
        scope(|scope| {
            for commands in sessions.iter().cycle().take(64) {
                let at_work = &at_work;
                scope.spawn(move || {
                    for _ in 0..50 {
                        let turn = commands.arrive(&ANY).begin(|| ()).unwrap();
                        assert!(at_work.fetch_add(1, Ordering::SeqCst) < 2);
                        std::thread::yield_now();
                        at_work.fetch_sub(1, Ordering::SeqCst);
                        turn.release();
                        turn.finish();
                    }
                });
            }
        });
        assert!(all.counts().0 > 0, "some have waited");
    }
}

/// Commands that all wait for the last of them, with one executor: each lends it in its turn.
#[test]
fn commands_that_wait_let_others_in() {
    let (all, together) = (executors(1, Schedule::Fair), Barrier::new(8));
    let sessions = [(); 4].map(|()| all.open());
    scope(|scope| {
        for (n, commands) in sessions.iter().cycle().take(8).enumerate() {
            let together = &together;
            // Half of them are in a line, too.
            let request = if n % 2 == 0 { ANY } else { write() };
            scope.spawn(move || {
                let turn = commands.arrive(&request).begin(|| ()).unwrap();
                together.wait();
                turn.finish();
            });
        }
    });
    assert!(all.counts().1 >= 7, "{:?}", all.counts());
}

/// The end of a session is the end of its waits, whatever has the executor.
#[test]
fn a_session_that_ends_is_told() {
    let all = executors(1, Schedule::Fair);
    let (a, b) = (all.open(), all.open());
    let turn = a.arrive(&ANY).begin(|| ()).unwrap();
    scope(|scope| {
        let (came, waits) = std::sync::mpsc::channel();
        let b = &b;
        let waiting = scope.spawn(move || {
            let entry = b.arrive(&ANY);
            came.send(()).unwrap();
            // The thread that has the executor spins below: it does not lend.
            entry.begin(|| ()).is_none()
        });
        waits.recv().unwrap();
        b.end();
        while !waiting.is_finished() {
            std::hint::spin_loop();
        }
        assert!(waiting.join().unwrap());
    });
    assert!(b.arrive(&ANY).begin(|| ()).is_none(), "it has ended");
    turn.finish();
    // One that is dropped before it has started keeps no executor.
    drop(a.arrive(&ANY));
    a.arrive(&ANY).begin(|| ()).unwrap().finish();
}

/// The slower processor: a command has its executor for longer, by what it worked.
#[test]
fn a_slower_processor_works_longer() {
    let mut execution = Execution { executors: 1, cpu_factor: 3.0, ..Execution::default() };
    let took = |execution: &Execution| {
        let all = Executors::new(execution.clone());
        let turn = all.open().arrive(&ANY).begin(|| ()).unwrap();
        let began = thread::processor_time();
        while thread::processor_time() - began < Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        let worked = thread::processor_time() - began;
        turn.release();
        let whole = thread::processor_time() - began;
        turn.finish();
        (worked, whole)
    };
    let (worked, whole) = took(&execution);
    assert!(whole >= worked * 3, "{worked:?} {whole:?}");
    execution.cpu_factor = 1.0;
    let (worked, whole) = took(&execution);
    assert!(whole < worked * 2, "{worked:?} {whole:?}");
    // A bus delays the beginning. It is no work of the command's, which the factor would multiply.
    execution.doorbell_delay = Duration::from_millis(2);
    execution.cpu_factor = 1000.0;
    let all = Executors::new(execution);
    let before = Instant::now();
    let turn = all.open().arrive(&ANY).begin(|| ()).unwrap();
    assert!(before.elapsed() >= Duration::from_millis(2));
    let before = thread::processor_time();
    turn.finish();
    assert!(thread::processor_time() - before < Duration::from_secs(1));
}

/// A thread that fails in the middle of a command keeps no executor, which the next one would have
/// to be lent.
#[test]
fn a_failed_command_keeps_no_executor() {
    let all = executors(1, Schedule::Fair);
    let commands = all.open();
    scope(|scope| {
        let failed = scope.spawn(|| {
            let _turn = commands.arrive(&ANY).begin(|| ()).unwrap();
            panic!("on purpose");
        });
        assert!(failed.join().is_err());
    });
    commands.arrive(&ANY).begin(|| ()).unwrap().finish();
    assert_eq!(all.counts().1, 0);
}
