//! Processes that others reach by a socket, and the keys by which machines will know each other.

pub mod device;
pub mod directory;
pub mod key;
mod rooms;
pub mod serve;
