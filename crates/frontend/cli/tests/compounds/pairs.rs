//! Each step of a compound beside the system call that it stands for, and publish beside rename and
//! link: the same callers, the same names, the same errno, and the same tree afterwards. What is
//! asked for comes from a seed; `SIFTFS_SEED` names the first one.

use crate::calls::File;
use crate::refused::refusal;
use crate::support::caches;
use crate::{mounted, root};
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid, chmodat, chownat,
    linkat, renameat_with, unlinkat, utimensat,
};
use rustix::io::{Errno, pwrite};
use rustix::thread::{CapabilitySet, CapabilitySets, UnshareFlags};
use siftfs_base::Timestamp;
use siftfs_client::{Access, Compound, Entry, Level, NewAttributes, Publish, Source, publish};
use siftfs_proto::SetTime;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A small generator.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.roll(of.len())]
    }

    fn dir(&mut self) -> &'static str {
        self.pick(&[
            "", "", "", "open/", "own/", "sticky/", "shared/", "common/", "closed/", "none/",
        ])
    }

    /// A file's path, or that of no file.
    fn path(&mut self) -> String {
        let slash = self.pick(&["", "", "", "", "", "", "", "/"]);
        format!("{}{}{slash}", self.dir(), self.pick(&["a", "b", "c", "d", "link"]))
    }

    /// A path that may be a directory's, too.
    fn target(&mut self) -> String {
        if self.roll(12) == 0 { format!("{}sub", self.dir()) } else { self.path() }
    }
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
enum Who {
    Root,
    /// Root's id without a right of root's.
    Powerless,
    /// The owner of most files.
    Owner,
    /// In the owner's group.
    Member,
    Stranger,
}

const ALL: [Who; 6] =
    [Who::Root, Who::Powerless, Who::Owner, Who::Owner, Who::Member, Who::Stranger];
const OWNER: u32 = 1000;

impl Who {
    fn ids(self) -> (u32, Vec<u32>) {
        match self {
            Self::Root | Self::Powerless => (0, vec![0]),
            Self::Owner => (OWNER, vec![OWNER, 1500]),
            Self::Member => (1001, vec![1001, OWNER]),
            Self::Stranger => (1002, vec![1002]),
        }
    }

    /// Runs `f` on a thread that is this caller.
    fn does<R: Send>(self, f: impl FnOnce() -> R + Send) -> R {
        let body = move || {
            // SAFETY: only place and umask stop being shared; nobody relies on this thread's.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }.unwrap();
            rustix::process::umask(Mode::from_raw_mode(0o022));
            let (uid, groups) = self.ids();
            let ids: Vec<Gid> = groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
            rustix::thread::set_thread_groups(&ids).unwrap();
            rustix::thread::set_thread_res_gid(ids[0], ids[0], ids[0]).unwrap();
            let uid = Uid::from_raw(uid);
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            if matches!(self, Self::Powerless) {
                let none = CapabilitySet::empty();
                let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
                rustix::thread::set_capabilities(None, sets).unwrap();
            }
            f()
        };
        std::thread::scope(|scope| scope.spawn(body).join().unwrap())
    }
}

/// What is asked for.
#[derive(Clone, Debug)]
enum Ask {
    Create(String, u16),
    Open(String, Access, bool),
    Write(String, u64),
    SetSize(String, u64),
    /// truncate(2), which looks the file up.
    SetSizeOf(String, u64),
    Rename(String, String, bool),
    Link(String, String),
    Unlink(String),
    Chmod(String, u16),
    Chown(String, Option<u32>, Option<u32>),
    /// The times are set to now, or to others.
    Times(String, bool),
    /// Publish, of one path.
    Move(String, String, bool),
    /// A name for a descriptor that was opened by root, and passed on.
    Name(String),
}

