//! The same program on a SiftFS mount and on the kernel's ext4, and what each said.

use crate::support::keys::Keys;
use crate::support::served::Served;
use crate::support::{Setup, patient, run, siftfs, writes_back};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat, statat};
use rustix::io::Errno;
use rustix::process::Signal;
use rustix::thread::{Gid, Uid, UnshareFlags};
use std::cell::Cell;
use std::fmt::{Debug, Write as _};
use std::os::fd::{IntoRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Where a program runs, and the transcript of what it saw.
pub struct Place {
    root: PathBuf,
    held_back: bool,
    log: Vec<String>,
    stale: Vec<String>,
    lost: bool,
}

impl Place {
    /// The path of a name below the root.
    pub fn p(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Is this SiftFS with the kernel's writeback cache? There write(2) asks no daemon, and sizes
    /// and times are the kernel's: what it does with them no server can change.
    pub fn held_back(&self) -> bool {
        self.held_back
    }

    /// A file's mtime as it is kept: the writeback cache shows it as it was set, and ext4 at once
    /// the nearest that the format has.
    pub fn mtime(&self, s: &Stat) -> (i64, u64) {
        let file = s.st_mode & libc::S_IFMT == libc::S_IFREG;
        let shown = (s.st_mtime, nanoseconds(s.st_mtime_nsec));
        if self.held_back && file { nearest(shown) } else { shown }
    }

    /// Pages were lost, and fsync(2) has said so. The first syncfs(2) of the mount says it again.
    pub fn pages_are_lost(&mut self) {
        self.lost = true;
    }

    /// Of this file the server has moved the ctime, which the writeback cache does not show.
    pub fn ctime_is_stale(&mut self, name: &str) {
        if self.held_back {
            self.stale.push(format!("{name:?}"));
        }
    }

    /// Notes something that both file systems must agree on.
    pub fn say(&mut self, what: impl Into<String>) {
        self.log.push(what.into());
    }

    /// Notes whether a call succeeded, or its error.
    pub fn r<T>(&mut self, what: &str, result: rustix::io::Result<T>) -> Option<T> {
        match result {
            Ok(v) => {
                self.say(format!("{what}: ok"));
                Some(v)
            }
            Err(e) => {
                self.say(format!("{what}: {}", errno_name(e)));
                None
            }
        }
    }

    /// Notes a call's value or error.
    pub fn v<T: Debug>(&mut self, what: &str, result: rustix::io::Result<T>) {
        match result {
            Ok(v) => self.say(format!("{what}: {v:?}")),
            Err(e) => self.say(format!("{what}: {}", errno_name(e))),
        }
    }

    /// Opens, with mode 0644 if it creates.
    pub fn open(&mut self, name: &str, flags: OFlags) -> Option<OwnedFd> {
        let result = open(&self.p(name), flags, 0o644);
        self.r(&format!("open {name} {flags:?}"), result)
    }

    /// A regular file with this content.
    pub fn file(&mut self, name: &str, content: &[u8]) {
        let result = std::fs::write(self.p(name), content);
        self.say(format!("write {name}: {:?}", result.map_err(|e| e.kind())));
    }

    /// A directory.
    pub fn dir(&mut self, name: &str) {
        self.dir_mode(name, 0o755);
    }

    /// A directory with a mode.
    pub fn dir_mode(&mut self, name: &str, mode: u32) {
        let result = rustix::fs::mkdir(self.p(name), Mode::from_raw_mode(mode));
        self.r(&format!("mkdir {name} {mode:o}"), result);
    }

    /// Notes a file's attributes, times left out; a directory's size is its own affair.
    pub fn stat(&mut self, name: &str) {
        let result = statat(CWD, self.p(name), AtFlags::SYMLINK_NOFOLLOW).map(|s| attributes(&s));
        self.v(&format!("stat {name}"), result);
    }

    /// Notes an open file's attributes.
    pub fn fstat(&mut self, what: &str, fd: &OwnedFd) {
        self.v(&format!("fstat {what}"), rustix::fs::fstat(fd).map(|s| attributes(&s)));
    }

    /// Notes a file's size and a hash of its content.
    pub fn content(&mut self, name: &str) {
        let result = std::fs::read(self.p(name)).map(|b| (b.len(), hash(&b)));
        self.say(format!("read {name}: {:?}", result.map_err(|e| e.raw_os_error())));
    }
}

/// The nanoseconds of a time of stat(2). Their type depends on who makes rustix's system calls.
pub fn nanoseconds(n: impl TryInto<u64>) -> u64 {
    n.try_into().unwrap_or(u64::MAX)
}

/// The nearest time that ext4 can keep.
fn nearest((sec, nsec): (i64, u64)) -> (i64, u64) {
    const FIRST: i64 = i32::MIN as i64;
    const LAST: i64 = 15_032_385_535;
    if (FIRST + 1..LAST).contains(&sec) { (sec, nsec) } else { (sec.clamp(FIRST, LAST), 0) }
}

/// close(2), which under the writeback cache says whether all was written.
#[allow(unsafe_code)]
pub fn close(fd: impl Into<OwnedFd>) -> rustix::io::Result<()> {
    let fd = fd.into().into_raw_fd();
    // SAFETY: the descriptor was owned, and is not used any more.
    match unsafe { libc::close(fd) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).expect("of the system")),
    }
}

