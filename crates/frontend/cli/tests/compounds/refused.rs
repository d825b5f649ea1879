//! Compounds that are refused: nothing of them happens, and the mount goes on.

use crate::calls::{File, as_user};
use crate::support::Setup;
use crate::support::caches;
use crate::{mounted, read, root};
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use siftfs_client::{Access, Checksum, Codec, Compound, CompoundError, Level};
use siftfs_proto::compound::{BytesArg, NumberArg, StepNr};
use siftfs_proto::ioctl::compound::{self as raw, Step};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// The step that is refused, if it is one, and why.
pub fn refusal(steps: Compound<'_>) -> (Option<usize>, i32) {
    match steps.run(Level::Visible) {
        Ok(_) => (None, 0),
        Err(CompoundError::Refused { step, error }) => (Some(step), error.raw_os_error().unwrap()),
        Err(CompoundError::Failed(error)) => (None, error.raw_os_error().unwrap()),
    }
}

/// A compound still works, and stays where the refused ones left nothing.
fn undisturbed(s: &Setup) {
    let dir = root(s);
    let mut steps = Compound::on(&dir.0);
    let file = steps.create("undisturbed", 0o600);
    steps.append(file, b"works");
    steps.run(Level::Durable).expect("carried out");
    assert_eq!(read(s, "undisturbed"), b"works");
    std::fs::remove_file(s.path("undisturbed")).unwrap();
}

/// The rights are the caller's: to each file of a path, and by each descriptor what it was opened
/// for.
#[test]
fn rights() {
    for cache in caches() {
        let s = mounted(cache);
        let permit = |name: &str, mode: u32| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(s.path(name), mode).unwrap();
        };
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(s.tmp.path(), open).unwrap();
        File::create(&s.path("roots"), b"root's").sync();
        File::create(&s.path("all"), b"all's").sync();
        permit("roots", 0o644);
        permit("all", 0o666);
        permit("", 0o777);
        as_user(4711, || {
            let dir = root(&s);
            let all = File::open(&s.path("all"), OFlags::RDWR);
            let mut steps = Compound::on(&dir.0);
            steps.write(&all.0, 0, b"changed");
            let roots = steps.lookup("roots");
            steps.create("mine", 0o666);
            steps.write(roots, 0, b"changed");
            assert_eq!(refusal(steps), (Some(3), libc::EACCES), "{cache}");
            assert!(!s.path("mine").exists());
            let mut steps = Compound::on(&dir.0);
            steps.create("mine", 0o666);
            assert_eq!(refusal(steps), (None, 0), "{cache}: nothing is left of it");
            let roots = File::open(&s.path("roots"), OFlags::RDONLY);
            let mut steps = Compound::on(&dir.0);
            steps.write(&all.0, 0, b"changed");
            steps.patch(&roots.0, 0, b"changed");
            assert_eq!(refusal(steps), (Some(1), libc::EBADF), "{cache}");
        });
        assert_eq!((read(&s, "roots"), read(&s, "all")), (b"root's".to_vec(), b"all's".to_vec()));
        let mine = std::fs::metadata(s.path("mine")).unwrap();
        assert_eq!((mine.permissions().mode() & 0o777, uid(&mine)), (0o644, 4711), "the umask");
        undisturbed(&s);
        s.umount();
        s.assert_plain_ext4();
    }
}

fn uid(meta: &std::fs::Metadata) -> u32 {
    std::os::unix::fs::MetadataExt::uid(meta)
}

/// Descriptors that are closed, of another mount, or opened for something else.
#[test]
fn descriptors() {
    let s = mounted("writethrough");
    let elsewhere = OwnedFd::from(tempfile::tempfile().unwrap());
    let dir = root(&s);
    let f = File::create(&s.path("f"), b"old");
    let write_only = File::open(&s.path("f"), OFlags::WRONLY);
    let append = File::open(&s.path("f"), OFlags::RDWR | OFlags::APPEND);
    let nothing = File::open(&s.path("f"), OFlags::PATH);
    let begin = || {
        let mut steps = Compound::on(&dir.0);
        steps.lookup("f");
        steps
    };
    let read_from = |file: &OwnedFd| {
        let mut steps = begin();
        steps.read(file, 0, 1);
        refusal(steps)
    };
    assert_eq!(read_from(&elsewhere), (Some(1), libc::EXDEV));
    for other in [&write_only.0, &nothing.0] {
        assert_eq!(read_from(other), (Some(1), libc::EBADF));
    }
    assert_eq!(read_from(&dir.0), (Some(1), libc::EISDIR));
    assert_eq!(read_from(&append.0), (None, 0));
    let mut steps = begin();
    steps.write(&append.0, 0, b"x");
    assert_eq!(refusal(steps), (Some(1), libc::EBADF), "it would not be written there");
    let mut steps = begin();
    steps.append(&append.0, b"x");
    assert_eq!(refusal(steps), (None, 0));
    assert_eq!(refusal(Compound::on(&f.0)), (None, libc::ENOTDIR));
    assert_eq!(refusal(Compound::on(&dir.0)), (None, libc::EINVAL), "no step");
    assert_eq!(refusal(Compound::on(&elsewhere)), (None, libc::ENOTTY));
    assert_eq!(read(&s, "f"), b"oldx");
    undisturbed(&s);
}

