//! Carries out what the kernel asks for: requests of the kernel's protocol become requests of the
//! file protocol.
//!
//! `adapter` takes an operation apart and calls `server`, where the decisions are; `server` knows
//! no structure of the kernel's. `open_files` knows the files that programs have open,
//! `privileges` who loses set-id bits and capabilities and when, `kernel_times` which times of the
//! kernel's are newer than ours.

pub(crate) mod adapter;
pub(crate) mod agreed;
pub(crate) mod caller;
pub(crate) mod calls;
mod copied_up;
mod file_flags;
pub(crate) mod gate;
pub(crate) mod kernel_times;
pub(crate) mod open_files;
mod page_debts;
pub(crate) mod privileges;
pub(crate) mod scope;
pub(crate) mod server;
mod stale;
pub(crate) mod system_call;
pub(crate) mod timers;
pub(crate) mod told;
