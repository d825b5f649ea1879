//! What programs leave that are killed in a section, or while they wait for a ticket: nothing, on
//! storage or in the daemon.

use crate::calls::{Child, File, START};
use crate::mounted;
use crate::support::caches;
use crate::support::{Setup, siftfs};
use rustix::fs::OFlags;
use serde_json::Value;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

const STAGE: u32 = 0x8008_E501;
const WAIT: u32 = 0x4010_E503;
/// Bytes that no other file has and no structure.
const SECRET: &[u8; 32] = b"a killed section's 32 own bytes!";
/// How often a program is killed.
const KILLS: u64 = 40;

fn status(s: &Setup) -> Value {
    serde_json::from_str(&siftfs(&["status", s.dir(), "--json"]).ok().out).unwrap()
}

/// Bytes written to the volume so far.
fn written(s: &Setup) -> u64 {
    let storage = &status(s)["runtime"]["storage"];
    let regions = storage.as_object().unwrap().values();
    let origins = regions.flat_map(|region| region.as_object().unwrap().values());
    origins.map(|io| io["write_bytes"].as_u64().unwrap()).sum()
}

fn operations(s: &Setup) -> Value {
    status(s)["runtime"]["operations"].clone()
}

/// A section of [`SECRET`], also behind the end of the file; says when it is written, and waits.
fn section(path: &std::ffi::CStr, pages: &[u8], tell: i32) -> i32 {
    // SAFETY: system calls on memory that outlives them.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_RDWR);
        if fd < 0 || libc::ioctl(fd, START.into(), 0) != 0 {
            return 1;
        }
        let len = pages.len();
        for at in [100, 5 * 4096] {
            if libc::pwrite(fd, pages.as_ptr().cast(), len, at) != len as isize {
                return 2;
            }
        }
        libc::write(tell, pages.as_ptr().cast(), 1);
        libc::pause();
    }
    3
}

/// The status report has a section while it is open. Its owner is killed: not one byte is written
/// to the volume for it, by then or by what makes everything else durable, and none of what it
/// wrote is found in the volume's file.
#[test]
fn a_killed_sections_bytes_are_nowhere() {
    for cache in caches() {
        let s = mounted(cache);
        File::create(&s.path("f"), &[1; 3 * 4096]).sync();
        siftfs(&["checkpoint", s.dir()]).ok();
        let path = std::ffi::CString::new(s.path("f").to_str().unwrap()).unwrap();
        let pages = SECRET.repeat(256);
        let before = written(&s);
        for round in 0..5 {
            let (mut heard, tell) = std::io::pipe().unwrap();
            let told = tell.as_raw_fd();
            let child = Child::start(|| section(&path, &pages, told));
            heard.read_exact(&mut [0u8; 1]).unwrap();
            let open = operations(&s);
            assert_eq!((&open["sections"], &open["void_sections"]), (&1.into(), &0.into()));
            let held = open["section_bytes"].as_u64().unwrap();
            assert!(cache == "writeback" || held > 16 << 10, "{cache}: {held} bytes");
            let text = siftfs(&["status", s.dir()]).ok().out;
            assert!(text.contains("atomic sections: 1 ("), "{text}");
            child.kill();
            assert_eq!(child.wait(), -1);
            let done = Instant::now();
            while operations(&s)["sections"] != 0 {
                assert!(done.elapsed() < Duration::from_secs(60), "{cache}: it stays open");
                std::thread::sleep(Duration::from_millis(1));
            }
            let left = operations(&s);
            for field in ["tickets", "sections", "void_sections", "section_bytes", "bytes"] {
                assert_eq!(left[field], 0, "{cache}: {left}");
            }
            assert_eq!(written(&s), before, "{cache}, round {round}: something was written");
        }
        let f = File::open(&s.path("f"), OFlags::RDWR);
        assert!(f.all() == [1; 3 * 4096], "{cache}");
        f.sync();
        drop(f);
        siftfs(&["sync", s.dir()]).ok();
        siftfs(&["checkpoint", s.dir()]).ok();
        s.umount();
        let volume = std::fs::read(s.volume()).unwrap();
        assert!(!volume.windows(SECRET.len()).any(|w| w == SECRET), "{cache}: it is on storage");
        s.assert_plain_ext4();
    }
}