/// More than the step allows, than the buffer has room for, than is there yet.
#[test]
fn results_that_are_too_much() {
    for cache in caches() {
        let s = mounted(cache);
        let dir = root(&s);
        let f = File::create(&s.path("f"), &[1; 40_000]);
        let mut steps = Compound::on(&dir.0);
        steps.write(&f.0, 0, &[2; 10]);
        let zeros = vec![0; 1 << 20];
        let bomb = bomb(&zeros);
        steps.decompress(Codec::Zstd, bomb, 10_000);
        assert_eq!(refusal(steps), (Some(1), libc::EOVERFLOW), "{cache}");
        let mut steps = Compound::on(&dir.0);
        steps.write(&f.0, 0, &[2; 10]);
        let all = steps.read(&f.0, 0, 40_000);
        steps.checksum(Checksum::Xxh3, all);
        steps.want(all);
        assert_eq!(refusal(steps), (None, libc::EMSGSIZE), "{cache}");
        let mut other = Compound::on(&dir.0);
        let foreign = other.read(&f.0, 0, 1);
        let mut steps = Compound::on(&dir.0);
        steps.write(&f.0, 0, foreign);
        assert_eq!(refusal(steps), (None, libc::EINVAL), "{cache}: another's step");
        let mut steps = Compound::on(&dir.0);
        steps.append(&f.0, &[0; 16_383]);
        assert_eq!(refusal(steps), (None, libc::E2BIG), "{cache}: the ioctl's bound");
        assert!(f.all() == [1; 40_000], "{cache}: nothing is applied");
        drop((f, dir));
        undisturbed(&s);
        s.umount();
        s.assert_plain_ext4();
    }
}

/// A Zstandard frame of this, which is far shorter.
pub fn bomb(bytes: &[u8]) -> Vec<u8> {
    let (s, out) = (Setup::new(), "frame");
    s.mount("");
    let dir = root(&s);
    let f = File::create(&s.path("f"), bytes);
    let mut steps = Compound::on(&dir.0);
    let read_all = steps.read(&f.0, 0, u32::try_from(bytes.len()).unwrap());
    let frame = steps.compress(Codec::Zstd, read_all);
    let new = steps.create(out, 0o600);
    steps.append(new, frame);
    steps.run(Level::Visible).expect("carried out");
    drop((f, dir));
    let frame = read(&s, out);
    assert!(frame.len() < bytes.len() / 100);
    s.umount();
    frame
}

fn ask(dir: &File, command: u32, bytes: &mut [u8]) -> i32 {
    assert!(bytes.len() >= (command >> 16 & 0x3FFF) as usize);
    // SAFETY: the kernel reads and writes no more bytes than the command's size, which are there.
    let result = unsafe { libc::ioctl(dir.0.as_raw_fd(), command.into(), bytes.as_mut_ptr()) };
    let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    if result < 0 { errno } else { 0 }
}

fn command(size: u32) -> u32 {
    3 << 30 | size << 16 | 0xE520
}

/// Garbage in the argument, and commands that are nearly right.
#[test]
fn garbage() {
    let s = mounted("writethrough");
    let dir = root(&s);
    File::create(&s.path("f"), b"f").sync();
    let link = Step::Rename { from: b"f".into(), to: b"g".into(), replace: false };
    let unlink = Step::Unlink { path: b"g".into() };
    let steps = vec![(link, false), (unlink, true)];
    let good = raw::Compound { steps, level: Level::Visible };
    let (number, bytes) = good.encode(100).unwrap();
    let changed = |at: usize, value: u32| {
        let mut bytes = bytes.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        ask(&dir, number, &mut bytes)
    };
    assert_eq!(changed(0, 9999), libc::EINVAL, "longer than the buffer");
    assert_eq!(changed(4, 3), libc::EINVAL, "one more step");
    assert_eq!(changed(4, 65_537), libc::E2BIG);
    assert_eq!(changed(8, 3), libc::EINVAL, "an unknown level");
    assert_eq!(changed(16, 19), libc::EINVAL, "an unknown step");
    assert_eq!(changed(16, 1 | 2 << 16), libc::EINVAL, "an unknown flag");
    for size in [0, 1, 15, 16, 40, 16_383] {
        assert_eq!(ask(&dir, command(size), &mut [0xFF; 16_383]), libc::EINVAL, "{size}");
    }
    let short = command(20);
    assert_eq!(ask(&dir, short, &mut bytes.clone()), libc::EINVAL, "cut off");
    for other in [number & !0x8000_0000, number & !0x4000_0000, number + 1, number & !0x00F0] {
        assert_eq!(ask(&dir, other, &mut bytes.clone()), libc::ENOTTY, "{other:x}");
    }
    assert_eq!(read(&s, "f"), b"f");
    assert_eq!(ask(&dir, number, &mut bytes.clone()), 0);
    assert!(!s.path("f").exists());
    // Numbers that no step has, in every place of an operand.
    let step = |file, offset, data| (Step::Write { file, offset, data }, true);
    let file = raw::File::Step(StepNr(u32::MAX));
    let data = BytesArg::Part { step: StepNr(9), start: u32::MAX, len: u32::MAX };
    let wild = vec![step(file, NumberArg::Step(StepNr(1)), data)];
    let (number, mut bytes) =
        raw::Compound { steps: wild, level: Level::Visible }.encode(100).unwrap();
    assert_eq!(ask(&dir, number, &mut bytes), 0);
    assert_eq!(raw::Answer::decode(&bytes, 1), Ok(raw::Answer::Refused(StepNr(0), libc::EINVAL)));
    drop(dir);
    undisturbed(&s);
    s.umount();
    s.assert_plain_ext4();
}

