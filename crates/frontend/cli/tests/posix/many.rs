//! Directories under load, crashes under all of it, full volumes.

use crate::pair::{open, tree};
use crate::support::{Setup, siftfs, writes_back};
use rustix::fs::{Dir, OFlags, SeekFrom, seek};
use rustix::io::{Errno, pread, pwrite};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn mounted(size: &str, options: &str) -> Setup {
    let s = Setup::empty();
    siftfs(&["mkfs", s.volume(), "--size", size]).ok();
    s.mount(options);
    s
}

fn names(dir: &Path) -> Vec<String> {
    fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

/// A name that stays is listed exactly once, whatever happens to its neighbours meanwhile.
#[test]
fn listing_a_changing_directory() {
    let s = mounted("512M", "commit=1");
    let dir = s.path("d");
    fs::create_dir(&dir).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for i in 0..5000 {
            fs::write(dir.join(format!("stays{i}")), b"").unwrap();
        }
        for t in 0..2 {
            let (dir, stop) = (&dir, &stop);
            scope.spawn(move || {
                for i in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let name = dir.join(format!("goes{t}-{}", i % 3000));
                    if fs::remove_file(&name).is_err() {
                        fs::File::create(&name).unwrap();
                    }
                }
            });
        }
        for _ in 0..12 {
            let mut seen: HashMap<String, u32> = HashMap::new();
            for name in names(&dir) {
                *seen.entry(name).or_default() += 1;
            }
            for i in 0..5000 {
                assert_eq!(seen.get(&format!("stays{i}")), Some(&1), "stays{i}");
            }
            if let Some((name, n)) = seen.iter().find(|(_, n)| **n > 1) {
                // One that was removed and made again may come twice, at most.
                assert!(name.starts_with("goes") && *n == 2, "{name} {n} times");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    s.umount();
    s.assert_plain_ext4();
}

/// Which of a hundred thousand names: all with `SIFTFS_LONG`, else a slice of 15,000 that
/// `SIFTFS_SEED` or the clock chooses.
fn slice() -> std::ops::Range<u32> {
    let (all, part) = (100_000, 15_000);
    if std::env::var_os("SIFTFS_LONG").is_some() {
        return 0..all;
    }
    let clock = || std::time::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_secs());
    let given = std::env::var("SIFTFS_SEED").ok().and_then(|s| s.parse().ok());
    let seed: u64 = given.unwrap_or_else(clock);
    let first = u32::try_from(seed % u64::from((all - part) / 3 + 1)).unwrap() * 3;
    println!("SIFTFS_SEED={seed}: names {first} to {}", first + part - 1);
    first..first + part
}

/// A hundred thousand without a mount: `a_hundred_thousand_names` of `siftfs-crash`.
#[test]
fn very_many_names() {
    let s = mounted("1400M", "");
    let dir = s.path("d");
    fs::create_dir(&dir).unwrap();
    let all = slice();
    // Of three names the middle one is removed at once.
    let stays = |i: &u32| i % 3 != 1 || *i == all.end - 1;
    for i in all.clone() {
        rustix::fs::mknodat(
            rustix::fs::CWD,
            dir.join(format!("name-{i}")),
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        if i % 3 == 2 {
            fs::remove_file(dir.join(format!("name-{}", i - 1))).unwrap();
        }
    }
    let want: BTreeSet<String> = all.clone().filter(stays).map(|i| format!("name-{i}")).collect();
    let got = names(&dir);
    assert_eq!(got.len(), want.len());
    assert_eq!(got.into_iter().collect::<BTreeSet<_>>(), want);
    positions(&dir, want.len());
    s.umount();
    s.assert_plain_ext4();
    s.mount("");
    assert_eq!(names(&dir).len(), want.len());
    for i in all.clone().filter(stays) {
        fs::remove_file(dir.join(format!("name-{i}"))).unwrap();
    }
    fs::remove_dir(&dir).unwrap();
    s.umount();
    s.assert_plain_ext4();
}

/// telldir and seekdir: the same entries follow a position each time.
fn positions(dir: &Path, total: usize) {
    let fd = open(dir, OFlags::RDONLY | OFlags::DIRECTORY, 0).unwrap();
    let mut all = Vec::new();
    for entry in Dir::read_from(&fd).unwrap() {
        let entry = entry.unwrap();
        all.push((entry.file_name().to_owned(), entry.offset()));
    }
    assert_eq!(all.len(), total + 2);
    for at in [0, 1, 2, 10, 5000, total / 2, total] {
        seek(&fd, SeekFrom::Start(u64::try_from(all[at].1).unwrap())).unwrap();
        let mut buf = Vec::with_capacity(4096);
        let next = rustix::fs::RawDir::new(&fd, buf.spare_capacity_mut())
            .next()
            .map(|e| e.unwrap().file_name().to_owned());
        assert_eq!(next.as_ref(), all.get(at + 1).map(|e| &e.0), "after entry {at}");
    }
}

/// Unlinked files that are open when the daemon dies are gone afterwards, and so is their space.
#[test]
fn open_unlinked_files_and_a_crash() {
    let s = mounted("64M", "");
    fs::write(s.path("kept"), b"kept").unwrap();
    siftfs(&["sync", s.dir()]).ok();
    let free = rustix::fs::statvfs(s.dir()).unwrap().f_ffree;
    let mut held = Vec::new();
    for i in 0..20 {
        let path = s.path(&format!("f{i}"));
        fs::write(&path, vec![1; 100_000]).unwrap();
        let f = fs::File::options().read(true).write(true).open(&path).unwrap();
        f.sync_all().unwrap();
        fs::remove_file(&path).unwrap();
        if i % 2 == 0 {
            f.sync_all().unwrap();
        }
        held.push(f);
    }
    siftfs(&["sync", s.dir()]).ok();
    let daemon = s.daemon();
    daemon.signal(Signal::KILL);
    daemon.wait();
    drop(held);
    s.mount("");
    assert_eq!(names(Path::new(s.dir())).len(), 2, "kept and lost+found");
    assert_eq!(rustix::fs::statvfs(s.dir()).unwrap().f_ffree, free);
    s.umount();
    s.assert_plain_ext4();
}

/// write(2) and close(2), which under the writeback cache says that the disk is full.
fn write_whole(path: &Path, data: &[u8]) -> std::io::Result<()> {
    let mut file = fs::File::create(path)?;
    std::io::Write::write_all(&mut file, data)?;
    Ok(crate::pair::close(file)?)
}

/// Fills the volume until nothing fits; how many files of `size` bytes that took.
fn fill(s: &Setup, prefix: &str, size: usize) -> usize {
    let data = vec![0xa5; size];
    for i in 0.. {
        let path = s.path(&format!("{prefix}{i}"));
        match write_whole(&path, &data) {
            Ok(()) => {}
            Err(e) => {
                assert_eq!(e.raw_os_error(), Some(libc::ENOSPC), "{path:?}");
                let _ = fs::remove_file(&path);
                return i;
            }
        }
    }
    unreachable!()
}

#[test]
fn a_full_volume() {
    let s = mounted("48M", "commit=1");
    let small = fill(&s, "small", 4096);
    assert!(small > 500, "{small}");
    for i in 0..small {
        let data = fs::read(s.path(&format!("small{i}"))).unwrap();
        assert!(data.len() == 4096 && data.iter().all(|b| *b == 0xa5));
    }
    // What is there can still be changed in place and made durable.
    let f = fs::File::options().write(true).open(s.path("small0")).unwrap();
    pwrite(&f, b"overwritten", 0).unwrap();
    f.sync_all().unwrap();
    drop(f);
    for i in 0..small {
        fs::remove_file(s.path(&format!("small{i}"))).unwrap();
    }
    let big = open(&s.path("big"), OFlags::CREATE | OFlags::RDWR, 0o644).unwrap();
    let chunk = vec![7u8; 1 << 20];
    let mut len = 0u64;
    let error = loop {
        match pwrite(&big, &chunk, len) {
            Ok(n) => len += n as u64,
            Err(e) => break e,
        }
    };
    assert_eq!(error, Errno::NOSPC);
    assert!(len > 16 << 20, "only {len} bytes fit");
    // Under the writeback cache some of what write(2) took is lost, and fsync(2) says so as well.
    let lost = if writes_back("commit=1") { Err(Errno::NOSPC) } else { Ok(()) };
    assert_eq!(rustix::fs::fsync(&big), lost);
    assert_eq!(rustix::fs::fsync(&big), Ok(()));
    let len = if lost.is_err() { 16 << 20 } else { len };
    let mut buf = [0; 10];
    assert_eq!(pread(&big, &mut buf[..], len - 10), Ok(10));
    assert_eq!(buf, [7; 10]);
    drop(big);
    fs::remove_file(s.path("big")).unwrap();
    let again = fill(&s, "again", 4096);
    assert!(again + 20 >= small, "{again} files fit after {small} did");
    reserve(&s);
    let before = tree(Path::new(s.dir()));
    s.umount();
    s.assert_plain_ext4();
    s.mount("");
    assert_eq!(tree(Path::new(s.dir())), before);
    s.umount();
}

/// The last blocks are root's.
fn reserve(s: &Setup) {
    for i in 0..40 {
        fs::remove_file(s.path(&format!("again{i}"))).unwrap();
    }
    let room = rustix::fs::statvfs(s.dir()).unwrap();
    assert!(room.f_bavail < room.f_bfree);
    crate::pair::as_user(1001, &[1001], || {
        let path = s.path("lost");
        assert!(write_whole(&path, b"x").is_err());
    });
    let shared = s.path("shared");
    fs::create_dir(&shared).unwrap();
    rustix::fs::chmod(&shared, 0o777.into()).unwrap();
    if room.f_bavail == 0 {
        crate::pair::as_user(1001, &[1001], || {
            let refused = write_whole(&shared.join("x"), &[1; 4096]).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::ENOSPC));
        });
    }
}

