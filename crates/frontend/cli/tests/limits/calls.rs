//! Calls that ext4 serves and the kernel does not hand to a FUSE server: each answers what
//! `docs/limits.md` says, and what the page says to use instead works.

#![allow(unsafe_code)]

use crate::support::{Setup, run, siftfs};
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const PAGE: &str = include_str!("../../../../../docs/limits.md");

/// FIBMAP and FS_IOC_FIEMAP of linux/fs.h, FIFREEZE and FITHAW.
const FIBMAP: libc::c_ulong = 1;
const FIEMAP: libc::c_ulong = 0xC020_660B;
const FIFREEZE: libc::c_ulong = 0xC004_5877;
const FITHAW: libc::c_ulong = 0xC004_5878;
const RWF_NOWAIT: libc::c_int = 8;
const RWF_DONTCACHE: libc::c_int = 0x80;

/// A file of 1 MiB of data, its path, and its directory.
struct Place {
    dir: PathBuf,
    path: PathBuf,
    file: File,
}

impl Place {
    fn new(dir: &Path) -> Self {
        let path = dir.join("file");
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        file.write_all_at(&[7; 1 << 20], 0).unwrap();
        file.sync_all().unwrap();
        Self { dir: dir.to_path_buf(), path, file }
    }
}

/// 0, or the error.
fn answer(result: impl Into<i64>) -> i32 {
    match result.into() {
        0.. => 0,
        _ => std::io::Error::last_os_error().raw_os_error().unwrap(),
    }
}

