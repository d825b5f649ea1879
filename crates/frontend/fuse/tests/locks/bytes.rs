//! What one mount locks, the other one finds locked.

use crate::pair::Pair;
use crate::puppet::Puppet;

/// Ranges of bytes, by F_SETLK and F_GETLK.
#[test]
fn ranges_hold_across_mounts() {
    Pair::each(|pair| {
        let [one, other] = &pair.mounts;
        let (mut a, mut b) = (Puppet::with(&one.path("f")), Puppet::with(&other.path("f")));
        assert_eq!(a.call("posix f write 10 10 try"), "ok");
        assert_eq!(b.call("posix f read 19 5 try"), "EAGAIN");
        assert_eq!(b.call("posix f read 20 5 try"), "ok");
        let pid = a.pid();
        assert_eq!(b.call("get f posix read 0 0"), format!("write 10 10 {pid}"));
        assert_eq!(b.call("get f posix read 20 0"), "free");
        // A part of it becomes a lock to read, and another part is given up.
        assert_eq!(a.call("posix f read 12 2 try"), "ok");
        assert_eq!(a.call("posix f none 10 1 try"), "ok");
        assert_eq!(b.call("posix f write 10 1 try"), "ok");
        assert_eq!(b.call("posix f read 12 2 try"), "ok");
        assert_eq!(b.call("posix f write 12 2 try"), "EAGAIN");
        assert_eq!(b.call("get f posix write 11 3"), format!("write 11 1 {pid}"));
        // To the end of everything, wherever the file ends.
        assert_eq!(a.call("posix f write 1000 0 try"), "ok");
        assert_eq!(b.call("posix f read 9223372036854775807 0 try"), "EAGAIN");
        assert_eq!(b.call("get f posix read 5000 0"), format!("write 1000 0 {pid}"));
        assert_eq!(a.call("posix f none 0 0 try"), "ok");
        assert_eq!(b.call("posix f write 0 0 try"), "ok");
        // The kernel has the rules about descriptors.
        let read = format!("open r {} {}", one.path("f").display(), libc::O_RDONLY);
        assert_eq!((a.call(&read), a.call("posix r write 0 1 try")), ("ok".into(), "EBADF".into()));
    });
}

/// close(2) of any descriptor of the file ends what the process has of its bytes, and nothing that
/// belongs to an open file.
#[test]
fn a_close_ends_the_locks_of_its_process() {
    Pair::each(|pair| {
        let [one, other] = &pair.mounts;
        let (mut a, mut b) = (Puppet::with(&one.path("f")), Puppet::with(&other.path("f")));
        let read = format!("open r {} {}", one.path("f").display(), libc::O_RDONLY);
        assert_eq!(a.call(&read), "ok");
        assert_eq!(a.call("posix f write 0 5 try"), "ok");
        assert_eq!(a.call("ofd f write 10 5 try"), "ok");
        assert_eq!(a.call("flock f read try"), "ok");
        assert_eq!(b.call("posix f write 0 5 try"), "EAGAIN");
        assert_eq!(a.call("close r"), "ok");
        assert_eq!(b.call("posix f write 0 5 try"), "ok");
        assert_eq!(b.call("posix f read 10 1 try"), "EAGAIN");
        // The open file lives in a descriptor that was made from the first, and in a child.
        assert_eq!((a.call("dup f g"), a.call("close f")), ("ok".into(), "ok".into()));
        assert_eq!(b.call("posix f read 10 1 try"), "EAGAIN");
        assert_eq!(a.call("fork child"), "ok");
        assert_eq!(a.call("close g"), "ok");
        assert_eq!(b.call("posix f read 10 1 try"), "EAGAIN");
        assert_eq!(b.call("flock f write try"), "EAGAIN");
        b.waits("ofd f read 10 1 wait");
        assert_eq!(a.call("close child"), "ok");
        assert_eq!(b.answer(), "ok");
        assert_eq!(b.call("flock f write wait"), "ok");
    });
}

/// Open file descriptions: locks of their own, also against those of processes, and of the same
/// process.
#[test]
fn open_files_lock_for_themselves() {
    Pair::each(|pair| {
        let [one, other] = &pair.mounts;
        let (mut a, mut b) = (Puppet::with(&one.path("f")), Puppet::with(&other.path("f")));
        a.open("g", &one.path("f"));
        assert_eq!(a.call("ofd f write 0 10 try"), "ok");
        assert_eq!(a.call("ofd g read 5 1 try"), "EAGAIN");
        assert_eq!(a.call("posix f read 5 1 try"), "EAGAIN");
        assert_eq!(b.call("posix f read 5 1 try"), "EAGAIN");
        assert_eq!(b.call("ofd f write 10 1 try"), "ok");
        assert!(b.call("get f ofd write 0 0").starts_with("write 0 10 "));
        assert_eq!(a.call("close f"), "ok");
        assert_eq!(b.call("ofd f write 0 10 wait"), "ok");
        assert_eq!(a.call("ofd g write 0 1 try"), "EAGAIN");
    });
}

/// flock(2), which knows nothing of the locks of bytes.
#[test]
fn whole_files_are_locked_across_mounts() {
    Pair::each(|pair| {
        let [one, other] = &pair.mounts;
        let (mut a, mut b) = (Puppet::with(&one.path("f")), Puppet::with(&other.path("f")));
        assert_eq!(a.call("posix f write 0 0 try"), "ok");
        assert_eq!(
            (a.call("flock f read try"), b.call("flock f read try")),
            ("ok".into(), "ok".into())
        );
        assert_eq!(a.call("flock f write try"), "EAGAIN");
        assert_eq!(b.call("flock f write try"), "ok", "who is refused has lost what it had");
        assert_eq!(a.call("flock f read try"), "EAGAIN");
        a.waits("flock f read wait");
        assert_eq!(b.call("flock f read try"), "ok");
        assert_eq!(a.answer(), "ok");
        assert_eq!(a.call("flock f none try"), "ok");
        assert_eq!(b.call("flock f write wait"), "ok");
        a.open("g", &one.path("g"));
        assert_eq!(a.call("flock g write try"), "ok", "another file");
    });
}

/// A program that locks what another one has just closed finds it free, although the kernel does
/// not wait for RELEASE. One whose file lives on in a child keeps its lock.
#[test]
fn a_closed_file_is_free() {
    Pair::each(|pair| {
        let [one, other] = &pair.mounts;
        let (mut a, mut b) = (Puppet::new(), Puppet::with(&other.path("f")));
        for call in ["flock f write try", "ofd f write 0 0 try"] {
            for _ in 0..300 {
                a.open("f", &one.path("f"));
                assert_eq!(a.call(call), "ok");
                assert_eq!(a.call("close f"), "ok");
                assert_eq!(b.call(call), "ok");
                assert_eq!(b.call(&call.replace("write", "none")), "ok");
            }
            a.open("f", &one.path("f"));
            assert_eq!((a.call(call), a.call("fork child")), ("ok".into(), "ok".into()));
            assert_eq!(a.call("close f"), "ok");
            assert_eq!((b.call(call), b.call(call)), ("EAGAIN".into(), "EAGAIN".into()));
            assert_eq!(a.call("close child"), "ok");
            assert_eq!(b.call(&call.replace("try", "wait")), "ok");
            assert_eq!(b.call(&call.replace("write", "none")), "ok");
        }
    });
}
