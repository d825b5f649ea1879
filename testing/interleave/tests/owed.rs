//! What a change owes to other sessions, under every order of the threads: what follows is called
//! once, after the last acknowledgement, and a thread that waits is woken (one that nothing will
//! wake fails the test).

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use siftfs_interleave::notice::{Notice, Owed};

/// Acknowledgements, and calls of what follows.
#[derive(Default)]
struct Counts {
    acknowledged: AtomicUsize,
    followed: AtomicUsize,
}

impl Counts {
    fn followed(&self) -> usize {
        self.followed.load(Ordering::SeqCst)
    }
}

fn counts() -> Arc<Counts> {
    Arc::new(Counts::default())
}

/// A thread that acknowledges.
fn acknowledge(counts: &Arc<Counts>, notice: Notice) -> thread::JoinHandle<()> {
    let counts = counts.clone();
    thread::spawn(move || {
        counts.acknowledged.fetch_add(1, Ordering::SeqCst);
        drop(notice);
    })
}

/// What follows: it counts, and finds that many acknowledged.
fn follow(counts: &Arc<Counts>, acknowledged: usize) -> Box<dyn FnOnce() + Send> {
    let counts = counts.clone();
    Box::new(move || {
        assert_eq!(counts.acknowledged.load(Ordering::SeqCst), acknowledged, "all of them");
        counts.followed.fetch_add(1, Ordering::SeqCst);
    })
}

fn join(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().expect("does not panic"));
}

/// Two sessions acknowledge one change while its answer is made ready.
#[test]
fn the_last_acknowledgement_answers() {
    loom::model(|| {
        let (counts, mut owed) = (counts(), Owed::default());
        let notices = [Notice::new(&mut owed), Notice::new(&mut owed)];
        let threads = notices.map(|notice| acknowledge(&counts, notice));
        owed.then(follow(&counts, 2));
        join(threads);
        assert_eq!(counts.followed(), 1);
    });
}

/// A request makes two changes, of which the first may be settled before the second is added.
#[test]
fn a_request_of_two_changes_is_answered_once() {
    loom::model(|| {
        let (counts, mut owed) = (counts(), Owed::default());
        let first = acknowledge(&counts, Notice::new(&mut owed));
        let mut second = Owed::default();
        let last = acknowledge(&counts, Notice::new(&mut second));
        owed.add(second);
        owed.then(follow(&counts, 2));
        join([first, last]);
        assert_eq!(counts.followed(), 1);
    });
}

/// The debt of a file's pages is waited for by two fsyncs: both are answered.
#[test]
fn all_that_follows_is_called() {
    loom::model(|| {
        let (counts, mut owed) = (counts(), Owed::default());
        let session = acknowledge(&counts, Notice::new(&mut owed));
        let (own, other) = (counts.clone(), owed.clone());
        let fsync = thread::spawn(move || other.then(follow(&own, 1)));
        owed.then(follow(&counts, 1));
        join([session, fsync]);
        assert_eq!(counts.followed(), 2);
    });
}

/// A thread waits for its change while another one is told when it is settled.
#[test]
fn who_waits_is_woken() {
    loom::model(|| {
        let (counts, mut owed) = (counts(), Owed::default());
        let notices = [Notice::new(&mut owed), Notice::new(&mut owed)];
        let threads = notices.map(|notice| acknowledge(&counts, notice));
        owed.clone().then(follow(&counts, 2));
        owed.wait();
        assert!(owed.is_settled());
        assert_eq!(counts.acknowledged.load(Ordering::SeqCst), 2);
        join(threads);
        assert_eq!(counts.followed(), 1);
    });
}
