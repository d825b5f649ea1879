//! Tickets by ioctl(2): what programs get, what they are refused, and what survives the daemon.

use crate::pair::open;
use crate::support::Setup;
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use std::fs::Permissions;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

const STAGE: u32 = 0x8008_E501;
const POLL: u32 = 0xC008_E502;
const WAIT: u32 = 0x4010_E503;
const BARRIER: u32 = 0x8008_E504;
const ENDLESS: u64 = u64::MAX;

/// ioctl(2); `argument` is what it takes and gives. The errno of a failure.
#[allow(unsafe_code)] // no safe wrapper takes any number
fn ioctl(fd: impl AsFd, number: u32, argument: &mut [u64; 4]) -> Result<(), i32> {
    // SAFETY: the numbers say 32 bytes or less.
    let result =
        unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), number.into(), argument.as_mut_ptr()) };
    let failed = || io::Error::last_os_error().raw_os_error().unwrap();
    if result == 0 { Ok(()) } else { Err(failed()) }
}

fn drawn(fd: impl AsFd, number: u32) -> Result<u64, i32> {
    let mut argument = [0, 77, 77, 77];
    ioctl(fd, number, &mut argument)?;
    assert_eq!(argument[1..], [77; 3], "eight bytes");
    Ok(u64::from_le(argument[0]))
}

fn poll(fd: impl AsFd, ticket: u64) -> Result<u64, i32> {
    let mut argument = [ticket.to_le(), 77, 77, 77];
    ioctl(fd, POLL, &mut argument)?;
    assert_eq!(argument[1..], [77; 3], "eight bytes");
    Ok(u64::from_le(argument[0]))
}

fn wait(fd: impl AsFd, ticket: u64, timeout: u64) -> Result<(), i32> {
    ioctl(fd, WAIT, &mut [ticket.to_le(), timeout.to_le(), 0, 0])
}

/// Files and directories that were staged and waited for are there after a kill, also what the
/// kernel's writeback cache held of them.
///
/// Seen to fail with `writeback` when the kernel is not asked for its pages first.
#[test]
fn what_was_waited_for_survives() {
    for cache in ["writethrough", "writeback"] {
        let setup = Setup::new();
        setup.mount(&format!("commit=30,write_cache={cache}"));
        std::fs::create_dir(setup.path("d")).unwrap();
        let name = setup.path("d/f");
        let file = open(&name, OFlags::CREATE | OFlags::RDWR, 0o644).unwrap();
        for i in 0..64u8 {
            rustix::io::pwrite(&file, &[i + 1; 4096], u64::from(i) * 4096).unwrap();
            drawn(&file, STAGE).unwrap();
        }
        let last = drawn(&file, BARRIER).unwrap();
        wait(&file, last, ENDLESS).unwrap();
        assert_eq!(poll(&file, last), Ok(1), "{cache}");
        // A directory: its names.
        open(&setup.path("d/empty"), OFlags::CREATE | OFlags::RDWR, 0o644).unwrap();
        let dir = open(&setup.path("d"), OFlags::DIRECTORY | OFlags::RDONLY, 0).unwrap();
        let ticket = drawn(&dir, STAGE).unwrap();
        let start = Instant::now();
        while poll(&dir, ticket).unwrap() == 0 {
            assert!(start.elapsed() < Duration::from_secs(20), "a poll makes it durable soon");
            std::thread::sleep(Duration::from_millis(1));
        }
        let daemon = setup.daemon();
        daemon.signal(Signal::KILL);
        daemon.wait();
        drop((file, dir));
        setup.mount("commit=30");
        let found = std::fs::read(&name).unwrap();
        let same = found.iter().enumerate().all(|(i, byte)| usize::from(*byte) == i / 4096 + 1);
        assert!(found.len() == 64 * 4096 && same, "{cache}");
        assert!(setup.path("d/empty").exists(), "{cache}");
        setup.umount();
        setup.assert_plain_ext4();
    }
}

