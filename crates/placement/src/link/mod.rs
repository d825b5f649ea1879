//! The host's end of its Service: in this process, or in another behind a connection.

pub mod connect;
pub mod driver;
pub mod hint;
pub mod outbox;
pub mod remote;
