//! Files of the mount, opened by the numbers that the kernel knows them by.

#![allow(unsafe_code)] // open_by_handle_at(2) has no safe wrapper here

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// A FUSE file handle: node id (high, low half) and generation.
#[repr(C)]
struct FileHandle {
    bytes: u32,
    kind: i32,
    id: [u32; 3],
}

/// FILEID_INO64_GEN.
const INO64_GEN: i32 = 0x81;

/// Opens an inode of the mount for reading.
pub(crate) fn open_node(mount: impl AsFd, node: u64, generation: u32) -> io::Result<OwnedFd> {
    open_by(mount, (node, generation), libc::O_RDONLY | libc::O_NONBLOCK)
}

/// A descriptor that only names an inode of the mount; no server hears of it.
pub(crate) fn find_node(mount: impl AsFd, node: u64, generation: u32) -> io::Result<OwnedFd> {
    open_by(mount, (node, generation), libc::O_PATH)
}

fn open_by(
    mount: impl AsFd,
    (node, generation): (u64, u32),
    flags: libc::c_int,
) -> io::Result<OwnedFd> {
    let id = [(node >> 32) as u32, (node & 0xFFFF_FFFF) as u32, generation];
    let mut handle = FileHandle { bytes: 12, kind: INO64_GEN, id };
    // SAFETY: the handle is laid out as the call has it, `bytes` says how long it is, and the
    // call keeps no pointer.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            mount.as_fd().as_raw_fd(),
            &raw mut handle,
            flags | libc::O_CLOEXEC,
        )
    };
    match i32::try_from(fd) {
        // SAFETY: the call returned a new descriptor, which has no other owner.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}
