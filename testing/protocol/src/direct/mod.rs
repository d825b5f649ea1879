//! A program with a direct lease, the target that checks, orders and logs its requests, and the
//! host that grants and takes back, as a model that a checker explores completely: blocks that are
//! granted, written, freed and given to another file, a redo lane, deaths of each process, and a
//! power cut with any subset of what was not flushed.
//!
//! `docs/design/protocol-model.md`, "A direct data plane", is the protocol. [`Config`] is what is
//! explored, [`Mutation`] a fault planted in it to see that a property notices, [`judge`] has the
//! properties.

pub mod action;
pub mod cases;
mod client;
pub mod config;
mod faults;
mod host;
pub mod judge;
pub mod landmarks;
pub mod model;
pub mod readers;
pub mod state;
mod target;

pub use action::Action;
pub use config::{Call, Config, Faults, Mutation, Op};
pub use model::Direct;
