//! Sources of the product, compiled against `loom`'s locks in place of the standard library's: a
//! test then runs under every order in which its threads can take them.
//!
//! The very files are taken, by path. Each of them gets its locks from `crate::locks::sync`, or
//! from `crate::sync`, which are this crate's modules here; the rooms below are the product's, with
//! what is taken of them.

// Their own unit tests run where they are at home.
#[cfg(not(test))]
#[path = "../../../crates/runtime/src/locks/gate.rs"]
pub mod gate;
#[cfg(not(test))]
#[path = "../../../crates/runtime/src/state/log/lane.rs"]
pub mod lane;
#[cfg(not(test))]
#[path = "../../../crates/runtime/src/session/life.rs"]
pub mod life;
#[cfg(not(test))]
#[path = "../../../crates/shared/proto/src/notice.rs"]
pub mod notice;
#[cfg(not(test))]
#[path = "../../../crates/runtime/src/staging/records.rs"]
pub mod records;
#[cfg(not(test))]
#[path = "../../../crates/runtime/src/staging/sequencer.rs"]
pub mod sequencer;
#[cfg(not(test))]
#[path = "../../../crates/runtime/src/staging/unwritten.rs"]
pub mod unwritten;
#[cfg(not(test))]
#[path = "../../../crates/runtime/src/staging/ways.rs"]
pub mod ways;

/// The product's `locks`.
pub mod locks {
    #[cfg(not(test))]
    pub use crate::gate;

    /// What the product's `sync` re-exports from the standard library.
    pub mod sync {
        pub use loom::sync::atomic::{AtomicBool, Ordering};
        pub use loom::sync::{
            Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
        };
        pub use loom::thread::{ThreadId, current};
    }
}

/// What the file protocol takes of the standard library.
pub mod sync {
    pub use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub use std::sync::PoisonError;
}

/// The product's `staging`.
#[cfg(not(test))]
pub mod staging {
    pub use crate::{records, sequencer, unwritten, ways};
}

/// The product's `state`.
#[cfg(not(test))]
pub mod state {
    /// The product's `state::log`.
    pub mod log {
        pub use crate::lane;
    }
}
