//! Several ways to one file, under the writeback cache.

use crate::{kill_and_mount, remount, writeback};
use rustix::fs::FallocateFlags;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::time::Duration;

#[test]
fn appends_of_two_descriptors_follow_each_other() {
    let s = writeback();
    let open = || OpenOptions::new().append(true).create(true).open(s.path("f")).unwrap();
    let (mut a, mut b) = (open(), open());
    let mut want = Vec::new();
    for i in 0..500u32 {
        let line = format!("line {i} and some more\n");
        let to = if i % 3 == 0 { &mut a } else { &mut b };
        to.write_all(line.as_bytes()).unwrap();
        want.extend(line.into_bytes());
        if i % 100 == 7 {
            a.sync_all().unwrap();
        }
    }
    assert_eq!(fs::read(s.path("f")).unwrap(), want);
    a.sync_all().unwrap();
    kill_and_mount(&s);
    assert_eq!(fs::read(s.path("f")).unwrap(), want);
    drop((a, b));
    s.umount();
}

/// Sizes and times are the kernel's while it has the inode, and ours afterwards: they agree.
#[test]
fn size_and_times_outlive_the_kernels_inode() {
    let s = writeback();
    let f = File::create(s.path("f")).unwrap();
    f.write_all_at(b"0123456789", 100).unwrap();
    assert_eq!(f.metadata().unwrap().len(), 110);
    std::thread::sleep(Duration::from_millis(20));
    f.write_all_at(b"0123456789", 5000).unwrap();
    let times =
        |m: fs::Metadata| (m.len(), (m.mtime(), m.mtime_nsec()), (m.ctime(), m.ctime_nsec()));
    let before = times(f.metadata().unwrap());
    drop(f);
    assert_eq!(times(fs::metadata(s.path("f")).unwrap()), before);
    s.umount();
    remount(&s);
    assert_eq!(times(fs::metadata(s.path("f")).unwrap()), before);
    let t = rustix::fs::Timespec { tv_sec: 1_000_000_000, tv_nsec: 5 };
    let both = rustix::fs::Timestamps { last_access: t, last_modification: t };
    let f = OpenOptions::new().write(true).open(s.path("f")).unwrap();
    f.write_all_at(b"x", 0).unwrap();
    rustix::fs::futimens(&f, &both).unwrap();
    f.sync_all().unwrap();
    drop(f);
    s.umount();
    remount(&s);
    let after = fs::metadata(s.path("f")).unwrap();
    assert_eq!((after.mtime(), after.mtime_nsec(), after.len()), (1_000_000_000, 5, 5010));
    s.umount();
}

/// Truncation, holes, zeros and direct I/O beside pages that only the kernel has.
#[test]
fn ranges_beside_dirty_pages() {
    let s = writeback();
    let all = OpenOptions::new().read(true).write(true).create(true).truncate(false).clone();
    let f = all.open(s.path("f")).unwrap();
    let mut want = vec![1u8; 40_000];
    f.write_all_at(&want, 0).unwrap();
    f.set_len(30_001).unwrap();
    want.truncate(30_001);
    f.write_all_at(&[2; 9], 35_000).unwrap();
    want.resize(35_000, 0);
    want.extend([2; 9]);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&f, punch, 5_000, 10_000).unwrap();
    want[5_000..15_000].fill(0);
    f.write_all_at(&[3; 100], 6_000).unwrap();
    want[6_000..6_100].fill(3);
    rustix::fs::fallocate(&f, FallocateFlags::ZERO_RANGE, 34_000, 6_000).unwrap();
    want.resize(40_000, 0);
    want[34_000..].fill(0);
    let direct = all.clone().custom_flags(libc::O_DIRECT).open(s.path("f")).unwrap();
    let mut buffer = vec![0u8; 8192 + 4096];
    let skip = buffer.as_ptr().align_offset(4096);
    buffer[skip..skip + 8192].fill(4);
    direct.write_all_at(&buffer[skip..skip + 8192], 4096).unwrap();
    want[4096..12_288].fill(4);
    f.write_all_at(&[5; 3], 12_287).unwrap();
    want[12_287..12_290].fill(5);
    let mut back = vec![0; 40_000];
    direct
        .read_exact_at(&mut back[..], 0)
        .map_or_else(|_| f.read_exact_at(&mut back, 0), Ok)
        .unwrap();
    assert!(back == want, "while it is open");
    f.sync_all().unwrap();
    kill_and_mount(&s);
    assert!(fs::read(s.path("f")).unwrap() == want, "after a crash");
    drop((f, direct));
    s.umount();
    s.assert_plain_ext4();
}

