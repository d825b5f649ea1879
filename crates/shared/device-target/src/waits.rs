//! Whether calls wait for a target that is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Do calls wait for a target that is lost? They fail until [`Waits::begin`], and again from
/// [`Waits::end`] on: the calls that wait then fail, too. Copies are one and the same.
#[derive(Clone, Debug, Default)]
pub struct Waits(Arc<AtomicBool>);

impl Waits {
    /// From now on they wait.
    pub fn begin(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// From now on they fail. One that waits learns it after its next try to connect.
    pub fn end(&self) {
        self.0.store(false, Ordering::Release);
    }

    pub(crate) fn are_on(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Copies of one value are equal, and no others.
impl PartialEq for Waits {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
