//! Something about a mount that is on or off, and may change while the mount is served.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Something that is on or off: whether a mount has SiftFS's own operations (without them their
/// ioctls are those of a file system that has none), and whether it is read-only.
#[derive(Clone)]
pub struct Switch(Arc<AtomicBool>);

impl Switch {
    pub(crate) fn new(on: bool) -> Self {
        Self(Arc::new(AtomicBool::new(on)))
    }

    /// Changes it for the calls from now on.
    pub fn set(&self, on: bool) {
        self.0.store(on, Ordering::SeqCst);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
