//! Several front ends over one Runtime, as a model that a checker explores completely: two kernels
//! that cache names, attributes and pages, a session that embeds and may hold a write lease, the
//! notices between them, terms, sleeps and deaths.
//!
//! `docs/design/front-ends.md` is the protocol. [`Config`] is what is explored, [`Mutation`] a
//! fault planted in the protocol to see that a property notices, [`judge`] has the properties.

pub mod action;
pub mod cases;
pub mod config;
mod faults;
pub mod judge;
mod kernels;
mod leases;
pub mod model;
mod programs;
mod runtime;
pub mod state;

pub use action::Action;
pub use config::{Call, Config, Faults, Mutation};
pub use model::Fronts;
