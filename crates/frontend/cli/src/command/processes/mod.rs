//! Processes that others reach by a socket, whether they are healthy, and the keys by which
//! machines will know each other.

pub mod device;
pub mod directory;
pub mod health;
pub mod key;
mod rooms;
pub mod serve;
mod standby;
