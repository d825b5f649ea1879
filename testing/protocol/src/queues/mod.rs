//! Several requests of one queue at a time, in groups, as a model that a checker explores
//! completely: a program with several threads numbers its requests, they arrive at the target in
//! any order, and the target carries out one group after the other. Connections break and queues
//! take new lives, threads stop, a grant is taken back, and hostile numbers come.
//!
//! `docs/design/protocol-model.md`, "Request groups", is the protocol. [`Config`] is what is
//! explored, [`Mutation`] a fault planted in it to see that a property notices, [`judge`] has the
//! properties.

pub mod action;
pub mod cases;
pub mod config;
mod history;
pub mod judge;
pub mod landmarks;
mod lives;
pub mod model;
mod program;
pub mod state;
mod target;

pub use action::Action;
pub use config::{Call, Config, Forged, Limits, Mutation, Policy, read, write};
pub use model::Queues;
