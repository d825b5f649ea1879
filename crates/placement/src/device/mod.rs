//! The device process: serving a host, replaying for it.

pub mod calls;
pub mod counts;
pub mod grants;
pub mod replay;
pub mod server;
pub mod storage;
