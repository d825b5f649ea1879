//! One background transaction: what it takes along, its atomic cut, and what the Service answers.

pub mod commit;
pub mod credits;
pub mod cut;
pub mod discard;
pub mod freeze;
pub mod locate;
pub mod progress;
pub mod push;
pub mod remount;
pub mod tick;
