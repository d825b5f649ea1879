//! That calls go by leases at all, and that leases are not asked for where they do not pay.

use crate::{library, mounted, ran, told};
use std::fs;
use std::process::Command;

const WRITES: &str = "
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for n in range(int(sys.argv[2])):
    os.pwrite(fd, b'x' * 512, 512 * (n % 64))
    if n % 2: os.fdatasync(fd)
";

/// Requests of a kind that the kernel has sent.
pub fn requests(s: &crate::support::Setup, kind: &str) -> u64 {
    let status = crate::siftfs(&["status", s.dir(), "--json"]).ok().out;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    status["mounts"][0]["requests"][kind].as_u64().unwrap_or(0)
}

fn python(script: &str, words: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command.env("LD_PRELOAD", library()).args(["-c", script]).args(words);
    command
}

/// After its first calls of fsync(2) a program's writes and fsyncs are no requests of the kernel.
#[test]
fn writes_are_no_requests() {
    let s = mounted();
    let path = s.path("f");
    let before = (requests(&s, "write"), requests(&s, "fsync"), told(&s, "records"));
    ran(&mut python(WRITES, &[path.to_str().unwrap(), "1000"])).ok();
    let writes = requests(&s, "write") - before.0;
    let syncs = requests(&s, "fsync") - before.1;
    let records = told(&s, "records") - before.2;
    assert!(writes <= 16 && syncs <= 8 && records >= 984, "{writes}, {syncs}, {records}");
    assert_eq!(fs::read(&path).unwrap(), [b'x'; 64 * 512]);
    s.umount();
}

/// Nothing is asked for by a program that is to be let alone, and by one that never syncs twice.
#[test]
fn programs_that_are_let_alone() {
    let s = mounted();
    let words = [s.path("f").into_os_string().into_string().unwrap(), "200".into()];
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let before = requests(&s, "ioctl");
    for (name, value) in [("SIFTFS_ACCEL", "off"), ("SIFTFS_ACCEL_SKIP", "cat:python3.13:python3")]
    {
        let mut command = python(WRITES, &words);
        if name == "SIFTFS_ACCEL_SKIP" {
            let own =
                ran(&mut python("import os; print(os.readlink('/proc/self/exe'))", &[])).ok().out;
            let own = own.trim().rsplit('/').next().unwrap().to_string();
            command.env(name, format!("cat:{own}"));
        } else {
            command.env(name, value);
        }
        ran(&mut command).ok();
    }
    ran(&mut python(WRITES, &[words[0], "4"])).ok();
    assert_eq!((told(&s, "records"), requests(&s, "ioctl")), (0, before));
    ran(&mut python(WRITES, &words)).ok();
    assert!(told(&s, "records") > 150, "the same without that");
    s.umount();
}

/// A file that another program has open to be written is asked for less and less often.
#[test]
fn a_refused_lease_is_asked_for_seldom() {
    let s = mounted();
    let path = s.path("f");
    let other = fs::File::options().write(true).create(true).truncate(false).open(&path).unwrap();
    let before = requests(&s, "ioctl");
    ran(&mut python(WRITES, &[path.to_str().unwrap(), "2000"])).ok();
    let asked = requests(&s, "ioctl") - before;
    assert!((2..24).contains(&asked), "{asked} questions in 1000 calls of fsync");
    assert_eq!(told(&s, "records"), 0);
    drop(other);
    s.umount();
}