/// A full disk in the last step.
#[test]
fn a_full_disk() {
    for cache in caches() {
        let s = mounted(cache);
        let dir = root(&s);
        let f = File::create(&s.path("f"), &[1; 8192]);
        f.sync();
        let fill = File::create(&s.path("fill"), b"");
        let mut at = 0;
        for piece in [64 << 20, 1 << 20, 64 << 10, 4096] {
            while fallocate(&fill.0, FallocateFlags::empty(), at, piece).is_ok() {
                at += piece;
            }
        }
        let grow = |len: u64| {
            let mut steps = Compound::on(&dir.0);
            steps.patch(&f.0, 0, &[2; 10]);
            steps.rename("f", "g");
            steps.write(&f.0, len, &[2; 10_000]);
            steps.run(Level::Visible).map(drop).map_err(|e| std::io::Error::from(e).raw_os_error())
        };
        assert_eq!(grow(1 << 20), Err(Some(libc::ENOSPC)), "{cache}");
        assert!(read(&s, "f") == [1; 8192] && !s.path("g").exists(), "{cache}");
        drop(fill);
        std::fs::remove_file(s.path("fill")).unwrap();
        crate::support::siftfs(&["checkpoint", s.dir()]).ok();
        grow(1 << 20).expect("there is space");
        assert_eq!(read(&s, "g").len(), (1 << 20) + 10_000, "{cache}");
        drop((f, dir));
        s.umount();
        s.assert_plain_ext4();
    }
}

/// Memory that a thread changes without a lock.
struct Shared(*mut u8);

// SAFETY: each access of ours is of one byte, and volatile; the kernel's are its own.
unsafe impl Sync for Shared {}

impl Shared {
    fn flip(&self, len: usize, stop: &AtomicBool) {
        for round in 0usize.. {
            if stop.load(Ordering::SeqCst) {
                return;
            }
            // SAFETY: inside of memory that outlives the thread.
            unsafe {
                let at = self.0.add(round * 7 % len);
                at.write_volatile(at.read_volatile() ^ 1 << (round % 3));
            }
        }
    }
}

/// The buffer changes while the call runs: what was copied in counts, whatever it is.
#[test]
fn a_buffer_that_changes_meanwhile() {
    for cache in caches() {
        let s = mounted(cache);
        let dir = root(&s);
        let f = File::create(&s.path("f"), &[1; 8192]);
        let number = u32::try_from(f.0.as_raw_fd()).unwrap();
        let file = raw::File::Descriptor(number);
        let write =
            Step::Write { file, offset: NumberArg::Given(0), data: BytesArg::Given(vec![2; 64]) };
        let find = Step::Open { path: b"f".into(), access: Access::Both, truncate: false };
        let steps = vec![(write, true), (find, true)];
        let (command, good) = raw::Compound { steps, level: Level::Visible }.encode(200).unwrap();
        let mut buffer = good.clone();
        let (at, stop) = (Shared(buffer.as_mut_ptr()), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| at.flip(good.len(), &stop));
            for _ in 0..2000 {
                // SAFETY: as long as the command says, whatever is in it.
                unsafe {
                    for (i, byte) in good.iter().enumerate() {
                        at.0.add(i).write_volatile(*byte);
                    }
                    libc::ioctl(dir.0.as_raw_fd(), command.into(), at.0)
                };
            }
            stop.store(true, Ordering::SeqCst);
        });
        undisturbed(&s);
        drop((f, dir));
        s.kill_and_mount(cache);
        s.umount();
        s.assert_plain_ext4();
    }
}
