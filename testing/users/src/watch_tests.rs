use super::*;
use std::sync::mpsc::channel;

#[test]
fn a_call_that_does_not_come_back_is_stuck() {
    let watch = Arc::new(Watch::default());
    let calls = watch.calls("user 7");
    assert_eq!(calls.call("stat", || 3), 3);
    assert!(watch.stuck(Duration::ZERO).is_empty());
    let (began, has_begun) = channel();
    let (end, ended) = channel::<()>();
    let thread = std::thread::spawn(move || {
        calls.call("fsync", || {
            began.send(()).unwrap();
            let _ = ended.recv();
        });
    });
    has_begun.recv().unwrap();
    assert!(watch.stuck(Duration::from_secs(3600)).is_empty());
    while watch.stuck(Duration::ZERO).is_empty() {}
    let stuck = watch.stuck(Duration::ZERO);
    assert!(stuck[0].starts_with("user 7 waits in fsync"), "{stuck:?}");
    drop(end);
    thread.join().unwrap();
    assert!(watch.stuck(Duration::ZERO).is_empty());
    assert_eq!(watch.count(), 2);
}
