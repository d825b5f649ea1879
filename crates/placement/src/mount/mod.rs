//! An open volume: recovering, opening, remounting and closing it.

mod beside;
pub mod clock;
pub mod freeze;
pub mod local;
pub mod logs;
pub mod open;
mod plane;
pub mod private_logs;
pub mod read_only;
pub mod recover;
pub mod remount;
pub mod served;
pub(crate) mod term;
