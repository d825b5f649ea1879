use super::*;
use std::sync::mpsc::{Receiver, channel};

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(30);

fn answer() -> (Completion, Receiver<Result<Reply>>) {
    let (tell, told) = channel();
    (Box::new(move |reply| tell.send(reply).unwrap()), told)
}

fn told(told: &Receiver<Result<Reply>>) -> Result<Reply> {
    told.recv_timeout(Duration::from_secs(60)).unwrap()
}

#[test]
fn whichever_comes_first() {
    let timers = Timers::default();
    let (late, late_told) = answer();
    let (early, early_told) = answer();
    let (endless, endless_told) = answer();
    let long = timers.limit(LONG, early).unwrap();
    let start = Instant::now();
    let short = timers.limit(SHORT, late).unwrap();
    assert_eq!(told(&late_told), Err(errno(libc::ETIMEDOUT)));
    assert!(start.elapsed() >= SHORT);
    assert!(early_told.try_recv().is_err(), "its time has not come");
    long(Ok(Reply::Done));
    assert_eq!(told(&early_told), Ok(Reply::Done));
    assert_eq!(timers.shared.lock().under_way, 1);
    short(Ok(Reply::Done));
    assert!(late_told.try_recv().is_err(), "it is answered once");
    timers.limit(Duration::MAX, endless).unwrap()(Ok(Reply::Offset(3)));
    assert_eq!(told(&endless_told), Ok(Reply::Offset(3)));
    let state = timers.shared.lock();
    assert_eq!((state.under_way, state.due.len()), (0, 0), "nothing is kept");
}

/// What was answered for counts until it has ended: a program that asks again and again does not
/// fill the memory.
#[test]
fn requests_under_way_are_bounded() {
    let timers = Timers::default();
    let mut under_way = Vec::new();
    for _ in 0..MOST {
        let (one, one_told) = answer();
        under_way.push((timers.limit(Duration::from_nanos(1), one).unwrap(), one_told));
    }
    for (_, one_told) in &under_way {
        assert_eq!(told(one_told), Err(errno(libc::ETIMEDOUT)));
    }
    let (more, more_told) = answer();
    assert!(timers.limit(LONG, more).is_none());
    assert_eq!(told(&more_told), Err(errno(libc::EAGAIN)));
    let (end, _) = under_way.pop().unwrap();
    end(Ok(Reply::Done));
    let (more, more_told) = answer();
    timers.limit(LONG, more).unwrap()(Ok(Reply::Done));
    assert_eq!(told(&more_told), Ok(Reply::Done));
}

#[test]
fn the_thread_ends_with_the_mount() {
    let timers = Timers::default();
    let (one, one_told) = answer();
    let end = timers.limit(LONG, one).unwrap();
    let shared = Arc::downgrade(&timers.shared);
    drop(timers);
    end(Ok(Reply::Done));
    assert_eq!(told(&one_told), Ok(Reply::Done), "an answer comes all the same");
    for _ in 0..6000 {
        if shared.strong_count() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the thread does not end");
}
