//! A daemon that is killed while the kernel drops pages, or writes some, because it was asked to:
//! the connection ends all the same, and with it every call of every program on the mount.

use crate::support::{Process, Setup, run, siftfs};
use crate::{keep_descriptors, rings};
use rustix::fs::{Advice, IFlags, Mode, OFlags, SeekFrom, fadvise, open, seek};
use rustix::io::{pread, pwrite};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use siftfs_kills::asynchronous::{Way, Writes};
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Of a file that is written past the cache: many, so that some are always being read.
const PAGES: u64 = 4096;
/// Of a file that is mapped.
const MAPPED: usize = 64;
/// Bytes of a read through the cache.
const READ: usize = 256 << 10;
const ROUNDS: u64 = 8;
/// How long a call may take to end after the daemon was killed.
const BOUND: Duration = Duration::from_secs(10);
const CONTROL: &str = "/sys/fs/fuse/connections";

/// A page on a page's boundary.
#[repr(align(4096))]
struct Page([u8; 4096]);

/// Where the mount's connection can be ended by force, by a test that found it alive.
fn connection(dir: &str) -> PathBuf {
    let device = rustix::fs::stat(dir).unwrap().st_dev;
    let path = Path::new(CONTROL).join(rustix::fs::minor(device).to_string());
    if !path.exists() {
        run("mount", &["-t", "fusectl", "none", CONTROL]).ok();
    }
    path.join("abort")
}

/// Programs on a mount. Each makes calls until one fails, or it is told to stop.
struct Programs<'a> {
    setup: &'a Setup,
    /// Ends the connection by force, should a program wait for ever.
    abort: PathBuf,
    stop: AtomicBool,
    running: AtomicUsize,
    calls: AtomicUsize,
}

impl<'a> Programs<'a> {
    fn new(setup: &'a Setup) -> Self {
        let (running, calls) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let abort = connection(setup.dir());
        Self { setup, abort, stop: AtomicBool::new(false), running, calls }
    }

    fn open(&self, name: &str, flags: OFlags) -> OwnedFd {
        open(self.setup.path(name), flags | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

    /// Starts one that makes the `i`-th call for each `i`.
    fn start<'s>(
        &'s self,
        scope: &'s std::thread::Scope<'s, '_>,
        mut call: impl FnMut(u64) -> std::io::Result<()> + Send + 's,
    ) {
        self.running.fetch_add(1, Ordering::SeqCst);
        scope.spawn(move || {
            for i in 0.. {
                if self.stop.load(Ordering::SeqCst) || call(i).is_err() {
                    break;
                }
                self.calls.fetch_add(1, Ordering::SeqCst);
            }
            drop(call);
            self.running.fetch_sub(1, Ordering::SeqCst);
        });
    }

    /// Kills the daemon `delay` after the first calls. Did the daemon and all programs end?
    fn kill(&self, daemon: &Process, delay: Duration, stores: Option<&Stores>) -> bool {
        let start = Instant::now();
        while self.calls.load(Ordering::SeqCst) < 20 && start.elapsed() < BOUND {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(delay);
        // What it has in the kernel goes on meanwhile, and meets requests that no daemon serves.
        daemon.signal(Signal::STOP);
        std::thread::sleep(Duration::from_millis(20));
        daemon.signal(Signal::KILL);
        self.stop.store(true, Ordering::SeqCst);
        if let Some(stores) = stores {
            stores.kill();
        }
        let killed = Instant::now();
        let all = || {
            self.running.load(Ordering::SeqCst) == 0
                && ended(&daemon.fd)
                && stores.is_none_or(|stores| ended(&stores.process))
        };
        while !all() && killed.elapsed() < BOUND {
            std::thread::sleep(Duration::from_millis(2));
        }
        let ended = all();
        if !ended {
            fs::write(&self.abort, "1").unwrap();
        }
        ended
    }
}

fn ended(process: &OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&now)) == Ok(1)
}

/// A process that stores to each page of a file through a mapping, again and again. Of its own,
/// because a store ends it (SIGBUS) when the page cannot be had any more.
struct Stores {
    pid: i32,
    process: OwnedFd,
}

impl Stores {
    fn start(file: &OwnedFd) -> Self {
        let len = MAPPED * 4096;
        let (prot, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping of an open file; nothing is at a fixed address.
        let map =
            unsafe { libc::mmap(std::ptr::null_mut(), len, prot, shared, file.as_raw_fd(), 0) };
        assert_ne!(map, libc::MAP_FAILED);
        // SAFETY: the child calls nothing but prctl(2) and usleep(3), which take no lock that
        // another thread may have had, and stores inside of the mapping, as long as the file.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            // SAFETY: as above.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            let mut i = 0u8;
            loop {
                i = i.wrapping_add(1);
                for page in 0..MAPPED {
                    // SAFETY: as above.
                    unsafe { map.cast::<u8>().add(page * 4096).write_volatile(i) };
                }
                // SAFETY: as above.
                unsafe { libc::usleep(100) };
            }
        }
        // SAFETY: the parent's own mapping, which this process does not use.
        unsafe { libc::munmap(map, len) };
        let process = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap();
        Self { pid, process }
    }

    fn kill(&self) {
        // SAFETY: our own child, which has not been waited for.
        assert_eq!(unsafe { libc::kill(self.pid, libc::SIGKILL) }, 0);
    }
}

impl Drop for Stores {
    fn drop(&mut self) {
        self.kill();
        // SAFETY: no memory is passed.
        assert_eq!(unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) }, self.pid);
    }
}

