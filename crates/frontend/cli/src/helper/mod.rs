//! Calls by mount(8), umount(8) and fsck(8) under the names that they search for.

pub mod called;
pub mod descriptor;
pub mod fsck;
