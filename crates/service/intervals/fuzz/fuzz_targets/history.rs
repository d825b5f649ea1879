#![no_main]
//! `make fuzz`, or `cargo fuzz run history` in `crates/service/intervals`: any bytes are a history
//! on which the map and a naive model agree.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| siftfs_intervals::check::history(bytes));
