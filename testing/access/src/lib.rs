//! What a session's caller may do, beside the kernel's ext4: the same tree, the same callers, the
//! same calls, and the same errno and tree afterwards.
//!
//! `draw` says what is asked for and by whom, all from a seed. `kernel` makes the system call on
//! ext4, on a thread that is that caller. `session` sends the requests of such a call to a Runtime,
//! in a session of that caller. `tree` has both start alike, and compares them.

pub mod campaign;
pub mod draw;
pub mod kernel;
pub mod session;
pub mod tree;
