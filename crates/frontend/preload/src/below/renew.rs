//! What is begun anew in the child of a fork.

use std::cell::UnsafeCell;

/// Something shared that the only thread of a new process may replace, even where it is locked.
pub struct Renewable<T>(UnsafeCell<T>);

// SAFETY: it is shared as T is; `renew` alone replaces it, while there is one thread.
unsafe impl<T: Sync> Sync for Renewable<T> {}

impl<T> Renewable<T> {
    /// As it is at first.
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// As it is.
    pub fn get(&self) -> &T {
        // SAFETY: nobody replaces it while there are other threads, or references to it.
        unsafe { &*self.0.get() }
    }

    /// Replaces it, and drops nothing: what was there may be locked for ever.
    ///
    /// # Safety
    /// There is no other thread, and this one has no reference to it.
    pub unsafe fn renew(&self, value: T) {
        // SAFETY: the caller's promise.
        unsafe { self.0.get().write(value) };
    }
}
