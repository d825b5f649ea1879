//! A program with a private log, beside a program of the mount, as a model that a checker explores
//! completely: leases, ring, batches of the file log, the registry's row, the grantor's steps,
//! orders, deaths of program, daemon and machine, and recovery's second phase.
//!
//! `docs/design/private-logs.md` is the protocol. [`Config`] is what is explored, [`Mutation`] a
//! fault planted in the protocol to see that a property notices, [`judge`] has the properties.

pub mod action;
pub mod cases;
pub mod config;
mod deaths;
mod grantor;
mod holder;
pub mod judge;
pub mod landmarks;
pub mod model;
mod mount;
pub mod state;

pub use action::Action;
pub use config::{Call, Config, Faults, Mutation, Who};
pub use model::Logs;
