//! SiftFS for C. `include/siftfs.h` says what each function does, and who owns what; this is its
//! other side.

#![allow(unsafe_code)] // C's pointers
#![allow(clippy::missing_safety_doc)] // the header is the contract

mod compound;
mod convert;
mod direct;
mod mount;
mod names;
mod section;
mod ticket;
mod volume;

pub use compound::*;
pub use direct::*;
pub use mount::*;
pub use names::*;
pub use section::*;
pub use ticket::*;
pub use volume::*;
