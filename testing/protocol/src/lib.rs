//! The protocol between host Runtime and device Service as a model that a checker explores
//! completely: two files that pass blocks to each other, staging lanes, a journal, the file-system
//! area, header records, links, locks and epochs, with crashes and losses between any two steps.
//!
//! `docs/design/protocol-model.md` says what is modelled, what is left out, and why that is sound.
//! [`Config`] is what is explored, [`Mutation`] a fault planted in the protocol itself to see that
//! a property notices, [`judge`] has the properties.

pub mod action;
pub mod cases;
mod compact;
pub mod config;
pub mod direct;
mod discard;
pub mod explored;
mod failing;
pub mod fronts;
pub mod graph;
mod host;
mod host_link;
mod hosts;
pub mod judge;
pub mod logs;
pub mod model;
pub mod queues;
mod recovery;
mod service;
pub mod spare;
pub mod state;
pub mod storage;
pub mod takeover;
pub mod wire;

pub use action::{Action, Flush};
pub use config::{Config, Faults, Mutation, Replay, Step};
pub use model::Protocol;
