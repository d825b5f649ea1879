//! Commands that become another program.

pub mod accel;
pub mod bench;
mod escapes;
pub mod freeze;
mod loaded;
