//! Log and volume belong together (rule R16).

use crate::setup::{Apart, clean};
use crate::support::run;
use std::fs;

#[test]
fn r16_the_log_of_another_volume_is_refused() {
    let (s, other) = (Apart::new(), Apart::new());
    for crash in [false, true] {
        if crash {
            s.crash_with("kept");
        }
        let before = [fs::read(s.volume()).unwrap(), fs::read(other.log()).unwrap()];
        let what = "belongs to another volume";
        let with = ["--log", &other.log()];
        let mount = ["mount", &s.volume(), &s.dir()];
        s.siftfs(&[&mount[..], &with].concat()).fails(1, &[&s.volume(), what]);
        s.siftfs(&[&["recover", &s.volume()][..], &with].concat()).fails(8, &[what]);
        s.siftfs(&[&["release", &s.volume()][..], &with].concat()).fails(1, &[what]);
        let discard = ["recover", &s.volume(), "--discard-log"];
        s.siftfs(&[&discard[..], &with].concat()).fails(8, &[what]);
        let fsck = s.siftfs(&[&["fsck", &s.volume()][..], &with].concat());
        assert!(fsck.code == 4 && fsck.out.contains("link.volume"), "{fsck:?}");
        assert!(before == [fs::read(s.volume()).unwrap(), fs::read(other.log()).unwrap()]);
    }
    s.mount();
    assert_eq!(fs::read(s.path("kept")).unwrap(), b"kept");
    s.umount();
    s.assert_plain_ext4();
}

#[test]
fn r16_a_lost_log_is_refused_and_given_up_on_demand_only() {
    let s = Apart::new();
    s.mount();
    fs::write(s.path("checkpointed"), "old").unwrap();
    s.umount();
    s.crash_with("in the log");
    fs::remove_file(s.log()).unwrap();
    let (volume, dir) = (s.volume(), s.dir());
    let said = ["may hold changes", "--log", "--discard-log"];
    s.siftfs(&["mount", &volume, &dir]).fails(1, &said);
    s.siftfs(&["recover", &volume]).fails(4, &said);
    s.siftfs(&["release", &volume]).fails(1, &said);
    let fsck = s.siftfs(&["fsck", &volume]);
    assert!(fsck.code == 4 && fsck.out.contains("log.missing"), "{fsck:?}");
    // The kernel must not mount the volume meanwhile.
    assert_ne!(run("mount", &["-t", "ext4", "-o", "loop", &volume, &dir]).code, 0);
    let given_up = s.siftfs(&["recover", &volume, "--discard-log"]).ok();
    for part in ["GIVEN UP", "may be lost", "e2fsck -f", "siftfs adopt"] {
        assert!(given_up.out.contains(part), "{given_up:?}");
    }
    let mended = run("e2fsck", &["-fy", &volume]);
    assert!(mended.code <= 1, "{mended:?}");
    s.kernel("rw", |m| assert_eq!(fs::read(m.join("checkpointed")).unwrap(), b"old"));
    s.siftfs(&["mount", &volume, &dir]).fails(1, &["not a SiftFS volume"]);
    s.siftfs(&["adopt", &volume, "--log", &s.log(), "--log-size", "4M"]).ok();
    s.mount();
    assert!(s.path("checkpointed").exists() && !s.path("in the log").exists());
    s.umount();
    s.assert_plain_ext4();
}

/// Both copies of the header are damaged: the log is there and of no use.
#[test]
fn r16_a_damaged_log_is_given_up_like_a_lost_one() {
    let s = Apart::new();
    s.crash_with("in the log");
    let mut log = fs::read(s.log()).unwrap();
    let end = log.len() - 65_536;
    for at in [0, end] {
        log[at..at + 4096].fill(0xff);
    }
    fs::write(s.log(), &log).unwrap();
    let (volume, log) = (s.volume(), s.log());
    s.siftfs(&["recover", &volume]).fails(4, &["may hold changes"]);
    s.siftfs(&["recover", &volume, "--log", &log]).fails(8, &["neither copy"]);
    s.siftfs(&["recover", &volume, "--discard-log"]).ok();
    assert!(run("e2fsck", &["-fy", &volume]).code <= 1);
    s.siftfs(&["adopt", &volume, "--log", &log, "--force"]).ok();
    s.mount();
    s.umount();
    s.assert_plain_ext4();
}

/// A clean volume misses nothing without its log, but it does not simply go on without it.
#[test]
fn r16_a_clean_volume_whose_log_is_lost() {
    let s = Apart::new();
    fs::remove_file(s.log()).unwrap();
    let (volume, dir) = (s.volume(), s.dir());
    s.siftfs(&["mount", &volume, &dir]).fails(1, &["nothing is missing", "--discard-log"]);
    let fsck = s.siftfs(&["fsck", &volume]);
    assert!(fsck.code == 8 && fsck.out.contains("log.missing"), "{fsck:?}");
    let said = ["ext4 area is clean and holds everything", "--log PATH", "--discard-log"];
    assert!(said.iter().all(|part| fsck.out.contains(part)), "{fsck:?}");
    assert!(!fsck.out.contains("damaged"), "{fsck:?}");
    let json = s.siftfs(&["fsck", &volume, "--json"]);
    assert!(json.code == 8 && json.out.contains("\"log_missing\": true"), "{json:?}");
    s.kernel("rw", |m| fs::write(m.join("f"), "x").unwrap());
    s.siftfs(&["recover", &volume, "--discard-log"]).ok();
    clean(&volume);
    s.siftfs(&["adopt", &volume, "--log", &s.log(), "--log-size", "4M"]).ok();
    s.mount();
    assert_eq!(fs::read(s.path("f")).unwrap(), b"x");
    s.umount();
    s.assert_plain_ext4();
}

