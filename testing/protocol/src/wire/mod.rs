//! Clients and a served Runtime over a wire, as a model that a checker explores completely: calls
//! and answers that are lost with their connection and made again, sessions that are resumed,
//! deaths of the server with recovery from what is durable, also in the grace time, kept changes
//! that are repeated, the book, replies that lie with their effect, notices, compounds and locks.
//!
//! `docs/design/lost-server.md` is the protocol. [`Config`] is what is explored, [`Mutation`] a
//! fault planted in the protocol to see that a property notices, [`judge`] has the properties.

pub mod action;
pub mod cases;
mod client;
pub mod config;
mod faults;
pub mod judge;
pub mod landmarks;
pub mod model;
mod returning;
mod runtime;
mod server;
pub mod state;

pub use action::Action;
pub use config::{Call, Config, Faults, Mutation};
pub use model::Wire;
