//! Counting calls on files of a mount that went past the library, for tests
//! (`docs/design/private-logs.md`, "Calls that escape").
//!
//! The kernel looks at one byte of each thread before each system call that is not made by this
//! library's own code. The byte forbids calls while the program runs by itself.

#[cfg(target_arch = "x86_64")]
mod dispatch;
#[cfg(target_arch = "x86_64")]
mod table;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

/// Values of the byte, as the kernel has them.
pub const ALLOW: u8 = 0;
#[cfg(target_arch = "x86_64")]
const BLOCK: u8 = 1;

thread_local! {
    // Without a destructor, and at one place as long as the thread runs: the kernel reads it.
    static SELECTOR: Cell<u8> = const { Cell::new(ALLOW) };
}

/// Are calls counted in this process?
static ON: AtomicBool = AtomicBool::new(false);

/// Are calls counted? Then threads have to begin with it.
#[inline(always)]
pub fn are_counted() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Calls of the thread are seen from now on. Answers what [`back`] is to be given.
#[inline(always)]
pub fn pass() -> u8 {
    if are_counted() { SELECTOR.replace(ALLOW) } else { ALLOW }
}

/// Changes nothing, for [`back`].
#[inline(always)]
pub fn keep() -> u8 {
    if are_counted() { SELECTOR.get() } else { ALLOW }
}

/// As it was before [`pass`].
#[inline(always)]
pub fn back(before: u8) {
    if are_counted() {
        SELECTOR.set(before);
    }
}

/// Does a call that is seen. A thread may be cancelled in it: nothing is to be dropped here.
#[inline(always)]
pub fn passing<T>(call: impl FnOnce() -> T) -> T {
    let before = pass();
    let done = call();
    back(before);
    done
}

/// Begins to count, in the memory that `path` names. Before `main`.
#[cfg(target_arch = "x86_64")]
pub fn begin(path: &[u8], replaced: u8) {
    if !table::open(path, replaced) {
        return;
    }
    if !dispatch::handle() || !begin_thread() {
        return table::add(siftfs_client::escapes::Word::Refused);
    }
    table::add(siftfs_client::escapes::Word::Processes);
}

/// In the child of a fork, which does not inherit it.
#[cfg(target_arch = "x86_64")]
pub fn begin_child() {
    if are_counted() && begin_thread() {
        table::add(siftfs_client::escapes::Word::Processes);
    }
}

/// Calls of this thread are counted from now on. False: the kernel does not tell of them.
#[cfg(target_arch = "x86_64")]
pub fn begin_thread() -> bool {
    let selector = SELECTOR.with(Cell::as_ptr);
    if !dispatch::tell(selector) {
        return false;
    }
    table::add(siftfs_client::escapes::Word::Threads);
    ON.store(true, Ordering::Relaxed);
    SELECTOR.set(BLOCK);
    true
}

/// Nothing is counted on other architectures.
#[cfg(not(target_arch = "x86_64"))]
pub fn begin(_: &[u8], _: u8) {}

/// As above.
#[cfg(not(target_arch = "x86_64"))]
pub fn begin_child() {}

/// As above.
#[cfg(not(target_arch = "x86_64"))]
pub fn begin_thread() -> bool {
    false
}
