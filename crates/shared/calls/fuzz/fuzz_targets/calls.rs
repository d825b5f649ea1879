#![no_main]
//! `make fuzz`, or `cargo fuzz run calls` in `crates/shared/calls`: any bytes are messages of
//! either side, or a stream of frames.

#[path = "../messages.rs"]
mod messages;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    messages::any_messages(bytes);
});
