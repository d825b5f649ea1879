use super::*;
use std::net::{TcpListener, TcpStream};

const PATIENCE: Duration = Duration::from_secs(5);

fn fd() -> OwnedFd {
    std::fs::File::open("/dev/null").unwrap().into()
}

#[test]
fn silent_peers_have_less_time_where_there_is_no_room() {
    let (mut door, start) = (Door::default(), Instant::now());
    door.let_in(Caller { fd: fd(), since: start });
    let at = |seconds| start + Duration::from_secs(seconds);
    assert!(door.silent_too_long(at(4), PATIENCE).is_none());
    assert_eq!(door.next_change(at(4), PATIENCE), Duration::from_secs(1));
    assert!(door.silent_too_long(at(5), PATIENCE).is_some());
    assert_eq!(door.next_change(at(5), PATIENCE), Duration::MAX);
    // Descriptors are few where tests run side by side: one is enough for all of them.
    for _ in 0..SILENT {
        assert!(door.has_room());
        door.let_in(Caller { fd: fd(), since: start });
    }
    assert!(!door.has_room());
    assert!(door.silent_too_long(start, PATIENCE).is_none());
    assert_eq!(door.next_change(start, PATIENCE), GRACE);
    assert!(door.silent_too_long(at(1), PATIENCE).is_some());
    assert!(door.has_room() && door.silent_too_long(at(1), PATIENCE).is_none());
}

/// The oldest greeting is ended once all places are taken, and not before it had its time.
#[test]
fn a_greeting_goes_where_others_wait() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut door, start) = (Door::default(), Instant::now());
    let mut peers = Vec::new();
    let mut greet = |door: &mut Door| {
        peers.push(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let (stream, _) = listener.accept().unwrap();
        let leash = Leash::new(stream.try_clone().unwrap().into());
        let thread = std::thread::spawn(move || {
            // Until it is ended.
            let _ = std::io::Read::read(&mut &stream, &mut [0]);
        });
        door.greets(Greeted { thread, leash, since: start });
    };
    for _ in 0..GREETED {
        assert!(door.may_greet());
        door.tidy(start + PATIENCE);
        assert_eq!(door.next_change(start, PATIENCE), Duration::MAX);
        greet(&mut door);
    }
    assert!(!door.may_greet());
    door.tidy(start + GRACE / 2);
    assert_eq!(door.next_change(start + GRACE / 2, PATIENCE), GRACE / 2);
    assert!(!door.greeted.iter().any(|greeted| greeted.thread.is_finished()));
    while !door.may_greet() {
        door.tidy(start + GRACE);
        std::thread::yield_now();
    }
    assert_eq!(door.greeted.len(), GREETED - 1);
    door.close();
}

/// A connection that was greeted is not ended any more, neither for others nor with the listener.
#[test]
fn who_was_greeted_stays() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let leash = Leash::new(stream.try_clone().unwrap().into());
    let greeted = leash.clone();
    greeted.drop_it();
    let mut door = Door::default();
    let thread = std::thread::spawn(|| ());
    door.greets(Greeted { thread, leash, since: Instant::now() });
    door.close();
    std::io::Write::write_all(&mut stream, b"x").unwrap();
    assert_eq!(std::io::Read::read(&mut peer, &mut [0; 4]).unwrap(), 1);
}
