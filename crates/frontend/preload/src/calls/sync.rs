//! fsync(2), and what goes with it.

use crate::below::guard::{Outcome, inside};
use crate::state::inode::Open;
use crate::state::{registry, table};
use rustix::fs::{SeekFrom, seek};
use siftfs_accel::Through;
use std::os::fd::BorrowedFd;

/// fsync(2), or fdatasync(2) for `datasync`.
pub fn sync(fd: i32, datasync: bool) -> Outcome {
    inside(|| {
        let known = registry::known(fd);
        let open = match known {
            Some(open) => open,
            None if table::tag(fd) == table::WRITER => registry::considered(fd)?,
            None => return None,
        };
        if !registry::is_same(fd, &open) {
            return None;
        }
        let asks = open.inode.pace.sync();
        if open.inode.is_leased() && !registry::is_unlimited() {
            open.inode.give_back();
        }
        if asks && open.writes && !open.inode.is_leased() {
            registry::ask(fd, &open.inode, open.reads);
        }
        by_lease(&open, datasync).or_else(|| open.inode.untold().map(Err))
    })
}

fn by_lease(open: &Open, datasync: bool) -> Outcome {
    let guard = open.inode.lease()?;
    let done = guard.as_ref()?.sync_by(datasync);
    drop(guard);
    match done {
        Ok(Through::Lease(by)) => {
            if open.inode.pace.synced(by) {
                open.inode.give_back();
            }
            Some(Ok(0))
        }
        Ok(Through::Mount) => {
            open.inode.ended();
            None
        }
        Err(e) => Some(Err(e.raw_os_error().unwrap_or(libc::EIO))),
    }
}

/// The program looks at a file's attributes, which the kernel asks the daemon for while the file is
/// leased.
pub fn looked(fd: i32) {
    if table::tag(fd) != table::KNOWN {
        return;
    }
    inside(|| {
        let open = registry::known(fd).filter(|open| open.inode.is_leased())?;
        if open.inode.pace.look() {
            open.inode.give_back();
        }
        Some(())
    });
}

/// lseek(2) from the file's end, which needs no question to the daemon.
pub fn seek_end(fd: i32, by: i64) -> Outcome {
    inside(|| {
        let open = registry::known(fd).filter(|open| open.inode.is_leased())?;
        let size = match open.inode.lease()?.as_ref()?.size() {
            Through::Lease(size) => size,
            Through::Mount => return None,
        };
        let to = size.checked_add_signed(by)?;
        // SAFETY: the program's call is about this descriptor; the kernel says if it is not open.
        let at = seek(unsafe { BorrowedFd::borrow_raw(fd) }, SeekFrom::Start(to)).ok()?;
        isize::try_from(at).ok().map(Ok)
    })
}
