//! Files that a program reads and writes at the target which has their volume's storage, without
//! the host in between (`docs/design/target.md`, "The data plane").
//!
//! A [`Session`] is one of the file protocol that may hold leases. A [`DirectFile`] of it takes the
//! file's write lease and has its blocks granted. What is granted goes to the target; all else goes
//! to the host: ends of files, holes, and everything while others use the file. The two see one
//! file, and what one of them says of durability counts for both.

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

mod atomic;
mod file;
mod given;
mod lent;
mod room;
mod session;
mod state;
mod way;

pub use atomic::{AtomicSection, Written};
pub use file::DirectFile;
pub use session::{Finds, PATIENCE, Reach, Session};
