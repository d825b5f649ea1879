//! `siftfs freeze`: snapshots under writers are clean, and a hold ends whatever happens to those
//! who made it.

use crate::support::served::Served;
use crate::support::{Ran, SIFTFS, Setup, caches, run, serving, siftfs};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Incompatible features of a superblock: a journal to be recovered, and SiftFS's marker.
const NEEDS_RECOVERY: u32 = 0x4;
const MARKER: u32 = 0x2000_0000;
/// More than any hold here is to last: a machine with other work is slow.
const PATIENCE: Duration = Duration::from_secs(60);

fn temp(s: &Setup, name: &str) -> String {
    s.tmp.path().join(name).into_os_string().into_string().unwrap()
}

fn freeze(s: &Setup, command: &[&str]) -> Ran {
    siftfs(&[&["freeze", s.dir(), "--"], command].concat())
}

/// An image that the kernel has mounted read-only.
struct Mounted(PathBuf);

impl Mounted {
    fn new(image: &str, dir: PathBuf) -> Self {
        fs::create_dir_all(&dir).unwrap();
        run("mount", &["-t", "ext4", "-o", "ro,loop", image, dir.to_str().unwrap()]).ok();
        Self(dir)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        run("umount", &[self.0.to_str().unwrap()]);
    }
}

/// A copy of a volume, or of its area, is a clean ext4 file system without anything done to it.
#[track_caller]
fn assert_clean(image: &str) {
    let e2fsck = run("e2fsck", &["-fn", image]);
    assert_eq!(e2fsck.code, 0, "{e2fsck:?}");
    assert!(!e2fsck.out.contains("Fix?") && !e2fsck.out.contains("Clear"), "{e2fsck:?}");
    let bytes = fs::read(image).unwrap();
    let at = 1024 + 0x60;
    let incompat = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!(incompat & (NEEDS_RECOVERY | MARKER), 0, "{incompat:#x}");
}

/// The bytes of the ledger's file with this number.
fn entry(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(600)
}

/// A program that makes one file after the other durable.
struct Ledger {
    stop: Arc<AtomicBool>,
    synced: Arc<AtomicU64>,
    thread: JoinHandle<Duration>,
}

impl Ledger {
    fn start(dir: PathBuf) -> Self {
        fs::create_dir(&dir).unwrap();
        let (stop, synced) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (stopped, count) = (stop.clone(), synced.clone());
        let thread = thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !stopped.load(Ordering::SeqCst) {
                let number = count.load(Ordering::SeqCst);
                let begun = Instant::now();
                let mut file = File::create(dir.join(number.to_string())).expect("created");
                file.write_all(&entry(number)).expect("written");
                file.sync_all().expect("no fsync fails");
                longest = longest.max(begun.elapsed());
                count.store(number + 1, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(5));
            }
            longest
        });
        Self { stop, synced, thread }
    }

    fn synced(&self) -> u64 {
        self.synced.load(Ordering::SeqCst)
    }

    /// The longest that a file took.
    fn end(self) -> Duration {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().unwrap()
    }
}

/// A program that writes into a file again and again, and syncs nothing.
fn dirty(path: PathBuf, stop: Arc<AtomicBool>) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut file = File::create(path).unwrap();
        for turn in 0u64.. {
            if stop.load(Ordering::SeqCst) {
                return;
            }
            file.seek(SeekFrom::Start(turn % 64 * 10_000)).unwrap();
            file.write_all(&turn.to_le_bytes().repeat(1000)).expect("no write fails");
            thread::sleep(Duration::from_millis(2));
        }
    })
}

