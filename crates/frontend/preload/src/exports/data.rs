//! Reading, writing, and what makes it durable.

use super::{answer, is_seen, short};
use crate::below::guard::Outcome;
use crate::below::real;
use crate::below::user::User;
use crate::calls::data::{self, At};
use crate::calls::sync::{seek_end, sync};
use crate::escapes::passing;
use libc::{c_int, iovec, off_t, size_t};
use std::ffi::c_void;

/// Functions of these names, for which the library does what `by_lease` says, or the C library what
/// `by_kernel` says.
macro_rules! caught {
    ($(fn $($name:ident)+ ($($arg:ident: $type:ty),*) {
        by_lease $lease:expr;
        by_kernel $kernel:expr;
    })*) => { $(
        caught! { @each [$($name)+] ($($arg: $type),*) { $lease } { $kernel } }
    )* };
    (@each [$name:ident $($rest:ident)*] ($($arg:ident: $type:ty),*) { $lease:expr } { $kernel:expr }) => {
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> isize {
            if let Some(done) = $lease {
                return answer(done);
            }
            // SAFETY: the caller's arguments, as they are.
            unsafe { $kernel }
        }
        caught! { @each [$($rest)*] ($($arg: $type),*) { $lease } { $kernel } }
    };
    (@each [] ($($arg:ident: $type:ty),*) { $lease:expr } { $kernel:expr }) => {};
}

caught! {
    fn read (fd: c_int, to: *mut c_void, len: size_t) {
        by_lease read_by_lease(fd, At::Here, || Some(User::one(to, len)));
        by_kernel real::read(fd, to, len);
    }
    fn __read_chk (fd: c_int, to: *mut c_void, len: size_t, room: size_t) {
        by_lease read_by_lease(fd, At::Here, || (len <= room).then(|| User::one(to, len)));
        by_kernel real::__read_chk(fd, to, len, room);
    }
    fn write (fd: c_int, from: *const c_void, len: size_t) {
        by_lease write_by_lease(fd, At::Here, || Some(User::one(from, len)));
        by_kernel real::write(fd, from, len);
    }
    fn pread pread64 (fd: c_int, to: *mut c_void, len: size_t, at: off_t) {
        by_lease read_by_lease(fd, At::Offset(at), || Some(User::one(to, len)));
        by_kernel real::pread64(fd, to, len, at);
    }
    fn __pread_chk __pread64_chk (fd: c_int, to: *mut c_void, len: size_t, at: off_t, room: size_t) {
        by_lease read_by_lease(fd, At::Offset(at), || (len <= room).then(|| User::one(to, len)));
        by_kernel real::__pread64_chk(fd, to, len, at, room);
    }
    fn pwrite pwrite64 (fd: c_int, from: *const c_void, len: size_t, at: off_t) {
        by_lease write_by_lease(fd, At::Offset(at), || Some(User::one(from, len)));
        by_kernel real::pwrite64(fd, from, len, at);
    }
    fn readv (fd: c_int, iov: *const iovec, count: c_int) {
        by_lease read_by_lease(fd, At::Here, || User::several(iov, count));
        by_kernel real::readv(fd, iov, count);
    }
    fn writev (fd: c_int, iov: *const iovec, count: c_int) {
        by_lease write_by_lease(fd, At::Here, || User::several(iov, count));
        by_kernel real::writev(fd, iov, count);
    }
    fn preadv preadv64 (fd: c_int, iov: *const iovec, count: c_int, at: off_t) {
        by_lease read_by_lease(fd, At::Offset(at), || User::several(iov, count));
        by_kernel real::preadv64(fd, iov, count, at);
    }
    fn pwritev pwritev64 (fd: c_int, iov: *const iovec, count: c_int, at: off_t) {
        by_lease write_by_lease(fd, At::Offset(at), || User::several(iov, count));
        by_kernel real::pwritev64(fd, iov, count, at);
    }
    fn preadv2 preadv64v2 (fd: c_int, iov: *const iovec, count: c_int, at: off_t, flags: c_int) {
        by_lease read_by_lease(fd, place(at), || unflagged(flags, iov, count));
        by_kernel real::preadv64v2(fd, iov, count, at, flags);
    }
    fn pwritev2 pwritev64v2 (fd: c_int, iov: *const iovec, count: c_int, at: off_t, flags: c_int) {
        by_lease write_by_lease(fd, place(at), || unflagged(flags, iov, count));
        by_kernel real::pwritev64v2(fd, iov, count, at, flags);
    }
}

#[inline(always)]
pub fn read_by_lease(fd: c_int, at: At, user: impl FnOnce() -> Option<User>) -> Outcome {
    if is_seen(fd) { data::read(fd, at, user) } else { None }
}

#[inline(always)]
pub fn write_by_lease(fd: c_int, at: At, user: impl FnOnce() -> Option<User>) -> Outcome {
    if is_seen(fd) { data::write(fd, at, user) } else { None }
}

/// Where preadv2(2) and pwritev2(2) go.
fn place(at: off_t) -> At {
    if at == -1 { At::Here } else { At::Offset(at) }
}

/// What a call without flags names; others are the kernel's.
fn unflagged(flags: c_int, iov: *const iovec, count: c_int) -> Option<User> {
    if flags == 0 { User::several(iov, count) } else { None }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fsync(fd: c_int) -> c_int {
    if is_seen(fd)
        && let Some(done) = sync(fd, false)
    {
        return short(answer(done));
    }
    // SAFETY: the caller's argument.
    unsafe { real::fsync(fd) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fdatasync(fd: c_int) -> c_int {
    if is_seen(fd)
        && let Some(done) = sync(fd, true)
    {
        return short(answer(done));
    }
    // SAFETY: the caller's argument.
    unsafe { real::fdatasync(fd) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn lseek(fd: c_int, to: off_t, whence: c_int) -> off_t {
    if whence == libc::SEEK_END
        && is_seen(fd)
        && let Some(done) = seek_end(fd, to)
    {
        return answer(done) as off_t;
    }
    // SAFETY: lseek(2) has no memory.
    passing(|| unsafe { libc::syscall(libc::SYS_lseek, fd, to, whence) })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn lseek64(fd: c_int, to: off_t, whence: c_int) -> off_t {
    // SAFETY: as above.
    unsafe { lseek(fd, to, whence) }
}
