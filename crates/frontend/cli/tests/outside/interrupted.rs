//! Signals in the middle of a command.

use crate::support::{SIFTFS, Setup, siftfs};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn start(args: &[&str]) -> Child {
    let mut command = Command::new(SIFTFS);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

fn interrupt(mut child: Child, after: Duration) {
    std::thread::sleep(after);
    let pid = rustix::process::Pid::from_child(&child);
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
    child.wait().unwrap();
}

/// ^C in mkfs at any moment: what is left is no volume, or a whole one, and mkfs --force makes one
/// of it.
#[test]
fn mkfs() {
    let s = Setup::empty();
    for ms in [0, 2, 5, 10, 20, 40, 80, 160] {
        let _ = std::fs::remove_file(s.volume());
        interrupt(start(&["mkfs", s.volume(), "--size", "128M"]), Duration::from_millis(ms));
        let mounted = siftfs(&["mount", s.volume(), s.dir()]);
        if mounted.code == 0 {
            s.umount();
            s.assert_plain_ext4();
        } else {
            assert_eq!((mounted.code, mounted.err.lines().count()), (1, 1), "{mounted:?}");
        }
        siftfs(&["mkfs", s.volume(), "--size", "128M", "--force"]).ok();
        s.assert_plain_ext4();
    }
}

/// ^C in umount and in mount: the daemon goes on by itself, and the next command finds it as it is.
#[test]
fn mount_and_umount() {
    let s = Setup::new();
    for ms in [0, 1, 3, 8, 20, 50, 120] {
        s.mount("commit=3600");
        std::fs::write(s.path("f"), vec![9; 8 << 20]).unwrap();
        interrupt(start(&["umount", s.dir()]), Duration::from_millis(ms));
        let again = siftfs(&["umount", s.dir()]);
        let known = again.code == 0
            || again.err.contains("not a SiftFS mount")
            || again.err.contains("by another program");
        assert!(known, "{again:?}");
        // The daemon may still close the volume: the next command waits for that.
        siftfs(&["fsck", s.volume()]).ok();
        interrupt(start(&["mount", s.volume(), s.dir()]), Duration::from_millis(ms));
        // Interrupted before the daemon was started, after it, or not at all.
        std::thread::sleep(Duration::from_millis(500));
        siftfs(&["umount", s.dir()]);
        siftfs(&["recover", s.volume()]).ok();
        s.assert_plain_ext4();
    }
}

/// ^C in recover: the next one goes on.
#[test]
fn recover() {
    let s = Setup::new();
    s.mount("commit=3600");
    for i in 0..200 {
        let file = std::fs::File::create(s.path(&format!("f{i}"))).unwrap();
        file.sync_all().unwrap();
    }
    let daemon = s.daemon();
    daemon.signal(rustix::process::Signal::KILL);
    daemon.wait();
    siftfs(&["umount", s.dir()]).fails(1, &["recover"]);
    for ms in [0, 1, 2, 4, 8, 16] {
        interrupt(start(&["recover", s.volume()]), Duration::from_millis(ms));
    }
    siftfs(&["recover", s.volume()]).ok();
    s.assert_plain_ext4();
    s.mount("ro");
    assert_eq!(std::fs::read_dir(s.path("")).unwrap().flatten().count(), 201);
    s.umount();
}
