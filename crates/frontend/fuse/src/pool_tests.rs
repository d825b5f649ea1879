use super::*;
use std::sync::mpsc::channel;
use std::time::Duration;

/// More jobs than threads: all run, and blocked jobs do not keep a job from a free thread.
#[test]
fn every_job_runs() {
    let pool = Pool::new(4);
    let (tx, rx) = channel();
    for i in 0..100 {
        let tx = tx.clone();
        pool.run(Box::new(move || {
            if i % 10 == 0 {
                std::thread::sleep(Duration::from_millis(5));
            }
            tx.send(i).unwrap();
        }));
    }
    let mut seen: Vec<i32> = (0..100).map(|_| rx.recv().unwrap()).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..100).collect::<Vec<_>>());
    assert!(pool.shared.lock().threads <= 4);
}

/// Two jobs that need each other run at once.
#[test]
fn jobs_run_in_parallel() {
    let pool = Pool::new(2);
    let (a_tx, a_rx) = channel();
    let (b_tx, b_rx) = channel();
    let (end_tx, end_rx) = channel();
    let end2 = end_tx.clone();
    pool.run(Box::new(move || {
        a_tx.send(()).unwrap();
        b_rx.recv().unwrap();
        end_tx.send(()).unwrap();
    }));
    pool.run(Box::new(move || {
        b_tx.send(()).unwrap();
        a_rx.recv().unwrap();
        end2.send(()).unwrap();
    }));
    for _ in 0..2 {
        end_rx.recv_timeout(Duration::from_secs(10)).unwrap();
    }
}
