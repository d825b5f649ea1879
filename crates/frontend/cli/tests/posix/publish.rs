//! Names that change together: what other programs see at once, what they may do, and what a killed
//! daemon leaves.

use crate::data::Map;
use crate::pair::{as_user, open};
use crate::support::{Setup, siftfs};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, chmod, statat};
use rustix::io::pwrite;
use rustix::mm::MapFlags;
use rustix::process::Signal;
use siftfs_client::{Entry, Level, Publish, Source, publish};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

fn named(from: &str, to: &str) -> Entry {
    Entry { source: Source::Path(from.into()), to: to.into(), replace: true }
}

/// Publishes on a directory; the errno if it is refused.
fn on(dir: &Path, entries: Vec<Entry>, level: Level) -> Result<(), i32> {
    let dir = open(dir, OFlags::RDONLY | OFlags::DIRECTORY, 0).expect("the directory opens");
    publish(dir.as_fd(), &Publish { entries, level }).map_err(|e| e.raw_os_error().unwrap_or(0))
}

fn put(s: &Setup, name: &str, text: &str) {
    std::fs::write(s.path(name), text).unwrap_or_else(|e| panic!("{name}: {e}"));
}

fn text(s: &Setup, name: &str) -> Option<String> {
    std::fs::read_to_string(s.path(name)).ok()
}

/// The kernel knows old names, attributes, listings and the absence of names; the new ones are seen
/// by the first call after it.
#[test]
fn the_kernel_shows_the_new_names_at_once() {
    let s = Setup::new();
    s.mount("");
    std::fs::create_dir(s.path("d")).expect("a directory");
    for (name, content) in [("a", "old a"), ("a.tmp", "new a"), ("d/b.tmp", "new b")] {
        put(&s, name, content);
    }
    let list = |dir: &str| {
        let mut names: Vec<_> = std::fs::read_dir(s.path(dir))
            .expect("a listing")
            .map(|e| e.expect("an entry").file_name().into_string().expect("text"))
            .filter(|name| name != "lost+found")
            .collect();
        names.sort();
        names
    };
    for round in 0..20 {
        assert_eq!(text(&s, "a").as_deref(), Some(if round == 0 { "old a" } else { "new a" }));
        assert_eq!(text(&s, "d/b"), None, "round {round}");
        assert_eq!(list("d"), ["b.tmp"]);
        let entries = vec![named("a.tmp", "a"), named("d/b.tmp", "d/b")];
        on(&s.path(""), entries, Level::Visible).expect("published");
        assert_eq!(text(&s, "a").as_deref(), Some("new a"), "round {round}");
        assert_eq!(text(&s, "d/b").as_deref(), Some("new b"));
        assert_eq!((text(&s, "a.tmp"), text(&s, "d/b.tmp")), (None, None));
        assert_eq!((list(""), list("d")), (vec!["a".into(), "d".into()], vec!["b".into()]));
        put(&s, "a.tmp", "new a");
        std::fs::rename(s.path("d/b"), s.path("d/b.tmp")).expect("back again");
    }
    s.umount().ok();
    s.assert_plain_ext4();
}

/// A file that loses one of its names has a link less, and one that gets a name one more, at once.
#[test]
fn the_kernel_shows_the_links_at_once() {
    let s = Setup::new();
    s.mount("");
    let links = |name: &str| statat(CWD, s.path(name), AtFlags::empty()).expect(name).st_nlink;
    put(&s, "old", "old");
    std::fs::hard_link(s.path("old"), s.path("kept")).expect("another name");
    put(&s, "new", "new");
    put(&s, "more", "more");
    let more = open(&s.path("more"), OFlags::RDWR, 0).expect("opens");
    assert_eq!((links("kept"), links("more")), (2, 1));
    let number = u32::try_from(more.as_raw_fd()).expect("a descriptor");
    let again = Entry { source: Source::Descriptor(number), to: b"again".into(), replace: false };
    on(&s.path(""), vec![named("new", "old"), again], Level::Visible).expect("published");
    assert_eq!((links("kept"), links("old"), links("more"), links("again")), (1, 1, 2, 2));
    drop(more);
    s.umount().ok();
    s.assert_plain_ext4();
}

