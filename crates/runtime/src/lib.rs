//! The Runtime: the file system proper. Namespace, allocation, page cache, foreground staging and
//! assembly of background journal transactions; the only writer of meaning.
//!
//! Follow one write: [`endpoint`] (the request), `data/file` (page cache), `staging/fsync` and
//! `staging/stage` (the staged transaction; `closure` and `capture` say what is in it),
//! `staging/sequencer` (group commit), `assembly/commit` and `assembly/cut` (`push`, `locate`, the
//! atomic cut), `recover` (the same code applied to what a crash left).
//!
//! The rooms, each of which uses only those before it: `locks`; `state`, what there is; `namespace`
//! and `data`, what operations change of names and of bytes; `staging`, one fsync; `session`, what
//! belongs to one Frontend; `assembly`, one background transaction; `operations`, what changes
//! several files together. The files beside them are the Runtime's doors.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

mod assembly;
mod config;
mod data;
mod direct_plane;
mod endpoint;
mod locks;
mod namespace;
mod operations;
mod recover;
mod report;
mod runtime;
mod session;
mod staging;
mod state;

pub use assembly::commit::Commit;
pub use assembly::freeze::{hold, let_go, prepare_hold};
pub use assembly::remount::Tuning;
pub use config::{Compact, Config, Pools};
pub use direct_plane::{Admits, DirectPlane, Written};
pub use endpoint::{Endpoint, end_calls, forget_client};
pub use recover::{FoundRecord, LoggedWrite, recovered};
pub use runtime::{Parts, Runtime, ServiceLink};
pub use session::recall::end_leases;
pub use staging::proof::{Committed, Durable, Settled};
pub use staging::sequencer::{Flushed, Published, Sequencer, WriteMode, Writer};
pub use staging::ways::{Group, Measured, Way, WaysReport};
pub use state::Readers;
pub use state::discards::DiscardConfig;
pub use state::log::lane::{Lane, Place, RecordRef};
pub use state::log::names::Unstageable;
pub use state::log::recovery::RecoveryCut;
pub use state::log::running::Push;
pub use state::stats::RuntimeStats;
