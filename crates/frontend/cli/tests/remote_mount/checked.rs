//! Mounts over TCP whose key's line squashes root, maps ids, or has a subtree: the server checks
//! what each user of the machine may do (rule R52).

use crate::support::keys::Keys;
use crate::support::served::Served;
use crate::support::{Setup, patient};
use crate::{errno, siftfs};
use rustix::fs::{
    CWD, FileType, Gid, Mode, OFlags, Uid, XattrFlags, chmod, chown, getxattr, mknodat, setxattr,
};
use rustix::io::Errno;
use rustix::process::Signal;
use rustix::thread::UnshareFlags;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A mount by a key.
pub struct Checked {
    setup: Setup,
    keys: Keys,
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
        Self { setup, keys, server: Some(server) }
    }

    pub fn p(&self, name: &str) -> PathBuf {
        self.setup.path(name)
    }

    /// Ends the server by a signal, and starts another one in its place after `pause`.
    pub fn restart(&mut self, signal: Signal, pause: Duration) {
        let server = self.server.take().unwrap();
        let address = server.address.clone();
        server.end(signal);
        std::thread::sleep(pause);
        let admits = self.keys.admits();
        let more: Vec<&str> = admits.iter().map(String::as_str).collect();
        self.server = Some(Served::at(&self.setup, &address, &more));
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

/// An access control list with an entry of this user.
fn list(uid: u32) -> Vec<u8> {
    let none = u32::MAX;
    let entries = [(0x01, 6, none), (0x02, 4, uid), (0x04, 0, none), (0x10, 4, none)];
    let mut list = vec![2, 0, 0, 0];
    for (tag, may, id) in entries.into_iter().chain([(0x20, 0, none)]) {
        list.extend([tag, 0, may, 0]);
        list.extend(u32::to_le_bytes(id));
    }
    list
}

const LIST: &str = "system.posix_acl_access";

fn list_of(path: &Path) -> Vec<u8> {
    let mut value = [0; 256];
    let len = getxattr(path, LIST, &mut value[..]).unwrap();
    value[..len].to_vec()
}

fn set_list(path: &Path, uid: u32) -> rustix::io::Result<()> {
    setxattr(path, LIST, &list(uid), XattrFlags::empty())
}

const MAPS: &str = "subtree=/vault/mail uids=1000:5000:10 gids=100:6000:10";

fn vault(root: &Path) {
    made(&root.join("vault"), true, (0, 0), 0o700);
    made(&root.join("vault/outside"), false, (5000, 6000), 0o666);
    made(&root.join("vault/mail"), true, (5000, 6000), 0o777);
    for (name, owner, mode) in [
        ("own", (5000, 6000), 0o600),
        ("other", (5003, 6004), 0o640),
        ("foreign", (7, 1000), 0o600),
        ("of user 1000", (1000, 100), 0o600),
        ("roots", (0, 0), 0o600),
        ("nobodys", (65534, 65534), 0o600),
        ("listed", (5000, 6000), 0o600),
    ] {
        made(&root.join("vault/mail").join(name), false, owner, mode);
    }
    set_list(&root.join("vault/mail/listed"), 7).unwrap();
}

/// Owners and lists are shown in the client's ids and given in them; what is not mapped owns
/// nothing and cannot be given, and nothing outside of the directory has a name.
#[test]
fn r52_ids_are_mapped_both_ways() {
    let m = Checked::new(MAPS, vault);
    let root = std::fs::metadata(m.p("")).unwrap();
    assert_eq!((root.ino(), root.uid(), root.gid()), (1, 1000, 100));
    assert_eq!(
        std::fs::metadata(m.p("..")).unwrap().dev(),
        m.setup.tmp.path().metadata().unwrap().dev()
    );
    for (name, ids) in [
        ("own", (1000, 100)),
        ("other", (1003, 104)),
        ("foreign", (65534, 65534)),
        ("of user 1000", (65534, 65534)),
        ("roots", (65534, 65534)),
    ] {
        assert_eq!(owner(m.p(name)), ids, "{name}");
    }
    assert_eq!(list_of(&m.p("listed")), list(65534));

    // Squashed: root, whatever number it is.
    assert_eq!(errno(File::open(m.p("own"))), libc::EACCES);
    by(1000, &[100, 104, 900, 0], || {
        assert_eq!(std::fs::read(m.p("own")).unwrap(), b"content");
        assert_eq!(std::fs::read(m.p("other")).unwrap(), b"content");
        assert_eq!(errno(File::open(m.p("of user 1000"))), libc::EACCES);
        std::fs::write(m.p("made"), "made").unwrap();
        assert_eq!(owner(m.p("made")), (1000, 100));
        assert_eq!(own(&m.p("made"), 1000, 104), Ok(()));
        // A group of the client's that means nothing at the server, and one that means root's.
        for gid in [900, 0] {
            assert_eq!(own(&m.p("made"), 1000, gid), Err(Errno::INVAL), "{gid}");
        }
        set_list(&m.p("made"), 1003).unwrap();
        assert_eq!(list_of(&m.p("made")), list(1003));
        for uid in [0, 5003, 1010, 65534] {
            assert_eq!(set_list(&m.p("made"), uid), Err(Errno::INVAL), "{uid}");
        }
    });
    by(1003, &[109], || assert_eq!(std::fs::read(m.p("made")).unwrap(), b"made"));
    by(1004, &[109], || assert_eq!(errno(File::open(m.p("made"))), libc::EACCES));
    // The client's nobody is shown as the owner of all that is not mapped, and owns none of it.
    for uid in [65534, 2000, 5000, 7] {
        by(uid, &[65533], || {
            for name in ["own", "foreign", "of user 1000", "roots"] {
                assert_eq!(errno(File::open(m.p(name))), libc::EACCES, "{uid} {name}");
            }
            std::fs::write(m.p("by nobody"), "").unwrap();
            assert_eq!(owner(m.p("by nobody")), (65534, 65534));
        });
        by(65534, &[65534], || std::fs::remove_file(m.p("by nobody")).unwrap());
    }
    m.end(|root| {
        let made = root.join("vault/mail/made");
        assert_eq!(owner(&made), (5000, 6004));
        assert_eq!(list_of(&made), list(5003));
        assert_eq!(list_of(&root.join("vault/mail/listed")), list(7));
        assert_eq!(owner(root.join("vault/mail/roots")), (0, 0));
    });
}

fn open(path: &Path, flags: OFlags, mode: u32) -> rustix::io::Result<File> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::from_raw_mode(mode)).map(File::from)
}

