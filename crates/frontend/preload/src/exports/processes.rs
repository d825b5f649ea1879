//! Children that run another program. fork(2) tells the library by handlers of its own.

use crate::below::real;
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
    unsafe { real::posix_spawn(pid, path, actions, attributes, arguments, environment) }
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
    unsafe { real::posix_spawnp(pid, file, actions, attributes, arguments, environment) }
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
    unsafe { real::system(command) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void {
    before_exec();
    // SAFETY: the caller's arguments.
    unsafe { real::popen(command, mode) }
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
