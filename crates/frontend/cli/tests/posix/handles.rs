//! File handles: what name_to_handle_at(2) gave out is opened after the inode left the kernel's
//! memory, and after another mount; never as another file.

#![allow(unsafe_code)] // the two calls have no safe wrapper here

use crate::pair::open;
use crate::support::Setup;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// `struct file_handle` with room for the largest.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FileHandle {
    bytes: u32,
    kind: i32,
    id: [u32; 32],
}

fn handle_of(path: &Path) -> FileHandle {
    let mut handle = FileHandle { bytes: 128, kind: 0, id: [0; 32] };
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let mut mount: i32 = 0;
    // SAFETY: the handle says how much room it has; the call keeps no pointer.
    let result = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            libc::AT_FDCWD,
            path.as_ptr(),
            &raw mut handle,
            &raw mut mount,
            0,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    handle
}

fn open_handle(setup: &Setup, handle: &FileHandle, flags: OFlags) -> Result<OwnedFd, Errno> {
    let mount = open(Path::new(setup.dir()), OFlags::RDONLY | OFlags::DIRECTORY, 0)?;
    let mut handle = *handle;
    let flags = (flags | OFlags::CLOEXEC).bits();
    // SAFETY: the handle is one that the kernel filled; the call keeps no pointer.
    let fd = unsafe {
        let number = libc::SYS_open_by_handle_at;
        libc::syscall(number, mount.as_raw_fd(), &raw mut handle, flags)
    };
    match i32::try_from(fd) {
        // SAFETY: the call returned a new descriptor, which has no other owner.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap()),
    }
}

fn content(fd: &OwnedFd) -> Vec<u8> {
    let mut buffer = [0; 100];
    let n = rustix::io::pread(fd, &mut buffer, 0).unwrap();
    buffer[..n].to_vec()
}

/// Dentries and inodes that are not in use leave the kernel's memory.
fn forget_all() {
    std::fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
}

fn names(fd: &OwnedFd) -> Vec<String> {
    let dir = rustix::fs::Dir::read_from(fd).unwrap();
    let names = dir.map(|e| e.unwrap().file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn handles_outlive_the_kernels_memory_and_the_mount() {
    let setup = Setup::new();
    setup.mount("commit=1");
    std::fs::create_dir_all(setup.path("a/b/c")).unwrap();
    std::fs::write(setup.path("a/b/c/f"), "deep").unwrap();
    std::fs::write(setup.path("g"), "top").unwrap();
    std::os::unix::fs::symlink("g", setup.path("link")).unwrap();
    let of = |name: &str| handle_of(&setup.path(name));
    let (root, dir, deep, top) =
        (handle_of(Path::new(setup.dir())), of("a/b/c"), of("a/b/c/f"), of("g"));
    for again in ["cached", "forgotten", "mounted again"] {
        match again {
            "forgotten" => forget_all(),
            "mounted again" => {
                setup.umount();
                setup.mount("commit=1");
            }
            _ => {}
        }
        let open = |handle, flags| open_handle(&setup, handle, flags).expect(again);
        assert_eq!(content(&open(&deep, OFlags::RDWR)), b"deep", "{again}");
        assert_eq!(content(&open(&top, OFlags::RDONLY)), b"top", "{again}");
        let fd = open(&dir, OFlags::RDONLY | OFlags::DIRECTORY);
        assert_eq!(names(&fd), [".", "..", "f"], "{again}");
        let up = rustix::fs::openat(&fd, "../..", OFlags::RDONLY, rustix::fs::Mode::empty());
        assert_eq!(names(&up.unwrap()), [".", "..", "b"], "{again}");
        let fd = open(&root, OFlags::RDONLY | OFlags::DIRECTORY);
        assert!(names(&fd).contains(&"g".to_string()), "{again}");
        // By a handle a file is the same as by its name.
        let fd = open(&top, OFlags::WRONLY | OFlags::APPEND);
        rustix::io::write(&fd, b"!").unwrap();
        assert_eq!(std::fs::read(setup.path("g")).unwrap(), b"top!", "{again}");
        std::fs::write(setup.path("g"), "top").unwrap();
    }
    setup.umount();
    setup.assert_plain_ext4();
}

#[test]
fn handles_of_what_is_gone_are_stale() {
    let setup = Setup::new();
    setup.mount("commit=1");
    std::fs::write(setup.path("f"), "old").unwrap();
    std::fs::create_dir(setup.path("d")).unwrap();
    let (file, dir) = (handle_of(&setup.path("f")), handle_of(&setup.path("d")));
    let number = std::fs::metadata(setup.path("f")).unwrap().ino();
    std::fs::remove_file(setup.path("f")).unwrap();
    std::fs::remove_dir(setup.path("d")).unwrap();
    let stale = |handle: &FileHandle, when: &str| {
        let opened = open_handle(&setup, handle, OFlags::RDONLY).map(drop);
        assert_eq!(opened, Err(Errno::STALE), "{when}");
    };
    // The kernel closes files after close(2) has returned, and knows an inode as long as it does.
    let end = Instant::now() + Duration::from_secs(10);
    while open_handle(&setup, &file, OFlags::RDONLY).is_ok() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    stale(&file, "removed");
    stale(&dir, "removed");
    forget_all();
    stale(&file, "forgotten");
    // Numbers are used again, under another generation, once the removal is durable.
    crate::support::siftfs(&["checkpoint", setup.dir()]).ok();
    let reused = (0..2000).any(|i| {
        let path = setup.path(&format!("new{i}"));
        std::fs::write(&path, "new").unwrap();
        std::fs::metadata(path).unwrap().ino() == number
    });
    assert!(reused, "inode {number} was not used again");
    stale(&file, "used again");
    forget_all();
    stale(&file, "used again and forgotten");
    setup.umount();
    setup.mount("commit=1");
    stale(&file, "used again and mounted again");
    // A number that no file can have.
    for node in [0u64, 8, 2, 3, 11, u64::from(u32::MAX), u64::MAX] {
        let mut handle = file;
        (handle.id[0], handle.id[1]) = ((node >> 32) as u32, (node & 0xFFFF_FFFF) as u32);
        let opened = open_handle(&setup, &handle, OFlags::RDONLY).map(drop);
        assert_eq!(opened, Err(Errno::STALE), "node {node}");
    }
    setup.umount();
}