/// Writes, stages, and waits for the ticket, again and again; says when it begins.
fn waits(path: &std::ffi::CStr, page: &[u8], tell: i32) -> i32 {
    // SAFETY: system calls on memory that outlives them.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_RDWR);
        libc::write(tell, page.as_ptr().cast(), 1);
        for i in 0.. {
            let at = i64::from(i % 64) * 4096;
            if libc::pwrite(fd, page.as_ptr().cast(), page.len(), at) != page.len() as isize {
                return 1;
            }
            let mut ticket = [0u64, u64::MAX];
            if libc::ioctl(fd, STAGE.into(), ticket.as_mut_ptr()) != 0 {
                return 2;
            }
            if libc::ioctl(fd, WAIT.into(), ticket.as_ptr()) != 0 {
                return 3;
            }
        }
    }
    4
}

/// Threads of the daemon, those aside that carry requests out, which stay. Of these it says how
/// many have a request.
fn threads(s: &Setup) -> (usize, u64) {
    let busy = status(s)["request_loop"]["busy"].as_u64().unwrap();
    let tasks = format!("/proc/{}/task", s.daemon().pid.as_raw_nonzero());
    let carried = |name: &str| name.starts_with("siftfs-fuse") || name.starts_with("siftfs-ring");
    let names = std::fs::read_dir(tasks).unwrap().flatten();
    // One that ends meanwhile is not there any more.
    let names = names.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    (names.filter(|name| !carried(name)).count(), busy)
}

/// Waits until no thread of the daemon has a request, and there are no more others than `before`,
/// and those that come and go: one a kind, the client of `siftfs status` and what is asked later.
fn nothing_is_left(s: &Setup, before: usize) {
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        let (others, busy) = threads(s);
        if busy == 0 && others <= before + 2 {
            return;
        }
        assert!(Instant::now() < limit, "{busy} requests, {others} threads, {before} before");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Programs that wait for tickets without a limit are killed at any moment. Others wait as before,
/// and the daemon keeps nothing for the dead: no ticket, no thread.
#[test]
fn killed_waiters_leave_nothing() {
    let s = mounted("writethrough");
    for name in ["f", "mine"] {
        File::create(&s.path(name), &[1; 64 * 4096]).sync();
    }
    let path = std::ffi::CString::new(s.path("f").to_str().unwrap()).unwrap();
    let mine = File::open(&s.path("mine"), OFlags::RDWR);
    let (before, _) = threads(&s);
    for round in 0..KILLS {
        let (mut heard, tell) = std::io::pipe().unwrap();
        let told = tell.as_raw_fd();
        let children: Vec<Child> =
            (0..4).map(|_| Child::start(|| waits(&path, &[7; 4096], told))).collect();
        heard.read_exact(&mut [0u8; 4]).unwrap();
        std::thread::sleep(Duration::from_micros(round * 173 % 4000));
        for child in children {
            child.kill();
            assert_eq!(child.wait(), -1, "round {round}: it waited until it was killed");
        }
        // Another caller, also one with little time.
        mine.write(round * 4096, &[8; 4096]);
        let mut ticket = [0u64, [u64::MAX, 60_000_000_000][round as usize % 2]];
        // SAFETY: as many bytes as the numbers say.
        let answers = unsafe {
            let fd = mine.0.as_raw_fd();
            let staged = libc::ioctl(fd, STAGE.into(), ticket.as_mut_ptr());
            (staged, libc::ioctl(fd, WAIT.into(), ticket.as_ptr()))
        };
        assert_eq!(answers, (0, 0), "round {round}");
    }
    siftfs(&["sync", s.dir()]).ok();
    nothing_is_left(&s, before);
    assert_eq!(operations(&s)["tickets"], 0);
    assert_eq!(status(&s)["runtime"]["queues"]["fsyncs_waiting"], 0);
    assert!(status(&s)["runtime"]["failed"].is_null());
    drop(mine);
    s.umount();
    s.assert_plain_ext4();
}
