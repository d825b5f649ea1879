//! Several front ends of one volume: mounts of it, and a program that embeds it, in one process.
//!
//! `stage` is the volume and its front ends. `turns` has them take turns: what one has done, every
//! other one sees, as on one plain file system. `programs` has many programs work at once, to find
//! out whether any call waits for ever; what they leave behind all front ends see alike. `appends`
//! has many programs append to one file, and `creates` open one new name. `logs` has programs with
//! private logs. `killed` has a process with all of them, which is killed.

#![allow(clippy::indexing_slicing, clippy::unwrap_used)]

pub mod appends;
pub mod creates;
pub mod cuts;
pub mod killed;
pub mod leased;
pub mod logs;
pub mod programs;
pub mod recall_times;
pub mod recalls;
pub mod stage;
pub mod turns;
pub mod view;
mod wire;
