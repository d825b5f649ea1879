use super::*;

#[test]
fn a_thread_and_its_system_call() {
    let line = "16 0x3 0xc020e520 0x7ffd0 0x0 0x0 0x0 0x7ffd8 0x7f00\n";
    assert_eq!(shown(line, 0), Some(Some(3)));
    assert_eq!(shown(line, 1), Some(Some(0xc020_e520)));
    assert_eq!(shown("54 0xffffffff00000007 0x1\n", 0), Some(Some(7)), "the lower half");
    assert_eq!(shown("running\n", 0), None);
    // Blocked outside of a system call, and what no kernel says.
    for line in ["-1 0x7ffd8 0x7f00\n", "16\n", "16 3\n", "16 0x\n", "x 0x3\n"] {
        assert_eq!(shown(line, 0), Some(None), "{line}");
    }
}

/// A thread of this process that waits in a system call shows its first argument.
#[test]
fn a_thread_that_waits() {
    let (read, write) = std::io::pipe().expect("a pipe");
    let number = std::os::fd::AsRawFd::as_raw_fd(&read);
    let (tell, told) = std::sync::mpsc::channel();
    let waits = std::thread::spawn(move || {
        tell.send(rustix::thread::gettid().as_raw_nonzero()).expect("listened to");
        std::io::Read::read(&mut &read, &mut [0]).expect("the end")
    });
    let thread = told.recv().expect("a thread");
    let place = std::path::PathBuf::from(format!("/proc/{thread}"));
    // It may still be about to send its number.
    let found = (0..10_000).any(|_| argument(&place, 0).is_ok_and(|n| n.cast_signed() == number));
    drop(write);
    waits.join().expect("it ends");
    assert!(found);
}