impl Ask {
    fn any(dice: &mut Dice) -> Self {
        let perm =
            |dice: &mut Dice| dice.pick(&[0o644, 0o600, 0o666, 0o4755, 0o2755, 0o2664, 0o444]);
        let id = |dice: &mut Dice| dice.pick(&[None, Some(0), Some(OWNER), Some(1001), Some(1500)]);
        match dice.roll(18) {
            0 | 1 => Self::Create(dice.target(), perm(dice)),
            2 => {
                let access = dice.pick(&[Access::Read, Access::Write, Access::Both]);
                Self::Open(dice.path(), access, access == Access::Write && dice.roll(2) == 0)
            }
            3 | 4 => Self::Write(dice.path(), dice.pick(&[0, 3, 5000])),
            5 => Self::SetSize(dice.path(), dice.pick(&[0, 2, 9000])),
            6 => Self::SetSizeOf(dice.path(), dice.pick(&[0, 2, 9000])),
            7 | 8 => Self::Rename(dice.path(), dice.target(), dice.roll(3) > 0),
            9 | 10 => Self::Link(dice.path(), dice.target()),
            11 => Self::Unlink(dice.target()),
            12 => Self::Chmod(dice.path(), perm(dice)),
            13 => Self::Chown(dice.path(), id(dice), id(dice)),
            14 => Self::Times(dice.path(), dice.roll(2) == 0),
            15 => Self::Move(dice.path(), dice.target(), dice.roll(3) > 0),
            _ => Self::Name(dice.path()),
        }
    }
}

fn number(result: rustix::io::Result<()>) -> i32 {
    result.err().map_or(0, Errno::raw_os_error)
}

/// The system call, in the directory `at`.
fn call(at: &Path, ask: &Ask, passed: Option<&OwnedFd>) -> i32 {
    let p = |path: &String| format!("{}/{path}", at.display());
    let open = |path: &String, flags: OFlags, mode: u16| {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::open(p(path), flags, Mode::from_raw_mode(mode.into()))
    };
    let nofollow = AtFlags::SYMLINK_NOFOLLOW;
    let result = match ask {
        Ask::Create(path, perm) => {
            open(path, OFlags::CREATE | OFlags::EXCL | OFlags::RDWR, *perm).map(drop)
        }
        Ask::Open(path, access, truncate) => {
            let flags = match access {
                Access::Read => OFlags::RDONLY,
                Access::Write => OFlags::WRONLY,
                Access::Both => OFlags::RDWR,
            };
            let truncate = if *truncate { OFlags::TRUNC } else { OFlags::empty() };
            open(path, flags | truncate, 0).map(drop)
        }
        Ask::Write(path, offset) => open(path, OFlags::WRONLY, 0)
            .and_then(|file| pwrite(file, b"written", *offset))
            .map(drop),
        Ask::SetSize(path, size) => {
            open(path, OFlags::WRONLY, 0).and_then(|file| rustix::fs::ftruncate(file, *size))
        }
        Ask::SetSizeOf(path, size) => truncate(&p(path), *size),
        Ask::Rename(from, to, replace) | Ask::Move(from, to, replace) => {
            let flags = if *replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
            renameat_with(CWD, p(from), CWD, p(to), flags)
        }
        Ask::Link(from, to) => linkat(CWD, p(from), CWD, p(to), AtFlags::empty()),
        Ask::Unlink(path) => unlinkat(CWD, p(path), AtFlags::empty()),
        Ask::Chmod(path, perm) => {
            chmodat(CWD, p(path), Mode::from_raw_mode((*perm).into()), AtFlags::empty())
        }
        Ask::Chown(path, uid, gid) => {
            let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
            chownat(CWD, p(path), uid, gid, nofollow)
        }
        Ask::Times(path, now) => {
            let nsec = if *now { rustix::fs::UTIME_NOW } else { 5 };
            let time = Timespec { tv_sec: 7, tv_nsec: nsec };
            let times = Timestamps { last_access: time, last_modification: time };
            utimensat(CWD, p(path), &times, nofollow)
        }
        Ask::Name(to) => {
            let from = format!("/proc/self/fd/{}", passed.unwrap().as_raw_fd());
            linkat(CWD, from, CWD, p(to), AtFlags::SYMLINK_FOLLOW)
        }
    };
    number(result)
}

fn truncate(path: &str, size: u64) -> rustix::io::Result<()> {
    let path = std::ffi::CString::new(path).unwrap();
    // SAFETY: the path ends with NUL and lives as long as the call.
    match unsafe { libc::truncate(path.as_ptr(), size as libc::off_t) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap()),
    }
}

fn compound<'a>(dir: &'a File, steps: impl FnOnce(&mut Compound<'a>)) -> i32 {
    let mut compound = Compound::on(&dir.0);
    steps(&mut compound);
    refusal(compound).1
}

