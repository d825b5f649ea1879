//! Sections that end without a commit: nothing of them is left, neither in the kernel nor with us.

use crate::calls::{ABORT, Child, File, START};
use crate::mounted;
use crate::support::caches;
use rustix::fs::{OFlags, SeekFrom, seek};
use std::os::fd::AsRawFd;

const OLD: usize = 3 * 4096 + 100;

/// What a program that reads finds: all of it as it was before the section.
fn check(case: &str, reader: &File, map: &crate::calls::Map, direct: &File) {
    assert!(reader.all() == [1; OLD], "{case}: cached");
    assert!(direct.all() == [1; OLD], "{case}: past the cache");
    let mapped: Vec<u8> = (0..OLD).map(|i| map.at(i)).collect();
    assert!(mapped == [1; OLD], "{case}: mapped");
    assert!((OLD..4 * 4096).all(|i| map.at(i) == 0), "{case}: behind the end of the file");
    assert_eq!(rustix::fs::fstat(&reader.0).unwrap().st_size, OLD as i64, "{case}: fstat");
    assert_eq!(seek(&reader.0, SeekFrom::End(0)), Ok(OLD as u64), "{case}: its end");
}

fn section(f: &File) {
    f.call(START).unwrap();
    // A part of a page, a page, and the file's last page and more.
    f.write(10, &[2; 20]);
    f.write(4096, &[3; 4096]);
    f.write(OLD as u64 - 50, &[4; 10_000]);
    assert_eq!(f.all().len(), OLD + 9950);
}

/// However a section ends: what was in the kernel's pages of the file is gone when the call
/// returns, and so is the size, for the next program that appends as well.
#[test]
fn aborted_bytes_are_gone() {
    type End = fn(File);
    let ends: [(&str, End); 4] = [
        ("abort", |f| f.call(ABORT).unwrap()),
        ("close", drop),
        ("close of a copy", |f| {
            let copy = rustix::io::fcntl_dupfd_cloexec(&f.0, 0).unwrap();
            drop(copy);
            // The other one is still open.
            std::mem::forget(f);
        }),
        ("close of another descriptor of the file", |f| {
            let path = std::fs::read_link(format!("/proc/self/fd/{}", f.0.as_raw_fd())).unwrap();
            drop(File::open(&path, OFlags::RDWR));
            std::mem::forget(f);
        }),
    ];
    for cache in caches() {
        let s = mounted(cache);
        File::create(&s.path("f"), &[1; OLD]).sync();
        let reader = File::open(&s.path("f"), OFlags::RDONLY);
        let direct = File::open(&s.path("f"), OFlags::RDONLY | OFlags::DIRECT);
        let map = reader.map(4 * 4096);
        for (name, end) in ends {
            let case = &format!("{cache}, {name}");
            check(case, &reader, &map, &direct);
            let f = File::open(&s.path("f"), OFlags::RDWR);
            let fd = f.0.as_raw_fd();
            section(&f);
            end(f);
            check(case, &reader, &map, &direct);
            if name.starts_with("close of") {
                // SAFETY: what `end` left open has no other owner.
                unsafe { libc::close(fd) };
            }
            let append = File::open(&s.path("f"), OFlags::WRONLY | OFlags::APPEND);
            rustix::io::write(&append.0, b"end").unwrap();
            assert_eq!(reader.all().len(), OLD + 3, "{case}");
            assert_eq!(reader.all()[OLD..], *b"end", "{case}");
            append.truncate(OLD as u64);
        }
        s.kill_and_mount(cache);
        drop((reader, direct, map));
        assert!(std::fs::read(s.path("f")).unwrap()[..OLD - 1] == [1; OLD - 1]);
        s.umount();
        s.assert_plain_ext4();
    }
}

/// A process that ends, in whatever order its descriptors are closed, leaves nothing either. One
/// that inherited a copy and closes it ends nobody else's section.
#[test]
fn processes_end() {
    for cache in caches() {
        let s = mounted(cache);
        File::create(&s.path("f"), &[1; OLD]).sync();
        // Lower descriptors than those of the children, which inherit them.
        let reader = File::open(&s.path("f"), OFlags::RDWR);
        let direct = File::open(&s.path("f"), OFlags::RDONLY | OFlags::DIRECT);
        let map = reader.map(4 * 4096);
        let path = std::ffi::CString::new(s.path("f").to_str().unwrap()).unwrap();
        let data = [5u8; 9000];
        let child = Child::start(|| {
            // SAFETY: system calls on memory that outlives them.
            unsafe {
                let fd = libc::open(path.as_ptr(), libc::O_RDWR);
                let started = libc::ioctl(fd, START.into(), 0);
                let written = libc::pwrite(fd, data.as_ptr().cast(), data.len(), 5000);
                i32::from(fd < 0 || started != 0 || written != 9000)
            }
        });
        assert_eq!(child.wait(), 0);
        check(&format!("{cache}: a process ended"), &reader, &map, &direct);
        let f = File::open(&s.path("f"), OFlags::RDWR);
        f.call(START).unwrap();
        f.write(0, &[6; 4096]);
        let fd = f.0.as_raw_fd();
        let child = Child::start(|| {
            // SAFETY: a descriptor of the child's own.
            unsafe { libc::close(fd) }
        });
        assert_eq!(child.wait(), 0);
        let run = crate::support::run("true", &[]);
        assert_eq!(run.code, 0);
        assert_eq!(f.all()[0], 6, "{cache}: it is still there");
        f.call(crate::COMMIT).unwrap_or_else(|e| panic!("{cache}: {e}"));
        assert_eq!(direct.all()[..4096], [6; 4096]);
        drop((f, reader, direct, map));
        s.umount();
        s.assert_plain_ext4();
    }
}
