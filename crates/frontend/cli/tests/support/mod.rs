//! The `siftfs` command as a script sees it. Needs root, `/dev/fuse` and e2fsprogs.

pub mod keys;
pub mod served;
pub mod serving;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

pub const SIFTFS: &str = env!("CARGO_BIN_EXE_siftfs");

/// A temporary directory with a volume and a directory to mount it on.
pub struct Setup {
    pub tmp: tempfile::TempDir,
}

/// What a command printed, and its exit status.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl From<Output> for Ran {
    fn from(o: Output) -> Self {
        Self {
            code: o.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&o.stdout).into_owned(),
            err: String::from_utf8_lossy(&o.stderr).into_owned(),
        }
    }
}

impl Ran {
    /// The command succeeded.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// The command failed with one message that says all of `parts`.
    #[track_caller]
    pub fn fails(self, code: i32, parts: &[&str]) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        for part in parts {
            assert!(self.err.contains(part), "no `{part}` in {self:?}");
        }
        assert!(!self.err.contains("panicked"), "{self:?}");
        self
    }
}

impl Setup {
    /// A fresh volume of 64 MiB, not mounted.
    pub fn new() -> Self {
        Self::of_size("64M")
    }

    /// A fresh volume, not mounted. With its size grows what one record takes.
    pub fn of_size(size: &str) -> Self {
        let setup = Self::empty();
        siftfs(&["mkfs", setup.volume(), "--size", size]).ok();
        setup
    }

    /// No volume yet.
    pub fn empty() -> Self {
        let tmp = tempfile::tempdir().unwrap();
        std::fs::create_dir(tmp.path().join("m")).unwrap();
        Self { tmp }
    }

