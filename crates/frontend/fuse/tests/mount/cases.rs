//! The mapping layer through a real kernel mount, whichever way requests come: the program that
//! these are part of says so in `options`.

use crate::support::Mem;
use rustix::fs::{FallocateFlags, FileType, RenameFlags, SeekFrom, XattrFlags};
use siftfs_fuse::{
    FuseMount, Gate, MountOptions, NewMount, WriteCache, attach, detach_dead, take_back, top_mount,
    unmount,
};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

struct Mounted {
    mem: Arc<Mem>,
    dir: tempfile::TempDir,
    server: Option<std::thread::JoinHandle<std::io::Result<()>>>,
}

impl Mounted {
    fn new(subtype: Option<&str>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mem = Arc::new(Mem::new());
        let options = MountOptions { subtype: subtype.map(Into::into), ..crate::options() };
        let door = Gate::default().before(mem.clone());
        let mount = crate::mounting(|| FuseMount::new(door.clone(), dir.path(), &options))
            .expect("these tests need root and /dev/fuse");
        let server = Some(std::thread::spawn(move || mount.serve()));
        Self { mem, dir, server }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// umount(2) ends the session without an error.
    fn end(&mut self) {
        unmount_patiently(self.dir.path());
        self.server.take().unwrap().join().unwrap().unwrap();
    }

    fn count(&self, what: &str) -> usize {
        self.mem.state.lock().unwrap().log.iter().filter(|w| **w == what).count()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.server.is_some() {
            let _ = siftfs_fuse::detach(self.dir.path());
        }
    }
}

/// umount(2). It is busy for a moment after a close: a process that another test starts holds our
/// open files until it runs its own program.
pub fn unmount_patiently(dir: &Path) {
    let mut left = 50;
    while let Err(e) = unmount(dir) {
        assert!(e.raw_os_error() == Some(libc::EBUSY) && left > 0, "{e}");
        left -= 1;
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

fn os_error<T: std::fmt::Debug>(r: rustix::io::Result<T>) -> i32 {
    r.unwrap_err().raw_os_error()
}

#[test]
fn files_directories_links_and_special_files() {
    let mut m = Mounted::new(Some("siftfs"));
    let root = fs::metadata(m.dir.path()).unwrap();
    assert_eq!((root.ino(), root.mode() & 0o7777), (1, 0o755));
    fs::create_dir_all(m.path("a/b")).unwrap();
    fs::write(m.path("a/b/f"), b"hello").unwrap();
    assert_eq!(fs::read(m.path("a/b/f")).unwrap(), b"hello");
    fs::hard_link(m.path("a/b/f"), m.path("g")).unwrap();
    assert_eq!(fs::metadata(m.path("a/b/f")).unwrap().nlink(), 2);
    symlink("a/b/f", m.path("s")).unwrap();
    assert_eq!(fs::read_link(m.path("s")).unwrap(), Path::new("a/b/f"));
    assert_eq!(fs::read(m.path("s")).unwrap(), b"hello");
    let cwd = rustix::fs::CWD;
    let dev = rustix::fs::makedev(300, 70000);
    let kinds = [FileType::Fifo, FileType::Socket, FileType::CharacterDevice];
    for (i, kind) in kinds.into_iter().enumerate() {
        let path = m.path(&format!("n{i}"));
        rustix::fs::mknodat(cwd, &path, kind, 0o640.into(), dev).unwrap();
        let st = rustix::fs::lstat(&path).unwrap();
        assert_eq!(FileType::from_raw_mode(st.st_mode), kind);
        assert_eq!(st.st_mode & 0o777, 0o640);
    }
    assert_eq!(fs::symlink_metadata(m.path("n2")).unwrap().rdev(), dev);
    assert_eq!(fs::metadata(m.path("missing")).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    let before = m.count("lookup");
    fs::metadata(m.path("missing")).unwrap_err();
    assert_eq!(m.count("lookup"), before, "a missing name is remembered");
    fs::write(m.path("missing"), b"x").unwrap();
    fs::remove_file(m.path("g")).unwrap();
    assert_eq!(fs::metadata(m.path("a/b/f")).unwrap().nlink(), 1);
    fs::remove_dir_all(m.path("a")).unwrap();
    let vfs = rustix::fs::statvfs(m.dir.path()).unwrap();
    assert_eq!((vfs.f_blocks, vfs.f_bfree, vfs.f_bavail, vfs.f_ffree), (1000, 900, 850, 400));
    m.end();
}

#[test]
fn a_directory_of_many_names_lists_each_once() {
    let mut m = Mounted::new(Some("siftfs"));
    fs::create_dir(m.path("d")).unwrap();
    for i in 0..1000 {
        File::create(m.path(&format!("d/{i:0width$}", width = 1 + i % 40))).unwrap();
    }
    for _ in 0..2 {
        let mut seen: Vec<_> =
            fs::read_dir(m.path("d")).unwrap().map(|e| e.unwrap().file_name()).collect();
        let n = seen.len();
        seen.sort();
        seen.dedup();
        assert_eq!((n, seen.len()), (1000, 1000));
    }
    for e in fs::read_dir(m.path("d")).unwrap() {
        assert!(e.unwrap().metadata().unwrap().is_file());
    }
    fs::remove_dir_all(m.path("d")).unwrap();
    m.end();
}

#[test]
fn rename_modes() {
    let mut m = Mounted::new(None);
    fs::write(m.path("a"), b"A").unwrap();
    fs::write(m.path("b"), b"B").unwrap();
    let rename = |flags: RenameFlags| {
        let cwd = rustix::fs::CWD;
        rustix::fs::renameat_with(cwd, m.path("a"), cwd, m.path("b"), flags)
    };
    assert_eq!(os_error(rename(RenameFlags::NOREPLACE)), libc::EEXIST);
    rename(RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(m.path("a")).unwrap(), b"B");
    let both = RenameFlags::WHITEOUT | RenameFlags::EXCHANGE;
    assert_eq!(os_error(rename(both)), libc::EINVAL);
    rename(RenameFlags::empty()).unwrap();
    assert_eq!(fs::read(m.path("b")).unwrap(), b"B");
    assert!(fs::metadata(m.path("a")).is_err());
    m.end();
}

#[test]
fn ranges_seeks_and_direct_io() {
    let mut m = Mounted::new(Some("siftfs"));
    let all = OpenOptions::new().read(true).write(true).create(true).clone();
    let f = all.open(m.path("f")).unwrap();
    rustix::fs::fallocate(&f, FallocateFlags::empty(), 0, 8192).unwrap();
    assert_eq!(f.metadata().unwrap().len(), 8192);
    rustix::fs::fallocate(&f, FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
    assert_eq!(f.metadata().unwrap().len(), 8192);
    f.write_all_at(&[7; 8192], 0).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&f, punch, 4096, 1024).unwrap();
    let mut back = [1; 8192];
    f.read_exact_at(&mut back, 0).unwrap();
    assert!(back[..4096].iter().all(|b| *b == 7) && back[4096..5120].iter().all(|b| *b == 0));
    rustix::fs::fallocate(&f, FallocateFlags::ZERO_RANGE, 8000, 1000).unwrap();
    assert_eq!(f.metadata().unwrap().len(), 9000);
    let collapse = rustix::fs::fallocate(&f, FallocateFlags::COLLAPSE_RANGE, 0, 4096);
    assert_eq!(os_error(collapse), libc::EOPNOTSUPP);
    assert_eq!(rustix::fs::seek(&f, SeekFrom::Hole(10)).unwrap(), 9000);
    assert_eq!(rustix::fs::seek(&f, SeekFrom::Data(10)).unwrap(), 10);
    assert_eq!(os_error(rustix::fs::seek(&f, SeekFrom::Data(9000))), libc::ENXIO);
    let direct = all.clone().custom_flags(libc::O_DIRECT).open(m.path("f")).unwrap();
    direct.write_all_at(&[9; 512], 100).unwrap();
    let mut part = [0; 512];
    f.read_exact_at(&mut part, 100).unwrap();
    assert_eq!(part, [9; 512]);
    f.sync_all().unwrap();
    f.sync_data().unwrap();
    File::open(m.dir.path()).unwrap().sync_all().unwrap();
    assert_eq!(m.count("fsync"), 3);
    drop((f, direct));
    m.end();
}

#[test]
fn appends_and_truncation_on_open() {
    let mut m = Mounted::new(Some("siftfs"));
    fs::write(m.path("f"), b"one").unwrap();
    let mut a = OpenOptions::new().append(true).open(m.path("f")).unwrap();
    let mut b = OpenOptions::new().append(true).open(m.path("f")).unwrap();
    for _ in 0..3 {
        a.write_all(b"A").unwrap();
        b.write_all(b"B").unwrap();
    }
    let big = vec![5; 5 << 20];
    a.write_all(&big).unwrap();
    let all = fs::read(m.path("f")).unwrap();
    assert_eq!((&all[..9], all.len()), (b"oneABABAB".as_slice(), 9 + big.len()));
    let before = m.count("setattr");
    let t = OpenOptions::new().write(true).truncate(true).open(m.path("f")).unwrap();
    assert_eq!(t.metadata().unwrap().len(), 0);
    // A kernel that keeps writes back may send the file's times at any moment.
    if crate::options().write_cache == WriteCache::Writethrough {
        assert_eq!(m.count("setattr"), before, "truncation came with the open");
    }
    drop((a, b, t));
    m.end();
}

#[test]
fn extended_attributes() {
    let mut m = Mounted::new(Some("siftfs"));
    let path = m.path("f");
    fs::write(&path, b"").unwrap();
    let set = |name, value: &[u8], flags| rustix::fs::setxattr(&path, name, value, flags);
    set("user.a", b"12345", XattrFlags::empty()).unwrap();
    assert_eq!(os_error(set("user.a", b"1", XattrFlags::CREATE)), libc::EEXIST);
    assert_eq!(os_error(set("user.b", b"1", XattrFlags::REPLACE)), libc::ENODATA);
    let mut buf = [0u8; 64];
    let (c_path, c_name) = (CString::new(path.as_os_str().as_bytes()).unwrap(), c"user.a");
    // SAFETY: both strings end with NUL; size 0 means that nothing is written.
    let size = unsafe { libc::getxattr(c_path.as_ptr(), c_name.as_ptr(), std::ptr::null_mut(), 0) };
    assert_eq!(size, 5, "a size of 0 asks for the size");
    assert_eq!(rustix::fs::getxattr(&path, "user.a", buf.as_mut_slice()).unwrap(), 5);
    assert_eq!(&buf[..5], b"12345");
    let small = rustix::fs::getxattr(&path, "user.a", &mut buf[..2]);
    assert_eq!(os_error(small), libc::ERANGE);
    let n = rustix::fs::listxattr(&path, buf.as_mut_slice()).unwrap();
    assert_eq!(&buf[..n], b"user.a\0");
    let other = set("system.other", b"1", XattrFlags::empty());
    assert_eq!(os_error(other), libc::EOPNOTSUPP);
    rustix::fs::removexattr(&path, "user.a").unwrap();
    assert_eq!(os_error(rustix::fs::removexattr(&path, "user.a")), libc::ENODATA);
    m.end();
}

/// A write by a user without CAP_FSETID clears setuid; root's write keeps it; no write asks for
/// `security.capability`.
#[test]
fn privileges_die_on_write_truncate_and_chown() {
    let mut m = Mounted::new(Some("siftfs"));
    let path = m.path("f");
    let mode = |p: &Path| fs::metadata(p).unwrap().permissions().mode() & 0o7777;
    fs::write(&path, b"x").unwrap();
    let before = m.count("getxattr");
    let f = OpenOptions::new().write(true).open(&path).unwrap();
    for at in 0..10 {
        f.write_all_at(b"again", at).unwrap();
    }
    drop(f);
    assert_eq!(m.count("getxattr"), before, "a write asks for no capability");
    let chmod = || fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
    chmod();
    fs::write(&path, b"by root").unwrap();
    assert_eq!(mode(&path), 0o6777);
    let as_user = |script: &str| {
        let status = std::process::Command::new("setpriv")
            .args(["--reuid=1234", "--regid=1234", "--clear-groups", "sh", "-c", script])
            .arg(&path)
            .status()
            .unwrap();
        assert!(status.success(), "{script}");
    };
    fs::set_permissions(m.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    as_user("printf y >> \"$0\"");
    assert_eq!(mode(&path), 0o777, "append by a user");
    chmod();
    as_user(": > \"$0\"");
    assert_eq!(mode(&path), 0o777, "truncation by a user");
    chmod();
    std::os::unix::fs::chown(&path, Some(5), None).unwrap();
    assert_eq!(mode(&path), 0o777, "chown");
    fs::create_dir(m.path("d")).unwrap();
    fs::set_permissions(m.path("d"), fs::Permissions::from_mode(0o2775)).unwrap();
    std::os::unix::fs::chown(m.path("d"), Some(5), Some(6)).unwrap();
    assert_eq!(mode(&m.path("d")), 0o2775, "a directory keeps setgid");
    m.end();
}

#[test]
fn times_before_1970_and_far_away() {
    let mut m = Mounted::new(Some("siftfs"));
    let path = m.path("f");
    fs::write(&path, b"").unwrap();
    for (sec, nsec) in [(-2, 800_000_000), (0, 1), (1 << 33, 999_999_999), (-(1 << 31), 0)] {
        let t = rustix::fs::Timespec { tv_sec: sec, tv_nsec: nsec };
        let both = rustix::fs::Timestamps { last_access: t, last_modification: t };
        let flags = rustix::fs::AtFlags::empty();
        rustix::fs::utimensat(rustix::fs::CWD, &path, &both, flags).unwrap();
        let meta = fs::metadata(&path).unwrap();
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (sec, nsec));
        assert_eq!((meta.atime(), meta.atime_nsec()), (sec, nsec));
    }
    // All of 64 bits arrive as they were sent.
    for sec in [i64::MIN, i64::MIN + 1, i64::MAX] {
        let t = rustix::fs::Timespec { tv_sec: sec, tv_nsec: 999_999_999 };
        let both = rustix::fs::Timestamps { last_access: t, last_modification: t };
        let flags = rustix::fs::AtFlags::empty();
        rustix::fs::utimensat(rustix::fs::CWD, &path, &both, flags).unwrap();
        let meta = fs::metadata(&path).unwrap();
        assert_eq!((meta.mtime(), meta.atime()), (sec, sec));
    }
    m.end();
}

#[test]
fn creation_times_copies_and_files_without_a_name() {
    use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
    let mut m = Mounted::new(Some("siftfs"));
    fs::write(m.path("f"), [7; 10_000]).unwrap();
    let x = rustix::fs::statx(CWD, m.path("f"), AtFlags::empty(), StatxFlags::ALL).unwrap();
    assert!(x.stx_mask & StatxFlags::BTIME.bits() != 0 && x.stx_btime.tv_sec > 1_700_000_000);
    let from = File::open(m.path("f")).unwrap();
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let to = File::from(rustix::fs::open(m.dir.path(), flags, Mode::from(0o600)).unwrap());
    let before = m.count("read");
    let (mut at, mut put) = (5000, 100);
    let n = rustix::fs::copy_file_range(&from, Some(&mut at), &to, Some(&mut put), 8000).unwrap();
    assert_eq!((n, at, put), (5000, 10_000, 5100));
    assert!(m.count("read") > before, "the copy was made here");
    assert_eq!(to.metadata().unwrap().len(), 5100);
    let proc = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&to));
    rustix::fs::linkat(CWD, proc, CWD, m.path("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
    let want = [vec![0; 100], vec![7; 5000]].concat();
    assert_eq!(fs::read(m.path("named")).unwrap(), want);
    drop((from, to));
    m.end();
}

/// Unlinked files live until their last close; then nothing of them is left.
#[test]
fn unlinked_but_open() {
    let mut m = Mounted::new(Some("siftfs"));
    let all = OpenOptions::new().read(true).write(true).create(true).clone();
    let mut f = all.open(m.path("f")).unwrap();
    f.write_all(b"still here").unwrap();
    fs::remove_file(m.path("f")).unwrap();
    let mut back = vec![0; 10];
    f.read_exact_at(&mut back, 0).unwrap();
    assert_eq!(back, b"still here");
    assert_eq!(f.metadata().unwrap().nlink(), 0);
    let mut rest = String::new();
    f.read_to_string(&mut rest).unwrap();
    assert_eq!(m.mem.inodes(), 2);
    drop(f);
    for _ in 0..1000 {
        if m.mem.inodes() == 1 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(m.mem.inodes(), 1, "the inode was released and forgotten");
    m.end();
}

/// A busy mount refuses umount(2); a mount whose server is gone is detached.
#[test]
fn busy_and_dead_mounts() {
    let mut m = Mounted::new(Some("siftfs"));
    let f = File::create(m.path("f")).unwrap();
    let busy = unmount(m.dir.path()).unwrap_err();
    assert_eq!(busy.raw_os_error(), Some(libc::EBUSY));
    drop(f);
    assert_eq!(detach_dead(m.dir.path()).unwrap(), 0, "a live mount stays");
    m.end();
    assert_eq!(detach_dead(m.dir.path()).unwrap(), 0);
    // A mount that no daemon ever serves dies with its descriptor.
    let dir = tempfile::tempdir().unwrap();
    let (mem, options) = (Arc::new(Mem::new()), crate::options());
    let mount = crate::mounting(|| FuseMount::new(mem, dir.path(), &options));
    let mount = mount.unwrap();
    drop(mount);
    let dead = fs::metadata(dir.path()).unwrap_err();
    assert_eq!(dead.raw_os_error(), Some(libc::ENOTCONN));
    assert_eq!(detach_dead(dir.path()).unwrap(), 1);
    fs::metadata(dir.path()).unwrap();
}

/// A mount is nowhere until its descriptor is put on a directory, and is taken back by that,
/// wherever it was moved; it ends with its last descriptor if it never was anywhere.
#[test]
fn a_mount_that_is_nowhere_yet() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let places = dirs.each_ref().map(|dir| dir.path().canonicalize().unwrap());
    let options = crate::options();
    let mut tree = None;
    let made = crate::mounting(|| {
        let nowhere = NewMount::new(Arc::new(Mem::new()), &options)?;
        assert!(nowhere.attached()?.is_none(), "a mount that was put nowhere is seen");
        let made = NewMount::new(Arc::new(Mem::new()), &options)?;
        assert_eq!(top_mount(&places[0])?, None);
        attach(made.tree(), &places[0])?;
        tree = Some(made.tree().try_clone_to_owned()?);
        Ok(made.attached()?.expect("it is there"))
    });
    let (made, tree) = (made.unwrap(), tree.unwrap());
    assert_eq!(made.entry().mount_point, places[0]);
    assert_eq!(top_mount(&places[0]).unwrap().as_ref(), Some(made.entry()));
    let server = std::thread::spawn(move || made.serve());
    fs::write(places[0].join("file"), "x").unwrap();
    attach(tree.as_fd(), &places[1]).unwrap();
    assert!(fs::exists(places[1].join("file")).unwrap());
    take_back(tree.as_fd()).unwrap();
    assert_eq!(places.map(|place| top_mount(&place).unwrap()), [None, None]);
    take_back(tree.as_fd()).unwrap_err();
    drop(tree);
    server.join().unwrap().unwrap();
}
