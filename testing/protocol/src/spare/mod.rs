//! A log that fails over: one process, its log and a spare one, as a model that a checker explores
//! completely. Writes take any time and land late, the first log is left for the spare one and
//! gone back to, either fails for good, and what a recovery would find is looked at in every state:
//! with both logs, and without the spare one.
//!
//! `docs/design/protocol-model.md`, "A log that fails over", is the protocol. [`Config`] is what is
//! explored, [`Mutation`] a fault planted in it to see that a property notices, [`judge`] has the
//! properties.

pub mod action;
pub mod cases;
pub mod config;
mod host;
pub mod judge;
pub mod landmarks;
pub mod model;
mod recovery;
pub mod state;

pub use action::Action;
pub use config::{Config, Mutation};
pub use model::Spare;