#[test]
fn no_inode_left() {
    let s = mounted("48M", "");
    let total = rustix::fs::statvfs(s.dir()).unwrap().f_ffree;
    let mut made = 0;
    let refused = loop {
        match fs::File::create(s.path(&format!("f{made}"))) {
            Ok(_) => made += 1,
            Err(e) => break e,
        }
    };
    assert_eq!(refused.raw_os_error(), Some(libc::ENOSPC));
    assert_eq!(made, total);
    assert_eq!(rustix::fs::statvfs(s.dir()).unwrap().f_ffree, 0);
    // The kernel gives the removed file's inode back beside the next request.
    for n in 0..20 {
        fs::remove_file(s.path(&format!("f{n}"))).unwrap();
        fs::create_dir(s.path(&format!("d{n}"))).unwrap();
    }
    s.umount();
    s.assert_plain_ext4();
}

/// The daemon is killed under everything at once, again and again: every time the volume comes
/// back with all that was acknowledged.
#[test]
fn killed_under_load() {
    let s = mounted("256M", "commit=0.3");
    let mut durable: BTreeMap<String, u64> = BTreeMap::new();
    for round in 0..4u64 {
        let stop = AtomicBool::new(false);
        let daemon = s.daemon();
        let found = std::thread::scope(|scope| {
            let (s, stop) = (&s, &stop);
            for t in 0..2 {
                scope.spawn(move || churn(s, t, stop));
            }
            let writers: Vec<_> =
                (0..2).map(|t| scope.spawn(move || acknowledged(s, round * 2 + t, stop))).collect();
            std::thread::sleep(Duration::from_millis(900));
            daemon.signal(Signal::KILL);
            daemon.wait();
            stop.store(true, Ordering::Relaxed);
            writers.into_iter().map(|w| w.join().unwrap()).collect::<Vec<_>>()
        });
        durable.extend(found);
        s.mount("commit=0.3");
        for (name, count) in &durable {
            let bytes = fs::read(s.path(name)).unwrap();
            assert!(bytes.len() as u64 >= count * 100, "{name}: {} of {count}", bytes.len());
            for (i, record) in bytes.chunks_exact(100).take(*count as usize).enumerate() {
                assert!(record.iter().all(|b| *b == i as u8), "{name} record {i}");
            }
        }
    }
    s.umount();
    s.assert_plain_ext4();
}

