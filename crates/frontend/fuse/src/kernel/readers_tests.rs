use super::*;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// One client: the kept threads do everything, and no other thread is started.
#[test]
fn one_request_at_a_time_needs_no_more() {
    let readers = Readers::new(2);
    for _ in 0..100 {
        assert_eq!(readers.taken(), Taken::Covered);
        assert!(readers.done());
    }
    assert_eq!(readers.count(), (2, 0));
}

/// Whatever became of a thread, it is counted as busy from its request to its answer and no longer.
#[test]
fn threads_that_have_a_request_are_counted() {
    let readers = Arc::new(Readers::new(1));
    assert_eq!((readers.taken(), readers.count()), (Taken::Start, (2, 1)));
    assert_eq!((readers.taken(), readers.count()), (Taken::Start, (3, 2)));
    // The third one reads, so the first one goes to sleep.
    let sleeper = std::thread::spawn({
        let readers = readers.clone();
        move || readers.done()
    });
    while readers.lock().asleep == 0 {
        std::thread::yield_now();
    }
    assert_eq!(readers.count(), (3, 1));
    assert_eq!((readers.taken(), readers.count()), (Taken::Covered, (3, 2)), "it is called");
    assert!(sleeper.join().unwrap());
    // It is free before its answer, for the next request.
    readers.answered();
    assert_eq!(readers.count(), (3, 1));
}

/// All threads that there can be are busy: each that takes the last place brings another, up to the
/// bound.
#[test]
fn somebody_is_always_free_up_to_the_bound() {
    let readers = Readers::new(2);
    assert_eq!(readers.taken(), Taken::Covered);
    for _ in 2..MOST {
        assert_eq!(readers.taken(), Taken::Start);
        assert_eq!(readers.free.load(Ordering::SeqCst), 1);
    }
    assert_eq!(readers.taken(), Taken::Covered, "the last of all has nobody behind it");
    assert_eq!(readers.free.load(Ordering::SeqCst), 0);
    assert!(readers.done(), "and reads on itself");
    assert_eq!(readers.free.load(Ordering::SeqCst), 1);
}

#[test]
fn a_thread_that_could_not_be_started_does_not_count() {
    let readers = Readers::new(1);
    assert_eq!(readers.taken(), Taken::Start);
    readers.not_started();
    assert_eq!(readers.lock().threads, 1);
    assert!(readers.done());
}

/// Threads that take and finish requests at random, some of them long. Whenever a thread waits for
/// another's request to be read, it is read. At the end all threads come home.
#[test]
fn nobody_sleeps_while_a_request_waits() {
    let readers = Arc::new(Readers::new(2));
    let requests = Arc::new((Mutex::new(0u32), Condvar::new()));
    let over = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    let start = |readers: &Arc<Readers>| {
        let (readers, requests, over) = (readers.clone(), requests.clone(), over.clone());
        std::thread::spawn(move || serve(&readers, &requests, &over, 0))
    };
    threads.push(start(&readers));
    threads.push(start(&readers));
    let end = Instant::now() + Duration::from_secs(20);
    for i in 0..3000u32 {
        *requests.0.lock().unwrap() += 1;
        requests.1.notify_one();
        // Bursts, and pauses in which all are idle.
        if i.is_multiple_of(64) {
            while *requests.0.lock().unwrap() > 0 {
                assert!(Instant::now() < end, "a request is not read");
                std::thread::yield_now();
            }
        }
    }
    while *requests.0.lock().unwrap() > 0 {
        assert!(Instant::now() < end, "a request is not read");
        std::thread::yield_now();
    }
    over.store(true, Ordering::SeqCst);
    requests.1.notify_all();
    readers.end();
    threads.into_iter().for_each(|t| t.join().unwrap());
}

type Requests = (Mutex<u32>, Condvar);

/// A reader: takes requests, starts others as it is told, and waits for them at its end.
fn serve(readers: &Arc<Readers>, requests: &Arc<Requests>, over: &Arc<AtomicBool>, depth: usize) {
    assert!(depth <= MOST);
    let mut started = Vec::new();
    let mut turn = 0u64;
    loop {
        let mut left = requests.0.lock().unwrap();
        while *left == 0 && !over.load(Ordering::SeqCst) {
            left = requests.1.wait_timeout(left, Duration::from_millis(10)).unwrap().0;
        }
        if *left == 0 {
            break;
        }
        *left -= 1;
        drop(left);
        if readers.taken() == Taken::Start {
            let (readers, requests, over) = (readers.clone(), requests.clone(), over.clone());
            let body = move || serve(&readers, &requests, &over, depth + 1);
            started.push(std::thread::spawn(body));
        }
        turn += 1;
        if turn.is_multiple_of(7) {
            std::thread::sleep(Duration::from_micros(200));
        }
        if !readers.done() {
            break;
        }
    }
    started.into_iter().for_each(|t| t.join().unwrap());
}
