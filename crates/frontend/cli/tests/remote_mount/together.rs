//! Several sessions of one server: what one changed, the others see when the call has returned.

#![allow(unsafe_code)] // mappings

use crate::{Mount, Served};
use rustix::fs::FlockOperation;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use siftfs::Volume;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn open(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// Each of both reads, stats and lists first, so that its kernel knows what the other changes.
fn see_each_other(one: &Mount, other: &Mount) {
    for (turn, (from, to)) in [(one, other), (other, one)].into_iter().enumerate() {
        let name = format!("f{turn}");
        std::fs::write(from.path(&name), "first").unwrap();
        let theirs = open(&to.path(&name));
        assert_eq!(std::fs::read(to.path(&name)).unwrap(), b"first");
        for round in 0..20 {
            let text = format!("{round:05}{}", "x".repeat(round * 300));
            std::fs::write(from.path(&name), &text).unwrap();
            assert_eq!(theirs.metadata().unwrap().len(), text.len() as u64, "{round}");
            let mut read = vec![0; text.len()];
            theirs.read_exact_at(&mut read, 0).unwrap();
            assert!(read == text.as_bytes(), "{round}: old bytes were read");
        }
        assert!(!to.path(&format!("new{turn}")).exists());
        std::fs::write(from.path(&format!("new{turn}")), "").unwrap();
        assert!(to.path(&format!("new{turn}")).exists());
        std::fs::remove_file(from.path(&name)).unwrap();
        assert!(!to.path(&name).exists());
    }
}

#[test]
fn two_mounts_see_each_other() {
    let served = Served::start();
    let (one, other) = (served.mount("one", ""), served.mount("other", "ro"));
    other.umount();
    let third = served.mount("third", "");
    see_each_other(&one, &third);
    one.umount();
    third.umount();
    served.end();
}

/// A mount that was alone may keep what it knows for a day. When a program joins, it does not.
#[test]
fn a_mount_beside_a_program() {
    let served = Served::start();
    let mount = served.mount("m", "");
    std::fs::write(mount.path("f"), "old").unwrap();
    assert_eq!(std::fs::read(mount.path("f")).unwrap(), b"old");
    let held = open(&mount.path("f"));
    let volume = Volume::connect(served.address()).unwrap();
    let file = volume.open_file("/f").unwrap();
    file.write_at(0, b"new!").unwrap();
    assert_eq!(std::fs::read(mount.path("f")).unwrap(), b"new!");
    assert_eq!(held.metadata().unwrap().len(), 4);
    std::fs::write(mount.path("f"), "mount").unwrap();
    assert_eq!(file.read_at(0, 10).unwrap(), b"mount");
    volume.create("/g", 0o644).unwrap();
    assert!(mount.path("g").exists());
    drop((file, held));
    volume.close().unwrap();
    mount.umount();
    served.end();
}

#[test]
fn locks_hold_across_mounts() {
    let served = Served::start();
    let (one, other) = (served.mount("one", ""), served.mount("other", ""));
    let (a, b) = (open(&one.path("f")), open(&other.path("f")));
    rustix::fs::flock(&a, FlockOperation::LockExclusive).unwrap();
    let refused = rustix::fs::flock(&b, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(refused, Err(rustix::io::Errno::WOULDBLOCK));
    let waits = std::thread::spawn(move || {
        rustix::fs::flock(&b, FlockOperation::LockExclusive).unwrap();
    });
    std::thread::sleep(Duration::from_millis(200));
    assert!(!waits.is_finished());
    drop(a);
    waits.join().unwrap();
    one.umount();
    other.umount();
    served.end();
}

/// Waits for locks take slots of the session, and leave some for what they wait for.
#[test]
fn many_waits_for_locks_leave_room_for_the_rest() {
    let served = Served::start();
    let mount = served.mount("m", "");
    let path = mount.path("f");
    let held = open(&path);
    rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
    let wait = || {
        let path = path.clone();
        std::thread::spawn(move || rustix::fs::flock(open(&path), FlockOperation::LockExclusive))
    };
    let waits: Vec<_> = (0..80).map(|_| wait()).collect();
    std::thread::sleep(Duration::from_secs(1));
    // 80 wait, or were told that there are too many; the mount goes on.
    std::fs::write(mount.path("g"), "goes on").unwrap();
    assert_eq!(std::fs::read(mount.path("g")).unwrap(), b"goes on");
    drop(held);
    let ended: Vec<_> = waits.into_iter().map(|wait| wait.join().unwrap()).collect();
    let refused = |end: &&rustix::io::Result<()>| **end == Err(rustix::io::Errno::NOLCK);
    assert_eq!(ended.iter().filter(|end| end.is_ok()).count(), 40, "{ended:?}");
    assert_eq!(ended.iter().filter(refused).count(), 40, "{ended:?}");
    mount.umount();
    served.end();
}

/// Stores one byte in a page of a file through a mapping, and has it written.
pub fn store(file: &File, byte: u8, sync: bool) {
    let (protection, shared) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: the mapping is new and is not used after it is taken away.
    unsafe {
        let at = mmap(std::ptr::null_mut(), 4096, protection, shared, file, 0).unwrap();
        at.cast::<u8>().write_volatile(byte);
        if sync {
            msync(at, 4096, MsyncFlags::SYNC).unwrap();
        }
        munmap(at, 4096).unwrap();
    }
}

/// A kernel has a dirty page of a file when another session changes the file. It writes that page
/// before it drops it, by a call to the server that has told it of the change: the thread that is
/// told is not the one that the call's answer comes to (rule R51).
#[test]
fn a_dirty_page_is_written_while_the_change_waits_for_it() {
    let served = Served::start();
    let (one, other) = (served.mount("one", ""), served.mount("other", ""));
    let volume = Volume::connect(served.address()).unwrap();
    let (a, b) = (open(&one.path("f")), open(&other.path("f")));
    a.set_len(4096).unwrap();
    let program = volume.open_file("/f").unwrap();
    for round in 1..=30_u8 {
        let begun = Instant::now();
        store(&a, round, false);
        match round % 3 {
            0 => b.set_len(4096 + u64::from(round)).unwrap(),
            1 => b.write_all_at(&[round], 100).unwrap(),
            _ => {
                program.write_at(200, &[round]).unwrap();
            }
        }
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(5), "round {round} took {took:?}");
        let mut read = [0; 1];
        b.read_exact_at(&mut read, 0).unwrap();
        assert_eq!(read[0], round, "what was stored through the mapping is there");
    }
    let mut read = [0; 256];
    a.read_exact_at(&mut read, 0).unwrap();
    assert_eq!((read[100], read[200]), (28, 29), "and what others wrote beside it");
    drop((program, volume, a, b));
    one.umount();
    other.umount();
    served.end();
}

/// Two mounts and a program store, write, truncate and read the same files without a pause.
#[test]
fn nobody_waits_for_ever_in_a_circle() {
    const FILES: usize = 3;
    let served = Served::start();
    let mounts = [served.mount("one", ""), served.mount("other", "")];
    let volume = Volume::connect(served.address()).unwrap();
    for i in 0..FILES {
        open(&mounts[0].path(&format!("f{i}"))).set_len(3 * 4096).unwrap();
    }
    let (over, worst) = (AtomicBool::new(false), AtomicU64::new(0));
    let timed = |work: &mut dyn FnMut()| {
        let begun = Instant::now();
        work();
        let ms = u64::try_from(begun.elapsed().as_millis()).unwrap();
        worst.fetch_max(ms, Ordering::SeqCst);
    };
    let (over, volume, timed) = (&over, &volume, &timed);
    std::thread::scope(|scope| {
        for mount in &mounts {
            for worker in 0..4 {
                scope.spawn(move || {
                    for turn in 0_usize.. {
                        if over.load(Ordering::SeqCst) {
                            return;
                        }
                        let file = open(&mount.path(&format!("f{}", (turn + worker) % FILES)));
                        timed(&mut || match worker {
                            0 => store(&file, 1, turn % 2 == 0),
                            1 => file.write_all_at(&[2; 5000], 100).unwrap(),
                            2 => file.set_len(3 * 4096 - (turn as u64 % 7) * 100).unwrap(),
                            _ => drop(file.read_at(&mut [0; 5000], 0).unwrap()),
                        });
                    }
                });
            }
        }
        scope.spawn(move || {
            let files: Vec<_> =
                (0..FILES).map(|i| volume.open_file(&format!("/f{i}")).unwrap()).collect();
            for turn in 0_usize.. {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                timed(&mut || {
                    files[turn % FILES].write_at(50, &[3; 4096]).unwrap();
                });
            }
        });
        std::thread::sleep(Duration::from_secs(6));
        over.store(true, Ordering::SeqCst);
    });
    let worst = worst.load(Ordering::SeqCst);
    assert!(worst < 10_000, "a call took {worst} ms");
    for mount in &mounts {
        mount.umount();
    }
    served.end();
}