/// Bytes that the kernel holds back, by a mapping or by its writeback cache, are published with
/// their file; all is there after the daemon was killed.
#[test]
fn what_the_kernel_holds_is_published_too() {
    let s = Setup::new();
    s.mount("commit=3600");
    put(&s, "config", "old");
    put(&s, "index", "old");
    siftfs(&["sync", s.dir()]).ok();
    let file = open(&s.path("config.tmp"), OFlags::RDWR | OFlags::CREATE, 0o644).expect("a file");
    pwrite(&file, &[b'1'; 10_000], 0).expect("written");
    let mapped = Map::new(&file, 0, 10_000, MapFlags::SHARED).expect("mapped");
    mapped.store(5000, b"stored");
    let unnamed = open(&s.path(""), OFlags::RDWR | OFlags::TMPFILE, 0o600).expect("no name");
    pwrite(&unnamed, b"without a name before", 0).expect("written");
    let number = u32::try_from(unnamed.as_raw_fd()).expect("a descriptor");
    let index = Entry { source: Source::Descriptor(number), to: b"index".into(), replace: true };
    on(&s.path(""), vec![named("config.tmp", "config"), index], Level::Durable).expect("published");
    drop((mapped, file, unnamed));
    let daemon = s.daemon();
    daemon.signal(Signal::KILL);
    daemon.wait();
    assert_eq!(siftfs(&["umount", s.dir()]).code, 1, "it had died");
    s.mount("");
    let config = std::fs::read(s.path("config")).expect("it is there");
    assert_eq!((config.len(), &config[5000..5006]), (10_000, &b"stored"[..]));
    assert_eq!(text(&s, "index").as_deref(), Some("without a name before"));
    assert_eq!(text(&s, "config.tmp"), None);
    s.umount().ok();
    s.assert_plain_ext4();
}

/// The rights that count are the caller's: of each directory in the argument, by its groups, and of
/// the descriptors that it names.
#[test]
fn a_caller_publishes_with_its_own_rights() {
    let s = Setup::new();
    s.mount("");
    for (dir, perm) in [("open", 0o777), ("group", 0o770), ("closed", 0o700), ("sticky", 0o1777)] {
        std::fs::create_dir(s.path(dir)).expect("a directory");
        chmod(s.path(dir), Mode::from_raw_mode(perm)).expect("its mode");
        put(&s, &format!("{dir}/file"), dir);
    }
    rustix::fs::chown(s.path("group"), None, Some(rustix::fs::Gid::from_raw(4242))).expect("chgrp");
    let root = s.path("");
    let ask = |groups: &[u32], from: &str, to: &str| {
        as_user(1000, groups, || on(&root, vec![named(from, to)], Level::Visible))
    };
    assert_eq!(ask(&[100], "open/file", "closed/x"), Err(libc::EACCES));
    assert_eq!(ask(&[100], "closed/file", "open/x"), Err(libc::EACCES));
    assert_eq!(ask(&[100], "open/file", "x"), Err(libc::EACCES));
    assert_eq!(ask(&[100], "open/file", "group/x"), Err(libc::EACCES));
    assert_eq!(ask(&[100], "sticky/file", "open/x"), Err(libc::EPERM));
    assert_eq!(ask(&[100, 4242], "open/file", "group/x"), Ok(()));
    assert_eq!(ask(&[100, 4242], "group/x", "open/file"), Ok(()));
    // Not a file of this mount; not open for writing; no descriptor.
    let elsewhere = tempfile::tempfile().expect("a file elsewhere");
    let read_only = open(&s.path("closed/file"), OFlags::RDONLY, 0).expect("opens");
    let wrong = [
        (elsewhere.as_raw_fd(), libc::EXDEV),
        (read_only.as_raw_fd(), libc::EBADF),
        (9999, libc::EBADF),
    ];
    for (number, errno) in wrong {
        let source = Source::Descriptor(u32::try_from(number).expect("a descriptor"));
        let entry = Entry { source, to: b"open/taken".into(), replace: true };
        assert_eq!(on(&root, vec![entry], Level::Visible), Err(errno));
    }
    drop(read_only);
    assert!(statat(CWD, s.path("open/taken"), AtFlags::empty()).is_err());
    s.umount().ok();
    s.assert_plain_ext4();
}