/// Asynchronous direct writes, 16 at a time.
fn asynchronous(way: Way, fd: OwnedFd) -> impl FnMut(u64) -> std::io::Result<()> + Send {
    // The queue is this thread's from its first call on.
    let mut queue = None;
    move |i| {
        let writes = queue.get_or_insert_with(|| Writes::new(way, 16).unwrap());
        for n in 0..16 {
            writes.submit(&fd, (i * 16 + n) % PAGES * 4096, &[i as u8; 4096])?;
        }
        (0..16).try_for_each(|_| writes.wait()?.1.map(drop))
    }
}

fn beside_direct_writes(programs: &Programs<'_>, daemon: &Process, delay: Duration) -> bool {
    let direct = OFlags::RDWR | OFlags::DIRECT;
    std::thread::scope(|scope| {
        for (way, flags) in
            [(Way::Aio, direct), (Way::Uring, direct), (Way::Uring, direct | OFlags::DSYNC)]
        {
            programs.start(scope, asynchronous(way, programs.open("f", flags)));
        }
        let synced = programs.open("f", direct | OFlags::DSYNC);
        programs.start(scope, move |i| {
            let page = Page([i as u8; 4096]);
            Ok(pwrite(&synced, &page.0, i % PAGES * 4096).map(drop)?)
        });
        for reader in 0..3 {
            let cached = programs.open("f", OFlags::RDONLY);
            let mut bytes = vec![0; READ];
            programs.start(scope, move |i| {
                let at = (i * 5 + reader) * READ as u64 % (PAGES * 4096);
                fadvise(&cached, at, None, Advice::DontNeed)?;
                Ok(pread(&cached, &mut bytes, at).map(drop)?)
            });
        }
        programs.kill(daemon, delay, None)
    })
}

fn beside_stores(programs: &Programs<'_>, daemon: &Process, delay: Duration) -> bool {
    let file = programs.open("f", OFlags::RDWR);
    let stores = Stores::start(&file);
    drop(file);
    std::thread::scope(|scope| {
        for whence in [SeekFrom::Hole(0), SeekFrom::Data(0), SeekFrom::Hole(9000)] {
            let read = programs.open("f", OFlags::RDONLY);
            programs.start(scope, move |_| Ok(seek(&read, whence).map(drop)?));
        }
        let (read, copy) =
            (programs.open("f", OFlags::RDONLY), programs.open("copy", OFlags::RDWR));
        programs.start(scope, move |_| {
            let len = MAPPED * 4096;
            let copied = rustix::fs::copy_file_range(&read, Some(&mut 0), &copy, Some(&mut 0), len);
            Ok(copied.map(drop)?)
        });
        let flags = programs.open("f", OFlags::RDONLY);
        programs.start(scope, move |i| {
            let wanted = if i % 2 == 0 { IFlags::IMMUTABLE } else { IFlags::empty() };
            Ok(rustix::fs::ioctl_setflags(&flags, wanted)?)
        });
        programs.kill(daemon, delay, Some(&stores))
    })
}

/// SIGTERM has the daemon detach the mount, and the kernel send what it holds; then SIGKILL.
fn while_it_leaves(programs: &Programs<'_>, daemon: &Process, delay: Duration) -> bool {
    std::thread::scope(|scope| {
        for name in ["f", "copy"] {
            let file = programs.open(name, OFlags::RDWR);
            programs.start(scope, move |i| {
                Ok(pwrite(&file, &[i as u8; 4096], i % 4096 * 4096).map(drop)?)
            });
        }
        std::thread::sleep(Duration::from_millis(100));
        daemon.signal(Signal::TERM);
        programs.kill(daemon, delay, None)
    })
}

fn nobody_waits(act: fn(&Programs<'_>, &Process, Duration) -> bool, options: &str) {
    keep_descriptors();
    let setup = Setup::new();
    // By rings last: a thread that keeps a ring's descriptor keeps the connection for ever, even
    // aborted.
    for rings in [false, true] {
        for round in 0..ROUNDS {
            // Rings or not is this test's to say, whatever the others are told.
            let options = format!("requests=auto,{options}");
            let args = ["mount", setup.volume(), setup.dir(), "-o", &options];
            rings::offering(rings, || siftfs(&args)).ok();
            let daemon = setup.daemon();
            for name in ["f", "copy"] {
                let _ = open(setup.path(name), OFlags::RDONLY, Mode::empty())
                    .and_then(|f| rustix::fs::ioctl_setflags(f, IFlags::empty()));
                fs::write(setup.path(name), vec![1; PAGES as usize * 4096]).unwrap();
            }
            let delay = Duration::from_millis(37 * round % 150);
            let ended = act(&Programs::new(&setup), &daemon, delay);
            assert!(ended, "programs wait for a killed daemon: rings {rings}, round {round}");
            daemon.wait();
        }
    }
    siftfs(&["mount", setup.volume(), setup.dir()]).ok();
    setup.umount();
}

#[test]
fn a_daemon_killed_beside_direct_writes_leaves_nobody_waiting() {
    nobody_waits(beside_direct_writes, "commit=1,cache=8M");
}

#[test]
fn a_daemon_killed_beside_stores_through_mappings_leaves_nobody_waiting() {
    nobody_waits(beside_stores, "commit=1");
}

#[test]
fn a_daemon_killed_while_it_leaves_leaves_nobody_waiting() {
    nobody_waits(while_it_leaves, "write_cache=writeback,commit=3600");
}
