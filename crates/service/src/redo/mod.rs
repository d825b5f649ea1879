//! Atomic writes of programs: the redo lane, whose one writer is the target
//! (`docs/design/target.md`, "The redo lane").
//!
//! What was committed is durable in the lane, shown by the index, and goes to its blocks with a
//! checkpoint. The order of durability: a transaction's records; then its answer; and for a
//! checkpoint area writes, area flush, slot, and only then what was checkpointed is forgotten. The
//! first failure is latched (rule R21): the next opening replays what is in the lane.

mod background;
mod home;
mod index;
mod lane;
mod log;
mod running;

pub use home::{RedoParts, replay_redo};
pub use index::Held;
pub use lane::RedoLane;

#[cfg(test)]
mod lane_tests;
#[cfg(test)]
mod power_tests;
#[cfg(test)]
mod test_util;
