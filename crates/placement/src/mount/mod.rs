//! An open volume: recovering, opening, remounting and closing it.

pub mod clock;
pub mod local;
pub mod open;
pub mod read_only;
pub mod recover;
pub mod remount;
