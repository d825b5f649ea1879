//! What common programs cost in requests. Each number is a bound that a change must not cross
//! unseen, with the kernel's reason for what is left.

use crate::support::{Setup, run, siftfs};
use crate::{counted, mount, requests_of, writeback};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

const FILES: u64 = 300;

/// A tree of 300 files in six directories.
fn tree(s: &Setup) {
    for d in 0..6 {
        fs::create_dir_all(s.path(&format!("a/{d}"))).unwrap();
        for f in 0..FILES / 6 {
            fs::write(s.path(&format!("a/{d}/{f}")), vec![d as u8; 3000]).unwrap();
        }
    }
}

/// A walk brings every entry's attributes along, the first time and later: no LOOKUP and no
/// GETATTR per file, and the second walk none at all.
#[test]
fn a_walk_asks_for_no_file_by_itself() {
    let s = Setup::new();
    mount(&s, "");
    tree(&s);
    s.umount();
    mount(&s, "");
    let a = s.path("a");
    let walk = || drop(run("du", &["-s", a.to_str().unwrap()]).ok());
    let kinds = ["lookup", "getattr", "statx", "opendir", "readdir", "readdirplus"];
    let first = requests_of(&s, &kinds, walk);
    assert!(first[..3].iter().sum::<u64>() <= 10, "{first:?}");
    assert!(first[5] >= 7 && first[5] <= 40, "{first:?}");
    // Each directory's atime is another since it was read.
    let second = requests_of(&s, &kinds, walk);
    assert!(second.iter().sum::<u64>() <= 10 && second[3..] == [0; 3], "{second:?}");
    assert_eq!(requests_of(&s, &kinds, walk), [0; 6]);
    s.umount();
}

/// The names of a large directory cost few requests. Attributes come with the first of them, so
/// that a program that reads to the end first looks at those for nothing, and with more of them for
/// one that looks at each as it comes.
#[test]
fn names_of_a_large_directory_come_without_attributes() {
    const FILES: u64 = 6_000;
    let s = Setup::empty();
    siftfs(&["mkfs", s.volume(), "--size", "512M"]).ok();
    mount(&s, "");
    std::fs::create_dir(s.path("d")).unwrap();
    (0..FILES).for_each(|i| drop(File::create(s.path("d").join(format!("name {i}"))).unwrap()));
    s.umount();
    let kinds = ["readdir", "readdirplus", "lookup", "getattr"];
    let list = || std::fs::read_dir(s.path("d")).unwrap().map(|e| e.unwrap());
    mount(&s, "");
    let names = requests_of(&s, &kinds, || assert_eq!(list().count() as u64, FILES));
    assert!((1..=4).contains(&names[0]) && names[1] == 1, "{names:?}");
    assert!(names[2] + names[3] <= 4, "{names:?}");
    let look = |entries: Vec<std::fs::DirEntry>| entries.iter().for_each(|e| drop(e.metadata()));
    let first = requests_of(&s, &kinds, || look(list().take(1_000).collect()));
    assert!(first.iter().sum::<u64>() <= 4, "{first:?}");
    s.umount();
    mount(&s, "");
    let each =
        requests_of(&s, &kinds, || list().for_each(|e| assert!(e.metadata().unwrap().is_file())));
    assert!(each[1] >= 4 && each[0] == 0 && each[2] + each[3] <= 4, "{each:?}");
    s.umount();
}

