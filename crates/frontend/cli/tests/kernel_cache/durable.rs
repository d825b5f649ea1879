//! "What is durable when" under the writeback cache: the daemon is killed, which loses whatever
//! only it or the kernel had.

use crate::support::{Setup, siftfs};
use crate::{keep_descriptors, kill, kill_and_mount, mount, requests_of, writeback};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::{Duration, Instant};

/// Bytes that no two places share.
fn text(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31 + seed * 101) % 251) as u8).collect()
}

#[test]
fn bytes_before_an_fsync_survive_and_writes_cost_no_request() {
    keep_descriptors();
    let s = writeback();
    let mut f = OpenOptions::new().append(true).create(true).open(s.path("f")).unwrap();
    let mut want = Vec::new();
    for round in 0..20 {
        let sent = requests_of(&s, &["write", "fsync"], || {
            for part in 0..7 {
                let bytes = text(300 + part, round * 7 + part);
                f.write_all(&bytes).unwrap();
                want.extend(bytes);
            }
            f.sync_data().unwrap();
        });
        assert_eq!(sent, [1, 1], "seven appends are one request");
    }
    kill_and_mount(&s);
    assert_eq!(fs::read(s.path("f")).unwrap(), want);
    s.umount();
    s.assert_plain_ext4();
}

#[test]
fn synchronous_writes_survive() {
    let s = writeback();
    for (name, flag) in [("sync", libc::O_SYNC), ("dsync", libc::O_DSYNC)] {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).custom_flags(flag);
        let f = options.open(s.path(name)).unwrap();
        f.write_all_at(&text(5000, 1), 0).unwrap();
        f.write_all_at(&text(700, 2), 4900).unwrap();
    }
    kill_and_mount(&s);
    for name in ["sync", "dsync"] {
        let back = fs::read(s.path(name)).unwrap();
        assert_eq!(back.len(), 5600, "{name}");
        assert!(back[..4900] == text(5000, 1)[..4900] && back[4900..] == text(700, 2), "{name}");
    }
    s.umount();
}

