//! Mounts of a part of the tree.

#![allow(unsafe_code)] // calls with handles of files have no safe wrapper here

use crate::support::{SIFTFS, Setup, run, siftfs};
use crate::{Beside, THROUGH, fuse_for_all, names, shared};
use siftfs_client::{Compound, CompoundError, Level};
use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|e| e.raw_os_error())
}

/// A tree of directories and files.
fn tree(s: &Setup) {
    fs::create_dir_all(s.path("a/b/c")).unwrap();
    fs::write(s.path("outside"), "outside").unwrap();
    fs::write(s.path("a/above"), "above").unwrap();
    fs::write(s.path("a/b/file"), "inside").unwrap();
}

/// It shows that directory, and what is changed there is changed in the volume.
#[test]
fn a_part_of_the_tree() {
    let s = shared();
    tree(&s);
    let dir = Beside::of(&s, "part");
    dir.attach(&s, "subdir=/a/b/").ok();
    assert_eq!(names(&dir.path("")), ["c", "file"]);
    fs::write(dir.path("c/new"), "made").unwrap();
    fs::rename(dir.path("c/new"), dir.path("moved")).unwrap();
    assert_eq!(fs::read(s.path("a/b/moved")).unwrap(), b"made");
    fs::create_dir(dir.path("d")).unwrap();
    fs::remove_dir(dir.path("c")).unwrap();
    assert_eq!(names(&s.path("a/b")), ["d", "file", "moved"]);
    // The root has a number of its own, as every root here; all others are the volume's.
    assert_eq!(fs::metadata(dir.path("")).unwrap().ino(), fs::metadata(s.path("")).unwrap().ino());
    let same = |a: &Path, b: &Path| {
        let (a, b) = (fs::metadata(a).unwrap(), fs::metadata(b).unwrap());
        assert_eq!((a.ino(), a.mtime_nsec(), a.mode()), (b.ino(), b.mtime_nsec(), b.mode()));
    };
    same(&dir.path("file"), &s.path("a/b/file"));
    same(&dir.path("d"), &s.path("a/b/d"));
    // Its mode is that of the directory.
    fs::set_permissions(dir.path(""), Permissions::from_mode(0o710)).unwrap();
    dir.umount();
    assert_eq!(fs::metadata(s.path("a/b")).unwrap().mode() & 0o7777, 0o710);
    s.umount();
    s.assert_plain_ext4();
}

/// A first mount may be of a part, too.
#[test]
fn of_a_first_mount() {
    let s = Setup::new();
    s.mount(THROUGH);
    tree(&s);
    s.umount();
    s.mount(&format!("{THROUGH},shared,subdir=a"));
    assert_eq!(names(&s.path("")), ["above", "b"]);
    let dir = Beside::of(&s, "all");
    dir.attach(&s, "").ok();
    fs::write(s.path("made"), "in the part").unwrap();
    assert_eq!(fs::read(dir.path("a/made")).unwrap(), b"in the part");
    s.umount();
    dir.umount();
    s.assert_plain_ext4();
}

/// The number of an entry as the directory lists it.
fn listed(dir: &Path, name: &str) -> u64 {
    let file = File::open(dir).unwrap();
    let entries = rustix::fs::Dir::read_from(&file).unwrap();
    let found = entries.map(Result::unwrap).find(|e| e.file_name().to_bytes() == name.as_bytes());
    found.unwrap().ino()
}

/// `..` of the root is the root: by paths, in the listing, for compounds and for handles of files.
#[test]
fn nothing_leads_above() {
    let s = shared();
    tree(&s);
    let dir = Beside::of(&s, "part");
    dir.attach(&s, "subdir=a/b").ok();
    // Seen from inside: `..` beyond the root is what the mount lies on.
    let beside = fs::read_dir(dir.path("c/../..")).unwrap().map(|e| e.unwrap().file_name());
    assert!(beside.into_iter().any(|name| name == "volume"));
    assert_eq!(listed(&dir.path(""), "."), listed(&dir.path(""), ".."));
    assert_eq!(listed(&dir.path("c"), ".."), listed(&dir.path(""), "."));
    let root = File::open(dir.path("")).unwrap();
    for path in ["../above", "c/../../above", "/outside"] {
        let mut compound = Compound::on(&root);
        compound.unlink(path);
        match compound.run(Level::Visible) {
            Err(CompoundError::Refused { error, .. } | CompoundError::Failed(error)) => {
                assert!(error.raw_os_error().is_some(), "{path}: {error}");
            }
            Ok(_) => panic!("{path} was followed"),
        }
    }
    assert_eq!(fs::read(s.path("a/above")).unwrap(), b"above");
    // A handle of the volume's other mount means nothing here, before and after the kernel has
    // dropped what it knows of the part.
    for path in ["outside", "a/above", "a", ""] {
        let handle = Handle::of(&s.path(path));
        for _ in 0..2 {
            if let Ok(found) = handle.open(&root) {
                let found = fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd())).unwrap();
                assert!(found.starts_with(dir.dir()) && path.is_empty(), "{path}: {found:?}");
            }
            fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
        }
    }
    // One of the part works as long as the kernel knows the file.
    let held = File::open(dir.path("file")).unwrap();
    Handle::of(&dir.path("file")).open(&root).unwrap();
    drop((held, root));
    dir.umount();
    s.umount();
    s.assert_plain_ext4();
}

