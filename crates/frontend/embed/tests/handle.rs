//! The embedded handle on a real volume file: what it does is there after a crash and after
//! closing.

use siftfs::{RenameMode, Volume};
use siftfs_placement::{MkfsOptions, mkfs};
use std::path::PathBuf;
use std::time::Duration;

fn volume(dir: &tempfile::TempDir) -> PathBuf {
    let path = dir.path().join("v.img");
    let opts = MkfsOptions { size: Some(64 << 20), ..MkfsOptions::default() };
    mkfs(&path, &opts, &mut |_, _, _| {}).expect("mkfs");
    path
}

#[test]
fn files_directories_and_names() {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = volume(&dir);
    let v = Volume::open(&path).expect("open");
    v.create_dir("/d", 0o755).expect("mkdir");
    let f = v.create("/d/f", 0o644).expect("create");
    f.write_at(0, &vec![5; 3_000_000]).expect("write");
    f.append(b"end").expect("append");
    f.sync_all().expect("sync");
    assert_eq!(f.stat().expect("stat").size, 3_000_003);
    assert_eq!(f.read_at(2_999_999, 100).expect("read"), b"\x05end");
    v.symlink("/d/s", "f").expect("symlink");
    v.link("/d/f", "/g").expect("link");
    v.rename("/g", "/h", RenameMode::NoReplace).expect("rename");
    assert_eq!(v.stat("/h").expect("stat").nlink, 2);
    let names: Vec<_> = v.read_dir("/d").expect("readdir").into_iter().map(|e| e.name).collect();
    assert!(names.len() == 2 && names.contains(&b"s".to_vec()), "{names:?}");
    assert_eq!(v.stat("/nothing").unwrap_err().errno(), libc::ENOENT);
    assert_eq!(v.remove_dir("/d").unwrap_err().errno(), libc::ENOTEMPTY);
    drop(f);
    v.sync().expect("sync");
    let status = v.status().expect("status");
    assert!(status.lsn > 0 && status.runtime.transactions > 0, "{status:?}");
    v.close().expect("close");
    let out = std::process::Command::new("e2fsck").arg("-fn").arg(&path).output().expect("e2fsck");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
}

/// Tickets by every way of asking for them, from several threads; what was waited for survives, in
/// the order in which it was staged.
#[test]
fn tickets_tell_what_is_durable() {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = volume(&dir);
    let v = Volume::open(&path).expect("open");
    let f = v.create("/f", 0o644).expect("create");
    let mut tickets = Vec::new();
    for i in 0..64u64 {
        f.write_at(i * 4096, &[i as u8 + 1; 4096]).expect("write");
        tickets.push(f.stage().expect("staged"));
    }
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|s| {
        for (nr, ticket) in tickets.iter().enumerate() {
            let tell = tell.clone();
            s.spawn(move || match nr % 4 {
                0 => ticket.wait().expect("durable"),
                1 => ticket.wait_timeout(Duration::from_secs(60)).expect("durable"),
                2 => ticket.when_durable(move |durable| tell.send(durable).expect("listens")),
                _ => {
                    while !ticket.is_durable().expect("it will be") {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            });
        }
    });
    for _ in 0..16 {
        told.recv_timeout(Duration::from_secs(60)).expect("told").expect("durable");
    }
    assert!(tickets.iter().all(|ticket| ticket.is_durable() == Ok(true)));
    f.write_at(0, &[200; 4096]).expect("write");
    let last = f.stage().expect("staged");
    // The background may have been quicker.
    let at_once = last.wait_timeout(Duration::ZERO).map_err(|e| e.errno());
    assert!(matches!(at_once, Ok(()) | Err(libc::ETIMEDOUT)), "{at_once:?}");
    v.barrier().expect("a ticket").wait().expect("durable");
    assert_eq!(last.clone().is_durable(), Ok(true));
    drop(f);
    v.abandon();
    assert_eq!(last.wait().map_err(|e| e.errno()), Ok(()), "it was durable before");
    drop((tickets, last));
    let v = Volume::open(&path).expect("recovery");
    let data = v.open_file("/f").expect("staged").read_at(0, 64 * 4096).expect("read");
    let byte = |i: usize| if i < 4096 { 200 } else { i / 4096 + 1 };
    assert!(
        data.len() == 64 * 4096 && data.iter().enumerate().all(|(i, b)| byte(i) == usize::from(*b))
    );
    v.close().expect("close");
}

#[test]
fn a_crash_loses_nothing_that_was_synced() {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = volume(&dir);
    let v = Volume::open(&path).expect("open");
    let f = v.create("/f", 0o644).expect("create");
    for i in 0..100u64 {
        f.write_at(i * 100, &[i as u8; 100]).expect("write");
        f.sync_data().expect("sync");
    }
    v.create("/lost", 0o644).expect("create");
    drop(f);
    v.abandon();
    let v = Volume::open(&path).expect("recovery");
    let f = v.open_file("/f").expect("it was synced");
    let data = f.read_at(0, 20_000).expect("read");
    assert_eq!(data.len(), 10_000);
    assert!(data.iter().enumerate().all(|(i, b)| usize::from(*b) == i / 100));
    drop(f);
    v.close().expect("close");
}

/// Locks are the open file's: another opening of it is in their way, and they end with it.
#[test]
fn locks_of_open_files() {
    let dir = tempfile::tempdir().expect("temp dir");
    let v = Volume::open(&volume(&dir)).expect("open");
    let one = v.create("/f", 0o644).expect("create");
    let other = v.open_file("/f").expect("open");
    assert!(one.try_lock_shared().expect("lock") && other.try_lock_shared().expect("lock"));
    assert!(!one.try_lock().expect("lock"), "another one has it, too");
    assert!(other.try_lock_shared().expect("lock"));
    other.unlock().expect("unlock");
    assert!(one.try_lock().expect("lock"));
    assert!(!other.try_lock_shared().expect("lock") && !other.try_lock().expect("lock"));
    let waits = std::thread::spawn(move || other.lock_shared().map(|()| other));
    drop(one);
    let other = waits.join().expect("thread").expect("it is free");
    assert!(!v.open_file("/f").expect("open").try_lock().expect("lock"));
    drop(other);
    v.close().expect("close");
}

/// Two threads open or create one name while a third removes it: all three go on to their end.
#[test]
fn a_name_that_others_make_and_remove_is_opened_or_created() {
    const TIMES: usize = 300;
    let dir = tempfile::tempdir().expect("temp dir");
    let v = Volume::open(&volume(&dir)).expect("open");
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let makes = || (0..TIMES).try_for_each(|_| v.open_or_create("/f", 0o600).map(drop));
        let makers = [scope.spawn(makes), scope.spawn(makes)];
        let remover = scope.spawn(|| {
            let mut removed = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                removed += u32::from(v.remove_file("/f").is_ok());
            }
            removed
        });
        let made = makers.map(|maker| maker.join().expect("no panic"));
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        let removed = remover.join().expect("no panic");
        assert!(removed > 0, "the name was never away");
        for made in made {
            made.expect("the file was opened or created each time");
        }
    });
    v.open_or_create("/f", 0o600).expect("a new file").write_at(0, b"kept").expect("write");
    let again = v.open_or_create("/f", 0o644).expect("the file that is there");
    assert_eq!(again.read_at(0, 10).expect("read"), b"kept");
    drop(again);
    v.close().expect("close");
}
