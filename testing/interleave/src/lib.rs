//! Sources of the product, compiled against `loom`'s locks in place of the standard library's: a test
//! then runs under every order in which its threads can take them.
//!
//! The very files are taken, by path. Each of them gets its locks from `crate::sync`, which is this
//! crate's module here.

// Their own unit tests run where they are at home.
#[cfg(not(test))]
#[path = "../../../crates/runtime/src/gate.rs"]
pub mod gate;
#[cfg(not(test))]
#[path = "../../../crates/runtime/src/lane.rs"]
pub mod lane;
#[cfg(not(test))]
#[path = "../../../crates/runtime/src/records.rs"]
pub mod records;
#[cfg(not(test))]
#[path = "../../../crates/runtime/src/sequencer.rs"]
pub mod sequencer;
#[cfg(not(test))]
#[path = "../../../crates/runtime/src/ways.rs"]
pub mod ways;

/// What the product's `sync` modules re-export from the standard library.
pub mod sync {
    pub use loom::sync::{Condvar, Mutex, MutexGuard};
    pub use loom::thread::{ThreadId, current};
}
