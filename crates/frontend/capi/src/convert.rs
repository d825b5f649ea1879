//! C's arguments and results.

use std::ffi::{CStr, OsStr, c_char, c_int, c_uint, c_void};
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

/// 1 or 0, or -1 with errno.
pub(crate) fn truth(result: io::Result<bool>) -> c_int {
    match result {
        Ok(true) => 1,
        other => status(other.map(drop)),
    }
}

/// A number of bytes, or -1 with errno.
pub(crate) fn length(result: io::Result<usize>) -> isize {
    match result.and_then(|n| isize::try_from(n).map_err(|_| refuse(libc::EINVAL))) {
        Ok(n) => n,
        Err(error) => {
            fail(&error);
            -1
        }
    }
}

/// A pointer to give to the caller, or null with errno.
pub(crate) fn given<T>(result: io::Result<T>) -> *mut T {
    match result {
        Ok(value) => Box::into_raw(Box::new(value)),
        Err(error) => {
            fail(&error);
            std::ptr::null_mut()
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

/// What the caller was given.
///
/// # Safety
/// `pointer` is null or was given by [`given`] and not taken back.
pub(crate) unsafe fn borrowed<'a, T>(pointer: *const T) -> io::Result<&'a T> {
    // SAFETY: the caller's promise; nobody has it mutably.
    unsafe { pointer.as_ref() }.ok_or_else(|| refuse(libc::EINVAL))
}

/// Puts a value where the caller wants it; nothing is done for it if that is nowhere.
///
/// # Safety
/// `into` is null or has room for a value.
pub(crate) unsafe fn give<T>(
    into: *mut T,
    value: impl FnOnce() -> io::Result<T>,
) -> io::Result<()> {
    if into.is_null() {
        return Err(refuse(libc::EINVAL));
    }
    // SAFETY: not null; the rest is the caller's promise. What was there is not read.
    unsafe { into.write(value()?) };
    Ok(())
}

/// Fills the caller's buffer.
///
/// # Safety
/// `into` is null or has room for `len` bytes.
pub(crate) unsafe fn fill(into: *mut c_void, len: usize, data: &[u8]) -> io::Result<usize> {
    assert!(data.len() <= len, "no more is read than was asked for");
    if data.is_empty() {
        return Ok(0);
    }
    if into.is_null() {
        return Err(refuse(libc::EINVAL));
    }
    // SAFETY: so much room is there, and the bytes were allocated here: the two do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), into.cast(), data.len()) };
    Ok(data.len())
}