/// Everything about a file that both must agree on.
pub fn attributes(s: &Stat) -> String {
    let dir = s.st_mode & libc::S_IFMT == libc::S_IFDIR;
    let size = if dir { -1 } else { s.st_size };
    let (uid, gid, rdev) = (s.st_uid, s.st_gid, s.st_rdev);
    format!("{:o} links {} owner {uid}:{gid} size {size} rdev {rdev:x}", s.st_mode, s.st_nlink)
}

/// FNV-1a.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
}

/// Opens a path.
pub fn open(path: &Path, flags: OFlags, mode: u32) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::from_raw_mode(mode))
}

fn errno_name(e: Errno) -> String {
    format!("error {} ({e})", e.raw_os_error())
}

/// Runs `f` on a thread with its own umask and working directory, as this user.
pub fn as_user<R: Send>(uid: u32, groups: &[u32], f: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let body = || {
            own_fs();
            let groups: Vec<Gid> = groups.iter().map(|g| Gid::from_raw(*g)).collect();
            rustix::thread::set_thread_groups(&groups).unwrap();
            let first = *groups.first().expect("a first group");
            rustix::thread::set_thread_res_gid(first, first, first).unwrap();
            let uid = Uid::from_raw(uid);
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            f()
        };
        scope.spawn(body).join().unwrap()
    })
}

/// This thread's umask and working directory become its own; the umask is 022.
#[allow(unsafe_code)]
fn own_fs() {
    // SAFETY: only the working directory, root and umask stop being shared; no other thread
    // relies on this one's.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }.unwrap();
    rustix::process::umask(Mode::from_raw_mode(0o022));
}

/// Runs `program` on both file systems and compares the transcripts. All of it must survive
/// `siftfs sync` and a killed daemon, and in the end the volume must be plain ext4 that the
/// kernel reads as the mount showed it.
#[track_caller]
pub fn same(program: impl Fn(&mut Place) + Sync) {
    same_with("commit=1", program);
}

thread_local! {
    static MORE: Cell<&str> = const { Cell::new("") };
    static CHECKED: Cell<bool> = const { Cell::new(false) };
}

/// Runs a test that is a call of [`same`] under the kernel's writeback cache.
pub fn written_back(test: fn()) {
    MORE.set(",write_cache=writeback");
    test();
}

/// Runs a test that is a call of [`same`] on a mount that other mounts may be beside: what appends
/// goes past the kernel's cache.
pub fn shared(test: fn()) {
    MORE.set(",write_cache=writethrough,shared");
    test();
}

/// Runs a test that is a call of [`same`] on a mount over TCP whose server checks what each caller
/// may do, and which shows a directory of the volume.
pub fn checked(test: fn()) {
    CHECKED.set(true);
    test();
}

/// Is every test to run so?
fn checks() -> bool {
    CHECKED.get() || std::env::var("SIFTFS_TEST_REMOTE").is_ok_and(|how| how == "checked")
}

