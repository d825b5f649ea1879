//! The Service: background journaling, checkpointing and reclamation.
//!
//! A state machine without threads. [`Service::handle`] takes one message of the block protocol,
//! [`Service::step`] does a bounded piece of checkpoint work, both leave their answers in a
//! queue; so a waiting `Submit` is served between two steps. The Service sees blocks and
//! references to staged data, never file names.
//!
//! Order of durability: a transaction's direct runs, then its journal record; and for
//! reclamation area writes, area flush, service record, its flush, then credits (rule R11).
//! The first failure is latched: nothing is journaled, replayed or reclaimed after it (rule
//! R21); the next recovery replays from the durable tail.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

mod batch;
mod blocks;
mod checkpoint;
mod digest;
mod digested;
mod discard;
mod discards;
mod images;
mod journal;
mod memory;
mod mode;
mod piece;
mod recovery;
mod redo;
mod replay;
mod requests;
mod resume;
mod reuse;
mod service;
mod validate;
mod window;

pub use images::InodeTables;
pub use mode::{MIN_MEMORY, ReplayMode};
pub use recovery::ReplaySummary;
pub use redo::{Held, RedoLane, RedoParts, replay_redo};
pub use service::{Service, ServiceOptions, ServiceParts};

#[cfg(test)]
mod differential_tests;
#[cfg(test)]
#[path = "test_util.rs"]
pub(crate) mod test_util;