/// A copy of what lies before the kernel's own end of the file, which we may not know yet.
#[test]
fn a_copy_goes_as_far_as_the_kernel_knows_the_file() {
    let s = writeback();
    let all = OpenOptions::new().read(true).write(true).create(true).truncate(false).clone();
    let (from, to) = (all.open(s.path("from")).unwrap(), all.open(s.path("to")).unwrap());
    from.write_all_at(b"begin", 0).unwrap();
    from.write_all_at(b"end", 1 << 20).unwrap();
    let (mut at, mut put) = (0, 0);
    let n =
        rustix::fs::copy_file_range(&from, Some(&mut at), &to, Some(&mut put), 1 << 19).unwrap();
    assert_eq!(n, 1 << 19, "no end of file before the end of the file");
    let mut want = vec![0; 1 << 19];
    want[..5].copy_from_slice(b"begin");
    assert!(fs::read(s.path("to")).unwrap() == want);
    drop((from, to));
    s.umount();
}

/// A page that the kernel writes back brings no credentials: those of the user who opened the file
/// count, so that the blocks held back for root stay root's.
#[test]
fn written_pages_are_on_their_openers_account() {
    let s = writeback();
    fs::set_permissions(s.dir(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    // It ends because a write(2) after the lost pages is told of them.
    let fill = "dd if=/dev/zero of=\"$0\" bs=64k conv=fsync 2>&1; true";
    let run = std::process::Command::new("setpriv")
        .args(["--reuid=1234", "--regid=1234", "--clear-groups", "sh", "-c", fill])
        .arg(s.path("user"))
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&run.stdout).contains("No space"), "{run:?}");
    let left = rustix::fs::statvfs(s.dir()).unwrap();
    let (free, available) = (left.f_bfree, left.f_bavail);
    assert!(free > available && free > 100, "free {free}, available {available}");
    let f = File::create(s.path("root")).unwrap();
    f.write_all_at(&[1; 100_000], 0).unwrap();
    f.sync_all().unwrap();
    drop(f);
    s.umount();
    s.assert_plain_ext4();
}

/// chattr(1) holds the file's lock until we answer, so a kernel that owns the times takes the new
/// one a moment later, of a file that may still be changed.
#[test]
fn the_time_of_chattr_is_shown_a_moment_later() {
    use rustix::fs::IFlags;
    let s = writeback();
    fs::write(s.path("f"), b"x").unwrap();
    let ctime = || {
        let meta = fs::metadata(s.path("f")).unwrap();
        (meta.ctime(), meta.ctime_nsec())
    };
    for flags in [IFlags::NODUMP, IFlags::empty(), IFlags::IMMUTABLE, IFlags::NOATIME] {
        let before = ctime();
        std::thread::sleep(Duration::from_millis(20));
        let f = File::open(s.path("f")).unwrap();
        rustix::fs::ioctl_setflags(&f, flags).unwrap();
        drop(f);
        if flags == IFlags::IMMUTABLE {
            continue;
        }
        let end = std::time::Instant::now() + Duration::from_secs(30);
        while ctime() == before {
            assert!(std::time::Instant::now() < end, "{flags:?} is not shown");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let shown = ctime();
    s.umount();
    remount(&s);
    assert_eq!(ctime(), shown);
    s.umount();
}

/// What a program writes and sets after chattr(1) has returned stays, also while the kernel is
/// being made to take its time.
///
/// Seen to fail when the kernel is made to take the daemon's size or mtime with it.
#[test]
fn what_comes_after_chattr_stays() {
    use rustix::fs::{IFlags, Timespec, Timestamps};
    let s = writeback();
    let mut f = File::options().append(true).create(true).open(s.path("f")).unwrap();
    for round in 0..200i64 {
        let flags = if round % 2 == 0 { IFlags::NODUMP } else { IFlags::empty() };
        rustix::fs::ioctl_setflags(&f, flags).unwrap();
        f.write_all(b"0123456789").unwrap();
        let time = Timespec { tv_sec: round, tv_nsec: 7 };
        rustix::fs::futimens(&f, &Timestamps { last_access: time, last_modification: time })
            .unwrap();
        for _ in 0..20 {
            let meta = f.metadata().unwrap();
            assert_eq!((meta.len() as i64, meta.mtime()), (10 * (round + 1), round));
            assert_eq!(meta.atime(), round);
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    drop(f);
    let all = b"0123456789".repeat(200);
    assert!(fs::read(s.path("f")).unwrap() == all);
    s.umount();
    remount(&s);
    let meta = fs::metadata(s.path("f")).unwrap();
    assert_eq!((meta.len(), meta.mtime()), (2000, 199));
    assert!(fs::read(s.path("f")).unwrap() == all);
    s.umount();
}
