use super::*;

#[test]
fn an_announcement_is_for_one_thread_and_one_file() {
    let announced = Announced::default();
    announced.note(5, 20, false).unwrap();
    announced.note(5, 20, true).unwrap();
    announced.note(6, 20, false).unwrap();
    assert_eq!(announced.take(5, 21), None);
    assert_eq!(announced.take(5, 20), Some(true));
    assert_eq!(announced.take(5, 20), None);
    // A thread does one thing at a time, and those that cannot be told apart do many.
    announced.note(6, 22, false).unwrap();
    assert_eq!(announced.take(6, 20), None);
    assert_eq!(announced.take(6, 22), Some(false));
    announced.note(0, 20, false).unwrap();
    announced.note(0, 22, false).unwrap();
    assert_eq!((announced.take(0, 20), announced.take(0, 22)), (Some(false), Some(false)));
}

/// What is lost of others' announcements would leave privileges where they are to go.
#[test]
fn no_announcement_is_lost_for_another() {
    let announced = Announced::default();
    let last = 100 + u32::try_from(MOST).unwrap();
    for pid in 100..last {
        announced.note(pid, 20, false).unwrap();
    }
    assert_eq!(announced.note(last, 20, false), Err(errno(libc::EAGAIN)));
    announced.note(100, 20, true).unwrap();
    assert_eq!(announced.take(100, 20), Some(true));
    announced.note(last, 20, false).unwrap();
    assert!((101..=last).all(|pid| announced.take(pid, 20) == Some(false)));
}

#[test]
fn written_pages_are_of_any_thread_and_one_file() {
    let announced = Announced::default();
    for (pid, ino, setgid) in [(9, 19, true), (0, 20, false), (u32::MAX, 20, true), (0, 21, true)] {
        announced.note(pid, ino, setgid).unwrap();
    }
    assert_eq!(announced.take_all(20), Some(true));
    assert_eq!(announced.take_all(20), None);
    assert_eq!(announced.take(0, 20), None);
    assert_eq!(announced.take(9, 19), Some(true));
    assert_eq!(announced.take_all(21), Some(true));
    assert_eq!(announced.count.load(Ordering::SeqCst), 0);
}