/// A handle of a file (name_to_handle_at(2)).
struct Handle(Vec<u64>);

impl Handle {
    fn of(path: &Path) -> Self {
        // A header of two numbers, and 128 bytes.
        let mut bytes = vec![0u64; 17];
        bytes[0] = 128;
        let path = CString::new(path.to_str().unwrap()).unwrap();
        let mut id = 0;
        // SAFETY: the handle is as large as its header says.
        let done = unsafe {
            libc::name_to_handle_at(
                libc::AT_FDCWD,
                path.as_ptr(),
                bytes.as_mut_ptr().cast(),
                &raw mut id,
                0,
            )
        };
        assert_eq!(done, 0, "{:?}", io::Error::last_os_error());
        Self(bytes)
    }

    fn open(&self, on: &File) -> io::Result<OwnedFd> {
        let mut copy = self.0.clone();
        // SAFETY: the handle is as large as its header says.
        let fd = unsafe {
            libc::open_by_handle_at(on.as_raw_fd(), copy.as_mut_ptr().cast(), libc::O_PATH)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just given it to us.
        Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) })
    }
}

/// The directory is removed while it is mounted: then the mount is an empty, removed directory.
#[test]
fn a_root_that_is_removed() {
    let s = shared();
    tree(&s);
    let dir = Beside::of(&s, "part");
    dir.attach(&s, "subdir=a/b/c").ok();
    fs::write(dir.path("last"), "x").unwrap();
    fs::remove_file(dir.path("last")).unwrap();
    let root = File::open(dir.path("")).unwrap();
    fs::remove_dir(s.path("a/b/c")).unwrap();
    assert_eq!(names(&dir.path("")), [""; 0]);
    assert_eq!(errno(fs::write(dir.path("new"), "x")), Some(libc::ENOENT));
    assert_eq!(errno(fs::create_dir(dir.path("new"))), Some(libc::ENOENT));
    assert_eq!(errno(symlink("x", dir.path("new"))), Some(libc::ENOENT));
    assert_eq!(errno(fs::metadata(dir.path("last"))), Some(libc::ENOENT));
    assert_eq!(errno(unnamed(&root)), Some(libc::ENOENT));
    assert_eq!(fs::metadata(dir.path("")).unwrap().nlink(), 0);
    // Its number is not another's meanwhile.
    for i in 0..50 {
        fs::create_dir(s.path(&format!("many{i}"))).unwrap();
    }
    assert_eq!(names(&dir.path("")), [""; 0]);
    let mut compound = Compound::on(&root);
    compound.create("made", 0o644);
    assert!(compound.run(Level::Visible).is_err());
    drop(root);
    dir.attach(&s, "").fails(1, &["already mounted"]);
    let other = Beside::of(&s, "other");
    other.attach(&s, "subdir=a/b/c").fails(1, &["subdir=a/b/c", "/a/b/c is not there"]);
    dir.umount();
    s.umount();
    s.assert_plain_ext4();
}

fn unnamed(dir: &File) -> io::Result<OwnedFd> {
    let flags = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR;
    Ok(rustix::fs::openat(dir.as_fd(), ".", flags, rustix::fs::Mode::RWXU)?)
}

/// The directory gets another name, and place, while it is mounted.
#[test]
fn a_root_that_is_moved() {
    let s = shared();
    tree(&s);
    let dir = Beside::of(&s, "part");
    dir.attach(&s, "subdir=a/b").ok();
    fs::rename(s.path("a/b"), s.path("elsewhere")).unwrap();
    fs::write(dir.path("after"), "x").unwrap();
    assert_eq!(names(&s.path("elsewhere")), ["after", "c", "file"]);
    dir.umount();
    s.umount();
    s.assert_plain_ext4();
}

