//! The Runtime: the file system proper. Namespace, allocation, page cache, foreground staging and
//! assembly of background journal transactions; the only writer of meaning.
//!
//! Follow one write: [`endpoint`] (the request), `file` (page cache), `fsync` and `stage` (the staged
//! transaction; `closure` and `capture` say what is in it), `sequencer` (group commit), `commit` and `assembly`
//! (`push`, `locate`, the atomic cut), `recover` (the same code applied to what a crash left).

mod acl;
mod assembly;
mod attributes;
mod buffers;
mod capture;
mod closure;
mod commit;
mod config;
mod credits;
mod encode;
mod endpoint;
mod file;
mod fill;
mod flags;
mod fsync;
mod gate;
mod heap;
mod lane;
mod locate;
mod memory;
mod meta_cache;
mod names;
mod namespace;
mod node;
mod nodes;
mod overlay;
mod page_cache;
mod pause;
mod progress;
mod push;
mod records;
mod recover;
mod remount;
mod runtime;
mod sequencer;
mod shape;
mod sizes;
mod stage;
mod staged_reads;
mod state;
mod stats;
mod sync;
mod turns;
mod ways;
mod write_back;

pub use assembly::Push;
pub use commit::Commit;
pub use config::Config;
pub use credits::{Committed, Settled};
pub use lane::{Lane, Place, RecordRef};
pub use names::Unstageable;
pub use recover::{FoundRecord, RecoveryCut};
pub use remount::Tuning;
pub use runtime::{Durable, Parts, Runtime, ServiceLink};
pub use sequencer::{Flushed, Published, Sequencer, WriteMode, Writer};
pub use state::Readers;
pub use stats::{Distribution, RuntimeStats};
pub use ways::{Group, Measured, Way, WaysReport};
