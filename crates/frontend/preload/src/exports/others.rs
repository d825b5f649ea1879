//! Calls that the kernel does, and by which a file's lease ends or would.

use super::{answer, short};
use crate::below::real;
use crate::calls::descriptors::{changing, passed, pinned};
use crate::calls::sections;
use crate::calls::sync::looked;
use crate::escapes::passing;
use libc::{c_int, msghdr, off_t, size_t};
use std::ffi::c_void;

/// Functions that look at an open file.
macro_rules! looks {
    ($(fn $name:ident($($before:ident: $type:ty),*);)*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($before: $type,)* fd: c_int, to: *mut c_void) -> c_int {
            looked(fd);
            // SAFETY: the caller's arguments.
            unsafe { real::$name($($before,)* fd, to) }
        }
    )* };
}

looks! {
    fn fstat();
    fn fstat64();
    fn __fxstat(version: c_int);
    fn __fxstat64(version: c_int);
}

/// Atomic sections of files at a target: "Sections of programs that are not changed" in
/// `docs/design/target.md`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ioctl(fd: c_int, command: libc::c_ulong, argument: usize) -> c_int {
    if let Some(done) = sections::ioctl(fd, command) {
        return short(answer(done));
    }
    // SAFETY: the caller's arguments.
    unsafe { real::ioctl(fd, command, argument) }
}

/// What is mapped is read and written past every call.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn mmap(
    at: *mut c_void,
    len: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    if flags & libc::MAP_ANONYMOUS == 0 {
        pinned(fd);
    }
    // SAFETY: the caller's arguments. An address is a number for the kernel.
    let map = || unsafe { libc::syscall(libc::SYS_mmap, at, len, prot, flags, fd, offset) };
    let mapped = passing(map);
    std::ptr::with_exposed_provenance_mut(mapped.cast_unsigned() as usize)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn mmap64(
    at: *mut c_void,
    len: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the caller's arguments.
    unsafe { mmap(at, len, prot, flags, fd, offset) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ftruncate(fd: c_int, len: off_t) -> c_int {
    changing(fd);
    // SAFETY: it has no memory.
    passing(|| unsafe { libc::syscall(libc::SYS_ftruncate, fd, len) as c_int })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ftruncate64(fd: c_int, len: off_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { ftruncate(fd, len) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fallocate(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int {
    changing(fd);
    // SAFETY: it has no memory.
    passing(|| unsafe { libc::syscall(libc::SYS_fallocate, fd, mode, at, len) as c_int })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fallocate64(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { fallocate(fd, mode, at, len) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn posix_fallocate(fd: c_int, at: off_t, len: off_t) -> c_int {
    changing(fd);
    // SAFETY: the caller's arguments.
    unsafe { real::posix_fallocate64(fd, at, len) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn posix_fallocate64(fd: c_int, at: off_t, len: off_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { posix_fallocate(fd, at, len) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendmsg(socket: c_int, message: *const msghdr, flags: c_int) -> isize {
    // SAFETY: the caller's message, which may be none.
    if let Some(message) = unsafe { message.as_ref() } {
        passed(message);
    }
    // SAFETY: the caller's arguments.
    unsafe { real::sendmsg(socket, message, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendmmsg(
    socket: c_int,
    messages: *mut libc::mmsghdr,
    count: u32,
    flags: c_int,
) -> c_int {
    for at in 0..count as usize {
        // SAFETY: the caller has that number of messages.
        if let Some(message) = unsafe { messages.wrapping_add(at).as_ref() } {
            passed(&message.msg_hdr);
        }
    }
    // SAFETY: the caller's arguments.
    unsafe { real::sendmmsg(socket, messages.cast(), count, flags) }
}
