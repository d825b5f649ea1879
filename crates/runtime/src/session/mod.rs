//! Sessions: what belongs to one Frontend, and the requests that need it.

pub mod demand;
pub mod table;
pub mod tickets;
