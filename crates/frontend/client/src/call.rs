//! ioctl(2).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// An ioctl whose argument has the length that the command says: what it takes, and what it gives
/// back.
///
/// # Panics
/// If the argument has another size: the kernel would access memory outside the buffer.
pub(crate) fn ioctl(on: BorrowedFd<'_>, command: u32, argument: &mut [u8]) -> io::Result<()> {
    assert_eq!(argument.len() as u32, size(command), "the argument is as long as the command says");
    // SAFETY: the kernel reads and writes as many bytes as the command's size bits have, which are
    // the argument's length; the argument outlives the call.
    let result =
        unsafe { libc::ioctl(on.as_raw_fd(), libc::Ioctl::from(command), argument.as_mut_ptr()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Bytes of a command's argument. F2FS's own that we send have none, and say so.
fn size(command: u32) -> u32 {
    command >> 16 & 0x3FFF
}