#[test]
fn stores_before_an_msync_survive() {
    let s = writeback();
    let f = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(s.path("f"))
        .unwrap();
    f.write_all_at(&text(10_000, 3), 0).unwrap();
    let (len, prot) = (10_000, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a new mapping of an open file; nothing is at a fixed address.
    let map =
        unsafe { libc::mmap(std::ptr::null_mut(), len, prot, libc::MAP_SHARED, f.as_raw_fd(), 0) };
    assert_ne!(map, libc::MAP_FAILED);
    // SAFETY: the mapping is `len` bytes long and writable, and this thread alone uses it.
    unsafe {
        map.cast::<u8>().add(5000).write(77);
        assert_eq!(libc::msync(map, len, libc::MS_SYNC), 0);
        map.cast::<u8>().add(5001).write(78);
    }
    let mut want = text(10_000, 3);
    want[5000] = 77;
    kill_and_mount(&s);
    let mut back = fs::read(s.path("f")).unwrap();
    want[5001] = 0;
    back[5001] = 0;
    assert_eq!(back, want);
    // SAFETY: the mapping above, which is not used any more.
    unsafe { libc::munmap(map, len) };
    drop(f);
    s.umount();
}

/// Rule R20 where the file is still open: the name never shows less than was written before it.
#[test]
fn a_rename_of_an_open_file_brings_its_bytes() {
    keep_descriptors();
    let s = writeback();
    let daemon = s.daemon();
    for name in ["old", "other"] {
        fs::write(s.path(name), b"what was there").unwrap();
        File::open(s.path(name)).unwrap().sync_all().unwrap();
    }
    // Little enough for the kernel not to have sent it yet.
    let new = text(20_000, 4);
    let mut f = File::create(s.path("new")).unwrap();
    f.write_all(&new).unwrap();
    let sent = requests_of(&s, &["write"], || fs::rename(s.path("new"), s.path("old")).unwrap());
    assert!(sent[0] >= 1, "the bytes were sent before the name was taken");
    assert_eq!(fs::read(s.path("old")).unwrap(), new, "and the file goes on");
    f.write_all(b"more").unwrap();
    File::open(s.dir()).unwrap().sync_all().unwrap();
    kill(&s, &daemon);
    let back = fs::read(s.path("old")).unwrap();
    assert_eq!(back[..new.len().min(back.len())], new[..], "old or new, and not half of it");
    drop(f);
    s.umount();
    s.assert_plain_ext4();
}

/// The same for a file that gets its first name, or another.
#[test]
fn a_link_of_an_open_file_brings_its_bytes() {
    keep_descriptors();
    let s = writeback();
    let daemon = s.daemon();
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let mut f = File::from(rustix::fs::open(s.dir(), flags, Mode::from(0o600)).unwrap());
    f.write_all(&text(20_000, 5)).unwrap();
    let proc = format!("/proc/thread-self/fd/{}", f.as_raw_fd());
    let sent = requests_of(&s, &["write"], || {
        rustix::fs::linkat(CWD, proc, CWD, s.path("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
    });
    assert!(sent[0] >= 1, "{sent:?}");
    f.write_all(b"end").unwrap();
    let sent = requests_of(&s, &["write"], || {
        fs::hard_link(s.path("named"), s.path("again")).unwrap();
    });
    assert!(sent[0] >= 1, "{sent:?}");
    f.sync_all().unwrap();
    kill(&s, &daemon);
    assert_eq!(fs::read(s.path("named")).unwrap().len(), 20_003);
    drop(f);
    s.umount();
}

/// What a program still holds open and never synced is durable after each of the commands.
#[test]
fn sync_and_checkpoint_take_what_the_kernel_holds() {
    for command in ["sync", "checkpoint"] {
        let s = writeback();
        let mut f = File::create(s.path("f")).unwrap();
        f.write_all(&text(9_999, 6)).unwrap();
        siftfs(&[command, s.dir()]).ok();
        kill_and_mount(&s);
        assert_eq!(fs::read(s.path("f")).unwrap(), text(9_999, 6), "{command}");
        drop(f);
        s.umount();
    }
}

/// A lazy umount with a file still open, which is closed before the volume is.
#[test]
fn a_lazy_umount_takes_what_is_closed_later() {
    let s = writeback();
    let mut f = File::create(s.path("f")).unwrap();
    f.write_all(&text(50_000, 7)).unwrap();
    std::thread::scope(|scope| {
        let umount = scope.spawn(|| siftfs(&["umount", "--lazy", s.dir()]).ok());
        std::thread::sleep(Duration::from_millis(300));
        f.write_all(b"end").unwrap();
        drop(f);
        umount.join().unwrap();
    });
    siftfs(&["mount", s.volume(), s.dir()]).ok();
    let back = fs::read(s.path("f")).unwrap();
    assert!(back[..50_000] == text(50_000, 7) && back[50_000..] == *b"end");
    s.umount();
    s.assert_plain_ext4();
}

/// `commit=`: bytes that are never synced, in a file that stays open, survive when they are that
/// old.
#[test]
fn age_takes_what_the_kernel_holds() {
    keep_descriptors();
    let s = crate::support::Setup::new();
    let age = Duration::from_secs(2);
    siftfs(&["mount", s.volume(), s.dir(), "-o", "write_cache=writeback,commit=2"]).ok();
    let daemon = s.daemon();
    let mut f = File::create(s.path("f")).unwrap();
    f.write_all(&text(9_999, 8)).unwrap();
    let written = Instant::now();
    let busy = rustix::mount::unmount(s.dir(), rustix::mount::UnmountFlags::empty());
    assert_eq!(busy, Err(rustix::io::Errno::BUSY), "our own file is open");
    while written.elapsed() < age + Duration::from_millis(1500) {
        std::thread::sleep(Duration::from_millis(20));
    }
    kill(&s, &daemon);
    assert_eq!(fs::read(s.path("f")).unwrap(), text(9_999, 8));
    drop(f);
    s.umount();
}

#[track_caller]
fn no_space(result: std::io::Result<()>) -> bool {
    result.expect_err("there is no room").raw_os_error() == Some(libc::ENOSPC)
}

/// Nothing is reserved at write(2): a full disk is fsync's and close's to report, and that of a
/// later write(2); what did not fit is not there. A rename of such a file is refused, and the old
/// one stays.
#[test]
fn a_full_disk_is_reported_by_fsync_close_a_later_write_and_a_rename() {
    keep_descriptors();
    let s = writeback();
    fs::write(s.path("old"), b"what was there").unwrap();
    let piece = vec![7; 1 << 20];
    // Before the disk is full: not even a name may find room then.
    let f = File::create(s.path("new")).unwrap();
    let full = File::create(s.path("full")).unwrap();
    let refused = (0..10_000).find_map(|i| full.write_all_at(&piece, i << 20).err());
    assert_eq!(refused.expect("it ends").raw_os_error(), Some(libc::ENOSPC));
    assert!(no_space(full.sync_all()));
    // What was kept for the tree is free again once that is written: until nothing more fits.
    siftfs(&["sync", s.dir()]).fails(1, &["is lost"]);
    let begin = 20_000 << 20;
    let fits = |i: &u64| {
        let small = full.write_all_at(&piece[..1 << 16], begin + (i << 16));
        small.and_then(|()| full.sync_all()).is_ok()
    };
    assert!((0..10_000).take_while(fits).count() < 10_000, "it ends");
    f.write_all_at(&piece, 0).unwrap();
    assert!(no_space(fs::rename(s.path("new"), s.path("old"))));
    assert_eq!(fs::read(s.path("old")).unwrap(), b"what was there");
    assert!(no_space(f.sync_all()));
    assert!(no_space(f.write_all_at(&piece, 0)), "once");
    f.write_all_at(&piece, 0).unwrap();
    // SAFETY: the descriptor is ours and is closed here alone.
    let closed = unsafe { libc::close(f.into_raw_fd()) };
    let error = std::io::Error::last_os_error();
    assert_eq!((closed, error.raw_os_error()), (-1, Some(libc::ENOSPC)));
    drop(full);
    fs::remove_file(s.path("new")).unwrap();
    fs::remove_file(s.path("full")).unwrap();
    let f = File::create(s.path("small")).unwrap();
    f.write_all_at(b"fits", 0).unwrap();
    f.sync_all().unwrap();
    drop(f);
    s.umount();
    s.assert_plain_ext4();
}

/// A file that was written until the disk was full, without a word of it to fsync(2) or syncfs(2),
/// and is empty again.
fn filled_and_emptied(s: &crate::support::Setup) -> File {
    let full = File::create(s.path("full")).unwrap();
    let piece = vec![7; 1 << 20];
    let refused = (0..10_000).find_map(|i| full.write_all_at(&piece, i << 20).err());
    assert_eq!(refused.expect("it ends").raw_os_error(), Some(libc::ENOSPC));
    full.set_len(0).unwrap();
    full
}

/// The kernel reports a loss, however old, to the first caller that asks, also if that is one of
/// our commands. They do their work all the same, and then report the loss, once.
#[test]
fn an_old_loss_keeps_no_command_from_its_work() {
    keep_descriptors();
    for command in ["sync", "checkpoint"] {
        let s = writeback();
        let full = filled_and_emptied(&s);
        fs::write(s.path("new"), text(9_999, 9)).unwrap();
        let told = siftfs(&[command, s.dir()]);
        told.fails(1, &["No space left on device", "everything else is durable"]);
        fs::write(s.path("newer"), text(9_999, 10)).unwrap();
        siftfs(&[command, s.dir()]).ok();
        kill_and_mount(&s);
        for (name, seed) in [("new", 9), ("newer", 10)] {
            assert_eq!(fs::read(s.path(name)).unwrap(), text(9_999, seed), "{command}");
        }
        drop(full);
        s.umount();
    }
}

/// The daemon asks for dirty pages by age, and so it is the first that the kernel tells of a loss:
/// the next command reports it, once.
#[test]
fn a_loss_that_the_daemon_was_told_of_is_reported() {
    keep_descriptors();
    let s = Setup::new();
    mount(&s, "write_cache=writeback,commit=1");
    let full = filled_and_emptied(&s);
    let open = File::create(s.path("open")).unwrap();
    drop(full);
    // The thread asks twice a second as long as a file is open.
    std::thread::sleep(Duration::from_millis(2500));
    let told = siftfs(&["sync", s.dir()]);
    told.fails(1, &["No space left on device", "everything else is durable"]);
    siftfs(&["sync", s.dir()]).ok();
    drop(open);
    s.umount();
}

/// A rename sends what the kernel holds of the file first. That something else of it was lost
/// before is for fsync(2) to tell: it does not refuse the rename.
#[test]
fn an_old_loss_refuses_no_rename() {
    keep_descriptors();
    let s = writeback();
    fs::write(s.path("old"), b"what was there").unwrap();
    let full = filled_and_emptied(&s);
    full.write_all_at(b"what fits", 0).unwrap();
    fs::rename(s.path("full"), s.path("old")).unwrap();
    assert_eq!(fs::read(s.path("old")).unwrap(), b"what fits");
    let told = full.sync_all().unwrap_err();
    assert_eq!(told.raw_os_error(), Some(libc::ENOSPC), "the program is told all the same");
    drop(full);
    s.umount();
    s.assert_plain_ext4();
}

/// A daemon that is killed while it waits for its own mount: the connection ends all the same, and
/// so does every program that waits for it.
#[test]
fn a_daemon_killed_in_its_own_sync_leaves_nobody_waiting() {
    for round in 0..12 {
        let s = crate::support::Setup::new();
        siftfs(&["mount", s.volume(), s.dir(), "-o", "write_cache=writeback,commit=0.02"]).ok();
        let daemon = s.daemon();
        let path = s.path("f");
        let writer = std::thread::spawn(move || {
            let Ok(f) = File::create(path) else { return };
            let piece = text(200_000, round);
            let mut at = 0;
            while f.write_all_at(&piece, at % 8_000_000).is_ok() && f.sync_data().is_ok() {
                at += 200_000;
            }
        });
        std::thread::sleep(Duration::from_millis(30 + 17 * round as u64));
        daemon.signal(rustix::process::Signal::KILL);
        daemon.wait();
        writer.join().unwrap();
        siftfs(&["mount", s.volume(), s.dir()]).ok();
        s.umount();
    }
}