/// A log that is there, and is given up: it serves on, empty.
#[test]
fn r16_a_log_that_is_given_up_serves_on() {
    let s = Apart::new();
    s.crash_with("in the log");
    let given_up = s.siftfs(&["recover", &s.volume(), "--discard-log"]).ok();
    assert!(given_up.out.contains("GIVEN UP") && !given_up.out.contains("adopt"), "{given_up:?}");
    assert!(run("e2fsck", &["-fy", &s.volume()]).code <= 1);
    s.mount();
    assert!(!s.path("in the log").exists());
    s.umount();
    s.assert_plain_ext4();
}

/// The kernel and e2fsprogs may use the volume while it is clean: the log is empty, and starts
/// anew.
#[test]
fn r16_a_volume_that_the_kernel_changed_starts_with_an_empty_log() {
    let s = Apart::new();
    s.mount();
    fs::write(s.path("ours"), "1").unwrap();
    s.umount();
    s.kernel("rw", |m| {
        fs::write(m.join("theirs"), vec![2; 100_000]).unwrap();
        fs::remove_file(m.join("ours")).unwrap();
    });
    run("tune2fs", &["-L", "renamed", &s.volume()]).ok();
    let fsck = s.siftfs(&["fsck", &s.volume()]).ok();
    assert!(fsck.out.contains("super.changed"), "{fsck:?}");
    s.mount();
    assert!(!s.path("ours").exists());
    assert_eq!(fs::read(s.path("theirs")).unwrap(), vec![2; 100_000]);
    s.umount();
    s.assert_plain_ext4();
    // Grown while it was not mounted: nothing of the log lies behind it.
    fs::OpenOptions::new().write(true).open(s.volume()).unwrap().set_len(48 << 20).unwrap();
    assert_eq!(run("e2fsck", &["-fy", &s.volume()]).code, 0);
    run("resize2fs", &[&s.volume()]).ok();
    s.mount();
    fs::write(s.path("large"), vec![3; 30 << 20]).unwrap();
    s.umount();
    s.assert_plain_ext4();
}

/// Copies of different times, each of them a volume or a log that was all right once.
#[test]
fn r16_older_copies_are_refused_where_they_would_lose_something() {
    let s = Apart::new();
    let (old_log, old_volume) = (s.text("old-log"), s.text("old-volume"));
    fs::copy(s.log(), &old_log).unwrap();
    fs::copy(s.volume(), &old_volume).unwrap();
    s.crash_with("kept");
    let with = |volume: &str, log: &str| s.siftfs(&["recover", volume, "--log", log]);
    // The log from before the mount is clean, and would pass for that of an interrupted mount.
    with(&s.volume(), &old_log).fails(4, &["older copy", "--discard-log"]);
    let fsck = s.siftfs(&["fsck", &s.volume(), "--log", &old_log]);
    assert!(fsck.code == 4 && fsck.out.contains("link.epoch"), "{fsck:?}");
    // The volume from before it is not marked, and the log holds what belongs to the newer one.
    with(&old_volume, &s.log()).fails(4, &["marker is gone"]);
    let (dirty_log, dirty_volume) = (s.text("dirty-log"), s.text("dirty-volume"));
    fs::copy(s.log(), &dirty_log).unwrap();
    fs::copy(s.volume(), &dirty_volume).unwrap();
    with(&s.volume(), &s.log()).ok();
    s.crash_with("newer");
    with(&s.volume(), &dirty_log).fails(4, &["corrupt log: it is an older copy"]);
    with(&dirty_volume, &s.log()).fails(4, &["corrupt volume: it is an older copy"]);
    // Two copies of one time are a volume of that time.
    with(&dirty_volume, &dirty_log).ok();
    clean(&dirty_volume);
    with(&s.volume(), &s.log()).ok();
    // A clean volume with an older clean log: nothing is in either log.
    s.siftfs(&["mount", &s.volume(), &s.dir(), "--log", &old_log]).ok();
    assert!(s.path("kept").exists() && s.path("newer").exists());
    fs::write(s.path("newest"), "x").unwrap();
    fs::File::open(s.path("newest")).unwrap().sync_all().unwrap();
    s.kill();
    // And now the one that was used before is the older one.
    with(&s.volume(), &s.log()).fails(4, &["corrupt log: it is an older copy"]);
    with(&s.volume(), &old_log).ok();
    s.mount();
    assert!(s.path("newest").exists());
    s.umount();
    s.assert_plain_ext4();
}
