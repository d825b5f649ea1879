//! Reading and writing.
//!
//! An open file's offset is the kernel's. A call that goes by it moves it by lseek(2) first, in one
//! step, and then has its range of the file for itself, whatever other threads and handlers do.

use crate::below::guard::{Outcome, inside};
use crate::below::user::User;
use crate::calls::sections;
use crate::state::inode::{Inode, Open, granted};
use crate::state::{registry, table};
use rustix::fs::{SeekFrom, seek};
use siftfs_accel::{Hold, Through};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// What is longer goes to the kernel: it is no small write.
const MOST: usize = 256 << 10;
/// The same of files that are read and written at a target.
const MOST_DIRECT: usize = 16 << 20;

/// Where in the file.
#[derive(Clone, Copy)]
pub enum At {
    /// At the open file's offset, which moves.
    Here,
    /// There.
    Offset(i64),
}

/// The file of a descriptor, if it is leased.
fn leased(fd: i32) -> Option<Arc<Open>> {
    registry::known(fd).filter(|open| open.inode.is_leased())
}

fn borrowed<'a>(fd: i32) -> BorrowedFd<'a> {
    // SAFETY: the program's call is about this descriptor, so it is open as far as is known; if it
    // is not, the kernel says so.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Moves the offset; answers where it is then.
fn moved(fd: i32, by: i64) -> Option<u64> {
    seek(borrowed(fd), SeekFrom::Current(by)).ok()
}

fn signed(len: usize) -> Option<i64> {
    i64::try_from(len).ok()
}

/// write(2) and its forms.
pub fn write(fd: i32, at: At, user: impl FnOnce() -> Option<User>) -> Outcome {
    let done = by_log(fd, at, user);
    if done.is_none() && matches!(at, At::Here) && granted() != 0 {
        inside(|| {
            registry::freshen(fd);
            Some(())
        });
    }
    done
}

fn by_log(fd: i32, at: At, user: impl FnOnce() -> Option<User>) -> Outcome {
    inside(|| {
        let open = registry::known(fd).filter(|open| open.writes && open.inode.matters())?;
        let user = user().filter(|user| user.len > 0)?;
        let fits = user.len <= most(&open.inode);
        let Some(bytes) = fits.then(|| user.gather()).flatten() else {
            // The kernel says what is wrong, if anything is. It would write what is there.
            if !fits || open.inode.section.is_any() {
                return sections::to_kernel(&open);
            }
            return None;
        };
        if let Some(done) = in_section(fd, at, &open, &bytes) {
            return done;
        }
        let done = by_lease(&open.inode, |leased| match (at, open.appends) {
            (_, true) => append(fd, at, leased, &bytes),
            (At::Offset(offset), false) => {
                let offset = u64::try_from(offset).ok()?;
                through(leased.write_at(offset, &bytes))
            }
            (At::Here, false) if table::is_shared(fd) => None,
            (At::Here, false) => {
                write_here(fd, &bytes, |begin| through(leased.write_at(begin, &bytes)))
            }
        });
        if done.is_some() {
            open.inode.pace.wrote();
        }
        done
    })
}

/// A write of a file that has an atomic section. `None`: it is a write like any other.
fn in_section(fd: i32, at: At, open: &Arc<Open>, bytes: &[u8]) -> Option<Outcome> {
    if !open.inode.section.is_any() || open.appends {
        return None;
    }
    match at {
        At::Offset(offset) => {
            let done = sections::write(open, u64::try_from(offset).ok()?, bytes);
            done.map(Some)
        }
        At::Here if table::is_shared(fd) => Some(sections::to_kernel(open)),
        At::Here => Some(write_here(fd, bytes, |begin| {
            let own = sections::write(open, begin, bytes);
            own.or_else(|| by_lease(&open.inode, |leased| through(leased.write_at(begin, bytes))))
        })),
    }
}

fn most(inode: &Inode) -> usize {
    if inode.is_direct() { MOST_DIRECT } else { MOST }
}

/// Does something by the lease. If that cannot be done, the lease may have ended.
fn by_lease(inode: &Inode, work: impl FnOnce(&Hold) -> Outcome) -> Outcome {
    let guard = inode.lease()?;
    let leased = guard.as_ref()?;
    let done = work(leased);
    let lasts = done.is_some() || leased.size() != Through::Mount;
    drop(guard);
    if !lasts {
        inode.ended();
    }
    done
}

fn through(done: Through<usize>) -> Outcome {
    match done {
        Through::Lease(len) => Some(Ok(len.cast_signed())),
        Through::Mount => None,
    }
}

fn append(fd: i32, at: At, leased: &Hold, bytes: &[u8]) -> Outcome {
    if matches!(at, At::Offset(offset) if offset < 0) {
        return None;
    }
    let Through::Lease((begin, written)) = leased.append(bytes) else { return None };
    if let At::Here = at {
        // Whatever the kernel says: the bytes are written.
        let _ = seek(borrowed(fd), SeekFrom::Start(begin.saturating_add(written as u64)));
    }
    Some(Ok(written.cast_signed()))
}

/// A write at the open file's offset, which moves first: `write` is told where that was.
fn write_here(fd: i32, bytes: &[u8], write: impl FnOnce(u64) -> Outcome) -> Outcome {
    let len = signed(bytes.len())?;
    let end = moved(fd, len)?;
    let begin = end.checked_sub(bytes.len() as u64)?;
    let done = write(begin).unwrap_or_else(|| {
        // Other calls may have moved the offset on: this one has its range.
        let written = rustix::io::pwrite(borrowed(fd), bytes, begin);
        written.map(usize::cast_signed).map_err(|e| e.raw_os_error())
    });
    let short = len - done.map_or(0, |written| i64::try_from(written).unwrap_or(len));
    if short > 0 {
        let _ = moved(fd, -short);
    }
    Some(done)
}

/// read(2) and its forms.
pub fn read(fd: i32, at: At, user: impl FnOnce() -> Option<User>) -> Outcome {
    inside(|| {
        let open = leased(fd).filter(|open| open.reads)?;
        let user = user().filter(|user| user.len > 0)?;
        if user.len > most(&open.inode) || open.inode.pace.read() {
            open.inode.give_back();
            return None;
        }
        by_lease(&open.inode, |leased| {
            let Through::Lease(size) = leased.size() else { return None };
            match at {
                At::Offset(offset) => {
                    let offset = u64::try_from(offset).ok()?;
                    let len = there(size, offset, user.len);
                    read_to((&open, leased), offset, &user, len)
                }
                At::Here if table::is_shared(fd) => None,
                At::Here => read_here(fd, (&open, leased), &user, size),
            }
        })
    })
}

/// How many of `len` bytes the file has behind `offset`.
fn there(size: u64, offset: u64, len: usize) -> usize {
    usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX).min(len)
}

