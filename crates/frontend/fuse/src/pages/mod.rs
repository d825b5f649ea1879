//! What the kernel keeps of files: pages, names and times. How it is made to write them, or to drop
//! them, without a wait that nothing interrupts.
//!
//! `own_mount` has the rules for calls of the daemon on its own mount; `opener` and `names` are
//! such calls. `invalidator` sends an answer when the kernel has done what the answer rests on.

pub(crate) mod dirty;
pub(crate) mod expiry;
pub(crate) mod handles;
pub(crate) mod invalidator;
pub(crate) mod kernel_cache;
pub(crate) mod known;
pub(crate) mod names;
pub(crate) mod opener;
pub(crate) mod own_mount;
pub(crate) mod unserved;
pub(crate) mod writers;
