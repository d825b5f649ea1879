//! C's arguments and results.

use std::ffi::{CStr, OsStr, c_char, c_int, c_uint};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `struct siftfs_name`.
#[repr(C)]
pub struct Name {
    /// Path, or null.
    pub from: *const c_char,
    /// Descriptor, where `from` is null.
    pub from_fd: c_int,
    /// Path.
    pub to: *const c_char,
    /// `SIFTFS_REPLACE`.
    pub flags: c_uint,
}

pub(crate) const REPLACE: c_uint = 1;

/// An errno as an error.
pub(crate) fn refuse(errno: c_int) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

/// Sets errno; what the function then returns is its caller's choice.
pub(crate) fn fail(error: &io::Error) {
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    // SAFETY: the location is this thread's own, and always there.
    unsafe { *libc::__errno_location() = errno };
}

/// 0, or -1 with errno.
pub(crate) fn status(result: io::Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => {
            fail(&error);
            -1
        }
    }
}

/// The error in errno's words.
pub(crate) fn io_error(error: siftfs::Error) -> io::Error {
    refuse(error.errno())
}

/// A string of the caller's.
///
/// # Safety
/// `text` is null or points to a string that ends with NUL and stays for `'a`.
pub(crate) unsafe fn bytes<'a>(text: *const c_char) -> io::Result<&'a [u8]> {
    if text.is_null() {
        return Err(refuse(libc::EINVAL));
    }
    // SAFETY: not null; the rest is the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// A path of the caller's.
///
/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn path<'a>(text: *const c_char) -> io::Result<&'a Path> {
    // SAFETY: the caller's promise.
    unsafe { bytes(text) }.map(|bytes| Path::new(OsStr::from_bytes(bytes)))
}

/// A path inside of a volume, which the embedded library takes as text.
///
/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn text<'a>(text: *const c_char) -> io::Result<&'a str> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { bytes(text) }?;
    std::str::from_utf8(bytes).map_err(|_| refuse(libc::EILSEQ))
}

/// An array of the caller's.
///
/// # Safety
/// `first` is null or points to `count` values that stay for `'a`.
pub(crate) unsafe fn slice<'a, T>(first: *const T, count: usize) -> io::Result<&'a [T]> {
    if first.is_null() {
        return if count == 0 { Ok(&[]) } else { Err(refuse(libc::EINVAL)) };
    }
    // SAFETY: not null; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(first, count) })
}