/// lseek(2) for data and holes in a file that is open to read and write is one request, as long
/// as nothing was stored through a mapping. The first one has the daemon open the file, too, and
/// that ends with the program's last descriptor to write.
#[test]
fn seeks_in_a_file_in_use_ask_for_nothing_else() {
    const EXTENTS: u64 = 50;
    for cache in ["write_cache=writethrough", "write_cache=writeback"] {
        let s = Setup::new();
        mount(&s, cache);
        let f = File::options().read(true).write(true).create_new(true).open(s.path("f")).unwrap();
        for i in 0..EXTENTS {
            f.write_all_at(&[1; 4096], i * 16384).unwrap();
        }
        f.set_len(EXTENTS * 16384).unwrap();
        f.sync_all().unwrap();
        let scan = || {
            let reader = File::open(s.path("f")).unwrap();
            let seek = |to| rustix::fs::seek(&reader, to).unwrap();
            for at in (0..EXTENTS).map(|i| i * 16384) {
                assert_eq!(seek(rustix::fs::SeekFrom::Data(at.saturating_sub(9000))), at);
                assert_eq!(seek(rustix::fs::SeekFrom::Hole(at)), at + 4096, "{cache}");
            }
        };
        let kinds = ["lseek", "open", "write", "setattr", "fsync"];
        assert_eq!(requests_of(&s, &kinds, scan), [2 * EXTENTS, 2, 0, 0, 0], "{cache}");
        assert_eq!(requests_of(&s, &kinds, scan), [2 * EXTENTS, 1, 0, 0, 0], "{cache}");
        // One page that is dirty costs one WRITE, and is data at once.
        // SAFETY: the mapping is a new one, and ends after its last use.
        let map = unsafe {
            let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            libc::mmap(std::ptr::null_mut(), 16384, prot, flags, f.as_raw_fd(), 0)
        };
        assert_ne!(map, libc::MAP_FAILED);
        for page in 1..3 {
            // The store is counted with the call: a kernel with many dirty pages elsewhere writes
            // the page by itself at once, and then the call finds nothing to write.
            let store_and_seek = || {
                // SAFETY: within the mapping.
                unsafe { map.cast::<u8>().add(page * 4096).write_volatile(1) };
                let end = rustix::fs::seek(&f, rustix::fs::SeekFrom::Hole(0)).unwrap();
                assert_eq!(end, (page as u64 + 1) * 4096, "{cache}");
            };
            let sent = requests_of(&s, &kinds[..3], store_and_seek);
            assert_eq!(sent, [1, 0, 1], "{cache}, page {page}");
        }
        // SAFETY: nobody uses it any more.
        assert_eq!(unsafe { libc::munmap(map, 16384) }, 0);
        let released = || counted(&s)["release"];
        let (before, limit) = (released(), Instant::now() + Duration::from_secs(60));
        drop(f);
        while released() < before + 2 {
            assert!(Instant::now() < limit, "{cache}: the daemon has the file open");
            std::thread::sleep(Duration::from_millis(1));
        }
        s.umount();
        s.assert_plain_ext4();
    }
}

/// Removing a tree that is not in the kernel's cache: one request per file.
#[test]
fn rm_looks_nothing_up() {
    let s = Setup::new();
    mount(&s, "");
    tree(&s);
    s.umount();
    mount(&s, "");
    let a = s.path("a");
    let sent = requests_of(&s, &["unlink", "lookup", "opendir"], || {
        run("rm", &["-rf", a.to_str().unwrap()]).ok();
    });
    assert!(sent[0] == FILES && sent[1] <= 10 && sent[2] <= 1, "{sent:?}");
    s.umount();
}

/// Making a file: the kernel sends LOOKUP for its name, asks for the directory's attributes anew
/// (each change makes it forget them) and for the capability that a write would have to clear; then
/// CREATE, the data in one WRITE, RELEASE. No FLUSH, unless the kernel writes pages back at
/// close(2): then it takes no word for it that a handle needs none.
#[test]
fn a_new_file_is_six_requests() {
    for (cache, flushes) in [("writethrough", 0), ("writeback", 100)] {
        let s = Setup::new();
        mount(&s, &format!("write_cache={cache}"));
        let sent = requests_of(
            &s,
            &["lookup", "getattr", "getxattr", "create", "write", "flush", "fsync", "release"],
            || {
                for i in 0..100 {
                    let f = File::create(s.path(&format!("f{i}"))).unwrap();
                    f.write_all_at(&[7; 3000], 0).unwrap();
                }
            },
        );
        assert_eq!(sent[0], 100, "{sent:?}");
        assert!(sent[1] <= 100 && sent[2] <= 100, "{sent:?}");
        // A child that another test starts meanwhile closes its copy of the descriptor, and a
        // kernel with many dirty pages elsewhere writes a page before its file is closed.
        let copies = if flushes == 0 { 0 } else { 5 };
        assert!(sent[3] == 100 && (100..=100 + copies).contains(&sent[4]), "{sent:?}");
        assert!((flushes..=flushes + copies).contains(&sent[5]) && sent[6] == 0, "{sent:?}");
        s.umount();
    }
}

/// Appends of 512 bytes: a request per page and not per call, and fewer where pages meet.
#[test]
fn appends_meet_in_the_kernel() {
    let s = writeback();
    let f = File::create(s.path("f")).unwrap();
    let sent = requests_of(&s, &["write", "setattr"], || {
        for i in 0..20_000 {
            f.write_all_at(&[i as u8; 512], i * 512).unwrap();
        }
        f.sync_all().unwrap();
    });
    assert!(sent[0] <= 2_500, "{sent:?}");
    assert_eq!(f.metadata().unwrap().len(), 20_000 * 512);
    drop(f);
    s.umount();
    s.assert_plain_ext4();
}