/// A wait is answered in time, and a ticket that is durable at once; other numbers, other sizes
/// and the tickets of another mount are refused; any program may ask that has the file open.
#[test]
fn what_is_refused() {
    let [one, two] = [Setup::new(), Setup::new()];
    for setup in [&one, &two] {
        setup.mount("commit=30");
        std::fs::write(setup.path("f"), "bytes").unwrap();
    }
    let [file, other] =
        [&one, &two].map(|setup| open(&setup.path("f"), OFlags::RDONLY, 0).unwrap());
    let ticket = drawn(&file, STAGE).unwrap();
    let foreign = drawn(&other, STAGE).unwrap();
    for (fd, unknown) in [(&file, foreign), (&other, ticket), (&file, 0), (&file, ticket + 1)] {
        assert_eq!(poll(fd, unknown), Err(libc::EINVAL));
        assert_eq!(wait(fd, unknown, ENDLESS), Err(libc::EINVAL));
        assert_eq!(wait(fd, unknown, 1_000_000_000), Err(libc::EINVAL));
        assert_eq!(wait(fd, unknown, 0), Err(libc::EINVAL));
    }
    assert!(matches!(wait(&file, ticket, 0), Ok(()) | Err(libc::ETIMEDOUT)));
    wait(&file, ticket, 60_000_000_000).unwrap();
    assert_eq!(wait(&file, ticket, 0), Ok(()), "it is durable");
    assert_eq!(wait(&file, ticket, 1), Ok(()));
    let nothing_new = drawn(&file, STAGE).unwrap();
    assert_eq!(poll(&file, nothing_new), Ok(1));
    let sized = |number: u32, size: u32| number & !(0x3fff << 16) | size << 16;
    for (number, right) in [(STAGE, 8), (POLL, 8), (WAIT, 16), (BARRIER, 8)] {
        for size in (0..=32).filter(|size| *size != right) {
            let refused = ioctl(&file, sized(number, size), &mut [ticket, 0, 0, 0]);
            assert_eq!(refused, Err(libc::ENOTTY), "{number:x} of {size} bytes");
        }
        for direction in (0..4).filter(|direction| *direction != number >> 30) {
            let changed = number & !(3 << 30) | direction << 30;
            let refused = ioctl(&file, changed, &mut [ticket, 0, 0, 0]);
            assert_eq!(refused, Err(libc::ENOTTY), "{changed:x}");
        }
    }
    for number in [0, 5, 15, 0xf0] {
        let refused = ioctl(&file, STAGE & !0xff | number, &mut [0; 4]);
        assert_eq!(refused, Err(libc::ENOTTY), "number {number}");
    }
    for (path, mode) in [(one.tmp.path(), 0o755), (&one.path("f"), 0o444)] {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let theirs = crate::pair::as_user(1001, &[1001], || {
        let file = open(&one.path("f"), OFlags::RDONLY, 0)?;
        Ok::<_, rustix::io::Errno>(drawn(&file, STAGE).and_then(|t| wait(&file, t, ENDLESS)))
    });
    assert_eq!(theirs, Ok(Ok(())));
    rustix::fs::mkdir(one.path("d"), Mode::from_raw_mode(0o755)).unwrap();
    drop((file, other));
    [one, two].iter().for_each(|setup| drop(setup.umount()));
}

/// Very many waits at once, with and without a time: each is answered, and the mount goes on.
#[test]
fn many_wait_at_once() {
    let setup = Setup::new();
    setup.mount("commit=30");
    let file = open(&setup.path("f"), OFlags::CREATE | OFlags::RDWR, 0o644).unwrap();
    std::thread::scope(|s| {
        for nr in 0..200u64 {
            let file = &file;
            s.spawn(move || {
                rustix::io::pwrite(file, &[7; 512], nr * 512).unwrap();
                let ticket = drawn(file, STAGE).unwrap();
                let timeout = [ENDLESS, 60_000_000_000, 1][nr as usize % 3];
                let answer = wait(file, ticket, timeout);
                assert!(answer == Ok(()) || timeout == 1 && answer == Err(libc::ETIMEDOUT));
            });
        }
    });
    wait(&file, drawn(&file, BARRIER).unwrap(), ENDLESS).unwrap();
    drop(file);
    assert_eq!(std::fs::read(setup.path("f")).unwrap(), vec![7; 200 * 512]);
    setup.umount();
    setup.assert_plain_ext4();
}
