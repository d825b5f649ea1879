//! How waits end.

use crate::pair::Pair;
use crate::puppet::Puppet;

/// Calls that take all of `f` and wait for it, by each kind of lock.
const KINDS: [&str; 3] = ["posix f write 0 0 wait", "ofd f write 0 0 wait", "flock f write wait"];

/// Locks end with what has them, and those who wait in the other mount go on.
#[test]
fn waits_end_with_the_lock_the_file_and_the_process() {
    Pair::each(|pair| {
        let [one, other] = &pair.mounts;
        for call in KINDS {
            let (mut a, mut b) = (Puppet::with(&one.path("f")), Puppet::with(&other.path("f")));
            let give_up = call.replace("write", "none").replace("wait", "try");
            assert_eq!(a.call(call), "ok");
            b.waits(call);
            assert_eq!(a.call(&give_up), "ok");
            assert_eq!(b.answer(), "ok");
            a.waits(call);
            assert_eq!(b.call("close f"), "ok");
            assert_eq!(a.answer(), "ok");
            b.open("f", &other.path("f"));
            b.waits(call);
            a.kill();
            assert_eq!(b.answer(), "ok");
        }
    });
}

/// A mount that ends ends its locks, and its waits.
#[test]
fn locks_end_with_their_mount() {
    Pair::each(|pair| {
        let (f, g) = (pair.mounts.each_ref().map(|m| m.path("f")), pair.mounts[1].path("g"));
        let (mut a, mut b) = (Puppet::with(&f[0]), Puppet::with(&f[1]));
        let mut waiting = Puppet::with(&f[0]);
        let mut holder = Puppet::with(&g);
        for call in ["posix f write 0 0 wait", "flock f write wait"] {
            assert_eq!(a.call(call), "ok");
        }
        assert_eq!(holder.call("flock f write wait"), "ok");
        waiting.open("g", &pair.mounts[0].path("g"));
        waiting.waits("flock g read wait");
        b.waits("posix f read 5 5 wait");
        pair.mounts[0].abort();
        assert_eq!(b.answer(), "ok");
        assert_eq!(b.call("flock f write try"), "ok");
        let ended = waiting.answer();
        assert!(["ECONNABORTED", "ENOTCONN"].contains(&&*ended), "{ended}");
        assert_eq!(holder.call("flock f none try"), "ok");
    });
}

/// A signal ends a wait, and so does a kill. Nobody gets what was waited for.
#[test]
fn signals_end_waits() {
    Pair::each(|pair| {
        let [one, other] = &pair.mounts;
        for call in KINDS {
            let mut a = Puppet::with(&one.path("f"));
            assert_eq!(a.call(call), "ok");
            for mount in [one, other] {
                let (mut b, mut c) =
                    (Puppet::with(&mount.path("f")), Puppet::with(&other.path("f")));
                b.waits(call);
                b.signal(libc::SIGUSR1);
                assert_eq!(b.answer(), "EINTR");
                b.waits(call);
                c.waits(call);
                b.kill();
                let give_up = call.replace("write", "none").replace("wait", "try");
                assert_eq!(a.call(&give_up), "ok");
                assert_eq!(c.answer(), "ok");
                assert_eq!(c.call("close f"), "ok");
                assert_eq!(a.call(call), "ok");
            }
        }
    });
}

/// However early it comes: before the request, beside it, after it.
#[test]
fn a_signal_at_any_moment_ends_a_wait() {
    Pair::each(|pair| {
        let [one, other] = &pair.mounts;
        let (mut a, mut b) = (Puppet::with(&one.path("f")), Puppet::with(&other.path("f")));
        assert_eq!(a.call("flock f write try"), "ok");
        assert_eq!(b.call("alarms f 5000"), "ok");
        assert_eq!(a.call("close f"), "ok");
        assert_eq!(b.call("flock f write wait"), "ok");
    });
}

/// A stop and its end begin the call again.
#[test]
fn a_stop_ends_no_wait() {
    Pair::each(|pair| {
        let [one, other] = &pair.mounts;
        let (mut a, mut b) = (Puppet::with(&one.path("f")), Puppet::with(&other.path("f")));
        assert_eq!(a.call("flock f write try"), "ok");
        b.waits("flock f write wait");
        b.signal(libc::SIGSTOP);
        b.signal(libc::SIGCONT);
        assert_eq!(b.answered(), None);
        assert_eq!(a.call("flock f none try"), "ok");
        assert_eq!(b.answer(), "ok");
    });
}

/// Processes that would wait in a circle for each other, through both mounts; open files and whole
/// files may.
#[test]
fn circles_across_mounts_are_refused() {
    Pair::each(|pair| {
        let [one, other] = &pair.mounts;
        let mut all = [one, other, one].map(|mount| {
            let mut puppet = Puppet::with(&mount.path("f"));
            puppet.open("g", &mount.path("g"));
            puppet.open("h", &mount.path("h"));
            puppet
        });
        for (puppet, slot) in all.iter_mut().zip(["f", "g", "h"]) {
            assert_eq!(puppet.call(&format!("posix {slot} write 0 1 try")), "ok");
        }
        let [a, b, c] = &mut all;
        a.waits("posix g write 0 0 wait");
        b.waits("posix h read 0 1 wait");
        pair.until_wait(2);
        assert_eq!(c.call("posix f read 0 9 wait"), "EDEADLK");
        assert_eq!(c.call("close h"), "ok");
        assert_eq!((b.answer(), b.call("close g")), ("ok".into(), "ok".into()));
        assert_eq!(a.answer(), "ok");
        drop(all);
        let open_files = ["ofd f write 0 1", "ofd f write 1 1"];
        for [first, second] in [open_files, ["flock f write", "flock g write"]] {
            let mut two = [one, other].map(|mount| {
                let mut puppet = Puppet::with(&mount.path("f"));
                puppet.open("g", &mount.path("g"));
                puppet
            });
            let [a, b] = &mut two;
            assert_eq!(a.call(&format!("{first} try")), "ok");
            assert_eq!(b.call(&format!("{second} try")), "ok");
            a.waits(&format!("{second} wait"));
            b.waits(&format!("{first} wait"));
            pair.until_wait(2);
            a.signal(libc::SIGUSR1);
            assert_eq!(a.answer(), "EINTR");
            assert_eq!(a.call("close f"), "ok");
            assert_eq!(b.answer(), "ok");
        }
    });
}
