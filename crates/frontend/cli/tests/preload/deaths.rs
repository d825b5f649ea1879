//! Programs and daemons that end.

use crate::{LOGS, eager, mounted, ran, told};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

/// Appends lines, calls fsync(2) now and then, and says which line write(2) has taken.
const APPENDS: &str = "
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for n in range(10**9):
    os.write(fd, b'line %d\\n' % n)
    if n % 7 == 0:
        os.fsync(fd)
    print(n, flush=True)
    if n >= 40: sys.stdin.readline()
";

/// A program is killed: whatever write(2) has taken is there, as on any mount (rule R47).
#[test]
fn what_a_killed_program_wrote_is_there() {
    let s = mounted();
    let mut child = eager("python3")
        .args(["-c", APPENDS, s.path("f").to_str().unwrap()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let last = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let last: u32 = last.take(41).last().unwrap().parse().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let wanted: String = (0..=last).map(|n| format!("line {n}\n")).collect();
    assert_eq!((last, fs::read_to_string(s.path("f")).unwrap()), (40, wanted));
    assert!(told(&s, "records") >= 33);
    s.umount();
    s.assert_plain_ext4();
}

/// Says when it has a lease; when it is told to, goes on, and says each call's errno.
const GOES_ON: &str = "
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for n in range(20):
    os.write(fd, b'0123456789'); os.fsync(fd)
print('there', flush=True)
sys.stdin.readline()
for n in range(20):
    for call in (lambda: os.write(fd, b'lost'), lambda: os.fsync(fd), lambda: os.pread(fd, 5, 0),
                 lambda: os.lseek(fd, 0, os.SEEK_END), lambda: os.fdatasync(fd)):
        try: call()
        except OSError as e: print(e.errno, end=' ')
try: os.close(fd)
except OSError: pass
print('done')
";

/// The daemon is killed under a program: it gets errors and goes on, and what it had synced is
/// there afterwards.
#[test]
fn a_daemon_that_is_killed_leaves_errors() {
    let s = mounted();
    let mut child = eager("python3")
        .args(["-c", GOES_ON, s.path("f").to_str().unwrap()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut says = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    says.read_line(&mut line).unwrap();
    assert_eq!(line, "there\n");
    assert_eq!(told(&s, "leases"), 1);
    let daemon = s.daemon();
    daemon.signal(Signal::KILL);
    daemon.wait();
    writeln!(child.stdin.take().unwrap()).unwrap();
    line.clear();
    says.read_line(&mut line).unwrap();
    assert!(child.wait().unwrap().success(), "no signal ends it");
    assert!(line.ends_with("done\n"), "{line}");
    let errors: Vec<i32> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    // Calls that come while the kernel takes the daemon's descriptor and rings apart are ended so.
    let early = [libc::ENOTCONN, libc::ECONNABORTED, libc::ECANCELED];
    assert!(errors.len() > 50 && errors.iter().all(|e| early.contains(e)), "{line}");
    assert!(errors.iter().skip(5).all(|e| *e == libc::ENOTCONN), "{line}");
    s.mount(LOGS);
    let text = fs::read(s.path("f")).unwrap();
    assert!(text.starts_with(&b"0123456789".repeat(20)), "{} bytes", text.len());
    s.umount();
    s.assert_plain_ext4();
}

/// What a daemon that is killed and one that comes after it had acknowledged.
#[test]
fn a_program_that_exits_leaves_all_it_wrote() {
    let s = mounted();
    let script = "
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
for n in range(50):
    os.write(fd, b'x' * 100); os.fsync(fd) if n < 25 else None
os._exit(0)
";
    ran(eager("python3").args(["-c", script, s.path("f").to_str().unwrap()])).ok();
    assert_eq!(fs::read(s.path("f")).unwrap(), [b'x'; 5000]);
    assert!(told(&s, "records") >= 49);
    s.umount();
}
