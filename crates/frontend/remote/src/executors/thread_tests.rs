use super::*;
use std::sync::mpsc::channel;

#[test]
fn proc_says_who_sleeps() {
    assert_eq!(sleeps("7 (a) R) b) S 1 2"), Some(true));
    assert_eq!(sleeps("7 (a) S) b) R 1 2"), Some(false));
    assert_eq!(sleeps("7 (a) D 1"), Some(true));
    for broken in ["", "7 (a", "7 (a)"] {
        assert_eq!(sleeps(broken), None);
    }
    assert_eq!(ran("12345 6 7\n"), Some(12345));
    assert_eq!(ran(""), None);
}

/// A thread in a wait is seen to sleep, and to have run for as long as before; the one that asks
/// runs.
#[test]
fn a_thread_is_seen() {
    let own = Thread::own().look().unwrap();
    assert!(!own.sleeps);
    let ((tell, told), (go, gone)) = (channel(), channel::<()>());
    let waits = std::thread::spawn(move || {
        tell.send(Thread::own()).unwrap();
        gone.recv().unwrap_err();
    });
    let thread = told.recv().unwrap();
    while !thread.look().unwrap().sleeps {
        std::thread::yield_now();
    }
    assert_eq!(thread.look(), thread.look());
    drop(go);
    waits.join().unwrap();
    assert_eq!(thread.look(), None, "it is gone");
}

#[test]
fn processor_time_is_that_of_work() {
    let before = processor_time();
    while processor_time() == before {
        std::hint::spin_loop();
    }
    assert!(processor_time() > before);
}
