//! Threads whose open files no other thread's processes inherit.
//!
//! A process that is started begins as a copy of the thread that starts it: with all descriptors of
//! that thread's table, of which exec(2) closes those that are not to be inherited. To close a file
//! of a mount whose pages the kernel keeps back is to write them, and so to wait for that mount's
//! host. A host may wait for its device process; and where the copy was to become that device
//! process, none of the three goes on.
//!
//! So a thread that opens files of a mount does it in a table of its own, in a program that starts
//! hosts or device processes.

#![allow(unsafe_code)] // unshare(2) and close_range(2) have no safe wrappers

use std::io;

/// Gives the calling thread, which has opened nothing yet, a table of descriptors of its own:
/// standard input, output and error, and what it opens from here on. No descriptor that it then has
/// may be closed by another thread, nor be used there.
///
/// # Errors
/// What the kernel says.
pub fn own_table() -> io::Result<()> {
    // SAFETY: unshare(2) with this flag gives the thread a copy of the table, and close_range(2)
    // closes what is in that copy alone. The thread owns no descriptor and uses none it knows of.
    let done = unsafe {
        libc::unshare(libc::CLONE_FILES) == 0 && libc::close_range(3, libc::c_uint::MAX, 0) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}
