//! A descriptor that the caller opened and names by its number.

#![allow(unsafe_code)] // a number has no owner to borrow it from

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};

/// A copy of the caller's descriptor, which stays open.
///
/// # Errors
/// None is open under this number.
pub fn copy(number: RawFd) -> io::Result<File> {
    if number < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: it is not -1, and used for one fcntl(2) only, which answers EBADF where nothing is
    // open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    borrowed.try_clone_to_owned().map(File::from)
}