/// Copies of the image are made under a hold, while programs sync and write: each is clean, the
/// kernel mounts it, and what was synced before the command began is in it. No fsync fails, and
/// none waits for longer than the hold.
#[test]
fn snapshots_under_writers_are_clean() {
    if serving::everywhere() {
        return;
    }
    for cache in caches() {
        let s = Setup::of_size("96M");
        s.mount(&format!("write_cache={cache}"));
        let ledger = Ledger::start(s.path("ledger"));
        let stop = Arc::<AtomicBool>::default();
        let writer = dirty(s.path("dirty"), stop.clone());
        let mut longest = Duration::ZERO;
        for turn in 0..4 {
            thread::sleep(Duration::from_millis(300));
            fs::write(s.path("unsynced"), format!("turn {turn}")).unwrap();
            let (synced, copy) = (ledger.synced(), temp(&s, &format!("copy{turn}")));
            let begun = Instant::now();
            let cp = ["cp", "--reflink=auto", "--sparse=always", s.volume(), &copy];
            freeze(&s, &cp).ok();
            longest = longest.max(begun.elapsed());
            assert_clean(&copy);
            let mounted = Mounted::new(&copy, s.tmp.path().join(format!("m{turn}")));
            for number in 0..synced {
                let found = fs::read(mounted.0.join(format!("ledger/{number}"))).unwrap();
                assert!(found == entry(number), "{cache}, turn {turn}: file {number} of {synced}");
            }
            // What nobody synced, and the kernel had, came along.
            assert_eq!(
                fs::read_to_string(mounted.0.join("unsynced")).unwrap(),
                format!("turn {turn}")
            );
            drop(mounted);
            fs::remove_file(&copy).unwrap();
        }
        assert!(ledger.synced() > 20, "the writers went on: {}", ledger.synced());
        let waited = ledger.end();
        assert!(waited <= longest + Duration::from_secs(2), "{waited:?}, held {longest:?}");
        stop.store(true, Ordering::SeqCst);
        writer.join().unwrap();
        s.umount();
        s.assert_plain_ext4();
    }
}

/// A running `siftfs freeze` whose command sleeps.
struct Sleeping {
    child: Child,
    /// The number of the command's process.
    command: Pid,
}

impl Sleeping {
    /// Returns when the volume is held.
    fn start(s: &Setup, within: &str) -> Self {
        let (begun, new) = (temp(s, "begun"), temp(s, "begun.new"));
        let _ = fs::remove_file(&begun);
        let script = format!("echo $$ > {new} && mv {new} {begun} && exec sleep 120");
        let child = Command::new(SIFTFS)
            .args(["freeze", s.dir(), "--within", within, "--", "sh", "-c", &script])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let start = Instant::now();
        while !Path::new(&begun).exists() {
            assert!(start.elapsed() < PATIENCE, "the command does not begin");
            thread::sleep(Duration::from_millis(5));
        }
        let number = fs::read_to_string(&begun).unwrap().trim().parse().unwrap();
        Self { child, command: Pid::from_raw(number).unwrap() }
    }

    fn ended(self) -> Ran {
        self.child.wait_with_output().unwrap().into()
    }
}

/// Does the process not run any more?
fn is_gone(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_none_or(|rest| rest.is_empty() || rest.starts_with(" Z"))
}

