//! Sessions: what belongs to one Frontend, and the requests that need it.

pub mod demand;
pub mod direct;
mod doing;
mod life;
pub mod locks;
pub mod open;
pub(crate) mod readers;
pub(crate) mod recall;
mod shown;
pub mod ticket_table;
pub mod tickets;

pub(crate) use doing::Doing;
pub(crate) use open::{InFlight, Session, Sessions};