    fn text(&self, name: &str) -> &'static str {
        let path = self.tmp.path().join(name);
        Box::leak(path.into_os_string().into_string().unwrap().into_boxed_str())
    }

    pub fn volume(&self) -> &'static str {
        self.text("volume")
    }

    pub fn dir(&self) -> &'static str {
        self.text("m")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.tmp.path().join("m").join(name)
    }

    pub fn mount(&self, options: &str) {
        siftfs(&["mount", self.volume(), self.dir(), "-o", options]).ok();
    }

    /// The daemon is killed, and the volume mounted again with this cache.
    pub fn kill_and_mount(&self, cache: &str) {
        let daemon = self.daemon();
        daemon.signal(Signal::KILL);
        daemon.wait();
        self.mount(&format!("write_cache={cache}"));
    }

    #[track_caller]
    pub fn umount(&self) -> Ran {
        let ran = patient(|| siftfs(&["umount", self.dir()])).ok();
        // A mount namespace of another test, whose own mounts are copies of all that there were,
        // holds it.
        let held = ran.err.contains("another mount namespace");
        for _ in 0..600 {
            if !held || siftfs(&["inspect", self.volume()]).code != 8 {
                return ran;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("the volume stays in use: {ran:?}")
    }

    /// umount(2) alone.
    #[track_caller]
    pub fn bare_umount(&self) {
        let run = || match siftfs_fuse::unmount(Path::new(self.dir())) {
            Ok(()) => Ran { code: 0, out: String::new(), err: String::new() },
            Err(e) => Ran { code: 1, out: String::new(), err: e.to_string() },
        };
        patient(run).ok();
    }

    /// The daemon's process.
    pub fn daemon(&self) -> Process {
        let status = siftfs(&["status", self.dir(), "--json"]).ok();
        let status: serde_json::Value = serde_json::from_str(&status.out).unwrap();
        let pid = i32::try_from(status["pid"].as_i64().unwrap()).unwrap();
        let pid = Pid::from_raw(pid).unwrap();
        Process { pid, fd: pidfd_open(pid, PidfdFlags::empty()).unwrap() }
    }

    /// The volume is plain ext4, and no checker complains.
    #[track_caller]
    pub fn assert_plain_ext4(&self) {
        let e2fsck = run("e2fsck", &["-fn", self.volume()]);
        assert_eq!(e2fsck.code, 0, "{e2fsck:?}");
        siftfs(&["fsck", self.volume()]).ok();
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        while siftfs_fuse::detach(Path::new(self.dir())).is_ok() {}
        serving::forget(self.volume());
    }
}

/// A process that is not our child.
pub struct Process {
    pub pid: Pid,
    pub fd: OwnedFd,
}

impl Process {
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).unwrap();
    }

    /// Stops it, and waits until all of its threads are stopped: until then one of them may serve
    /// a request.
    #[track_caller]
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.pid.as_raw_nonzero());
        let is_stopped = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T"))
        };
        let begun = Instant::now();
        while !std::fs::read_dir(&tasks).unwrap().flatten().all(is_stopped) {
            assert!(begun.elapsed() < Duration::from_secs(20), "the process does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until it is gone.
    #[track_caller]
    pub fn wait(&self) {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
        assert_eq!(poll(&mut fds, Some(&limit)).unwrap(), 1, "the process does not end");
    }
}

/// The kernel's connection of a mount. A test that fails ends it, so that no thread waits for a
/// dead daemon for ever.
pub struct Connection(u32);

impl Connection {
    /// The connection of the mount on `dir`.
    pub fn of(dir: &str) -> Self {
        Self(siftfs_fuse::top_mount(Path::new(dir)).unwrap().expect("a mount").minor)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let control = tempfile::tempdir().unwrap();
        let at = control.path().to_str().unwrap();
        run("mount", &["-t", "fusectl", "none", at]);
        let _ = std::fs::write(control.path().join(format!("{}/abort", self.0)), "1");
        run("umount", &[at]);
    }
}

/// Unmounts, again and again while the mount is in use: a process that another test starts holds
/// our open files until it runs its own program.
pub fn patient(umount: impl Fn() -> Ran) -> Ran {
    for _ in 0..50 {
        let ran = umount();
        if !ran.err.contains("in use") && !ran.err.contains("busy") {
            return ran;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    umount()
}

/// The write caches that mounts of tests may have: one of a volume that another process serves does
/// not keep back what is written.
pub fn caches() -> std::iter::Copied<std::slice::Iter<'static, &'static str>> {
    let all: &[&str] = &["writethrough", "writeback"];
    let some = if serving::everywhere() { &all[..1] } else { all };
    some.iter().copied()
}

/// What SIFTFS_TEST_OPTIONS says, with a comma behind it, as it stands before a mount's own
/// options.
pub fn first_options() -> String {
    match std::env::var("SIFTFS_TEST_OPTIONS") {
        Ok(first) if !first.is_empty() => format!("{first},"),
        _ => String::new(),
    }
}

/// Does a mount with these options keep written data in the kernel's writeback cache? What
/// SIFTFS_TEST_OPTIONS says comes before them.
pub fn writes_back(options: &str) -> bool {
    let first = std::env::var("SIFTFS_TEST_OPTIONS").unwrap_or_default();
    let all = first.split(',').chain(options.split(','));
    all.filter_map(|o| o.strip_prefix("write_cache=")).next_back() == Some("writeback")
}

/// Does SIFTFS_TEST_OPTIONS say that mounts may map users?
pub fn maps_users() -> bool {
    let first = std::env::var("SIFTFS_TEST_OPTIONS").unwrap_or_default();
    first.split(',').any(|o| o == "idmap")
}

/// What SIFTFS_TEST_OPTIONS says, without private logs for a mount that wants what excludes them,
/// that is there already, or of a device or a file in memory, beside which no logs can lie.
fn beside(first: &str, own: &[&str]) -> String {
    const EXCLUDE: [&str; 3] = ["write_cache=writeback", "operations=off", "remount"];
    const TMPFS: i64 = 0x0102_1994;
    let in_memory = |word: &str| rustix::fs::statfs(word).is_ok_and(|of| of.f_type == TMPFS);
    let excludes = |word: &str| EXCLUDE.contains(&word) || word.starts_with("/dev/");
    // The first path is the volume. The directory is not looked at: the daemon of a mount there may
    // be stopped, and would not answer.
    let volume = own.iter().find(|word| word.starts_with('/'));
    let without = own.iter().flat_map(|arg| arg.split(',')).any(excludes)
        || volume.is_some_and(|volume| in_memory(volume));
    let kept = |option: &&str| !(without && option.starts_with("private_logs="));
    first.split(',').filter(kept).collect::<Vec<_>>().join(",")
}

/// Runs `siftfs`. What SIFTFS_TEST_OPTIONS says comes before a mount's own options, which count
/// more.
pub fn siftfs(args: &[&str]) -> Ran {
    let mut command = Command::new(SIFTFS);
    let mut all: Vec<String> = args.iter().map(ToString::to_string).collect();
    if args.first() != Some(&"mount") {
        serving::make_way(args);
    } else if serving::everywhere() {
        match serving::instead(args) {
            Ok(instead) => all = instead,
            Err(ran) => return ran,
        }
    }
    match (args, std::env::var("SIFTFS_TEST_OPTIONS")) {
        (["mount", rest @ ..], Ok(options)) => {
            command.args(["mount", "-o", &beside(&options, rest)]).args(&all[1..]);
        }
        _ => drop(command.args(all)),
    }
    for _ in 0..100 {
        let ran = Ran::from(command.output().unwrap());
        // Another test has them switched off for the moment in which it mounts.
        if !ran.err.contains("rings are switched off in the kernel") {
            return ran;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    command.output().unwrap().into()
}

/// Where cargo has put the libraries for C: beside this test program, or above it.
pub fn libraries() -> PathBuf {
    let own = std::env::current_exe().expect("this program has a path");
    let dirs = own.ancestors().skip(1).take(2);
    let found = dirs.into_iter().find(|dir| dir.join("libsiftfs_capi.so").exists());
    found.expect("the shared library is built with this test").to_path_buf()
}

/// The library of `siftfs accel`.
pub fn library() -> PathBuf {
    libraries().join("libsiftfs_preload.so")
}

/// The program and the library as they are installed: cargo puts a library where it is installed
/// from only if it is built for itself.
pub static INSTALLED: LazyLock<PathBuf> = LazyLock::new(|| {
    let dir = libraries().join("siftfs-installed");
    let [program, library_at] =
        ["bin/siftfs", "lib/libsiftfs_preload.so"].map(|name| dir.join(name));
    for (from, to) in [(Path::new(SIFTFS), &program), (&library(), &library_at)] {
        fs::create_dir_all(to.parent().expect("a directory")).expect("it is made");
        let new = to.with_extension("new");
        let _ = fs::remove_file(&new);
        fs::hard_link(from, &new).expect("a link");
        fs::rename(&new, to).expect("it is put there");
    }
    program
});

pub fn run(program: &str, args: &[&str]) -> Ran {
    serving::make_way(args);
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    Command::new(program).args(args).env("PATH", path).output().unwrap().into()
}