#[track_caller]
fn assert_killed(process: Pid) {
    let start = Instant::now();
    while !is_gone(process) {
        assert!(start.elapsed() < PATIENCE, "the command goes on");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A write and an fsync on a thread; how long they took.
fn writes(path: PathBuf) -> JoinHandle<Duration> {
    thread::spawn(move || {
        let begun = Instant::now();
        let mut file = File::create(path).expect("no EROFS");
        file.write_all(b"waits").expect("written");
        file.sync_all().expect("synced");
        begun.elapsed()
    })
}

/// A command that sleeps beyond the term: it is killed, the volume thaws in time, and the exit
/// status says that there is no snapshot.
#[test]
fn a_command_that_takes_too_long_is_killed() {
    if serving::everywhere() {
        return;
    }
    let s = Setup::new();
    s.mount("");
    fs::write(s.path("f"), "read").unwrap();
    let sleeping = Sleeping::start(&s, "2");
    let wrote = writes(s.path("g"));
    assert_eq!(fs::read_to_string(s.path("f")).unwrap(), "read", "reads go on");
    let command = sleeping.command;
    sleeping.ended().fails(124, &[s.dir(), "no snapshot"]);
    assert_killed(command);
    let took = wrote.join().unwrap();
    assert!(took > Duration::from_millis(500) && took < PATIENCE, "{took:?}");
    s.umount();
    s.assert_plain_ext4();
}

/// `siftfs freeze` is killed: the daemon ends the hold by itself, long before the term. One that is
/// interrupted kills its command.
#[test]
fn a_hold_ends_with_the_command_that_made_it() {
    if serving::everywhere() {
        return;
    }
    let s = Setup::new();
    s.mount("");
    let mut sleeping = Sleeping::start(&s, "300");
    let wrote = writes(s.path("f"));
    thread::sleep(Duration::from_millis(300));
    assert!(!wrote.is_finished(), "changes wait");
    sleeping.child.kill().unwrap();
    assert!(wrote.join().unwrap() < PATIENCE);
    sleeping.child.wait().unwrap();
    // Nobody is left to kill the command.
    kill_process(sleeping.command, Signal::KILL).unwrap();
    let sleeping = Sleeping::start(&s, "300");
    kill_process(Pid::from_child(&sleeping.child), Signal::INT).unwrap();
    let command = sleeping.command;
    sleeping.ended().fails(124, &["interrupted", "no snapshot"]);
    assert_killed(command);
    assert!(writes(s.path("g")).join().unwrap() < PATIENCE);
    s.umount();
    s.assert_plain_ext4();
}

/// The daemon is killed under the hold: the command is killed, and what is left is a clean file
/// system that nothing has to recover.
#[test]
fn a_daemon_that_dies_under_the_hold_leaves_a_clean_volume() {
    if serving::everywhere() {
        return;
    }
    let s = Setup::new();
    s.mount("");
    let mut file = File::create(s.path("f")).unwrap();
    file.write_all(&entry(7)).unwrap();
    file.sync_all().unwrap();
    fs::write(s.path("unsynced"), "too").unwrap();
    let sleeping = Sleeping::start(&s, "300");
    let daemon = s.daemon();
    daemon.signal(Signal::KILL);
    daemon.wait();
    let command = sleeping.command;
    sleeping.ended().fails(124, &["no snapshot"]);
    assert_killed(command);
    drop(file);
    assert_clean(s.volume());
    s.assert_plain_ext4();
    let mounted = Mounted::new(s.volume(), s.tmp.path().join("kernel"));
    assert!(fs::read(mounted.0.join("f")).unwrap() == entry(7));
    drop(mounted);
    let recovered = siftfs(&["recover", s.volume()]).ok();
    assert!(recovered.out.contains("clean"), "{recovered:?}");
    s.mount("");
    assert!(fs::read(s.path("f")).unwrap() == entry(7));
    assert_eq!(fs::read_to_string(s.path("unsynced")).unwrap(), "too");
    s.umount();
    s.assert_plain_ext4();
}

/// The daemon is asked to end under a hold: the hold ends at once, and the volume is closed.
#[test]
fn a_daemon_that_is_asked_to_end_ends_the_hold() {
    if serving::everywhere() {
        return;
    }
    let s = Setup::new();
    s.mount("");
    let sleeping = Sleeping::start(&s, "300");
    let parent = s.path("");
    // It may be told that the mount has gone.
    let made = thread::spawn(move || drop(fs::create_dir(parent.join("d"))));
    thread::sleep(Duration::from_millis(300));
    let daemon = s.daemon();
    daemon.signal(Signal::TERM);
    daemon.wait();
    let command = sleeping.command;
    sleeping.ended().fails(124, &["no snapshot"]);
    assert_killed(command);
    made.join().unwrap();
    s.assert_plain_ext4();
}

/// The daemon is killed after a hold: what was synced since comes back by recovery.
#[test]
fn what_is_synced_after_a_hold_is_recovered() {
    if serving::everywhere() {
        return;
    }
    let s = Setup::new();
    s.mount("");
    freeze(&s, &["true"]).ok();
    for number in 0..5 {
        let mut file = File::create(s.path(&number.to_string())).unwrap();
        file.write_all(&entry(number)).unwrap();
        file.sync_all().unwrap();
        if number == 2 {
            freeze(&s, &["true"]).ok();
        }
    }
    s.kill_and_mount("writethrough");
    for number in 0..5 {
        assert!(fs::read(s.path(&number.to_string())).unwrap() == entry(number), "{number}");
    }
    s.umount();
    s.assert_plain_ext4();
}

/// The command's own exit status, and what is refused, each with a message. A volume that is
/// read-only is plain ext4 as it is, or is made so.
#[test]
fn exit_statuses_and_refusals() {
    if serving::everywhere() {
        return;
    }
    let s = Setup::new();
    s.mount("");
    assert_eq!(freeze(&s, &["sh", "-c", "exit 7"]).code, 7);
    assert_eq!(freeze(&s, &["sh", "-c", "kill -TERM $$"]).code, 128 + 15);
    freeze(&s, &["/no/such/command"]).fails(127, &["/no/such/command"]);
    freeze(&s, &["/etc/passwd"]).fails(126, &["/etc/passwd"]);
    siftfs(&["freeze", s.dir()]).fails(2, &["COMMAND"]);
    siftfs(&["freeze", s.dir(), "--within", "301", "--", "true"]).fails(2, &["301"]);
    siftfs(&["freeze", "/proc", "--", "true"]).fails(1, &["not on a SiftFS mount"]);
    let sleeping = Sleeping::start(&s, "300");
    freeze(&s, &["true"]).fails(1, &["frozen already"]);
    siftfs(&["mount", s.volume(), s.dir(), "-o", "remount,ro"]).fails(1, &["frozen"]);
    kill_process(Pid::from_child(&sleeping.child), Signal::TERM).unwrap();
    sleeping.ended().fails(124, &[]);
    // A removed file that is open.
    let open = File::create(s.path("removed")).unwrap();
    fs::remove_file(s.path("removed")).unwrap();
    freeze(&s, &["true"]).fails(1, &["lsof +L1"]);
    drop(open);
    freeze(&s, &["true"]).ok();
    let copy = temp(&s, "copy");
    siftfs(&["mount", s.volume(), s.dir(), "-o", "remount,ro"]).ok();
    freeze(&s, &["cp", s.volume(), &copy]).ok();
    assert_clean(&copy);
    fs::write(s.path("no"), "").expect_err("it stays read-only");
    siftfs(&["mount", s.volume(), s.dir(), "-o", "remount,rw"]).ok();
    fs::write(s.path("yes"), "").unwrap();
    s.umount();
    s.mount("ro");
    freeze(&s, &["cp", s.volume(), &copy]).ok();
    assert_clean(&copy);
    s.umount();
    s.assert_plain_ext4();
}

/// With its log on another device the area alone is the snapshot, and the kernel mounts it.
#[test]
fn the_area_alone_is_a_snapshot() {
    if serving::everywhere() {
        return;
    }
    let s = Setup::empty();
    let (log, copy) = (temp(&s, "log"), temp(&s, "copy"));
    siftfs(&["mkfs", s.volume(), "--size", "64M", "--log", &log, "--log-size", "8M"]).ok();
    siftfs(&["mount", s.volume(), s.dir(), "--log", &log]).ok();
    let ledger = Ledger::start(s.path("ledger"));
    thread::sleep(Duration::from_millis(300));
    let synced = ledger.synced();
    let log_copy = temp(&s, "log-copy");
    let both = format!("cp --sparse=always {} {copy} && cp {log} {log_copy}", s.volume());
    freeze(&s, &["sh", "-c", &both]).ok();
    ledger.end();
    assert_clean(&copy);
    let mounted = Mounted::new(&copy, s.tmp.path().join("kernel"));
    for number in 0..synced {
        assert!(fs::read(mounted.0.join(format!("ledger/{number}"))).unwrap() == entry(number));
    }
    drop(mounted);
    // The copy names the volume's own log, which is in use. With a copy of that from the same hold
    // it is given back, and names none.
    siftfs(&["release", &copy]).fails(1, &["in use"]);
    siftfs(&["release", &copy, "--log", &log_copy]).ok();
    assert_clean(&copy);
    s.umount();
    siftfs(&["fsck", s.volume(), "--log", &log]).ok();
}

/// A mount of a volume that another process serves is told where to go.
#[test]
fn a_served_volume_is_frozen_where_it_is_open() {
    if serving::everywhere() {
        return;
    }
    let s = Setup::new();
    let served = Served::start(&s);
    siftfs(&["mount", &served.address, s.dir()]).ok();
    freeze(&s, &["true"]).fails(1, &["another process"]);
    fs::write(s.path("f"), "goes on").unwrap();
    s.umount();
}