/// What a user was given with open(2) is the user's until close(2), whatever becomes of the mode,
/// and pages of a mapping come after that.
#[test]
fn r52_an_open_file_may_be_used() {
    let m = Checked::new("", users);
    by(1000, &[1000], || {
        let new = open(&m.p("home/fixed"), OFlags::CREATE | OFlags::RDWR, 0o444).unwrap();
        new.write_all_at(b"written", 0).unwrap();
        new.set_len(5000).unwrap();
        chmod(m.p("home/fixed"), Mode::empty()).unwrap();
        new.write_all_at(b"again", 4096).unwrap();
        let mut read = [0; 5];
        new.read_exact_at(&mut read, 4096).unwrap();
        assert_eq!(&read, b"again");
        assert_eq!(errno(File::open(m.p("home/fixed"))), libc::EACCES);
        crate::together::store(&new, 1, false);
        drop(new);
        chmod(m.p("home/fixed"), Mode::RUSR).unwrap();
        assert_eq!(std::fs::read(m.p("home/fixed")).unwrap()[..7], *b"\x01ritten");
    });
    m.end(|root| {
        let content = std::fs::read(root.join("home/fixed")).unwrap();
        assert_eq!((content.len(), &content[..7]), (5000, &b"\x01ritten"[..]));
    });
}

/// Files that may only be executed, only be written, directories that may only be listed.
#[test]
fn rights_that_come_alone() {
    let m = Checked::new("", |root| {
        std::fs::copy("/bin/true", root.join("program")).unwrap();
        made(&root.join("drop"), false, (1000, 1000), 0o622);
        made(&root.join("names"), true, (1000, 1000), 0o744);
        made(&root.join("names/f"), false, (1000, 1000), 0o644);
        made(&root.join("unread"), false, (1000, 1000), 0o600);
        chmod(root.join("program"), Mode::from_raw_mode(0o711)).unwrap();
    });
    by(1001, &[1001], || {
        assert!(std::process::Command::new(m.p("program")).status().unwrap().success());
        assert_eq!(errno(File::open(m.p("program"))), libc::EACCES);
        let written = OpenOptions::new().write(true).open(m.p("drop")).unwrap();
        written.write_all_at(b"x", 3).unwrap();
        assert_eq!(errno(File::open(m.p("drop"))), libc::EACCES);
        let names = std::fs::read_dir(m.p("names")).unwrap();
        assert_eq!(names.map(|e| e.unwrap().file_name()).collect::<Vec<_>>(), ["f"]);
        assert_eq!(errno(std::fs::metadata(m.p("names/f"))), libc::EACCES);
    });
    m.end(|root| assert_eq!(std::fs::read(root.join("drop")).unwrap(), b"conxent"));
}

