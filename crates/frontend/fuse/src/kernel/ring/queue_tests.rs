use super::*;

/// A queue with `n` threads that wait.
fn queue(queues: usize, spare: usize, n: usize) -> Queue {
    let queue = Queue::new(0, queues, spare);
    for _ in 0..n {
        queue.starts();
        assert!(!queue.registered());
    }
    queue
}

#[test]
fn one_client_needs_no_more_than_the_spare_ones() {
    let queue = queue(2, 2, 1);
    assert_eq!(queue.taken(), 2, "two shall wait");
    assert_eq!(queue.busy(), 1, "those that are started have none yet");
    queue.done();
    assert!(queue.registered() && queue.registered());
    assert_eq!(queue.busy(), 0);
    for _ in 0..100 {
        assert_eq!(queue.taken(), 0);
        queue.done();
    }
    assert_eq!(queue.threads(), 3);
}

/// The most threads that may have requests have one: threads wait as long as there may be more, and
/// threads that are being started are not started twice.
#[test]
fn threads_wait_up_to_the_bound() {
    let queue = queue(2, 2, 1);
    let most = MOST / 2;
    let mut starting = 0;
    for taken in 1..=most {
        starting += queue.taken();
        assert!(starting <= 2, "no more than are missing");
        assert!(queue.threads() <= most);
        if taken < most {
            assert!(starting > 0 || queue.idle.load(Ordering::SeqCst) > 0, "somebody is coming");
        }
        for _ in 0..starting {
            queue.registered();
        }
        starting = 0;
    }
    assert_eq!((queue.threads(), queue.idle.load(Ordering::SeqCst)), (most, 0));
    (0..most).for_each(|_| queue.done());
}

/// The kernel gave three requests to two entries, and only the first one's thread has run so far:
/// the third waits in the kernel's list, whatever our count of idle threads says.
#[test]
fn whoever_registers_later_looks_for_what_waits() {
    let queue = queue(1, 2, 2);
    assert_eq!(queue.taken(), 1);
    assert!(queue.registered(), "the list may have one");
    assert_eq!(queue.taken(), 1, "the second one's thread runs");
    assert!(queue.registered(), "and again");
}

#[test]
fn a_thread_that_could_not_be_started_does_not_count() {
    let queue = queue(1, 1, 1);
    assert_eq!((queue.taken(), queue.threads()), (1, 2));
    queue.not_started();
    assert_eq!(queue.threads(), 1);
    queue.done();
    assert_eq!((queue.taken(), queue.threads()), (1, 2), "and is started again");
}

/// What a parked thread waits for may need a request of the same queue: however many are parked,
/// one waits for it.
#[test]
fn parked_threads_do_not_count() {
    let queue = queue(1000, 1, 1);
    for parked in 0..PARKED {
        let mut started = queue.taken();
        queue.parks();
        started += queue.beside_parked();
        for _ in 0..started {
            queue.registered();
        }
        assert_eq!(queue.idle.load(Ordering::SeqCst), 1, "beside {parked} parked ones");
    }
    // Taken, and not parked: those stay bounded.
    for _ in 0..LEAST {
        for _ in 0..queue.taken() {
            queue.registered();
        }
    }
    assert_eq!((queue.threads(), queue.idle.load(Ordering::SeqCst)), (PARKED + LEAST, 0));
}

/// All threads that may be are taken before the first of them is parked.
#[test]
fn a_thread_that_parks_last_sees_to_the_next() {
    let queue = queue(1000, 1, LEAST);
    assert_eq!((0..LEAST).map(|_| queue.taken()).sum::<usize>(), 0);
    queue.parks();
    assert_eq!(queue.beside_parked(), 1);
    queue.goes_on();
}

/// Each queue may have some threads on a machine with very many processors, too.
#[test]
fn many_queues() {
    assert_eq!(Queue::new(0, 1000, 2).most, LEAST);
    assert_eq!(Queue::new(0, 1, 500).spare, MOST);
    assert_eq!(Queue::new(0, 4, 0).spare, 1);
}
