//! The counts, and which files count. What is here runs in a signal's handler: it has neither locks
//! nor memory of its own.

use rustix::fs::{AtFlags, Mode, OFlags, SealFlags, StatxFlags};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use siftfs_client::escapes::{CALLS, Call, LEN, MAGIC, Word};
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// What fstatfs(2) says of a file of a FUSE mount.
const FUSE: i64 = 0x6573_5546;

static WORDS: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());
/// Devices that were met: twice the number and one, with the highest bit if it is a FUSE mount.
static DEVICES: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
const IS_FUSE: u64 = 1 << 63;

/// Maps the memory, which must be what `siftfs accel` makes, and can no more be cut. Notes which
/// entries are replaced.
pub fn open(path: &[u8], replaced: u8) -> bool {
    let map = || {
        let file = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let sealed = rustix::fs::fcntl_get_seals(&file).ok()?.contains(SealFlags::SHRINK);
        let stat = rustix::fs::fstat(&file).ok()?;
        if !sealed || stat.st_size.cast_unsigned() != LEN as u64 {
            return None;
        }
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping; its file cannot be cut.
        unsafe { mmap(null_mut(), LEN, prot, MapFlags::SHARED, &file, 0) }.ok()
    };
    let Some(words) = map() else { return false };
    WORDS.store(words.cast(), Ordering::Release);
    if word(Word::Magic as usize).map(|word| word.load(Ordering::Relaxed)) != Some(MAGIC) {
        WORDS.store(null_mut(), Ordering::Release);
        return false;
    }
    if let Some(missing) = word(Word::Missing as usize) {
        let all = (1 << crate::streams::ALL.len()) - 1;
        missing.fetch_or(all & !u64::from(replaced), Ordering::Relaxed);
    }
    true
}

fn word(at: usize) -> Option<&'static AtomicU64> {
    let words = WORDS.load(Ordering::Acquire);
    if words.is_null() || at >= LEN / 8 {
        return None;
    }
    // SAFETY: the mapping has that number of words, is aligned to a page, and stays.
    Some(unsafe { &*words.add(at) })
}

/// One more of these.
pub fn add(what: Word) {
    if let Some(word) = word(what as usize) {
        word.fetch_add(1, Ordering::Relaxed);
    }
}

/// The place of a call among those that are counted.
pub fn call(number: i64) -> Option<(usize, &'static Call)> {
    CALLS.iter().enumerate().find(|(_, call)| call.number == number)
}

/// The call at this place escaped, if one of the descriptors is of a regular file of a mount.
pub fn count(at: usize, mut descriptors: impl Iterator<Item = i32>) {
    if let Some(word) = word(Word::Calls as usize + at).filter(|_| descriptors.any(is_mounts)) {
        word.fetch_add(1, Ordering::Relaxed);
    }
}

fn is_mounts(fd: i32) -> bool {
    if fd < 0 {
        return false;
    }
    // SAFETY: the kernel says whether it is open.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let Ok(stat) = rustix::fs::statx(fd, c"", flags, StatxFlags::TYPE) else { return false };
    if u32::from(stat.stx_mode) & libc::S_IFMT != libc::S_IFREG {
        return false;
    }
    let dev = (u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor)) << 1 | 1;
    let dev = dev & !IS_FUSE;
    for known in &DEVICES {
        let is = known.load(Ordering::Relaxed);
        if is & !IS_FUSE == dev {
            return is & IS_FUSE != 0;
        }
        if is == 0 {
            let fuse = rustix::fs::fstatfs(fd).is_ok_and(|fs| fs.f_type == FUSE);
            let now = if fuse { dev | IS_FUSE } else { dev };
            let _ = known.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
            return fuse;
        }
    }
    rustix::fs::fstatfs(fd).is_ok_and(|fs| fs.f_type == FUSE)
}
