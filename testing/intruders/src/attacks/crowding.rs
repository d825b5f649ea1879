//! Many connections.

use super::Intruder;
use crate::wire::hello;
use siftfs_calls::VERSION;
use std::io::{self, Write};
use std::time::Duration;

/// Connections at a time, of one crowd.
const CROWD: usize = 200;

/// Connections that say nothing, or half of a greeting; gone before they are met, or staying.
pub(super) fn crowd(it: &mut Intruder) -> io::Result<()> {
    let says = it.rng.below(3);
    let mut all = Vec::new();
    for _ in 0..CROWD {
        let mut bare = it.door.knock()?;
        match says {
            0 => {}
            1 => bare.write_all(&hello(VERSION)[..30])?,
            _ => bare.write_all(&[0x16, 3, 1])?,
        }
        all.push(bare);
        if (it.is_over)() {
            return Ok(());
        }
    }
    std::thread::sleep(Duration::from_millis(it.rng.below(1500)));
    Ok(())
}