/// Paths that lead to no directory of the volume.
#[test]
fn paths_that_are_none() {
    let s = shared();
    tree(&s);
    symlink("a", s.path("link")).unwrap();
    symlink("/", s.path("a/out")).unwrap();
    symlink("loop", s.path("loop")).unwrap();
    let dir = Beside::of(&s, "part");
    let long = "x".repeat(300);
    for (path, code, parts) in [
        ("missing", 1, ["subdir=missing: /missing", "is not there"]),
        ("a/b/missing/x", 1, ["/a/b/missing", "is not there"]),
        ("outside", 1, ["/outside", "is not a directory"]),
        ("outside/x", 1, ["/outside", "is not a directory"]),
        ("link", 1, ["/link", "symbolic link"]),
        ("link/b", 1, ["/link", "symbolic link"]),
        ("a/out", 1, ["/a/out", "symbolic link"]),
        ("loop", 1, ["/loop", "symbolic link"]),
        ("..", 2, ["subdir=..", "without `..`"]),
        ("a/../..", 2, ["subdir=a/../..", "without `..`"]),
        ("", 2, ["subdir=", "not a path"]),
        (&*long, 1, ["subdir=", "cannot be looked up"]),
    ] {
        let ran = dir.attach(&s, &format!("subdir={path}")).fails(code, &parts);
        assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
        assert!(!dir.is_mounted());
    }
    run(SIFTFS, &["mount", s.volume(), s.dir(), "-o", "remount,subdir=a"])
        .fails(1, &["subdir=a: "]);
    s.umount();
    // As a first mount: the volume is closed again.
    siftfs(&["mount", s.volume(), s.dir(), "-o", "subdir=missing"])
        .fails(1, &["/missing is not there"]);
    s.assert_plain_ext4();
}

/// Who is not root needs the right to search the path.
#[test]
fn a_path_that_may_not_be_searched() {
    const SOME: u32 = 65_534;
    let s = shared();
    tree(&s);
    fs::set_permissions(s.path("a"), Permissions::from_mode(0o700)).unwrap();
    fs::create_dir(s.path("open")).unwrap();
    s.umount();
    let open = |path: &Path| fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
    open(s.tmp.path());
    open(s.dir().as_ref());
    std::os::unix::fs::chown(s.volume(), Some(SOME), Some(SOME)).unwrap();
    let text = r#"
# A user with the right to mount, and no other.
"$SIFTFS" mount "$V" "$D" -o write_cache=writethrough,subdir=a/b > "$T/said" 2>&1 && exit 2
grep -q 'may not be looked up' "$T/said" || { cat "$T/said" >&2; exit 3; }
"$SIFTFS" mount "$V" "$D" -o write_cache=writethrough,subdir=open || exit 4
"$SIFTFS" umount "$D" || exit 5
"#;
    fuse_for_all(s.tmp.path());
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c"]);
    command.arg(format!(
        "set -e; mount -t tmpfs none /run; mkdir -m 777 /run/siftfs; mount --bind $T/fuse /dev/fuse; \
         exec setpriv --reuid {SOME} --regid {SOME} --clear-groups \
         --inh-caps +sys_admin --ambient-caps +sys_admin sh -c \"$TEXT\""
    ));
    command.env("TEXT", text);
    command.env("SIFTFS", SIFTFS).env("V", s.volume()).env("D", s.dir()).env("T", s.tmp.path());
    let out = command.output().unwrap();
    assert!(out.status.success(), "{out:?}");
    s.assert_plain_ext4();
}

/// What changes through another mount is seen below the root, and of the root itself: names that
/// were looked for, contents, attributes, listings.
#[test]
fn what_others_change_is_seen() {
    let s = shared();
    tree(&s);
    let dir = Beside::of(&s, "part");
    dir.attach(&s, "subdir=a/b").ok();
    assert_eq!(errno(fs::metadata(dir.path("late"))), Some(libc::ENOENT));
    assert_eq!(names(&dir.path("")), ["c", "file"]);
    assert_eq!(fs::read(dir.path("file")).unwrap(), b"inside");
    fs::write(s.path("a/b/late"), "now").unwrap();
    fs::write(s.path("a/b/file"), "changed").unwrap();
    fs::create_dir(s.path("a/b/c/d")).unwrap();
    fs::set_permissions(s.path("a/b"), Permissions::from_mode(0o701)).unwrap();
    assert_eq!(fs::read(dir.path("late")).unwrap(), b"now");
    assert_eq!(fs::read(dir.path("file")).unwrap(), b"changed");
    assert_eq!(names(&dir.path("")), ["c", "file", "late"]);
    assert_eq!(names(&dir.path("c")), ["d"]);
    assert_eq!(fs::metadata(dir.path("")).unwrap().mode() & 0o7777, 0o701);
    fs::remove_file(s.path("a/b/late")).unwrap();
    assert_eq!(errno(fs::metadata(dir.path("late"))), Some(libc::ENOENT));
    // And the reverse.
    assert_eq!(names(&s.path("a/b")), ["c", "file"]);
    fs::rename(dir.path("file"), dir.path("c/moved")).unwrap();
    fs::set_permissions(dir.path(""), Permissions::from_mode(0o755)).unwrap();
    assert_eq!(names(&s.path("a/b")), ["c"]);
    assert_eq!(fs::read(s.path("a/b/c/moved")).unwrap(), b"changed");
    assert_eq!(fs::metadata(s.path("a/b")).unwrap().mode() & 0o7777, 0o755);
    dir.umount();
    s.umount();
    s.assert_plain_ext4();
}