/// The same by an ioctl on the directory.
fn ioctl(dir: &File, ask: &Ask, passed: Option<&OwnedFd>) -> i32 {
    let named = |source: Source, to: &str, replace: bool| {
        let entries = vec![Entry { source, to: to.into(), replace }];
        match publish(dir.0.as_fd(), &Publish { entries, level: Level::Visible }) {
            Ok(()) => 0,
            Err(e) => e.raw_os_error().unwrap(),
        }
    };
    let set = |path: &String, set: NewAttributes| {
        compound(dir, |c| {
            let file = c.lookup(path);
            c.set_attributes(file, set);
        })
    };
    match ask {
        Ask::Create(path, perm) => compound(dir, |c| {
            c.create(path, *perm);
        }),
        Ask::Open(path, _, true) => compound(dir, |c| {
            c.open_truncated(path);
        }),
        Ask::Open(path, access, false) => compound(dir, |c| {
            c.open(path, *access);
        }),
        Ask::Write(path, offset) => compound(dir, |c| {
            let file = c.open(path, Access::Write);
            c.write(file, *offset, b"written");
        }),
        Ask::SetSize(path, size) => compound(dir, |c| {
            let file = c.open(path, Access::Write);
            c.set_len(file, *size);
        }),
        Ask::SetSizeOf(path, size) => compound(dir, |c| {
            let file = c.lookup(path);
            c.set_len(file, *size);
        }),
        Ask::Rename(from, to, true) => compound(dir, |c| {
            c.replace(from, to);
        }),
        Ask::Rename(from, to, false) => compound(dir, |c| {
            c.rename(from, to);
        }),
        Ask::Link(from, to) => compound(dir, |c| {
            let file = c.lookup(from);
            c.link(file, to);
        }),
        Ask::Unlink(path) => compound(dir, |c| {
            c.unlink(path);
        }),
        Ask::Chmod(path, perm) => {
            set(path, NewAttributes { perm: Some(*perm), ..NewAttributes::default() })
        }
        Ask::Chown(path, uid, gid) => {
            set(path, NewAttributes { uid: *uid, gid: *gid, ..NewAttributes::default() })
        }
        Ask::Times(path, now) => {
            let time = Some(match now {
                true => SetTime::Now,
                false => SetTime::At(Timestamp { sec: 7, nsec: 5 }),
            });
            set(path, NewAttributes { atime: time, mtime: time, ..NewAttributes::default() })
        }
        Ask::Move(from, to, replace) => named(Source::Path(from.as_str().into()), to, *replace),
        Ask::Name(to) => {
            let number = u32::try_from(passed.unwrap().as_raw_fd()).unwrap();
            named(Source::Descriptor(number), to, false)
        }
    }
}

/// All below a directory: names, kinds, modes, owners, links, contents.
fn tree(at: &Path, out: &mut Vec<String>, below: &str) {
    let mut names: Vec<_> =
        std::fs::read_dir(at).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    for name in names {
        let path = at.join(&name);
        let m = path.symlink_metadata().unwrap();
        let content = if m.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
        let (mode, uid, gid) = (m.mode(), m.uid(), m.gid());
        let links = if m.is_dir() { 0 } else { m.nlink() };
        let line = format!("{below}{name:?} {mode:o} {uid}:{gid} {links} {}", content.len());
        out.push(format!("{line} {}", String::from_utf8_lossy(&content).trim_end_matches('\0')));
        if m.is_dir() {
            tree(&path, out, &format!("{below}{name:?}/"));
        }
    }
}

fn all_of(at: &Path) -> Vec<String> {
    let mut out = Vec::new();
    tree(at, &mut out, "");
    out
}

/// The directories and some files, the same in both places.
fn fill(at: &Path) {
    std::fs::create_dir(at).unwrap();
    let own = |path: &Path, uid: u32, gid: u32, mode: u32| {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).unwrap();
        chmodat(CWD, path, Mode::from_raw_mode(mode), AtFlags::empty()).unwrap();
    };
    own(at, 0, 0, 0o777);
    let dirs = [
        ("open", 0, 0, 0o777),
        ("own", OWNER, OWNER, 0o755),
        ("sticky", 0, 0, 0o1777),
        ("shared", OWNER, OWNER, 0o2775),
        // Of a group that not all are in who may write there.
        ("common", 0, 1500, 0o2777),
        ("closed", 0, 0, 0o700),
    ];
    let modes = [("a", OWNER, 0o644), ("b", 0, 0o4755), ("c", OWNER, 0o2664)];
    for (dir, uid, gid, mode) in dirs.into_iter().chain([("", 0, 0, 0o777)]) {
        let dir = at.join(dir);
        std::fs::create_dir_all(dir.join("sub")).unwrap();
        for (file, uid, mode) in modes {
            std::fs::write(dir.join(file), format!("{file}'s")).unwrap();
            own(&dir.join(file), uid, uid, mode);
        }
        std::os::unix::fs::symlink("a", dir.join("link")).unwrap();
        own(&dir, uid, gid, mode);
    }
}

