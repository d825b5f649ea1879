//! SQLite as it is compiled for file systems with atomic sections (`ENABLE_BATCH_ATOMIC_WRITE`):
//! a commit is one section of the database file, and there is no journal file.
//!
//! SQLite asks each database file's file system by an ioctl, and has a journal where there are no
//! sections. [`no_sections`] answers that question itself, so that the very same program can be
//! compared with and without them on one file system.

#![allow(unsafe_code)]

use rusqlite::ffi;
use std::ffi::{CStr, c_int};

/// What SQLite calls the option.
const OPTION: &CStr = c"ENABLE_BATCH_ATOMIC_WRITE";

/// Is this SQLite one that can do with sections? It is compiled with what LIBSQLITE3_FLAGS says,
/// which is set by the workspace's `.cargo/config.toml`.
pub fn knows_sections() -> bool {
    // SAFETY: looks a text up in a constant table.
    unsafe { ffi::sqlite3_compileoption_used(OPTION.as_ptr()) != 0 }
}

/// In SQLite's place of ioctl(2), which it uses for sections alone: nothing of it is there.
extern "C" fn refused() -> c_int {
    -1
}

/// From now on no file system has sections in this process. Before the first database is opened.
pub fn no_sections() {
    // SAFETY: SQLite's default VFS lives as long as the process. The function that is put in place
    // of ioctl(2) looks at none of its arguments, so it may be called with any.
    let status = unsafe {
        let vfs = ffi::sqlite3_vfs_find(std::ptr::null());
        let set = vfs.as_ref().and_then(|vfs| vfs.xSetSystemCall).expect("a VFS of Unix");
        let call: unsafe extern "C" fn() = std::mem::transmute(refused as extern "C" fn() -> c_int);
        set(vfs, c"ioctl".as_ptr(), Some(call))
    };
    assert_eq!(status, ffi::SQLITE_OK, "SQLite has a place for ioctl(2)");
}

pub use rusqlite::{Connection, Error};

#[cfg(test)]
mod tests {
    /// Without it every comparison would be of the same with the same.
    #[test]
    fn this_build_knows_sections() {
        assert!(super::knows_sections(), "LIBSQLITE3_FLAGS was not set when SQLite was compiled");
    }
}
