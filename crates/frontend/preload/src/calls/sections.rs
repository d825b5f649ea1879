//! Atomic sections, by F2FS's ioctls (`docs/design/target.md`, "Sections of programs that are not
//! changed").

use crate::below::guard::{Outcome, inside};
use crate::state::inode::Open;
use crate::state::section::{Commit, Put};
use crate::state::{registry, section, table};
use siftfs_accel::{ABORT, COMMIT, START, is_own};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// An ioctl(2), of which the kernel takes 32 bits of the command.
#[inline]
pub fn ioctl(fd: i32, command: u64) -> Outcome {
    let command = (command & u64::from(u32::MAX)) as u32;
    match command {
        START if table::tag(fd) != table::NONE => inside(|| start(fd)),
        COMMIT if section::are_any() => inside(|| commit(fd)),
        ABORT if section::are_any() => inside(|| abort(fd)),
        // Such a command names files, sections among them, by numbers in memory.
        _ if is_own(command) && section::are_any() => inside(|| {
            registry::move_sections();
            None
        }),
        _ => None,
    }
}

fn start(fd: i32) -> Outcome {
    let open = registry::known(fd).filter(|open| open.inode.matters())?;
    let usable = open.reads && open.writes && !open.appends && !table::is_shared(fd);
    if !usable || !registry::is_same(fd, &open) {
        return None;
    }
    let lease = open.inode.lease()?;
    open.inode.section.start(fd, &open.owner, lease.as_ref()?)
}

/// The open file of a descriptor whose file has a section.
fn sectioned(fd: i32) -> Option<Arc<Open>> {
    registry::known(fd).filter(|open| open.inode.section.is_any())
}

fn commit(fd: i32) -> Outcome {
    let open = sectioned(fd)?;
    let lease = open.inode.lease();
    let hold = lease.as_ref().and_then(|lease| lease.as_ref());
    let commit = open.inode.section.commit(&open.owner, hold);
    drop(lease);
    match commit {
        Commit::Done { synced: true } => Some(Ok(0)),
        Commit::Done { synced: false } => {
            // SAFETY: the program's call is about this descriptor; the kernel says if it is not
            // open.
            let synced = rustix::fs::fsync(unsafe { BorrowedFd::borrow_raw(fd) });
            Some(synced.map(|()| 0).map_err(|error| error.raw_os_error()))
        }
        Commit::Failed(errno) => Some(Err(errno)),
        Commit::Kernel => {
            open.inode.give_back();
            // The kernel commits it, unless it may not be committed any more.
            open.inode.section.refusal(&open.owner).map(Err)
        }
    }
}

fn abort(fd: i32) -> Outcome {
    let open = sectioned(fd)?;
    open.inode.section.abort(&open.owner)
}

/// A write by an open file, of `bytes` at `offset`: into its section, if it has one in the library.
/// `None`: the caller goes on, by the kernel if there is no lease any more.
pub fn write(open: &Arc<Open>, offset: u64, bytes: &[u8]) -> Outcome {
    if !open.inode.section.is_any() {
        return None;
    }
    let put = {
        let lease = open.inode.lease();
        let hold = lease.as_ref().and_then(|lease| lease.as_ref());
        open.inode.section.put(&open.owner, (offset, bytes), hold)
    };
    match put {
        Put::Taken => {
            open.inode.pace.wrote();
            Some(Ok(bytes.len().cast_signed()))
        }
        Put::Beside => None,
        Put::Failed(errno) => Some(Err(errno)),
        Put::Kernel => to_kernel(open),
    }
}

/// The file's section, if it has one, becomes the mount's. The errno of a write by this open file,
/// if it was its own, and could not.
pub fn to_kernel(open: &Arc<Open>) -> Outcome {
    open.inode.give_back();
    open.inode.section.failure(&open.owner).map(Err)
}
