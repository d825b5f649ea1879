//! An atomic section that the library has: what its open file writes is kept here until the commit,
//! and goes to the target's redo lane then (`docs/design/target.md`, "Sections of programs that are
//! not changed"). What the lane cannot take becomes a section of the mount, with all that was
//! written so far.

use crate::below::file::key;
use crate::below::guard::Outcome;
use crate::escapes::passing;
use rustix::fs::{AtFlags, StatxFlags, statx};
use siftfs_accel::{ABORT, Committed, Hold, START, Through};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Bytes that are kept of one section, all writes counted: less than a section of the mount takes.
const MOST: usize = 4 << 20;
/// Writes of one section.
const MOST_WRITES: usize = 65_536;
/// After a section that the lane has not taken one begins with the mount, after the next such one
/// three, and so on, up to two to the power of this less one.
const MOST_REFUSED: u8 = 6;
/// Longer than one tick of the clock that files are stamped with.
const TICK: Duration = Duration::from_millis(11);

/// Number of the sections that the library knows of. While it is 0, no call looks for a section.
static ALL: AtomicUsize = AtomicUsize::new(0);

/// Does the library know of any section?
#[inline]
pub fn are_any() -> bool {
    ALL.load(Ordering::Acquire) > 0
}

/// The child of a fork has no sections, and counts anew.
pub fn renew() {
    ALL.store(0, Ordering::Release);
}

/// One of these is an open file's, and tells it from others.
#[derive(Default)]
pub struct Owner(Arc<()>);

/// The section of a file, if the library knows of one.
#[derive(Default)]
pub struct Sections {
    is_any: AtomicBool,
    /// Sections that the lane has not taken, one behind the other.
    refused: AtomicU8,
    /// The number of the next ones that begin with the mount.
    skip: AtomicU8,
    section: Mutex<Option<Section>>,
}

struct Section {
    owner: Weak<()>,
    /// A descriptor of the owner.
    fd: i32,
    /// In their order.
    writes: Vec<(u64, Vec<u8>)>,
    bytes: usize,
    /// Somebody else has changed the file, or may have: it is not to be committed.
    is_void: bool,
    place: Place,
}

#[derive(Clone, Copy)]
enum Place {
    /// Here, under the file's lease.
    Library,
    /// The mount has it, and it is void.
    Mount,
    /// It is lost, because the mount would not take it.
    Lost(i32),
}

/// What becomes of a write.
pub enum Put {
    /// The write is in the section.
    Taken,
    /// The write does not belong to the section.
    Beside,
    /// The section is to become the mount's first.
    Kernel,
    /// It fails, so that nothing is changed outside of the section.
    Failed(i32),
}

/// What becomes of a commit.
pub enum Commit {
    /// It is done; without `synced` an fsync(2) by the kernel is to follow.
    Done {
        /// Nothing is to follow.
        synced: bool,
    },
    /// The section is to become the mount's, and to be committed there.
    Kernel,
    /// It is not done.
    Failed(i32),
}

impl Section {
    fn is_of(&self, owner: &Owner) -> bool {
        Weak::as_ptr(&self.owner) == Arc::as_ptr(&owner.0)
    }

    fn meets(&self, range: &Range<u64>) -> bool {
        let meets = |(at, bytes): &(u64, Vec<u8>)| {
            *at < range.end && range.start < at.saturating_add(bytes.len() as u64)
        };
        self.writes.iter().any(meets)
    }

    /// Why it is not to be committed, wherever it is.
    fn refusal(&self) -> Option<i32> {
        match self.place {
            Place::Lost(errno) => Some(errno),
            Place::Mount => Some(libc::ECANCELED),
            Place::Library => self.is_void.then_some(libc::ECANCELED),
        }
    }
}

impl Sections {
    /// Does the library know of a section of the file?
    #[inline]
    pub fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Section>> {
        self.section.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, section: &mut Option<Section>, to: Option<Section>) {
        match (section.is_some(), to.is_some()) {
            (false, true) => _ = ALL.fetch_add(1, Ordering::AcqRel),
            (true, false) => _ = ALL.fetch_sub(1, Ordering::AcqRel),
            _ => {}
        }
        self.is_any.store(to.is_some(), Ordering::Release);
        *section = to;
    }

