//! Compounds on a mount, under both write caches. Needs root, `/dev/fuse` and e2fsprogs.

#![allow(unsafe_code)]

#[path = "compounds/appends.rs"]
mod appends;
#[allow(dead_code)] // made for sections
#[path = "sections/calls.rs"]
mod calls;
#[path = "compounds/memory.rs"]
mod memory;
#[path = "compounds/pairs.rs"]
mod pairs;
#[path = "compounds/refused.rs"]
mod refused;
#[allow(dead_code)] // each test program uses a part of it
mod support;
#[path = "compounds/views.rs"]
mod views;

use calls::{COMMIT, File, START};
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use siftfs_base::Timestamp;
use siftfs_client::{Access, Checksum, Codec, Compound, Level, NewAttributes, Width};
use siftfs_proto::SetTime;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::{Setup, caches};

/// A volume mounted with this cache. A smaller one has a journal that takes few names at a time.
fn mounted(cache: &str) -> Setup {
    let s = Setup::of_size("256M");
    s.mount(&format!("write_cache={cache},commit=3600"));
    s
}

fn root(s: &Setup) -> File {
    File::open(&s.path(""), OFlags::RDONLY | OFlags::DIRECTORY)
}

fn read(s: &Setup, name: &str) -> Vec<u8> {
    std::fs::read(s.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Each kind of result comes back as it is.
#[test]
fn results() {
    for cache in caches() {
        let s = mounted(cache);
        let dir = root(&s);
        let f = File::create(&s.path("f"), b"some bytes, and 7\0\0\0\0\0\0\0");
        let mut steps = Compound::on(&dir.0);
        let bytes = steps.read(&f.0, 0, 10);
        let sum = steps.checksum(Checksum::Crc32c, bytes);
        let frame = steps.compress(Codec::Zstd, bytes);
        let again = steps.decompress(Codec::Zstd, frame, 100);
        let part = steps.patch(&f.0, 0, b"SOME");
        let number = steps.add_to(&f.0, 17, Width::U32, 3);
        let end = steps.append(&f.0, bytes.part(5, 5));
        let new = steps.create("new", 0o640);
        let len = steps.write(new, 0, sum);
        let unwanted = steps.read(&f.0, 0, 1 << 20);
        steps
            .want(bytes)
            .want(sum)
            .want(again)
            .want(part)
            .want(number)
            .want(end)
            .want(new)
            .want(len);
        let results = steps.run(Level::Visible).expect("carried out");
        assert_eq!(results.bytes(bytes), Some(&b"some bytes"[..]), "{cache}");
        assert_eq!(results.bytes(again), Some(&b"some bytes"[..]));
        assert_eq!(results.bytes(part), Some(&b"some"[..]));
        assert_eq!((results.number(number), results.number(end)), (Some(0), Some(24)));
        assert_eq!((results.number(len), results.bytes(unwanted)), (Some(4), None));
        let meta = std::fs::metadata(s.path("new")).unwrap();
        assert_eq!((results.file(new), meta.mode() & 0o7777), (Some(meta.ino()), 0o640));
        let stored = u32::from_le_bytes(read(&s, "new").try_into().unwrap());
        assert_eq!(results.number(sum), Some(stored.into()));
        assert_eq!(read(&s, "f"), b"SOME bytes, and 7\x03\0\0\0\0\0\0bytes");
        drop((f, dir));
        s.umount();
        s.assert_plain_ext4();
    }
}

/// The kernel keeps listings. One that it has shows what a compound made under a name that no
/// program ever asked for, and not what a compound removed: rewound, and opened anew.
#[test]
fn a_listing_shows_names_never_looked_up() {
    for cache in caches() {
        let s = mounted(cache);
        std::fs::create_dir(s.path("d")).unwrap();
        let open = || File::open(&s.path("d"), OFlags::RDONLY | OFlags::DIRECTORY);
        let dir = open();
        let names = |dir: &File| {
            rustix::fs::seek(&dir.0, rustix::fs::SeekFrom::Start(0)).unwrap();
            let mut buffer = vec![std::mem::MaybeUninit::uninit(); 4096];
            let mut entries = rustix::fs::RawDir::new(&dir.0, &mut buffer);
            let mut names = Vec::new();
            while let Some(entry) = entries.next() {
                names.push(entry.unwrap().file_name().to_string_lossy().into_owned());
            }
            names.retain(|name| !name.starts_with('.'));
            names
        };
        // Until the kernel has it all.
        (0..3).for_each(|_| assert_eq!(names(&dir), [""; 0]));
        let mut steps = Compound::on(&dir.0);
        steps.create("new", 0o600);
        steps.run(Level::Visible).expect("carried out");
        assert_eq!((names(&dir), names(&open())), (vec!["new".into()], vec!["new".into()]));
        let mut steps = Compound::on(&dir.0);
        steps.unlink("new");
        steps.run(Level::Visible).expect("carried out");
        assert_eq!((names(&dir).len(), names(&open()).len()), (0, 0), "{cache}");
        drop(dir);
        s.umount();
    }
}

/// What the kernel had in its caches is old at once: pages, sizes, times, names, listings, and the
/// place where write(2) appends.
#[test]
fn others_see_it_at_once() {
    for cache in caches() {
        let s = mounted(cache);
        let dir = root(&s);
        for name in ["f", "g", "moved", "gone"] {
            File::create(&s.path(name), &[1; 10_000]).sync();
        }
        let (reader, g) =
            (File::open(&s.path("f"), OFlags::RDONLY), File::open(&s.path("g"), OFlags::RDWR));
        let map = reader.map(12_000);
        let appender = File::open(&s.path("f"), OFlags::WRONLY | OFlags::APPEND);
        let list = || {
            let entries = std::fs::read_dir(s.path("")).unwrap();
            let mut names: Vec<_> = entries
                .map(|e| e.unwrap().file_name().into_string().unwrap())
                .filter(|name| name != "lost+found")
                .collect();
            names.sort();
            names
        };
        let stat = |name: &str| std::fs::metadata(s.path(name)).unwrap();
        assert_eq!((reader.all()[100], map.at(100), stat("f").len()), (1, 1, 10_000));
        assert_eq!((list().len(), s.path("new").exists(), g.all().len()), (4, false, 10_000));
        let before = [stat("f"), stat("g")];
        std::thread::sleep(std::time::Duration::from_millis(20));
        let mut steps = Compound::on(&dir.0);
        let f = steps.open("f", Access::Both);
        steps.write(f, 100, &[2; 10]);
        steps.append(f, &[3; 2000]);
        steps.set_len(&g.0, 5);
        let new = steps.create("new", 0o644);
        steps.write(new, 0, b"new");
        steps.rename("moved", "there").unlink("gone");
        steps.run(Level::Visible).expect("carried out");
        assert_eq!((map.at(100), map.at(11_000)), (2, 3), "{cache}: mapped");
        assert_eq!((stat("f").len(), stat("g").len()), (12_000, 5), "{cache}");
        let all = reader.all();
        assert_eq!((all.len(), all[100], all[110], all[10_000]), (12_000, 2, 1, 3), "{cache}");
        assert_eq!((g.all(), read(&s, "new")), (vec![1; 5], b"new".to_vec()));
        assert_eq!((list().join(" "), s.path("gone").exists()), ("f g new there".into(), false));
        for (name, before) in ["f", "g"].iter().zip(&before) {
            assert!(stat(name).modified().unwrap() > before.modified().unwrap(), "{cache}: {name}");
        }
        rustix::io::write(&appender.0, b"appended").unwrap();
        let all = reader.all();
        assert_eq!((all.len(), &all[12_000..]), (12_008, &b"appended"[..]), "{cache}");
        assert_eq!(all[11_999], 3);
        drop((reader, g, map, appender, dir));
        s.kill_and_mount(cache);
        s.umount();
        s.assert_plain_ext4();
    }
}

/// A listing that the kernel keeps is old as soon as a name is made that it has never looked up.
#[test]
fn listings_of_names_that_nobody_asked_for() {
    for cache in caches() {
        let s = mounted(cache);
        std::fs::create_dir(s.path("d")).unwrap();
        let dir = root(&s);
        let list = || {
            let entries = std::fs::read_dir(s.path("d")).unwrap();
            let mut names: Vec<_> =
                entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        let mut all = Vec::new();
        for name in ["a", "b", "c", "d"] {
            assert_eq!(list(), all, "{cache}");
            let before = std::fs::metadata(s.path("d")).unwrap().modified().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
            let mut steps = Compound::on(&dir.0);
            steps.create(format!("d/{name}"), 0o644);
            steps.run(Level::Visible).expect("carried out");
            all.push(name.to_string());
            assert_eq!(list(), all, "{cache}");
            assert_ne!(std::fs::metadata(s.path("d")).unwrap().modified().unwrap(), before);
        }
        drop(dir);
        s.umount();
    }
}

/// Stores through mappings, and what the kernel holds back, come first; a mapping shows what steps
/// wrote, and what is stored later stays.
#[test]
fn what_the_kernel_holds_comes_first() {
    for cache in caches() {
        let s = mounted(cache);
        let dir = root(&s);
        let f = File::create(&s.path("f"), &[1; 8192]);
        let mut map = f.map(8192);
        map.store(10, 7);
        f.write(20, &[8]);
        let mut steps = Compound::on(&dir.0);
        let found = steps.read(&f.0, 0, 30);
        steps.write(&f.0, 30, &[9; 10]);
        steps.want(found);
        let results = steps.run(Level::Durable).expect("carried out");
        let found = results.bytes(found).unwrap();
        assert_eq!((found[10], found[20]), (7, 8), "{cache}");
        assert_eq!((map.at(10), map.at(20), map.at(30)), (7, 8, 9), "{cache}");
        map.store(40, 5);
        f.sync();
        drop((map, f, dir));
        s.kill_and_mount(cache);
        let all = read(&s, "f");
        assert_eq!((all.len(), all[10], all[20], all[30], all[40]), (8192, 7, 8, 9, 5), "{cache}");
        s.umount();
        s.assert_plain_ext4();
    }
}

/// Durable on return: what files had in the kernel's cache as well as what the steps did.
#[test]
fn durable_survives_the_daemon() {
    for cache in caches() {
        let s = mounted(cache);
        let dir = root(&s);
        let f = File::create(&s.path("f"), &[1; 100_000]);
        let mut steps = Compound::on(&dir.0);
        steps.write(&f.0, 50_000, &[2; 8000]);
        let new = steps.create("new", 0o600);
        let sum = steps.checksum(Checksum::Xxh3, &[2; 8000]);
        steps.append(new, sum);
        steps.close(new).rename("new", "sum");
        steps.run(Level::Durable).expect("carried out");
        s.kill_and_mount(cache);
        drop((f, dir));
        let all = read(&s, "f");
        assert!(all.len() == 100_000 && all[..50_000] == [1; 50_000], "{cache}");
        assert!(all[50_000..58_000] == [2; 8000] && all[58_000..] == [1; 42_000], "{cache}");
        assert_eq!((read(&s, "sum").len(), s.path("new").exists()), (8, false), "{cache}");
        // A descriptor that promises it, whatever the level.
        let (dir, f) = (root(&s), File::open(&s.path("f"), OFlags::WRONLY | OFlags::DSYNC));
        let mut steps = Compound::on(&dir.0);
        steps.write(&f.0, 0, &[5; 10]);
        steps.run(Level::Visible).expect("carried out");
        s.kill_and_mount(cache);
        drop((f, dir));
        assert_eq!(read(&s, "f")[..11], [5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 1], "{cache}");
        s.umount();
        s.assert_plain_ext4();
    }
}

/// Times that a step sets are those that stat(2) shows, also where the kernel owns them.
#[test]
fn times_that_are_set() {
    for cache in caches() {
        let s = mounted(cache);
        let dir = root(&s);
        let f = File::create(&s.path("f"), &[1; 100]);
        let at = |sec| Some(SetTime::At(Timestamp { sec, nsec: 5 }));
        let set =
            NewAttributes { perm: Some(0o600), atime: at(7), mtime: at(9), ..Default::default() };
        let mut steps = Compound::on(&dir.0);
        steps.set_attributes(&f.0, set);
        steps.run(Level::Visible).expect("carried out");
        let now = std::fs::metadata(s.path("f")).unwrap();
        assert_eq!((now.atime(), now.mtime(), now.mtime_nsec()), (7, 9, 5), "{cache}");
        assert_eq!(now.mode() & 0o7777, 0o600);
        drop((f, dir));
        s.umount();
        s.mount("");
        assert_eq!(std::fs::metadata(s.path("f")).unwrap().mtime(), 9, "{cache}: in the volume");
        s.umount();
    }
}

/// Who has a section sees its own bytes; the steps work on the file's. A section is void when its
/// bytes are others, and only then.
#[test]
fn a_file_with_a_section() {
    for cache in caches() {
        let s = mounted(cache);
        let dir = root(&s);
        let f = File::create(&s.path("f"), &[1; 3 * 4096]);
        f.sync();
        for (at, committed) in [(8192, Ok(())), (0, Err(libc::ECANCELED))] {
            f.call(START).unwrap();
            f.write(0, &[2; 4096]);
            f.write(3 * 4096, &[2; 100]);
            let writer = File::open(&s.path("f"), OFlags::RDWR);
            let mut steps = Compound::on(&dir.0);
            let found = steps.patch(&writer.0, at, &[3; 10]);
            steps.want(found);
            let results = steps.run(Level::Visible).expect("carried out");
            assert_eq!(results.bytes(found), Some(&[1; 10][..]), "{cache}");
            assert_eq!(f.all().len(), 3 * 4096 + 100, "{cache}: the owner's bytes are there");
            assert_eq!(f.call(COMMIT), committed, "{cache}");
            if committed.is_err() {
                f.call(calls::ABORT).unwrap();
            }
            f.truncate(0);
            f.write(0, &[1; 3 * 4096]);
        }
        drop((f, dir));
        s.umount();
        s.assert_plain_ext4();
    }
}

/// Many programs at once, with what else the kernel's threads wait for: renames, writes, stores.
/// No addition is lost, and none of two that belong together is there alone.
#[test]
fn many_at_once() {
    for cache in caches() {
        let s = mounted(cache);
        File::create(&s.path("f"), &[0; 8192]).sync();
        File::create(&s.path("g"), &[0; 8192]).sync();
        File::create(&s.path("log"), b"").sync();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (s, stop) = (&s, &stop);
            for body in [busy_renames, busy_pages, busy_reads] {
                scope.spawn(move || body(s, stop));
            }
            let adders: Vec<_> = (0..4).map(|_| scope.spawn(|| add_to_both(s))).collect();
            adders.into_iter().for_each(|adder| adder.join().unwrap());
            stop.store(true, Ordering::SeqCst);
        });
        for name in ["f", "g"] {
            assert_eq!(read(&s, name)[..8], 400u64.to_le_bytes(), "{cache}: {name}");
        }
        assert_eq!(read(&s, "log").len(), 400 * 8, "{cache}");
        s.kill_and_mount(cache);
        s.umount();
        s.assert_plain_ext4();
    }
}

/// What steps open is closed with the call: removed files are gone.
#[test]
fn nothing_stays_open() {
    let s = mounted("writethrough");
    let dir = root(&s);
    for round in 0..4 {
        let f = File::create(&s.path("big"), b"");
        let begun = Instant::now();
        // A served volume is another process: what was closed is closed there a moment later.
        let patience = Duration::from_secs(if support::serving::everywhere() { 5 } else { 0 });
        while let Err(e) = fallocate(&f.0, FallocateFlags::empty(), 0, 130 << 20) {
            assert!(begun.elapsed() < patience, "round {round}: {e}");
            support::siftfs(&["checkpoint", s.dir()]).ok();
        }
        let mut steps = Compound::on(&dir.0);
        let wanted = steps.open("big", Access::Both);
        let _unwanted = steps.open("big", Access::Read);
        steps.append(&f.0, b"x");
        steps.want(wanted);
        steps.run(Level::Visible).expect("carried out");
        drop(f);
        std::fs::remove_file(s.path("big")).unwrap();
        support::siftfs(&["checkpoint", s.dir()]).ok();
    }
    drop(dir);
    s.umount();
    s.assert_plain_ext4();
}

/// The daemon is killed at any moment: a compound that returned is there, and one that did not is
/// there whole or not at all. The kernel's threads and ours end.
#[test]
fn killed_at_any_moment() {
    for cache in caches() {
        let s = mounted(cache);
        for (round, pause) in (1..=6).map(|round| (round, round * 7 % 31)) {
            File::create(&s.path("f"), &[0; 8]).sync();
            File::create(&s.path("g"), &[0; 8]).sync();
            // Open before the kill, however late the thread starts.
            let dir = root(&s);
            let done = std::thread::scope(|scope| {
                let adder = scope.spawn(move || add_until_it_fails(dir));
                std::thread::sleep(std::time::Duration::from_millis(pause));
                s.kill_and_mount(cache);
                adder.join().unwrap()
            });
            let (f, g) = (read(&s, "f"), read(&s, "g"));
            let number = u64::from_le_bytes(f[..8].try_into().unwrap());
            assert!(number == done || number == done + 1, "{cache}, {round}: {number}, not {done}");
            let mut log = vec![0; 8];
            (0..number).for_each(|n| log.extend(n.to_le_bytes()));
            assert!(f[..8] == g[..8] && g.len() == log.len() && g[8..] == log[8..], "{cache}");
        }
        s.umount();
        s.assert_plain_ext4();
    }
}

/// Counts in one file and tells it in another; how often that was durable.
fn add_until_it_fails(dir: File) -> u64 {
    for done in 0.. {
        let mut steps = Compound::on(&dir.0);
        let (f, g) = (steps.open("f", Access::Both), steps.open("g", Access::Both));
        let number = steps.add_to(f, 0, Width::U64, 1);
        steps.add_to(g, 0, Width::U64, 1);
        steps.append(g, number);
        if steps.run(Level::Durable).is_err() {
            return done;
        }
    }
    unreachable!("it is killed")
}

fn add_to_both(s: &Setup) {
    let dir = root(s);
    let f = File::open(&s.path("f"), OFlags::RDWR);
    for round in 0..100 {
        let mut steps = Compound::on(&dir.0);
        let (g, log) = (steps.open("g", Access::Both), steps.open("log", Access::Write));
        let number = steps.add_to(&f.0, 0, Width::U64, 1);
        let other = steps.add_to(g, 0, Width::U64, 1);
        steps.append(log, number);
        steps.want(number).want(other);
        let level = if round % 10 == 0 { Level::Durable } else { Level::Visible };
        let results = steps.run(level).expect("carried out");
        assert_eq!(results.number(number), results.number(other));
    }
}

fn busy_renames(s: &Setup, stop: &AtomicBool) {
    File::create(&s.path("x"), &[1; 5000]);
    while !stop.load(Ordering::SeqCst) {
        std::fs::rename(s.path("x"), s.path("y")).unwrap();
        std::fs::rename(s.path("y"), s.path("x")).unwrap();
    }
}

/// Stores to other pages, and appends to another file.
fn busy_pages(s: &Setup, stop: &AtomicBool) {
    let f = File::open(&s.path("f"), OFlags::RDWR);
    let mut map = f.map(8192);
    for byte in (0..=255).cycle() {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        map.store(5000, byte);
        std::fs::write(s.path("z"), [byte; 10_000]).unwrap();
    }
}

fn busy_reads(s: &Setup, stop: &AtomicBool) {
    let mut last = 0;
    while !stop.load(Ordering::SeqCst) {
        let number = u64::from_le_bytes(read(s, "g")[..8].try_into().unwrap());
        assert!(number >= last, "{number} after {last}");
        last = number;
    }
}