/// What is about the whole volume is an administrator's; what cannot be had is said, and with what
/// instead.
#[test]
fn what_a_checked_mount_has_not_is_said() {
    let m = Checked::new("subtree=/home", users);
    let dir = m.setup.dir();
    for command in ["status", "sync", "checkpoint", "trim"] {
        siftfs(&[command, dir]).fails(1, &["administrator's key", "role=admin"]);
    }
    let address = m.server.as_ref().unwrap().address.clone();
    let other = m.setup.tmp.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let other = other.to_str().unwrap();
    for (option, why) in [("idmap", "idmap"), ("subdir=mine", "subtree=")] {
        let options = format!("{},{option}", m.keys.option());
        siftfs(&["mount", &address, other, "-o", &options]).fails(1, &[why]);
    }
    // Its root can be searched by one user alone; who administers the machine unmounts it.
    assert_eq!(errno(File::open(m.p("mine"))), libc::EACCES);
    by(1000, &[1000], || std::fs::write(m.p("mine"), "x").unwrap());
    m.end(|root| assert_eq!(std::fs::read(root.join("home/mine")).unwrap(), b"x"));
}

/// A file's handle leads to what the mount still knows, and to nothing else: a number says nothing
/// of the directories above.
#[test]
#[allow(unsafe_code)]
fn handles_of_files() {
    #[repr(C)]
    struct Handle {
        bytes: u32,
        kind: i32,
        words: [u32; 32],
    }
    let m = Checked::new("squash=none subtree=/vault/mail", vault);
    let handle_of = |name: &str| {
        let path = std::ffi::CString::new(m.p(name).to_str().unwrap()).unwrap();
        let (mut handle, mut id) = (Handle { bytes: 128, kind: 0, words: [0; 32] }, 0);
        // SAFETY: the structures are as the kernel has them, and live longer than the call.
        let done = unsafe {
            let at = std::ptr::addr_of_mut!(handle).cast();
            libc::name_to_handle_at(libc::AT_FDCWD, path.as_ptr(), at, &mut id, 0)
        };
        assert_eq!(done, 0, "{name}: {}", std::io::Error::last_os_error());
        handle
    };
    let root = File::open(m.p("")).unwrap();
    let opened = |mut handle: Handle| {
        // SAFETY: as above; the descriptor is new.
        let fd = unsafe {
            let at = std::ptr::addr_of_mut!(handle).cast();
            libc::open_by_handle_at(std::os::fd::AsRawFd::as_raw_fd(&root), at, libc::O_RDONLY)
        };
        // SAFETY: it is open, and nobody else's.
        let file = || unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) };
        if fd < 0 { Err(std::io::Error::last_os_error()) } else { Ok::<File, _>(file()) }
    };
    let held = File::open(m.p("own")).unwrap();
    let mut read = Vec::new();
    opened(handle_of("own")).unwrap().read_to_end(&mut read).unwrap();
    assert_eq!(read, b"content");
    drop(held);
    // Other numbers in its place, such as those of what lies outside: none is known.
    for ino in 1..64 {
        let mut handle = handle_of("own");
        let own = handle.words[0].max(handle.words[1]);
        let place = usize::from(handle.words[0] != own);
        if handle.words[place] == ino || ino == 1 {
            continue;
        }
        handle.words[place] = ino;
        if let Ok(file) = opened(handle) {
            let ino = file.metadata().unwrap().ino();
            let inside = std::fs::read_dir(m.p(""))
                .unwrap()
                .any(|e| std::os::unix::fs::DirEntryExt::ino(&e.unwrap()) == ino);
            assert!(inside, "{ino} was opened");
        }
    }
    drop(root);
    m.end(|_| {});
}
