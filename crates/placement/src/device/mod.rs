//! The device process: serving a host, replaying for it.

pub mod counts;
pub mod replay;
pub mod server;
pub mod storage;
