//! What a request owes to other front ends before it is answered.
//!
//! A request that changes something is answered when every other front end of the volume has taken
//! back what it knew of it. No thread waits for that: what is owed goes to the request's token,
//! from whatever thread carries the request out, and the answer follows.

use siftfs_proto::Owed;
use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

thread_local! {
    /// The request that this thread carries out.
    static CURRENT: RefCell<Option<Arc<Owing>>> = const { RefCell::new(None) };
}

/// What one request owes so far.
#[derive(Debug, Default)]
pub(crate) struct Owing(Mutex<Owed>);

impl Owing {
    fn add(&self, owed: Owed) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).add(owed);
    }

    /// Takes all that is owed: the request does not wait for it.
    pub(crate) fn take(&self) -> Owed {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Lets the calling thread carry `request` out.
pub(crate) fn during<T>(request: Option<Arc<Owing>>, act: impl FnOnce() -> T) -> T {
    /// The thread goes on with what it did before.
    struct Back(Option<Arc<Owing>>);
    impl Drop for Back {
        fn drop(&mut self) {
            CURRENT.set(self.0.take());
        }
    }
    let _back = Back(CURRENT.replace(request));
    act()
}

/// The request that the calling thread carries out goes on in `then`, on whatever thread.
pub(crate) fn carried<A>(then: impl FnOnce(A) + Send + 'static) -> impl FnOnce(A) + Send + 'static {
    let request = CURRENT.with_borrow(Clone::clone);
    move |argument| during(request, || then(argument))
}

/// Takes what the request owes so far that the calling thread carries out: it does not wait for
/// that.
pub(crate) fn owed_so_far() -> Owed {
    CURRENT.with_borrow(|owing| owing.as_ref().map(|owing| owing.take())).unwrap_or_default()
}

/// The request that the calling thread carries out owes this, too. A thread that carries none out
/// waits until it is settled.
pub(crate) fn owe(owed: Owed) {
    if owed.is_settled() {
        return;
    }
    match CURRENT.with_borrow(Clone::clone) {
        Some(owing) => owing.add(owed),
        None => owed.wait(),
    }
}

#[cfg(test)]
#[path = "owing_tests.rs"]
mod tests;
