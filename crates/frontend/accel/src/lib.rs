//! The program's side of private logs: small writes of files of a SiftFS mount that need no
//! conversation with its daemon (`docs/design/private-logs.md`).
//!
//! A program enters a mount's grantor once ([`Session`]), and takes leases of files that it has
//! open to be written ([`Leased`]). A write of a leased file is a copy into memory that the daemon
//! can read: it survives the end of the program, and every other program sees it. Nothing is
//! promised for ever: another program that wants the file ends the lease, and whatever a lease
//! cannot do is answered by [`Through::Mount`], which means that the caller makes the call by the
//! kernel, on the descriptor that it has. That is right at any time.
//!
//! ```no_run
//! # fn main() -> std::io::Result<()> {
//! use siftfs_accel::{Session, Through};
//! use std::os::unix::fs::FileExt;
//! let orders = std::fs::File::options().read(true).write(true).open("/mnt/orders")?;
//! let session = Session::enter(&orders)?;
//! let leased = session.lease(&orders)?;
//! if leased.write_at(0, b"first") == Through::Mount {
//!     orders.write_all_at(b"first", 0)?;
//! }
//! if leased.sync(true)? == Through::Mount {
//!     orders.sync_data()?;
//! }
//! # Ok(())
//! # }
//! ```

#![warn(clippy::missing_errors_doc)]
#![deny(clippy::indexing_slicing, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used))]

mod cache;
mod direct;
mod hold;
mod host;
mod leased;
mod medium;
mod session;
mod way;

pub use direct::{Committed, Direct};
pub use hold::Hold;
pub use leased::{By, Leased};
pub use session::{Noted, Session};
pub use siftfs_lease::Token;
pub use siftfs_proto::commands::{ABORT, COMMIT, START, is_own};

/// By which way a call was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Through<T> {
    /// It is done, under the lease.
    Lease(T),
    /// It is not done: the caller makes it by the kernel.
    Mount,
}