/// Garbage in the argument, and commands that are nearly right: refused, and the mount goes on.
#[test]
fn garbage_is_refused() {
    let s = Setup::new();
    s.mount("");
    put(&s, "f", "f");
    let dir = open(&s.path(""), OFlags::RDONLY | OFlags::DIRECTORY, 0).expect("opens");
    let ask = |command: u32, argument: &[u8]| {
        let size = usize::try_from(command >> 16 & 0x3FFF).expect("14 bits");
        let mut bytes = vec![0u8; size.max(1)];
        let some = argument.len().min(size);
        bytes[..some].copy_from_slice(&argument[..some]);
        ioctl(&dir, command, &mut bytes)
    };
    let command = |size: u32| 1 << 30 | size << 16 | 0xE510;
    for size in [0, 1, 7, 8, 100, 4096, 16_383] {
        assert_eq!(ask(command(size), &[0xFF; 16_383]), Err(libc::EINVAL), "{size}");
    }
    assert_eq!(ask(command(8), &[0; 8]), Err(libc::EINVAL), "no entries");
    for other in [command(8) | 0x8000_0000, command(8) - 1, 0xE510, command(8) & !0x00F0] {
        assert_eq!(ask(other, &[0; 8]), Err(libc::ENOTTY), "{other:x}");
    }
    // A file is no directory.
    assert_eq!(on_file(&s), libc::ENOTDIR);
    assert_eq!(text(&s, "f").as_deref(), Some("f"));
    drop(dir);
    s.umount().ok();
}

/// An ioctl with any command, whose size says how long its argument is.
#[allow(unsafe_code)]
fn ioctl(fd: &OwnedFd, command: u32, bytes: &mut [u8]) -> Result<(), i32> {
    assert!(bytes.len() >= (command >> 16 & 0x3FFF) as usize);
    // SAFETY: the kernel reads and writes no more bytes than the command's size, which are there.
    let result =
        unsafe { libc::ioctl(fd.as_raw_fd(), libc::Ioctl::from(command), bytes.as_mut_ptr()) };
    let error = || std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    if result < 0 { Err(error()) } else { Ok(()) }
}

fn on_file(s: &Setup) -> i32 {
    let file = open(&s.path("f"), OFlags::RDWR, 0).expect("opens");
    let request = Publish { entries: vec![named("f", "g")], level: Level::Visible };
    publish(file.as_fd(), &request).expect_err("refused").raw_os_error().unwrap_or(0)
}

/// The command: paths as the shell gives them, one message for what is wrong.
#[test]
fn the_command() {
    let s = Setup::new();
    s.mount("");
    std::fs::create_dir(s.path("d")).expect("a directory");
    for name in ["a.tmp", "d/b.tmp", "a"] {
        put(&s, name, name);
    }
    let p = |name: &str| s.path(name).into_os_string().into_string().expect("text");
    siftfs(&["publish", &p("a.tmp"), &p("a"), &p("d/b.tmp"), &p("d/../b")]).ok();
    assert_eq!(text(&s, "a").as_deref(), Some("a.tmp"));
    assert_eq!(text(&s, "b").as_deref(), Some("d/b.tmp"));
    siftfs(&["publish", &p("a"), &p("b"), "--no-replace"]).fails(1, &["another file's already"]);
    siftfs(&["publish", &p("a"), &p("c"), &p("absent"), &p("e")]).fails(1, &["does not exist"]);
    siftfs(&["publish", &p("a"), &p("c"), &p("b")]).fails(2, &["has no new name"]);
    siftfs(&["publish", &p("a"), "/tmp/elsewhere"]).fails(1, &["not on the mount"]);
    siftfs(&["publish", &p("d"), &p("e")]).fails(1, &["only files"]);
    assert_eq!(text(&s, "a").as_deref(), Some("a.tmp"));
    s.umount().ok();
    s.assert_plain_ext4();
}
