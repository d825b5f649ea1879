#![no_main]
//! `make fuzz`, or `cargo fuzz run log` in `crates/shared/lease`: any bytes are a log's file, or
//! say what becomes of one.

#[path = "../log.rs"]
mod log;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| log::any_log(bytes));
