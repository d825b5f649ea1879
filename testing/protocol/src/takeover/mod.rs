//! Servers of one volume on a replicated engine, of which one serves and the others wait, as a
//! model that a checker explores completely: an exclusive lock, watches, a block list in maps that
//! the storage learns late, writes that land late, servers that sleep, wake and die.
//!
//! `docs/design/protocol-model.md`, "A takeover", is the protocol. [`Config`] is what is explored,
//! [`Mutation`] a fault planted in it to see that a property notices, [`judge`] has the properties.

pub mod action;
pub mod cases;
mod cluster;
pub mod config;
pub mod judge;
pub mod landmarks;
pub mod model;
mod serving;
pub mod state;
mod succeeding;

pub use action::Action;
pub use config::{Config, Faults, Mutation};
pub use model::Takeover;
