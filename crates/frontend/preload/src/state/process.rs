//! The process: which one it is, whether it is let alone, and its children.

use super::inode::is_marked;
use super::{direct, pace, registry, section, table};
use crate::below::guard::{inside, is_inside, switch_off};
use crate::below::heap::HEAP;
use crate::{escapes, streams};
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

/// The mount's own side: the daemon, and all commands.
const OWN_SIDE: &str = "siftfs";

/// Programs that are let alone: those that the system needs to start and end, and those that look
/// into others. Names that begin so.
const LET_ALONE: [&str; 18] = [
    "mount",
    "umount",
    "fsck",
    "fusermount",
    "init",
    "systemd",
    "udev",
    "ld-linux",
    "ld.so",
    "gdb",
    "lldb",
    "strace",
    "ltrace",
    "rr",
    "perf",
    "valgrind",
    "memcheck",
    "qemu",
];

static PROCESS: AtomicI32 = AtomicI32::new(0);

fn now() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Is this the process of the tables, and not a child that shares its memory (vfork(2)) or has a
/// copy that nobody told the library of?
pub fn is_own() -> bool {
    now() == PROCESS.load(Ordering::Relaxed)
}

/// Before `main`.
pub fn begin(hooks: [*const c_void; streams::ALL.len()]) {
    inside(|| {
        PROCESS.store(now(), Ordering::Relaxed);
        if is_let_alone() {
            switch_off();
            return Some(());
        }
        if variable(c"SIFTFS_ACCEL") == Some(b"eager") {
            pace::be_eager();
        }
        if variable(c"SIFTFS_ACCEL_DIRECT") == Some(b"on") {
            pace::be_direct();
        }
        // What fails in here says nothing on the program's standard error.
        std::panic::set_hook(Box::new(|_| {}));
        // SAFETY: the handlers are functions of this library, which is never unloaded.
        let set =
            unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child)) };
        if set != 0 {
            switch_off();
        } else if variable(c"SIFTFS_ACCEL_STREAMS") != Some(b"off") {
            streams::begin(hooks);
        }
        Some(())
    });
    // Outside, where calls may be forbidden when it is done.
    if let Some(path) = variable(c"SIFTFS_ACCEL_ESCAPES").filter(|_| !is_inside()) {
        escapes::begin(path, streams::replaced());
    }
}

fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: the name ends with NUL; before `main` nobody changes the environment.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: a variable's value ends with NUL.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_bytes())
}

fn is_let_alone() -> bool {
    // SAFETY: it reads what the kernel has told the process.
    let privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    if privileged || variable(c"SIFTFS_ACCEL") == Some(b"off") {
        return true;
    }
    let Ok(path) = rustix::fs::readlink("/proc/self/exe", Vec::new()) else { return true };
    let name = path.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let skipped = variable(c"SIFTFS_ACCEL_SKIP").unwrap_or_default();
    let mut skipped = skipped.split(|byte| *byte == b':').filter(|skip| !skip.is_empty());
    name == OWN_SIDE.as_bytes()
        || LET_ALONE.iter().any(|begin| name.starts_with(begin.as_bytes()))
        || skipped.any(|skip| skip == name)
}

/// Leases go back, and the program's open files may be another process's as well from now on.
extern "C" fn before_fork() {
    inside(|| {
        registry::give_all_back();
        Some(())
    });
    share_all();
}

/// Another process may have all open files of the program.
pub fn share_all() {
    table::tagged().filter(|fd| table::tag(*fd) != table::OWN).for_each(table::share);
}

/// What was opened meanwhile by other threads is shared as well.
extern "C" fn after_fork() {
    share_all();
}

/// Nothing is inherited. The descriptors that the parent has opened are the kernel's here.
extern "C" fn in_child() {
    PROCESS.store(now(), Ordering::Relaxed);
    escapes::begin_child();
    // The session is the parent's.
    table::clear(|own, mark| {
        if is_marked(own, mark) {
            // SAFETY: nobody else in this process knows the descriptor.
            unsafe { libc::syscall(libc::SYS_close, own) };
        }
    });
    if is_inside() {
        // A handler that came upon the library at work: it does nothing in this process any more.
        return switch_off();
    }
    // SAFETY: a child of a fork has one thread, which is not in the library.
    unsafe {
        HEAP.renew();
        table::renew();
        registry::renew();
        direct::renew();
        section::renew();
    }
}

/// A child will run another program. What it inherits it shares.
pub fn before_exec() {
    for fd in table::tagged().filter(|fd| table::tag(*fd) != table::OWN) {
        // SAFETY: it asks for flags alone.
        let ask = || unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFD, 0) };
        let flags = escapes::passing(ask);
        if flags & i64::from(libc::FD_CLOEXEC) == 0 {
            table::share(fd);
        }
    }
}