/// What [`checked`] compares: the transcripts, and the directory in the volume in the end.
#[track_caller]
fn same_checked(size: &str, expected: &[String], program: &(impl Fn(&mut Place) + Sync)) {
    let setup = Setup::empty();
    open_up(setup.tmp.path());
    siftfs(&["mkfs", setup.volume(), "--size", size]).ok();
    siftfs(&["mount", setup.volume(), setup.dir()]).ok();
    std::fs::create_dir(setup.path("part")).unwrap();
    open_up(&setup.path("part"));
    setup.umount();
    let keys = Keys::new(setup.tmp.path(), "role=client squash=none subtree=/part");
    let admits = keys.admits();
    let more: Vec<&str> = admits.iter().map(String::as_str).collect();
    let server = Served::at(&setup, "tcp:127.0.0.1:0", &more);
    siftfs(&["mount", &server.address, setup.dir(), "-o", &keys.option()]).ok();
    let got = transcript(Path::new(setup.dir()), false, program);
    compare(expected, &got.log);
    let before = tree(Path::new(setup.dir()));
    setup.umount();
    assert!(server.end(Signal::TERM).success());
    setup.assert_plain_ext4();
    let kernel = Ext4::mount(Path::new(setup.volume()), "loop,ro");
    compare(&tree(&kernel.dir.join("part")), &before);
}

/// As [`same`], with these mount options.
#[track_caller]
pub fn same_with(options: &str, program: impl Fn(&mut Place) + Sync) {
    let options = &format!("{options}{}", MORE.get());
    let size = "96M";
    let reference = Ext4::make(size);
    let expected = transcript(&reference.dir, false, &program).log;
    if checks() {
        return same_checked(size, &expected, &program);
    }
    let setup = Setup::empty();
    open_up(setup.tmp.path());
    siftfs(&["mkfs", setup.volume(), "--size", size]).ok();
    setup.mount(options);
    let got = transcript(Path::new(setup.dir()), writes_back(options), &program);
    compare(&expected, &got.log);
    let before = tree_in(Path::new(setup.dir()), got.held_back);
    if got.lost {
        siftfs(&["sync", setup.dir()]).fails(1, &["File too large"]);
    }
    siftfs(&["sync", setup.dir()]).ok();
    let daemon = setup.daemon();
    daemon.signal(Signal::KILL);
    daemon.wait();
    setup.mount(options);
    let after = tree(Path::new(setup.dir()));
    let before = with_kept_ctimes(before, &after, &got.stale);
    compare(&before, &after);
    setup.umount();
    setup.assert_plain_ext4();
    let kernel = Ext4::mount(Path::new(setup.volume()), "loop,ro");
    compare(&tree(&kernel.dir), &before);
}

fn open_up(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

/// What the mount showed, with the ctime that was kept for files whose ctime it did not show.
fn with_kept_ctimes(before: Vec<String>, after: &[String], stale: &[String]) -> Vec<String> {
    fn ctime(line: &str) -> &str {
        line.split_once(" ctime ").and_then(|(_, rest)| rest.split(' ').next()).expect("a ctime")
    }
    let kept = |line: String| {
        let name = stale.iter().find(|name| line.starts_with(&format!("{name} ")));
        let Some(name) = name else { return line };
        let now = after.iter().find(|l| l.starts_with(&format!("{name} "))).expect("still there");
        assert!(ctime(now) >= ctime(&line), "{line}\n{now}");
        line.replace(&format!(" ctime {}", ctime(&line)), &format!(" ctime {}", ctime(now)))
    };
    before.into_iter().map(kept).collect()
}

fn transcript(root: &Path, held_back: bool, program: &(impl Fn(&mut Place) + Sync)) -> Place {
    std::thread::scope(|scope| {
        let body = || {
            own_fs();
            let root = root.to_path_buf();
            let mut place =
                Place { root, held_back, log: Vec::new(), stale: Vec::new(), lost: false };
            program(&mut place);
            place
        };
        scope.spawn(body).join().unwrap()
    })
}

/// What two file systems, or one at two times, showed is the same.
#[track_caller]
pub fn compare(expected: &[String], got: &[String]) {
    let mut report = String::new();
    for (i, (e, g)) in expected.iter().zip(got).enumerate() {
        if e != g {
            writeln!(report, "{i}: ext4:   {e}\n{i}: siftfs: {g}").unwrap();
        }
    }
    if expected.len() != got.len() {
        writeln!(report, "{} lines on ext4, {} on siftfs", expected.len(), got.len()).unwrap();
        for (who, list) in [("ext4", expected), ("siftfs", got)] {
            let other = if who == "ext4" { got } else { expected };
            for line in list.iter().filter(|l| !other.contains(l)) {
                writeln!(report, "only {who}: {line}").unwrap();
            }
        }
    }
    assert!(report.is_empty(), "the two differ:\n{report}");
}

/// Every file below `root`: attributes, content, target, extended attributes, mtime.
pub fn tree(root: &Path) -> Vec<String> {
    tree_in(root, false)
}

/// As [`tree`], with mtimes as they are kept where the writeback cache shows others.
fn tree_in(root: &Path, held_back: bool) -> Vec<String> {
    let mut out = Vec::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(dir) = todo.pop() {
        let mut names: Vec<PathBuf> =
            std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path()).collect();
        names.sort();
        for path in names {
            if path.file_name().unwrap() == "lost+found" {
                continue;
            }
            out.push(describe(root, &path, held_back));
            if path.symlink_metadata().unwrap().is_dir() {
                todo.push(path);
            }
        }
    }
    out
}

