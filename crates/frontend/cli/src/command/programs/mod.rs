//! Commands that become another program.

pub mod accel;
pub mod bench;