    /// Begins a section of an open file, under this lease. `None`: the mount's is to begin.
    pub fn start(&self, fd: i32, owner: &Owner, hold: &Hold) -> Outcome {
        let mut section = self.lock();
        if section.as_ref().is_some_and(|section| section.owner.strong_count() == 0) {
            self.set(&mut section, None);
        }
        if section.is_some() {
            return Some(Err(libc::EBUSY));
        }
        let skip = |skip: u8| skip.checked_sub(1);
        let skips = self.skip.fetch_update(Ordering::Relaxed, Ordering::Relaxed, skip).is_ok();
        if !hold.is_direct() || skips || hold.size() == Through::Mount || !owns(fd) {
            return None;
        }
        let (owner, place) = (Arc::downgrade(&owner.0), Place::Library);
        let new = Section { owner, fd, writes: Vec::new(), bytes: 0, is_void: false, place };
        self.set(&mut section, Some(new));
        Some(Ok(0))
    }

    /// A write by an open file, under the lease that there is.
    pub fn put(&self, owner: &Owner, (at, bytes): (u64, &[u8]), hold: Option<&Hold>) -> Put {
        let mut section = self.lock();
        let Some(section) = section.as_mut() else { return Put::Beside };
        let end = at.saturating_add(bytes.len() as u64);
        if !section.is_of(owner) {
            // What it has of these bytes is not to come over them.
            section.is_void |= section.meets(&(at..end));
            return Put::Beside;
        }
        match section.place {
            Place::Lost(errno) => return Put::Failed(errno),
            Place::Mount => return Put::Kernel,
            Place::Library => {}
        }
        let fits =
            section.bytes.saturating_add(bytes.len()) <= MOST && section.writes.len() < MOST_WRITES;
        match hold.map(Hold::size) {
            Some(Through::Lease(size)) if fits && end <= size => {
                section.bytes += bytes.len();
                section.writes.push((at, bytes.to_vec()));
                Put::Taken
            }
            _ => Put::Kernel,
        }
    }

    /// What an open file reads, with what it has written in its section: `read` reads the file.
    pub fn read<T>(
        &self,
        owner: &Owner,
        (at, bytes): (u64, &mut [u8]),
        read: impl FnOnce(&mut [u8]) -> T,
    ) -> T {
        if !self.is_any() {
            return read(bytes);
        }
        // A commit meanwhile would be missed by both.
        let section = self.lock();
        let done = read(bytes);
        let own = section.as_ref().filter(|section| section.is_of(owner));
        for (begin, written) in own.iter().flat_map(|section| &section.writes) {
            lay_over((at, bytes), (*begin, written));
        }
        done
    }

    /// Commits the section of an open file.
    pub fn commit(&self, owner: &Owner, hold: Option<&Hold>) -> Commit {
        let mut place = self.lock();
        let Some(section) = place.as_ref() else { return Commit::Kernel };
        if !section.is_of(owner) {
            return Commit::Failed(libc::EINVAL);
        }
        if let Some(errno) = section.refusal() {
            return Commit::Failed(errno);
        }
        match hold.map(|hold| hold.commit(&section.writes)) {
            Some(Ok(Committed::There { synced })) => {
                self.refused.store(0, Ordering::Relaxed);
                self.set(&mut place, None);
                Commit::Done { synced }
            }
            Some(Ok(Committed::Elsewhere)) => {
                let refused = self.refused.load(Ordering::Relaxed).saturating_add(1);
                let refused = refused.min(MOST_REFUSED);
                self.refused.store(refused, Ordering::Relaxed);
                self.skip.store((1 << refused) - 1, Ordering::Relaxed);
                Commit::Kernel
            }
            Some(Ok(Committed::Ended)) | None => Commit::Kernel,
            Some(Err(error)) => Commit::Failed(error.raw_os_error().unwrap_or(libc::EIO)),
        }
    }

    /// Why the section of an open file is not to be committed by the kernel.
    pub fn refusal(&self, owner: &Owner) -> Option<i32> {
        self.lock().as_ref().filter(|section| section.is_of(owner)).and_then(Section::refusal)
    }

    /// Why nothing is to be written by an open file: its section is lost.
    pub fn failure(&self, owner: &Owner) -> Option<i32> {
        match self.lock().as_ref().filter(|section| section.is_of(owner))?.place {
            Place::Lost(errno) => Some(errno),
            Place::Library | Place::Mount => None,
        }
    }

    /// Ends the section of an open file without a trace. `None`: the kernel is to do so as well.
    pub fn abort(&self, owner: &Owner) -> Outcome {
        let mut place = self.lock();
        let section = place.as_ref()?;
        if !section.is_of(owner) {
            return Some(Err(libc::EINVAL));
        }
        let mounts = matches!(section.place, Place::Mount);
        self.set(&mut place, None);
        (!mounts).then_some(Ok(0))
    }