/// Not what this is about: symbolic links that a call follows and a step does not, and directories
/// that a call takes and a step does not (the table has both).
fn differs_by_design(at: &Path, ask: &Ask) -> bool {
    let is = |path: &String, kind: fn(&std::fs::Metadata) -> bool| {
        at.join(path.trim_end_matches('/')).symlink_metadata().is_ok_and(|m| kind(&m))
    };
    let link = |path: &String| is(path, std::fs::Metadata::is_symlink);
    match ask {
        // chown(2) of nothing has an answer of its own, which is FUSE's.
        Ask::Chown(_, None, None) => true,
        Ask::Chmod(path, _) | Ask::SetSizeOf(path, _) => link(path),
        Ask::Times(path, _) | Ask::Chown(path, ..) | Ask::Open(path, ..) => {
            path.ends_with('/') && link(path)
        }
        Ask::Write(path, _) | Ask::SetSize(path, _) | Ask::Link(path, _) => {
            path.ends_with('/') && link(path)
        }
        // The names of a publish are distinct.
        Ask::Move(from, to, _) => from.trim_end_matches('/') == to.trim_end_matches('/'),
        _ => false,
    }
}

/// A file without a name, or one with, opened by root in both places; and whether it can get one.
fn passed(dice: &mut Dice, places: [&Path; 2]) -> Option<[OwnedFd; 2]> {
    let name = dice.path().replace('/', "");
    let (unnamed, exclusive) = (dice.roll(2) == 0, dice.roll(3) == 0);
    let (uid, mode) = (dice.pick(&[0, OWNER]), dice.pick(&[0o600, 0o666, 0o4666, 0o2676]));
    let one = |at: &Path| {
        if !unnamed {
            let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            return rustix::fs::open(at.join(&name), flags, Mode::empty()).ok();
        }
        let more = if exclusive { OFlags::EXCL } else { OFlags::empty() };
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC | more;
        let file = rustix::fs::open(at, flags, Mode::from_raw_mode(0o600)).unwrap();
        rustix::fs::fchown(&file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(uid))).unwrap();
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode)).unwrap();
        Some(file)
    };
    Some([one(places[0])?, one(places[1])?])
}

#[track_caller]
fn same(ours: &[String], theirs: &[String], what: &str) {
    let only = |some: &[String], others: &[String]| -> Vec<String> {
        some.iter().filter(|line| !others.contains(line)).cloned().collect()
    };
    let (ours, theirs) = (only(ours, theirs), only(theirs, ours));
    assert!(ours.is_empty() && theirs.is_empty(), "{what}: {ours:?}, not {theirs:?}");
}

#[test]
fn steps_and_their_calls() {
    let long = std::env::var_os("SIFTFS_LONG").is_some();
    let first = std::env::var("SIFTFS_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    for seed in first..first + if long { 50 } else { 2 } {
        println!("seed {seed}");
        let cache = caches().cycle().nth(seed as usize % 2).unwrap();
        let s = mounted(cache);
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(s.tmp.path(), open).unwrap();
        let (calls, ioctls) = (s.path("calls"), s.path("ioctls"));
        fill(&calls);
        fill(&ioctls);
        let mut dice = Dice(seed);
        let (mut refused, mut done) = (0, 0);
        for step in 0..if long { 2000 } else { 500 } {
            let (who, ask) = (dice.pick(&ALL), Ask::any(&mut dice));
            let files = match ask {
                Ask::Name(_) => passed(&mut dice, [&calls, &ioctls]),
                _ => None,
            };
            let lacks = matches!(ask, Ask::Name(_)) && files.is_none();
            if lacks || differs_by_design(&calls, &ask) {
                continue;
            }
            let dir = File::open(&ioctls, OFlags::RDONLY | OFlags::DIRECTORY);
            let [theirs, ours] = match &files {
                Some([a, b]) => [Some(a), Some(b)],
                None => [None, None],
            };
            let by_call = who.does(|| call(&calls, &ask, theirs));
            let by_ioctl = who.does(|| ioctl(&dir, &ask, ours));
            assert_eq!(by_ioctl, by_call, "seed {seed}, {step}: {who:?} {ask:?}, {cache}");
            *(if by_call == 0 { &mut done } else { &mut refused }) += 1;
            let (theirs, ours) = (all_of(&calls), all_of(&ioctls));
            same(&ours, &theirs, &format!("seed {seed}, {step}: {who:?} {ask:?}, {cache}"));
        }
        println!("{done} done, {refused} refused");
        assert!(done > 60 && refused > 60, "{done} done, {refused} refused");
        s.umount();
        s.assert_plain_ext4();
    }
}

