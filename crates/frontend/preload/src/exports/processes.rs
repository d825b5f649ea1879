//! Children that run another program, and threads. fork(2) tells the library by handlers of its
//! own.

use crate::below::guard::{inside, is_at_work, spawning, stay_inside};
use crate::below::real;
use crate::escapes;
use crate::state::process::{before_exec, share_all};
use libc::{c_char, c_int};
use std::ffi::c_void;

type Words = *const *mut c_char;

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn posix_spawn(
    pid: *mut c_void,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Words,
    environment: Words,
) -> c_int {
    passed_on(actions);
    // SAFETY: the caller's arguments.
    spawning(|| unsafe {
        real::posix_spawn(pid, path, actions, attributes, arguments, environment)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn posix_spawnp(
    pid: *mut c_void,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Words,
    environment: Words,
) -> c_int {
    passed_on(actions);
    // SAFETY: the caller's arguments.
    spawning(|| unsafe {
        real::posix_spawnp(pid, file, actions, attributes, arguments, environment)
    })
}

/// With actions a child may get any descriptor under another number.
fn passed_on(actions: *const c_void) {
    match actions.is_null() {
        true => before_exec(),
        false => share_all(),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn system(command: *const c_char) -> c_int {
    before_exec();
    // SAFETY: the caller's argument.
    spawning(|| unsafe { real::system(command) })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void {
    before_exec();
    // SAFETY: the caller's arguments.
    spawning(|| unsafe { real::popen(command, mode) })
}

/// What a new thread does.
struct Start {
    start: extern "C-unwind" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
}

/// Makes a thread of the library's own: no handler of a signal runs in it, and no call of it is
/// caught.
///
/// # Safety
/// As of pthread_create(3).
unsafe fn create_own(
    thread: *mut c_void,
    attributes: *const c_void,
    start: extern "C-unwind" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> c_int {
    let start = Box::into_raw(Box::new(Start { start, argument }));
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are this function's own, and the first call makes the first one. The C
    // library leaves out the signals that it needs itself. The new thread has the mask that this
    // one has now.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let made = real::pthread_create(thread, attributes, own as *const c_void, start.cast());
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
        if made != 0 {
            drop(Box::from_raw(start));
        }
        made
    }
}

extern "C-unwind" fn own(start: *mut c_void) -> *mut c_void {
    stay_inside();
    // SAFETY: `create_own` has made it for this thread alone.
    let Start { start, argument } = *unsafe { Box::from_raw(start.cast::<Start>()) };
    start(argument)
}

/// A thread whose calls are counted, if those of others are.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_create(
    thread: *mut c_void,
    attributes: *const c_void,
    start: extern "C-unwind" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> c_int {
    if is_at_work() {
        // SAFETY: the caller's arguments.
        return unsafe { create_own(thread, attributes, start, argument) };
    }
    let counted = match escapes::are_counted() {
        true => inside(|| Some(Box::into_raw(Box::new(Start { start, argument })))),
        false => None,
    };
    let (start, argument) = match counted {
        Some(counted) => (counts as *const c_void, counted.cast()),
        None => (start as *const c_void, argument),
    };
    // SAFETY: the caller's arguments, or a function and what it is for.
    unsafe { real::pthread_create(thread, attributes, start, argument) }
}

extern "C-unwind" fn counts(start: *mut c_void) -> *mut c_void {
    // SAFETY: `pthread_create` has made it for this thread alone.
    let start = inside(|| Some(*unsafe { Box::from_raw(start.cast::<Start>()) }));
    let Some(Start { start, argument }) = start else { return std::ptr::null_mut() };
    escapes::begin_thread();
    start(argument)
}

/// The C library's vfork.
static VFORK: real::Real = real::Real::new(c"vfork");

/// Before vfork(2): where it is.
extern "C" fn before_vfork() -> *mut c_void {
    before_exec();
    VFORK.get()
}

/// vfork(2) returns twice to its caller, and so no function of ours may be in between: this one
/// jumps there.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn vfork() -> c_int {
    std::arch::naked_asm!("sub rsp, 8", "call {}", "add rsp, 8", "jmp rax", sym before_vfork)
}

/// As above.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn vfork() -> c_int {
    std::arch::naked_asm!(
        "stp x29, x30, [sp, #-16]!",
        "bl {}",
        "ldp x29, x30, [sp], #16",
        "mov x16, x0",
        "br x16",
        sym before_vfork
    )
}
