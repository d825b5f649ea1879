//! The device process: serving a host, replaying for it.

pub mod calls;
pub mod counts;
mod lane;
mod member;
pub mod permissions;
pub mod programs;
pub mod replay;
pub mod server;
pub mod storage;
pub mod workers;
