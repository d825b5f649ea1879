//! Commands that become another program.

pub mod accel;
pub mod bench;
mod escapes;
mod loaded;
