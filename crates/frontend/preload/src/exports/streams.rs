//! What the C library's own callers reach instead of the entries that were replaced, and functions
//! that have to do with streams.

use super::data::{read_by_lease, write_by_lease};
use super::{answer, descriptors::bad};
use crate::below::guard::{Failed, errno, is_inside, set_errno};
use crate::below::real;
use crate::below::user::User;
use crate::calls::data::At;
use crate::calls::descriptors::{closing, is_own, left, opened, replaced};
use crate::escapes;
use crate::state::table;
use crate::streams::{ALL, Entry, closes_are_seen};
use libc::{O_PATH, c_char, c_int, mode_t, off_t, size_t};
use std::ffi::c_void;

type Stream = *mut c_void;

/// In the order of [`ALL`].
pub fn hooks() -> [*const c_void; ALL.len()] {
    [
        write as *const c_void,
        read as *const c_void,
        open64 as *const c_void,
        close as *const c_void,
        close_nocancel as *const c_void,
        lseek64 as *const c_void,
    ]
}

/// Functions that do what the C library's function did before its entry was replaced.
macro_rules! before {
    ($(fn $name:ident = $entry:ident ($($arg:ident: $type:ty),*) -> $ret:ty;)*) => { $(
        /// # Safety
        /// As the C library's.
        #[inline(always)]
        unsafe fn $name($($arg: $type),*) -> $ret {
            let found = Entry::$entry.trampoline();
            if found.is_null() {
                set_errno(libc::ENOSYS);
                return Failed::FAILED;
            }
            type Function = unsafe extern "C-unwind" fn($($type),*) -> $ret;
            // SAFETY: the trampoline has the function's parameters.
            let function = unsafe { std::mem::transmute::<*mut c_void, Function>(found) };
            let before = escapes::pass();
            // SAFETY: the caller's promise.
            let done = unsafe { function($($arg),*) };
            escapes::back(before);
            done
        }
    )* };
}

before! {
    fn write_before = Write(fd: c_int, from: *const c_void, len: size_t) -> isize;
    fn read_before = Read(fd: c_int, to: *mut c_void, len: size_t) -> isize;
    fn open_before = Open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn close_before = Close(fd: c_int) -> c_int;
    fn close_nocancel_before = CloseNocancel(fd: c_int) -> c_int;
    fn seek_before = Seek(fd: c_int, to: off_t, whence: c_int) -> off_t;
}

unsafe extern "C-unwind" fn write(fd: c_int, from: *const c_void, len: size_t) -> isize {
    if let Some(done) = write_by_lease(fd, At::Here, || Some(User::one(from, len))) {
        return answer(done);
    }
    // SAFETY: the caller's arguments.
    unsafe { write_before(fd, from, len) }
}

unsafe extern "C-unwind" fn read(fd: c_int, to: *mut c_void, len: size_t) -> isize {
    if let Some(done) = read_by_lease(fd, At::Here, || Some(User::one(to, len))) {
        return answer(done);
    }
    // SAFETY: the caller's arguments.
    unsafe { read_before(fd, to, len) }
}

unsafe extern "C-unwind" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    let fd = unsafe { open_before(path, flags, mode) };
    opened(fd, flags);
    fd
}

/// Does the library have to know that the descriptor goes? In the child that posix_spawn(3) makes
/// the table is the parent's.
fn is_ours(fd: c_int) -> bool {
    table::tag(fd) != table::NONE && !is_inside()
}

/// As `close` is done that is caught by its name.
unsafe fn closed(fd: c_int, close: unsafe fn(c_int) -> c_int) -> c_int {
    if !is_ours(fd) {
        // SAFETY: the caller's argument.
        return unsafe { close(fd) };
    }
    if is_own(fd) {
        return bad();
    }
    let untold = closing(fd);
    // SAFETY: the caller's argument.
    let closed = unsafe { close(fd) };
    match untold {
        Some(errno) if closed == 0 => {
            set_errno(errno);
            -1
        }
        _ => closed,
    }
}

unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    // SAFETY: the caller's argument.
    unsafe { closed(fd, close_before) }
}

unsafe extern "C-unwind" fn close_nocancel(fd: c_int) -> c_int {
    // SAFETY: the caller's argument.
    unsafe { closed(fd, close_nocancel_before) }
}

unsafe extern "C-unwind" fn lseek64(fd: c_int, to: off_t, whence: c_int) -> off_t {
    if whence == libc::SEEK_END
        && table::tag(fd) != table::NONE
        && let Some(done) = crate::calls::sync::seek_end(fd, to)
    {
        return answer(done) as off_t;
    }
    // SAFETY: the caller's arguments.
    unsafe { seek_before(fd, to, whence) }
}

/// A stream that closes its descriptor unseen is to have one of which nothing is known.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fdopen(fd: c_int, mode: *const c_char) -> Stream {
    if !closes_are_seen() {
        left(fd);
    }
    // SAFETY: the caller's arguments.
    unsafe { real::fdopen(fd, mode) }
}

/// The descriptor of a stream. Negative: it has none.
fn descriptor(stream: Stream) -> c_int {
    if stream.is_null() {
        return -1;
    }
    let before = errno();
    // SAFETY: the caller's stream, which is open, or else the program's error.
    let fd = unsafe { real::fileno_unlocked(stream) };
    set_errno(before);
    fd
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fclose(stream: Stream) -> c_int {
    if !closes_are_seen() {
        left(descriptor(stream));
    }
    // SAFETY: the caller's argument.
    unsafe { real::fclose(stream) }
}

/// A function that opens a stream anew. It may put the new file under the old number, unseen.
macro_rules! reopens {
    ($($name:ident)*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(
            path: *const c_char,
            mode: *const c_char,
            stream: Stream,
        ) -> Stream {
            flushed(stream);
            left(descriptor(stream));
            // SAFETY: the caller's arguments.
            let stream = unsafe { real::$name(path, mode, stream) };
            reopened(descriptor(stream));
            stream
        }
    )* };
}

reopens! { freopen freopen64 }

/// What the stream has not written yet is written while its descriptor is known: the kernel may
/// append at an end that it does not know. Whether that fails is nothing to freopen(3).
fn flushed(stream: Stream) {
    // SAFETY: the caller's stream, if it is one. What was read stays as it is.
    if !stream.is_null() && unsafe { real::__fwriting(stream) } != 0 {
        let before = errno();
        // SAFETY: as above.
        let _ = unsafe { real::fflush(stream) };
        set_errno(before);
    }
}

fn reopened(fd: c_int) {
    if fd < 0 {
        return;
    }
    let before = errno();
    // SAFETY: it asks for flags alone.
    let flags = unsafe { real::fcntl(fd, libc::F_GETFL, 0) };
    set_errno(before);
    opened(fd, if flags >= 0 && closes_are_seen() { flags } else { O_PATH });
}

/// It puts a terminal under the first three numbers, unseen.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn login_tty(fd: c_int) -> c_int {
    (0..3).filter(|number| *number != fd).for_each(replaced);
    // SAFETY: the caller's argument.
    unsafe { real::login_tty(fd) }
}
