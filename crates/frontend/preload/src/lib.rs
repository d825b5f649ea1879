//! The library that unmodified programs are started with (LD_PRELOAD, `siftfs accel`): their small
//! writes of files on a mount with `private_logs=on` go by a private log
//! (`docs/design/private-logs.md`, "Programs that know nothing of it").
//!
//! Every descriptor is the kernel's, and so is its offset: the library moves it by lseek(2) before
//! it does what the call asks for. What it does not catch, or does not want, goes to the kernel and
//! is right. So its tables are hints, and nothing is lost when an entry is dropped.
//!
//! Five kinds of modules: `exports` has the functions that programs call instead of the C
//! library's; `calls` decides what is done by a lease; `state` has what is known of descriptors and
//! files; `streams` leads the C library's own calls here, and `escapes` counts what goes past all
//! of it. What is below them (`below`) must work where the program's own memory and locks may be in
//! use: in a signal handler, in an allocator, before `main`.

#![allow(unsafe_code)] // C's calling convention, and the memory of the caller
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]
// A test program is not to have its own calls caught: without those functions it uses little.
#![cfg_attr(test, allow(dead_code))]

mod below;
mod calls;
mod escapes;
#[cfg(not(test))]
mod exports;
mod state;
mod streams;