fn text(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// Marks the whole file system, or one file of it.
fn fanotify(p: &Place, how: u32, mark: u32, path: &Path) -> i32 {
    let path = text(path);
    assert!(p.dir.is_dir());
    // SAFETY: the path ends with NUL and outlives the calls; the descriptor is closed here alone.
    unsafe {
        let group = libc::fanotify_init(libc::FAN_CLASS_NOTIF | how, libc::O_RDONLY as u32);
        assert!(group >= 0);
        let flags = libc::FAN_MARK_ADD | mark;
        let done = libc::fanotify_mark(group, flags, libc::FAN_OPEN, libc::AT_FDCWD, path.as_ptr());
        let result = answer(done);
        libc::close(group);
        result
    }
}

/// An ioctl with a buffer of zeros; what the kernel put into its first word.
fn ioctl(file: &File, command: libc::c_ulong) -> (i32, u32) {
    let mut buffer = [0u32; 32];
    if command == FIEMAP {
        // All of the file.
        (buffer[2], buffer[3]) = (u32::MAX, u32::MAX);
    }
    // SAFETY: the buffer is larger than what any of the commands reads or writes.
    let result = answer(unsafe { libc::ioctl(file.as_raw_fd(), command, buffer.as_mut_ptr()) });
    (result, buffer[0])
}

fn freeze(p: &Place) -> i32 {
    let dir = File::open(&p.dir).unwrap();
    let (result, _) = ioctl(&dir, FIFREEZE);
    if result == 0 {
        assert_eq!(ioctl(&dir, FITHAW).0, 0);
    }
    result
}

fn swap(p: &Place) -> i32 {
    let path = p.dir.join("swap");
    let file = File::create(&path).unwrap();
    file.write_all_at(&[0; 1 << 20], 0).unwrap();
    file.sync_all().unwrap();
    run("chmod", &["600", path.to_str().unwrap()]).ok();
    run("mkswap", &["-q", path.to_str().unwrap()]).ok();
    let path = text(&path);
    // SAFETY: the path ends with NUL and outlives the calls.
    unsafe {
        let result = answer(libc::swapon(path.as_ptr(), 0));
        if result == 0 {
            assert_eq!(libc::swapoff(path.as_ptr()), 0);
        }
        result
    }
}

fn allocate(p: &Place, mode: libc::c_int) -> i32 {
    // SAFETY: no memory is passed.
    answer(unsafe { libc::fallocate(p.file.as_raw_fd(), mode, 4096, 4096) })
}

fn vectored(p: &Place, flags: libc::c_int, write: bool) -> i32 {
    let mut buffer = [7u8; 4096];
    let part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let call = if write { libc::pwritev2 } else { libc::preadv2 };
    // SAFETY: the buffer outlives the call, and is as long as it is said.
    answer(unsafe { call(p.file.as_raw_fd(), &raw const part, 1, 0, flags) } as i64)
}

/// What the page's row is about, its answer, and the call.
type Row = (&'static str, &'static str, Box<dyn Fn(&Place) -> i32>);

fn rows() -> Vec<Row> {
    let whole = |p: &Place| fanotify(p, libc::FAN_REPORT_FID, libc::FAN_MARK_FILESYSTEM, &p.dir);
    let (collapse, insert) = (libc::FALLOC_FL_COLLAPSE_RANGE, libc::FALLOC_FL_INSERT_RANGE);
    vec![
        ("`fanotify_mark`, file system, `FAN_REPORT_FID`", "ENODEV", Box::new(whole)),
        ("`FS_IOC_FIEMAP` (filefrag)", "EOPNOTSUPP", Box::new(|p| ioctl(&p.file, FIEMAP).0)),
        ("`FIFREEZE` (fsfreeze)", "EOPNOTSUPP", Box::new(freeze)),
        ("`swapon` of a file", "EINVAL", Box::new(swap)),
        (
            "`fallocate`, `FALLOC_FL_COLLAPSE_RANGE`",
            "EOPNOTSUPP",
            Box::new(move |p| allocate(p, collapse)),
        ),
        (
            "`fallocate`, `FALLOC_FL_INSERT_RANGE`",
            "EOPNOTSUPP",
            Box::new(move |p| allocate(p, insert)),
        ),
        ("`preadv2`, `RWF_NOWAIT`", "EOPNOTSUPP", Box::new(|p| vectored(p, RWF_NOWAIT, false))),
        (
            "`preadv2`, `RWF_DONTCACHE`",
            "EOPNOTSUPP",
            Box::new(|p| vectored(p, RWF_DONTCACHE, false)),
        ),
        (
            "`pwritev2`, `RWF_DONTCACHE`",
            "EOPNOTSUPP",
            Box::new(|p| vectored(p, RWF_DONTCACHE, true)),
        ),
    ]
}

fn number(name: &str) -> i32 {
    match name {
        "ENODEV" => libc::ENODEV,
        "EOPNOTSUPP" => libc::EOPNOTSUPP,
        "EINVAL" => libc::EINVAL,
        other => panic!("{other} is not in this test"),
    }
}

#[test]
fn each_call_of_the_page_answers_what_the_page_says() {
    let s = Setup::new();
    s.mount("");
    let p = Place::new(Path::new(s.dir()));
    let section = PAGE.split("\n## ").find(|part| part.starts_with("Calls that")).unwrap();
    let named = |call: &str, says: &str| section.contains(&format!("\n| {call} | {says} | "));
    for (call, says, act) in rows() {
        assert_eq!(act(&p), number(says), "{call}");
        assert!(named(call, says), "{call}: {says} is not on the page");
    }
    assert_eq!(ioctl(&p.file, FIBMAP), (0, 0), "FIBMAP");
    assert!(named("`FIBMAP`", "block 0"));
    let options = ["mount", s.volume(), s.dir(), "-o", "strictatime"];
    siftfs(&options).fails(2, &["strictatime"]);
    assert!(named("`mount -o strictatime`", "refused"));
    assert_eq!(section.matches("\n| `").count(), rows().len() + 2, "a row that is not tried");
    drop(p);
    s.umount();
    s.assert_plain_ext4();
}

/// The same calls on the unmounted volume, mounted by the kernel's ext4, as far as that kernel
/// knows them; and what the page says to use instead.
#[test]
fn what_is_to_be_used_instead_works() {
    let s = Setup::new();
    s.mount("");
    let p = Place::new(Path::new(s.dir()));
    assert_eq!(fanotify(&p, 0, 0, &p.path), 0, "a mark of a file");
    assert_eq!(fanotify(&p, 0, libc::FAN_MARK_MOUNT, &p.dir), 0, "a mark of the mount");
    assert_eq!(fanotify(&p, 0, libc::FAN_MARK_FILESYSTEM, &p.dir), 0, "a mark without its id");
    let data = rustix::fs::seek(&p.file, rustix::fs::SeekFrom::Hole(0)).unwrap();
    assert_eq!(data, 1 << 20);
    assert_eq!(allocate(&p, libc::FALLOC_FL_ZERO_RANGE), 0);
    // SAFETY: no memory is passed.
    let advised =
        unsafe { libc::posix_fadvise(p.file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    assert_eq!(advised, 0);
    drop(p);
    s.umount();
    run("mount", &["-t", "ext4", "-o", "loop", s.volume(), s.dir()]).ok();
    let p = Place::new(Path::new(s.dir()));
    for (call, _, act) in rows().into_iter().filter(|(call, ..)| !call.contains("DONTCACHE")) {
        assert_eq!(act(&p), 0, "{call} on ext4");
    }
    drop(p);
    run("umount", &[s.dir()]).ok();
}
