use super::*;
use std::net::TcpListener;
use std::process::Command;
use std::thread;

/// A process that is stopped and continues while it waits for the other end goes on waiting.
#[test]
fn a_stop_in_the_middle_is_no_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut there, _) = listener.accept().unwrap();
    let own = std::process::id();
    let stop = format!("kill -STOP {own}; sleep 0.05; kill -CONT {own}");
    let other_end = thread::spawn(move || {
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(100));
            assert!(Command::new("sh").args(["-c", &stop]).status().unwrap().success());
        }
        there.write_all(b"here").unwrap();
    });
    let mut came = [0; 4];
    let read = Deadline::new(&here, Duration::from_secs(20)).read(&mut came);
    other_end.join().unwrap();
    assert_eq!((read.unwrap(), &came), (4, b"here"));
}