    /// A descriptor of the file is closed.
    pub fn end(&self) {
        if self.is_any() {
            self.set(&mut self.lock(), None);
        }
    }

    /// The lease is about to be given back, or has ended: the section becomes the mount's, with all
    /// that was written so far. It is void if others may have changed the file since it began.
    pub fn to_kernel(&self, file: (u64, u64), hold: &Hold) {
        if !self.is_any() {
            return;
        }
        let mut place = self.lock();
        let here = |section: &&mut Section| matches!(section.place, Place::Library);
        let Some(section) = place.as_mut().filter(here) else { return };
        // SAFETY: the descriptor was the program's, and the kernel says what it is now.
        let fd = unsafe { BorrowedFd::borrow_raw(section.fd) };
        if key(fd) != Some(file) {
            return self.set(&mut place, None);
        }
        let moved = moved(section, fd, hold);
        (section.writes, section.bytes) = (Vec::new(), 0);
        match moved {
            Ok(true) => self.set(&mut place, None),
            Ok(false) => section.place = Place::Mount,
            Err(errno) => section.place = Place::Lost(errno),
        }
    }
}

/// Makes a section the mount's. May it be committed?
fn moved(section: &Section, fd: BorrowedFd<'_>, hold: &Hold) -> Result<bool, i32> {
    let before = quiet(fd, hold);
    command(section.fd, START)?;
    // From here on the mount sees to it that nobody changes what is written in the section.
    let same = before.is_some() && before == times(fd);
    for (at, bytes) in &section.writes {
        if let Err(errno) = write_all(fd, *at, bytes) {
            let _ = command(section.fd, ABORT);
            return Err(errno);
        }
    }
    Ok(same && !section.is_void)
}

/// When a file was changed, in seconds and nanoseconds, and its size.
type Times = (i64, u32, u64);

/// What a file's times are while it is leased. A change by others after the lease makes other ones
/// of them: nothing is left that the end of the lease would move them for, and the clock goes on.
fn quiet(fd: BorrowedFd<'_>, hold: &Hold) -> Option<Times> {
    let Ok(Through::Lease(_)) = hold.sync_by(false) else { return None };
    let before = times(fd)?;
    std::thread::sleep(TICK);
    // Until now nobody else had the file.
    matches!(hold.size(), Through::Lease(_)).then_some(before)
}

fn times(fd: BorrowedFd<'_>) -> Option<Times> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    let stat = statx(fd, c"", flags, StatxFlags::CTIME | StatxFlags::SIZE).ok()?;
    Some((stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec, stat.stx_size))
}

/// Does the program's user own the file, as far as the kernel knows without a request? A section is
/// its owner's; of others the mount knows more.
fn owns(fd: i32) -> bool {
    // SAFETY: the program's call is about this descriptor; the kernel says if it is not open.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = statx(fd, c"", flags, StatxFlags::UID);
    stat.is_ok_and(|stat| stat.stx_uid == rustix::process::geteuid().as_raw())
}

fn command(fd: i32, command: u32) -> Result<(), i32> {
    // SAFETY: these commands have no argument, and so no memory.
    let done = passing(|| unsafe { libc::syscall(libc::SYS_ioctl, fd, command, 0) });
    if done < 0 { Err(crate::below::guard::errno()) } else { Ok(()) }
}

fn write_all(fd: BorrowedFd<'_>, mut at: u64, mut bytes: &[u8]) -> Result<(), i32> {
    while !bytes.is_empty() {
        let written = match rustix::io::pwrite(fd, bytes, at) {
            Ok(0) => return Err(libc::EIO),
            Err(rustix::io::Errno::INTR) => continue,
            written => written.map_err(rustix::io::Errno::raw_os_error)?,
        };
        at = at.saturating_add(written as u64);
        bytes = bytes.get(written..).unwrap_or_default();
    }
    Ok(())
}

/// Puts what was written where it belongs in what was read.
fn lay_over((at, bytes): (u64, &mut [u8]), (begin, written): (u64, &[u8])) {
    let skip = |from: u64, to: u64| usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX);
    let to = bytes.get_mut(skip(at, begin)..).unwrap_or_default();
    let from = written.get(skip(begin, at)..).unwrap_or_default();
    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
}

#[cfg(test)]
#[path = "section_tests.rs"]
mod tests;