/// Appends records, each with its fsync; how many were acknowledged.
fn acknowledged(s: &Setup, id: u64, stop: &AtomicBool) -> (String, u64) {
    let name = format!("log{id}");
    let Ok(f) = fs::File::create(s.path(&name)) else { return (name, 0) };
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        let ok = pwrite(&f, &[count as u8; 100], count * 100).is_ok() && f.sync_data().is_ok();
        if !ok {
            break;
        }
        count += 1;
    }
    if count == 0 {
        // Nothing acknowledged: the file need not exist.
        let _ = fs::write(s.path(&name), b"");
    }
    (name, count)
}

/// Changes names and data until the daemon is gone.
fn churn(s: &Setup, t: u32, stop: &AtomicBool) {
    let dir = s.path(&format!("churn{t}"));
    let _ = fs::create_dir(&dir);
    for i in 0u32.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let (a, b) = (dir.join(format!("{}", i % 50)), dir.join(format!("{}", (i * 7 + 3) % 50)));
        let _ = match i % 7 {
            0 | 1 => fs::write(&a, vec![i as u8; (i as usize * 37) % 50_000]),
            2 => fs::rename(&a, &b),
            3 => fs::remove_file(&a),
            4 => fs::hard_link(&a, &b),
            5 => fs::File::open(&a).and_then(|f| f.sync_all()),
            _ => fs::create_dir_all(dir.join(format!("d{}/e", i % 11)))
                .and_then(|()| fs::rename(dir.join(format!("d{}", i % 11)), dir.join("dd"))),
        };
    }
}