/// A program that runs is not written to; when it has ended, it is.
#[test]
fn a_program_that_runs() {
    let s = mounted("writethrough");
    let program = s.path("program");
    std::fs::copy("/bin/sleep", &program).unwrap();
    let dir = root(&s);
    let mut child = std::process::Command::new(&program).arg("60").spawn().unwrap();
    // It runs as soon as it has been started: until then its name is that of this test.
    let runs = || std::fs::read_link(format!("/proc/{}/exe", child.id())).unwrap() == program;
    while !runs() {
        std::thread::yield_now();
    }
    let by_call = number(rustix::fs::open(&program, OFlags::WRONLY, Mode::empty()).map(drop));
    assert_eq!(by_call, libc::ETXTBSY);
    let asks = [
        Ask::Open("program".into(), Access::Write, false),
        Ask::Open("program".into(), Access::Write, true),
        Ask::Write("program".into(), 0),
        Ask::SetSizeOf("program".into(), 0),
        Ask::Open("program".into(), Access::Read, false),
        Ask::Chmod("program".into(), 0o700),
    ];
    for ask in &asks {
        assert_eq!(ioctl(&dir, ask, None), call(&s.path(""), ask, None), "{ask:?}");
    }
    assert_eq!(ioctl(&dir, &asks[0], None), libc::ETXTBSY);
    child.kill().unwrap();
    child.wait().unwrap();
    for ask in &asks {
        assert_eq!(ioctl(&dir, ask, None), 0, "{ask:?}");
    }
    drop(dir);
    s.umount();
    s.assert_plain_ext4();
}

/// RLIMIT_FSIZE: what would make a file longer than the caller may is EFBIG, as by write(2) and
/// ftruncate(2). The limit is a process's, so another program asks.
#[test]
fn a_bound_on_file_sizes() {
    let s = mounted("writethrough");
    File::create(&s.path("f"), &[1; 100]).sync();
    let program = r#"
import errno, fcntl, os, resource, signal, struct, sys
os.chdir(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
d = os.open('.', os.O_RDONLY)
def ioctl(*steps):
    body = b''.join(steps)
    b = bytearray((struct.pack('<IIII', 16 + len(body), len(steps), 0, 0) + body).ljust(256, b'\0'))
    fcntl.ioctl(d, 3 << 30 | len(b) << 16 | 0xE520, b, True)
    return struct.unpack_from('<II', b)[1]
def call(f):
    try: f()
    except OSError as e: return e.errno
    return 0
fd = os.open('f', os.O_RDWR)
def write(at, data):
    return ioctl(struct.pack('<HHIIIQII', 5, 0, 0, fd, 0, at, 0, len(data)) + data)
def size(n):
    return ioctl(struct.pack('<HHIIIQ', 16, 0, 0, fd, 0, n))
for at, data in ((0, b'x'), (995, b'xxxxx'), (1000, b'x'), (5000, b'x')):
    a, b = write(at, data), call(lambda: os.pwrite(fd, data, at))
    assert a == b == (errno.EFBIG if at + len(data) > 1000 else 0), (at, a, b)
assert write(995, b'x' * 10) == errno.EFBIG, 'all or nothing'
for n in (1000, 1001, 10, 900):
    a, b = size(n), call(lambda: os.ftruncate(fd, n))
    assert a == b == (errno.EFBIG if n > 1000 else 0), (n, a, b)
"#;
    crate::support::run("python3", &["-c", program, s.dir()]).ok();
    s.umount();
    s.assert_plain_ext4();
}
