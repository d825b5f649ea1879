//! Programs that are killed with a section open, while another waits for their lock.

use crate::calls::{COMMIT, Child, File, Map, START, lock};
use crate::mounted;
use crate::support::caches;
use rustix::fs::OFlags;
use std::io::Read;
use std::time::Duration;

const PAGES: usize = 6;
/// The pages that each section writes; others stay as they are.
const WRITTEN: [usize; 3] = [0, 2, 5];

/// How who waits for the lock looks at the file. A page that is mapped is dropped by another way
/// than one that is not.
#[derive(Clone, Copy, Debug)]
enum Reader {
    /// By read(2) and by a mapping that it has had all the time.
    Mapped,
    /// By read(2) alone; nobody has the file mapped.
    Unmapped,
}

const READERS: [Reader; 2] = [Reader::Mapped, Reader::Unmapped];

/// Rounds of a test, with all caches and readers together: this many every day, this many in a long
/// run. A quarter of them for each pair.
struct Rounds(u64, u64);

impl Rounds {
    fn each(&self) -> u64 {
        let all = if std::env::var_os("SIFTFS_LONG").is_some() { self.1 } else { self.0 };
        all / (caches().len() * READERS.len()) as u64
    }
}

/// A section with the lock, again and again: each page gets the round's number in all of its bytes.
/// Says so before each write and behind the last.
fn sections(path: &std::ffi::CStr, commits: bool, tell: i32) -> i32 {
    let mut page = [0u8; 4096];
    // SAFETY: system calls on memory that outlives them.
    unsafe {
        // With a descriptor that was inherited, and opened to read only, the lock would go before
        // the section ends, if its number is the lowest: while other tests open files it may be.
        let others = [(3, tell as u32 - 1), (tell as u32 + 1, u32::MAX)];
        for (first, last) in others {
            libc::close_range(first, last, 0);
        }
        let fd = libc::open(path.as_ptr(), libc::O_RDWR);
        if fd < 0 || lock(fd, libc::F_SETLK) != 0 {
            return 1;
        }
        for round in 2u8.. {
            if libc::ioctl(fd, START.into(), 0) != 0 {
                return 2;
            }
            page.fill(round);
            for (i, index) in WRITTEN.into_iter().chain([PAGES + 3]).enumerate() {
                let at = (index * 4096) as libc::off_t;
                if libc::pwrite(fd, page.as_ptr().cast(), 4096, at) != 4096 {
                    return 3;
                }
                if i == 1 && libc::write(tell, page.as_ptr().cast(), 1) != 1 {
                    return 4;
                }
            }
            if !commits {
                libc::pause();
            }
            if round == 255 || libc::ioctl(fd, COMMIT.into(), 0) != 0 {
                return 5;
            }
        }
    }
    6
}

/// A program is killed at any moment in a section. The program that then gets its lock finds, by
/// read(2), by a mapping, in the file's size, what the last commit left: the same as past the
/// kernel's cache.
fn killed(cache: &str, kind: Reader, commits: bool, rounds: u64) {
    let s = mounted(cache);
    let path = std::ffi::CString::new(s.path("f").to_str().unwrap()).unwrap();
    for round in 0..rounds {
        File::create(&s.path("f"), &[1; PAGES * 4096]).sync();
        let reader = File::open(&s.path("f"), OFlags::RDWR);
        let map = matches!(kind, Reader::Mapped).then(|| reader.map(PAGES * 4096));
        let (mut heard, tell) = std::io::pipe().unwrap();
        let told = std::os::fd::AsRawFd::as_raw_fd(&tell);
        let child = Child::start(|| sections(&path, commits, told));
        // The child must not have a copy of it: with the close of that one it would lose its lock,
        // and of a file that was opened to be read we are told nothing.
        let direct = File::open(&s.path("f"), OFlags::RDONLY | OFlags::DIRECT);
        heard.read_exact(&mut [0u8; 1]).unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                reader.lock();
                let size = rustix::fs::fstat(&reader.0).unwrap().st_size;
                let mapped = |map: &Map| (0..PAGES * 4096).map(|i| map.at(i)).collect();
                let mapped: Option<Vec<u8>> = map.as_ref().map(mapped);
                (reader.all(), mapped, size)
            });
            std::thread::sleep(Duration::from_micros(500 + round * 97 % 3000));
            child.kill();
            let (read, mapped, size) = waits.join().unwrap();
            let truth = direct.all();
            let first = |bytes: &[u8]| bytes.iter().step_by(4096).copied().collect::<Vec<u8>>();
            let (shown, direct) = (first(&read), first(&truth));
            let mapping = mapped.as_ref().map(|bytes| first(bytes));
            let case = format!(
                "{cache}, {kind:?}, round {round}: read {shown:?}, mapped {mapping:?}, {direct:?}"
            );
            assert!(read == truth, "{case}: read(2) finds what is not committed");
            let same = mapped.is_none_or(|mapped| mapped == truth[..PAGES * 4096]);
            assert!(same, "{case}: a mapping finds it");
            assert_eq!(size, truth.len() as i64, "{case}: the size tells of it");
            let last = truth[0];
            let all = (0..PAGES).all(|page| {
                let want = if WRITTEN.contains(&page) { last } else { 1 };
                truth[page * 4096..][..4096] == [want; 4096]
            });
            assert!(all && (commits || last == 1), "{case}: half of a section");
            assert_eq!(truth.len() > PAGES * 4096, last != 1, "{case}: half of a section");
        });
        assert_eq!(child.wait(), -1, "it was killed");
    }
    s.umount();
    s.assert_plain_ext4();
}

fn killed_with_all(commits: bool, rounds: &Rounds) {
    for cache in caches() {
        for kind in READERS {
            killed(cache, kind, commits, rounds.each());
            println!("{cache}, {kind:?}: {} kills", rounds.each());
        }
    }
}

#[test]
fn between_write_and_commit() {
    killed_with_all(false, &Rounds(400, 10_000));
}

#[test]
fn at_any_moment() {
    killed_with_all(true, &Rounds(160, 8000));
}
