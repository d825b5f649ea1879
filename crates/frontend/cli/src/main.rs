//! The `siftfs` command.
fn main() {}
