//! The door between the program and the library.

use crate::escapes;
use std::cell::Cell;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a call gives, or its errno. None: the kernel is to do it.
pub type Outcome = Option<Result<isize, i32>>;

thread_local! {
    // Without a destructor, so that it is there as long as the thread runs.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// The library has stopped for good: every call goes to the kernel.
static OFF: AtomicBool = AtomicBool::new(false);

/// Leaves the program alone from now on.
pub fn switch_off() {
    OFF.store(true, Ordering::Release);
}

/// Is this thread in the library already, or is there none? Then a call is the kernel's: one of a
/// signal's handler that came upon the library at work, or one of the library itself.
pub fn is_inside() -> bool {
    INSIDE.get() || OFF.load(Ordering::Acquire)
}

/// Does this thread do work of the library's just now?
pub fn is_at_work() -> bool {
    INSIDE.get() && !OFF.load(Ordering::Acquire)
}

/// This thread is the library's own: no call of it is caught.
pub fn stay_inside() {
    INSIDE.set(true);
}

/// Does work of the library's, in which no call of the program's is caught. The program's errno is
/// kept. None as well if this thread is inside already; and after a panic, which is the library's
/// last work.
pub fn inside<T>(work: impl FnOnce() -> Option<T>) -> Option<T> {
    if is_inside() {
        return None;
    }
    INSIDE.set(true);
    let errno = errno();
    let selector = escapes::pass();
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        switch_off();
        None
    });
    escapes::back(selector);
    set_errno(errno);
    INSIDE.set(false);
    done
}

/// Has a function make a child that shares memory until it runs another program: what the child
/// closes is not this process's, and its calls are the kernel's.
pub fn spawning<T>(spawn: impl FnOnce() -> T) -> T {
    let before = INSIDE.replace(true);
    let done = spawn();
    INSIDE.set(before);
    done
}

/// What a function that is not there answers, with ENOSYS.
pub trait Failed {
    /// The value.
    const FAILED: Self;
}

impl Failed for i32 {
    const FAILED: Self = -1;
}
impl Failed for isize {
    const FAILED: Self = -1;
}
impl Failed for i64 {
    const FAILED: Self = -1;
}
impl Failed for *mut c_void {
    const FAILED: Self = null_mut();
}

/// The calling thread's errno.
pub fn errno() -> i32 {
    // SAFETY: the C library gives the address of the calling thread's own.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's errno.
pub fn set_errno(errno: i32) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno }
}
