//! What a daemon inherits of the program that starts it: limits of setrlimit(2), and the memory
//! control group.

use crate::rings;
use crate::support::{Connection, Ran, SIFTFS, Setup, run, siftfs};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// May this process lift limits, and be an IO flusher?
fn has_sys_resource() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(line.trim(), 16).unwrap() >> 24 & 1 == 1
}

/// `siftfs` with these limits, as prlimit(1) has them.
fn limited(limits: &[&str], args: &[&str]) -> Ran {
    run("prlimit", &[limits, &[SIFTFS], args].concat())
}

/// The same by a root that may not lift limits.
fn bound(limits: &[&str], args: &[&str]) -> Ran {
    let without = ["--bounding-set=-sys_resource", "prlimit"];
    run("setpriv", &[&without[..], limits, &[SIFTFS], args].concat())
}

/// Soft and hard limit of a process.
fn limits_of(pid: rustix::process::Pid, name: &str) -> (String, String) {
    let text = fs::read_to_string(format!("/proc/{}/limits", pid.as_raw_nonzero())).unwrap();
    let line = text.lines().find_map(|l| l.strip_prefix(name)).unwrap();
    let mut words = line.split_whitespace().map(str::to_string);
    (words.next().unwrap(), words.next().unwrap())
}

#[test]
fn limits_of_a_job_do_not_bind_the_daemon() {
    let limits = [
        "--fsize=2097152:unlimited",
        "--as=300000000:unlimited",
        "--data=300000000:unlimited",
        "--cpu=3:unlimited",
        "--stack=1048576:unlimited",
        "--nofile=30:5000",
        "--core=4096:8192",
    ];
    let s = Setup::empty();
    limited(&limits, &["mkfs", s.volume(), "--size", "128M"]).ok();
    limited(&limits, &["mount", s.volume(), s.dir()]).ok();
    let daemon = s.daemon();
    for name in ["Max file size", "Max address space", "Max data size", "Max cpu time"] {
        assert_eq!(limits_of(daemon.pid, name).0, "unlimited", "{name}");
    }
    assert_eq!(limits_of(daemon.pid, "Max open files").0, "4096");
    assert_eq!(limits_of(daemon.pid, "Max stack size").0, "8388608");
    let core = ("4096".to_string(), "8192".to_string());
    assert_eq!(limits_of(daemon.pid, "Max core file size"), core);
    let file = fs::File::create(s.path("f")).unwrap();
    file.write_all_at(&vec![7; 20 << 20], 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    s.umount();
    s.assert_plain_ext4();
}

/// Hard limits: with the right they are lifted, without it the commands name the one that is in
/// their way, before they begin; none is killed, and the volume stays as it was.
#[test]
fn limits_that_cannot_be_lifted_are_named() {
    let s = Setup::new();
    let size = ["--fsize=2097152"];
    for args in [
        &["mount", s.volume(), s.dir()][..],
        &["mount", s.volume(), s.dir(), "--foreground"],
        &["recover", s.volume()],
        &["release", s.volume()],
        &["device", s.volume(), "--listen", "unix:/nonexistent/socket"],
    ] {
        let refused = bound(&size, args);
        refused.fails(
            if args[0] == "recover" { 8 } else { 1 },
            &["RLIMIT_FSIZE", "ulimit -f", "2097152"],
        );
    }
    let new = s.tmp.path().join("new");
    let refused = bound(&size, &["mkfs", new.to_str().unwrap(), "--size", "64M"]);
    refused.fails(1, &["File too large", "RLIMIT_FSIZE"]);
    bound(&["--as=400000000"], &["mount", s.volume(), s.dir()]).fails(1, &["RLIMIT_AS", "cache="]);
    bound(&["--nofile=7"], &["mount", s.volume(), s.dir()]).fails(1, &["RLIMIT_NOFILE"]);
    s.assert_plain_ext4();
    let mounted = limited(&size, &["mount", s.volume(), s.dir()]);
    if has_sys_resource() {
        mounted.ok();
        s.umount();
    } else {
        mounted.fails(1, &["RLIMIT_FSIZE"]);
    }
    bound(&["--cpu=1000"], &["mount", s.volume(), s.dir()]).ok();
    s.umount();
    s.assert_plain_ext4();
}

/// A memory control group with a limit, below the uppermost one.
struct Group {
    path: PathBuf,
    legacy: bool,
}

impl Group {
    fn new(name: &str, limit: u64) -> Self {
        let table = fs::read_to_string("/proc/mounts").unwrap();
        let find = |legacy: bool| {
            table.lines().find_map(|line| {
                let mut words = line.split(' ').skip(1);
                let (at, kind, options) = (words.next()?, words.next()?, words.next()?);
                let top = Path::new(at);
                let has = match legacy {
                    true => kind == "cgroup" && options.split(',').any(|o| o == "memory"),
                    false => kind == "cgroup2" && top.join("memory.stat").exists(),
                };
                has.then(|| top.to_path_buf())
            })
        };
        let (top, legacy) = match find(true) {
            Some(top) => (top, true),
            None => (find(false).expect("a cgroup file system with memory"), false),
        };
        if !legacy {
            fs::write(top.join("cgroup.subtree_control"), "+memory").unwrap();
        }
        let path = top.join(format!("siftfs-test-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        let file = if legacy { "memory.limit_in_bytes" } else { "memory.max" };
        fs::write(path.join(file), limit.to_string()).unwrap();
        Self { path, legacy }
    }

    /// Runs `program` in it.
    fn command(&self, program: &str, args: &[&str]) -> Command {
        let enter = format!("echo $$ >{}/cgroup.procs; exec \"$@\"", self.path.display());
        let mut command = Command::new("sh");
        command.args(["-c", &enter, "sh", program]).args(args);
        command
    }

    fn run(&self, program: &str, args: &[&str]) -> Ran {
        self.command(program, args).output().unwrap().into()
    }

    fn has(&self, pid: rustix::process::Pid) -> bool {
        let all = fs::read_to_string(self.path.join("cgroup.procs")).unwrap();
        all.lines().any(|line| line == pid.as_raw_nonzero().to_string())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its last process may be ending.
        for _ in 0..100 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Stores into each page of a new file through a mapping, and has them written.
const DIRTY: &str = "
import mmap, sys
size = int(sys.argv[2]) << 20
with open(sys.argv[1], 'w+b') as f:
    f.truncate(size)
    with mmap.mmap(f.fileno(), size) as m:
        for at in range(0, size, 4096):
            m[at] = 1
        m.flush()
";

/// Waits for a job that a defect lets wait for ever. The caller has a [`Connection`], whose end
/// ends the job.
#[track_caller]
fn wait_bounded(job: &mut Child) {
    let start = Instant::now();
    while job.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < Duration::from_secs(180), "the job waits for the daemon");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(job.wait().unwrap().success());
}

/// Daemon and job are started in one group, which the job dirties full, again and again.
#[test]
fn a_job_that_fills_its_memory_group_with_dirty_pages() {
    for (requests, on) in [("device", false), ("auto", true)] {
        let s = Setup::of_size("1G");
        let group = Group::new(requests, 192 << 20);
        let options = format!("requests={requests}");
        let mount = ["mount", s.volume(), s.dir(), "-o", &options];
        rings::offering(on, || group.run(SIFTFS, &mount)).ok();
        let connection = Connection::of(s.dir());
        let (daemon, path) = (s.daemon(), s.path("f"));
        for _ in 0..2 {
            let args = ["-c", DIRTY, path.to_str().unwrap(), "300"];
            wait_bounded(&mut group.command("python3", &args).spawn().unwrap());
        }
        drop(connection);
        // Version 2 lets no process wait so, and supervisors find theirs by the group.
        assert_eq!(group.has(daemon.pid), !group.legacy);
        let pid = daemon.pid.as_raw_nonzero();
        let stats = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        for task in stats.map(|task| task.unwrap().path()) {
            // PF_MEMALLOC_NOIO, which an IO flusher has.
            let stat = fs::read_to_string(task.join("stat")).unwrap();
            let flags = stat.rsplit(") ").next().unwrap().split(' ').nth(6).unwrap();
            let flags: u64 = flags.parse().unwrap();
            assert_eq!(flags & 0x80000 != 0, has_sys_resource(), "{stat}");
        }
        s.umount();
        daemon.wait();
        let own = group.path.with_file_name(format!("siftfs-mount-{pid}"));
        assert!(!own.exists(), "{own:?} is left");
        s.assert_plain_ext4();
    }
}

/// A daemon that must stay, and may not be an IO flusher: that is said when it is mounted, and by
/// `status`. One that is let go is in a group of its own.
#[test]
fn a_daemon_that_could_wait_for_its_own_mount_says_so() {
    let s = Setup::new();
    let group = Group::new("stay", 256 << 20);
    let mount = |how: &str| {
        let options = format!("memory_group={how}");
        let args =
            ["--bounding-set=-sys_resource", SIFTFS, "mount", s.volume(), s.dir(), "-o", &options];
        let ran = group.run("setpriv", &args).ok();
        let status = siftfs(&["status", s.dir()]).ok().out;
        (ran.err, status.contains("warning"))
    };
    let (told, warned) = mount("stay");
    assert_eq!(told.contains("a memory control group of 256.0 MiB"), group.legacy, "{told}");
    assert_eq!(warned, group.legacy);
    assert!(group.has(s.daemon().pid));
    s.umount();
    assert_eq!(mount("own"), (String::new(), false));
    assert!(!group.has(s.daemon().pid));
    s.umount();
    s.assert_plain_ext4();
}
