#![no_main]
//! `make fuzz`, or `cargo fuzz run ioctl` in `crates/shared/proto`: any bytes are an argument that
//! a program sent.

#[path = "../ioctl.rs"]
mod ioctl;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ioctl::any_argument(bytes));
