//! Descriptors that come and go.

use crate::below::guard::set_errno;
use crate::below::real;
use crate::calls::descriptors::{
    close_range as close_pieces, closing, copied, is_own, opened, pinned, replaced,
};
use crate::escapes::passing;
use crate::state::table;
use libc::{O_CREAT, O_TRUNC, O_WRONLY, c_char, c_int, c_uint, mode_t};

type Path = *const c_char;

/// Functions that open a file, and with which flags.
macro_rules! opens {
    ($(fn $($name:ident)+ ($($arg:ident: $type:ty),*) $flags:expr, $kernel:expr;)*) => { $(
        opens! { @each [$($name)+] ($($arg: $type),*) $flags, $kernel }
    )* };
    (@each [$name:ident $($rest:ident)*] ($($arg:ident: $type:ty),*) $flags:expr, $kernel:expr) => {
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> c_int {
            // SAFETY: the caller's arguments, as they are.
            let fd = unsafe { $kernel };
            opened(fd, $flags);
            fd
        }
        opens! { @each [$($rest)*] ($($arg: $type),*) $flags, $kernel }
    };
    (@each [] ($($arg:ident: $type:ty),*) $flags:expr, $kernel:expr) => {};
}

// A mode that was not given is not looked at.
opens! {
    fn open open64 (path: Path, flags: c_int, mode: mode_t) flags, real::open(path, flags, mode);
    fn openat openat64 (dir: c_int, path: Path, flags: c_int, mode: mode_t)
        flags, real::openat(dir, path, flags, mode);
    fn __open_2 __open64_2 (path: Path, flags: c_int) flags, real::__open_2(path, flags);
    fn __openat_2 __openat64_2 (dir: c_int, path: Path, flags: c_int)
        flags, real::__openat_2(dir, path, flags);
    fn creat creat64 (path: Path, mode: mode_t) O_CREAT | O_WRONLY | O_TRUNC, real::creat(path, mode);
}

/// EBADF.
pub fn bad() -> c_int {
    set_errno(libc::EBADF);
    -1
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    if is_own(fd) {
        return bad();
    }
    let untold = closing(fd);
    // SAFETY: the caller's argument.
    let closed = unsafe { real::close(fd) };
    match untold {
        Some(errno) if closed == 0 => {
            set_errno(errno);
            -1
        }
        _ => closed,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let close = |first: u32, last: u32| {
        // SAFETY: the caller's range, or a part of it.
        passing(|| unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) as c_int })
    };
    if flags.cast_unsigned() & libc::CLOSE_RANGE_CLOEXEC != 0 {
        return close(first, last);
    }
    close_pieces(first, last, close)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn closefrom(first: c_int) {
    // SAFETY: the caller's argument.
    unsafe { close_range(first.max(0).cast_unsigned(), c_uint::MAX, 0) };
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup(fd: c_int) -> c_int {
    // SAFETY: the caller's argument.
    let new = unsafe { real::dup(fd) };
    copied(fd, new);
    new
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup2(from: c_int, to: c_int) -> c_int {
    if from != to {
        replaced(to);
    }
    // SAFETY: the caller's arguments.
    let new = unsafe { real::dup2(from, to) };
    copied(from, new);
    new
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    if from != to {
        replaced(to);
    }
    // SAFETY: the caller's arguments.
    let new = unsafe { real::dup3(from, to, flags) };
    copied(from, new);
    new
}

/// Flags of an open file by which the library goes.
const MATTER: c_int = libc::O_APPEND | libc::O_DIRECT | libc::O_SYNC;

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: asking for flags has no memory.
    let flags = || unsafe { real::fcntl(fd, libc::F_GETFL, 0) } & MATTER;
    let sets = command == libc::F_SETFL && table::tag(fd) != table::NONE;
    let before = if sets { flags() } else { 0 };
    // SAFETY: the caller's arguments.
    let done = unsafe { real::fcntl(fd, command, argument) };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => copied(fd, done),
        libc::F_SETFL if sets && flags() != before => pinned(fd),
        _ => {}
    }
    done
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { fcntl(fd, command, argument) }
}