/// A file that is leased, as an open file of it has it.
type By<'a> = (&'a Arc<Open>, &'a Hold);

fn read_to((open, leased): By<'_>, offset: u64, user: &User, len: usize) -> Outcome {
    if !user.takes(len) {
        return None;
    }
    let mut bytes = vec![0; len];
    let section = &open.inode.section;
    match section.read(&open.owner, (offset, &mut bytes), |bytes| leased.read_at(offset, bytes)) {
        Ok(Through::Lease(read)) => {
            user.scatter(bytes.get(..read)?);
            Some(Ok(read.cast_signed()))
        }
        // The mount has the error for the program, if it is one.
        Ok(Through::Mount) | Err(_) => None,
    }
}

fn read_here(fd: i32, by: By<'_>, user: &User, size: u64) -> Outcome {
    let len = there(size, moved(fd, 0)?, user.len);
    let end = moved(fd, signed(len)?)?;
    let begin = end.checked_sub(len as u64)?;
    let done = read_to(by, begin, user, len).or_else(|| {
        // SAFETY: the pieces are the program's, for this call to write to; the kernel checks them.
        let read = unsafe {
            let (pieces, offset) = (user.pieces(), begin.cast_signed());
            let count = i32::try_from(pieces.len()).ok()?;
            libc::syscall(libc::SYS_preadv, fd, pieces.as_ptr(), count, offset, 0)
        };
        let read = isize::try_from(read).ok()?;
        Some(if read < 0 { Err(crate::below::guard::errno()) } else { Ok(read) })
    });
    let read = done.and_then(Result::ok).unwrap_or(0).cast_unsigned();
    if let Some(off) = signed(read).zip(signed(len)).map(|(read, len)| read - len)
        && off != 0
    {
        let _ = moved(fd, off);
    }
    done
}
