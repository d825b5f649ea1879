//! A program that holds leases, as it is told on its standard input; or, without a socket, what its
//! writes cost.

use siftfs_holders::{program, times};
use std::path::Path;

fn main() {
    match std::env::args_os().nth(1) {
        Some(socket) => program::run(Path::new(&socket)),
        None => times::measure(),
    }
}
