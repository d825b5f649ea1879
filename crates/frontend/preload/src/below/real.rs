//! The C library's own functions, which are next after this library's. A thread may be cancelled
//! in those that wait, so nothing that would have to be dropped may be alive when one is called.

use super::guard::Failed;
use crate::{escapes, streams};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function that is looked for when it is called first.
pub struct Real {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Real {
    /// The function of this name.
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(null_mut()) }
    }

    /// The function's address; null if the C library has no such function.
    pub fn get(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if !found.is_null() {
            return found;
        }
        // SAFETY: the name ends with NUL.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        let found = streams::instead(found);
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// `pass`: the library has seen what the function does; `keep`: it sees its calls one by one.
macro_rules! real {
    ($how:ident: $(fn $name:ident($($arg:ident: $type:ty),*) -> $ret:ty;)*) => { $(
        /// The C library's function of this name.
        ///
        /// # Safety
        /// As the C library's.
        #[inline(always)]
        pub unsafe fn $name($($arg: $type),*) -> $ret {
            const NAME: &CStr = match CStr::from_bytes_with_nul(
                concat!(stringify!($name), "\0").as_bytes(),
            ) {
                Ok(name) => name,
                Err(_) => c"",
            };
            static REAL: Real = Real::new(NAME);
            let found = REAL.get();
            if found.is_null() {
                super::guard::set_errno(libc::ENOSYS);
                return Failed::FAILED;
            }
            type Function = unsafe extern "C-unwind" fn($($type),*) -> $ret;
            // SAFETY: the function of this name has these parameters. Those of variadic ones are
            // passed as others are on the two architectures that there are.
            let function = unsafe { std::mem::transmute::<*mut c_void, Function>(found) };
            let before = escapes::$how();
            // SAFETY: the caller's promise.
            let done = unsafe { function($($arg),*) };
            escapes::back(before);
            done
        }
    )* };
}

type Iov = *const libc::iovec;
type Path = *const c_char;

real! { keep:
    fn fclose(stream: *mut c_void) -> c_int;
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut c_void;
    fn fflush(stream: *mut c_void) -> c_int;
    fn __fwriting(stream: *mut c_void) -> c_int;
    fn freopen(path: Path, mode: *const c_char, stream: *mut c_void) -> *mut c_void;
    fn freopen64(path: Path, mode: *const c_char, stream: *mut c_void) -> *mut c_void;
}

real! { pass:
    fn open(path: Path, flags: c_int, mode: libc::mode_t) -> c_int;
    fn openat(dir: c_int, path: Path, flags: c_int, mode: libc::mode_t) -> c_int;
    fn __open_2(path: Path, flags: c_int) -> c_int;
    fn __openat_2(dir: c_int, path: Path, flags: c_int) -> c_int;
    fn creat(path: Path, mode: libc::mode_t) -> c_int;
    fn close(fd: c_int) -> c_int;
    fn dup(fd: c_int) -> c_int;
    fn dup2(from: c_int, to: c_int) -> c_int;
    fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int;
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int;
    fn ioctl(fd: c_int, command: libc::c_ulong, argument: usize) -> c_int;
    fn read(fd: c_int, to: *mut c_void, len: usize) -> isize;
    fn write(fd: c_int, from: *const c_void, len: usize) -> isize;
    fn pread64(fd: c_int, to: *mut c_void, len: usize, at: i64) -> isize;
    fn pwrite64(fd: c_int, from: *const c_void, len: usize, at: i64) -> isize;
    fn readv(fd: c_int, iov: Iov, count: c_int) -> isize;
    fn writev(fd: c_int, iov: Iov, count: c_int) -> isize;
    fn preadv64(fd: c_int, iov: Iov, count: c_int, at: i64) -> isize;
    fn pwritev64(fd: c_int, iov: Iov, count: c_int, at: i64) -> isize;
    fn preadv64v2(fd: c_int, iov: Iov, count: c_int, at: i64, flags: c_int) -> isize;
    fn pwritev64v2(fd: c_int, iov: Iov, count: c_int, at: i64, flags: c_int) -> isize;
    fn __read_chk(fd: c_int, to: *mut c_void, len: usize, room: usize) -> isize;
    fn __pread64_chk(fd: c_int, to: *mut c_void, len: usize, at: i64, room: usize) -> isize;
    fn fsync(fd: c_int) -> c_int;
    fn fdatasync(fd: c_int) -> c_int;
    fn fstat(fd: c_int, to: *mut c_void) -> c_int;
    fn fstat64(fd: c_int, to: *mut c_void) -> c_int;
    fn __fxstat(version: c_int, fd: c_int, to: *mut c_void) -> c_int;
    fn __fxstat64(version: c_int, fd: c_int, to: *mut c_void) -> c_int;
    fn sendmsg(socket: c_int, message: *const libc::msghdr, flags: c_int) -> isize;
    fn sendmmsg(socket: c_int, messages: *mut c_void, count: u32, flags: c_int) -> c_int;
    fn fileno_unlocked(stream: *mut c_void) -> c_int;
    fn login_tty(fd: c_int) -> c_int;
    fn pthread_create(thread: *mut c_void, attributes: *const c_void, start: *const c_void,
        argument: *mut c_void) -> c_int;
    fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void;
    fn system(command: *const c_char) -> c_int;
    fn posix_fallocate64(fd: c_int, at: i64, len: i64) -> c_int;
    fn posix_spawn(pid: *mut c_void, path: Path, actions: *const c_void, attributes: *const c_void,
        arguments: *const *mut c_char, environment: *const *mut c_char) -> c_int;
    fn posix_spawnp(pid: *mut c_void, file: Path, actions: *const c_void,
        attributes: *const c_void, arguments: *const *mut c_char,
        environment: *const *mut c_char) -> c_int;
}
