//! Mounts over TCP whose key's line squashes root, maps ids, or has a subtree: the server checks
//! what each user of the machine may do (rule R52).

use crate::support::keys::Keys;
use crate::support::served::Served;
use crate::support::{Setup, patient, run};
use crate::{errno, siftfs};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Uid, XattrFlags, chmod, chown, getxattr, mknodat,
    setxattr,
};
use rustix::io::Errno;
use rustix::process::Signal;
use rustix::thread::UnshareFlags;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A mount by a key.
pub struct Checked {
    setup: Setup,
    _keys: Keys,
    server: Option<Served>,
}

impl Checked {
    /// Has `prepare` fill a volume as root of the server's machine, serves it, and mounts it by a
    /// key whose line has these options.
    pub fn new(line: &str, prepare: impl FnOnce(&Path)) -> Self {
        let setup = Setup::new();
        let open_up = |path: &Path| chmod(path, Mode::from_raw_mode(0o755)).unwrap();
        open_up(setup.tmp.path());
        siftfs(&["mount", setup.volume(), setup.dir()]).ok();
        prepare(Path::new(setup.dir()));
        patient(|| siftfs(&["umount", setup.dir()])).ok();
        let keys = Keys::new(setup.tmp.path(), &format!("role=client {line}"));
        let admits = keys.admits();
        let more: Vec<&str> = admits.iter().map(String::as_str).collect();
        let server = Served::at(&setup, "tcp:127.0.0.1:0", &more);
        siftfs(&["mount", &server.address, setup.dir(), "-o", &keys.option()]).ok();
        Self { setup, _keys: keys, server: Some(server) }
    }

    pub fn p(&self, name: &str) -> PathBuf {
        self.setup.path(name)
    }

    /// Unmounts it, ends the server, and shows the volume to the machine that has it.
    pub fn end(mut self, look: impl FnOnce(&Path)) {
        patient(|| siftfs(&["umount", self.setup.dir()])).ok();
        assert!(self.server.take().unwrap().end(Signal::TERM).success());
        self.setup.assert_plain_ext4();
        siftfs(&["mount", self.setup.volume(), self.setup.dir()]).ok();
        look(Path::new(self.setup.dir()));
        patient(|| siftfs(&["umount", self.setup.dir()])).ok();
    }
}

impl Drop for Checked {
    fn drop(&mut self) {
        while siftfs_fuse::detach(Path::new(self.setup.dir())).is_ok() {}
    }
}

/// Runs `act` on a thread that is this user, in these groups, with a umask of its own.
#[allow(unsafe_code)]
pub fn by<R: Send>(uid: u32, groups: &[u32], act: impl FnOnce() -> R + Send) -> R {
    let body = || {
        // SAFETY: only place and umask stop being shared; nobody relies on this thread's.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }.unwrap();
        rustix::process::umask(Mode::from_raw_mode(0o022));
        let groups: Vec<Gid> = groups.iter().map(|g| Gid::from_raw(*g)).collect();
        rustix::thread::set_thread_groups(&groups).unwrap();
        let first = *groups.first().expect("a group");
        rustix::thread::set_thread_res_gid(first, first, first).unwrap();
        let uid = Uid::from_raw(uid);
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
        act()
    };
    std::thread::scope(|scope| scope.spawn(body).join().unwrap())
}

/// A file or directory with this owner and mode.
fn made(path: &Path, dir: bool, (uid, gid): (u32, u32), mode: u32) {
    match dir {
        true => std::fs::create_dir(path).unwrap(),
        false => std::fs::write(path, "content").unwrap(),
    }
    chown(path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))).unwrap();
    chmod(path, Mode::from_raw_mode(mode)).unwrap();
}

fn owner(path: impl AsRef<Path>) -> (u32, u32) {
    let meta = std::fs::symlink_metadata(path).unwrap();
    (meta.uid(), meta.gid())
}

fn own(path: &Path, uid: u32, gid: u32) -> rustix::io::Result<()> {
    chown(path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
}

fn users(root: &Path) {
    made(&root.join("open"), true, (0, 0), 0o1777);
    made(&root.join("secret"), false, (0, 0), 0o600);
    made(&root.join("of group 0"), false, (0, 0), 0o660);
    made(&root.join("of group 2000"), false, (0, 2000), 0o660);
    made(&root.join("home"), true, (1000, 1000), 0o700);
    made(&root.join("home/mine"), false, (1000, 1000), 0o600);
}

/// Root of the client is nobody at the server, whatever its kernel lets it through to; its users
/// are themselves, in their supplementary groups, and nobody is in group 0.
#[test]
fn r52_root_is_squashed_and_users_are_themselves() {
    let m = Checked::new("", users);
    for name in ["secret", "of group 0", "home/mine"] {
        assert_eq!(errno(File::open(m.p(name))), libc::EACCES, "{name}");
    }
    // The kernel opens directories without asking; the entries are refused.
    let entry = std::fs::read_dir(m.p("home")).unwrap().next().unwrap();
    assert_eq!(errno(entry), libc::EACCES);
    assert_eq!(errno(File::create(m.p("top"))), libc::EACCES);
    File::create(m.p("open/by root")).unwrap();
    assert_eq!(owner(m.p("open/by root")), (65534, 65534));
    assert_eq!(own(&m.p("open/by root"), 0, 0), Err(Errno::PERM));
    assert_eq!(own(&m.p("secret"), 1000, 1000), Err(Errno::PERM));
    assert_eq!(chmod(m.p("secret"), Mode::from_raw_mode(0o666)), Err(Errno::PERM));
    let device = mknodat(CWD, m.p("open/dev"), FileType::CharacterDevice, Mode::RUSR, 0x105);
    assert_eq!(device, Err(Errno::PERM));
    let trusted = setxattr(m.p("open/by root"), "trusted.x", b"1", XattrFlags::empty());
    assert_eq!(trusted, Err(Errno::PERM));

    by(1000, &[1000, 2000, 0], || {
        assert_eq!(std::fs::read(m.p("home/mine")).unwrap(), b"content");
        assert_eq!(std::fs::read(m.p("of group 2000")).unwrap(), b"content");
        assert_eq!(errno(File::open(m.p("of group 0"))), libc::EACCES);
        assert_eq!(errno(File::open(m.p("secret"))), libc::EACCES);
        std::fs::write(m.p("home/new"), "new").unwrap();
        std::fs::write(m.p("of group 2000"), "changed").unwrap();
        assert_eq!(own(&m.p("home/new"), 1000, 2000), Ok(()));
        assert_eq!(own(&m.p("home/new"), 1000, 0), Err(Errno::PERM));
        assert_eq!(errno(std::fs::remove_file(m.p("open/by root"))), libc::EPERM);
    });
    by(1001, &[1001], || {
        for name in ["home/mine", "of group 2000"] {
            assert_eq!(errno(File::open(m.p(name))), libc::EACCES, "{name}");
        }
    });
    m.end(|root| {
        assert_eq!(owner(root.join("home/new")), (1000, 2000));
        assert_eq!(owner(root.join("open/by root")), (65534, 65534));
        assert_eq!(owner(root.join("secret")), (0, 0));
        assert_eq!(std::fs::read(root.join("of group 2000")).unwrap(), b"changed");
    });
}