fn describe(root: &Path, path: &Path, held_back: bool) -> String {
    let stat = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    let mut out = format!("{:?} {}", path.strip_prefix(root).unwrap(), attributes(&stat));
    let shown = (stat.st_mtime, nanoseconds(stat.st_mtime_nsec));
    let (sec, nsec) = if held_back { nearest(shown) } else { shown };
    write!(out, " mtime {sec}.{nsec:09}").unwrap();
    write!(out, " ctime {}.{:09}", stat.st_ctime, stat.st_ctime_nsec).unwrap();
    match stat.st_mode & libc::S_IFMT {
        // Sparse giants are compared by the tests that make them.
        libc::S_IFREG if stat.st_size < 64 << 20 => {
            write!(out, " content {:x}", hash(&std::fs::read(path).unwrap())).unwrap();
        }
        libc::S_IFLNK => write!(out, " to {:?}", std::fs::read_link(path).unwrap()).unwrap(),
        _ => {}
    }
    for (name, value) in xattrs(path) {
        write!(out, " {name}={value:x}").unwrap();
    }
    out
}

/// Extended attributes with a hash of each value, sorted.
pub fn xattrs(path: &Path) -> Vec<(String, u64)> {
    let mut buf = vec![0u8; 1 << 16];
    let len = rustix::fs::llistxattr(path, &mut buf[..]).unwrap_or(0);
    let mut out = Vec::new();
    for name in buf[..len].split(|b| *b == 0).filter(|n| !n.is_empty()) {
        let name = String::from_utf8_lossy(name).into_owned();
        let mut value = vec![0u8; 1 << 16];
        let n = rustix::fs::lgetxattr(path, name.as_str(), &mut value[..]).unwrap();
        out.push((name, hash(&value[..n])));
    }
    out.sort();
    out
}

/// The kernel's ext4 on a loop device.
pub struct Ext4 {
    _tmp: tempfile::TempDir,
    pub dir: PathBuf,
}

impl Ext4 {
    /// A new file system with the features that volumes have.
    pub fn make(size: &str) -> Self {
        let tmp = tempfile::tempdir().unwrap();
        let image = tmp.path().join("image");
        let features = "none,filetype,ext_attr,dir_index,extent,64bit,flex_bg,sparse_super,\
                        large_file,huge_file,dir_nlink,extra_isize,metadata_csum";
        let args = ["-q", "-b", "4096", "-I", "256", "-i", "16384", "-O", features];
        let mke2fs = run("mke2fs", &[&args[..], &[image.to_str().unwrap(), size]].concat());
        assert_eq!(mke2fs.code, 0, "{mke2fs:?}");
        Self::mount_in(tmp, &image, "loop")
    }

    /// Mounts an existing one.
    pub fn mount(image: &Path, options: &str) -> Self {
        Self::mount_in(tempfile::tempdir().unwrap(), image, options)
    }

    fn mount_in(tmp: tempfile::TempDir, image: &Path, options: &str) -> Self {
        open_up(tmp.path());
        let dir = tmp.path().join("m");
        std::fs::create_dir(&dir).unwrap();
        let args = ["-t", "ext4", "-o", options, image.to_str().unwrap(), dir.to_str().unwrap()];
        let mount = run("mount", &args);
        assert_eq!(mount.code, 0, "{mount:?}");
        Self { _tmp: tmp, dir }
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        patient(|| run("umount", &[self.dir.to_str().unwrap()]));
    }
}
