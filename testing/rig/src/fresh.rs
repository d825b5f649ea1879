//! Bytes that no write of this process has had before, and that no coder makes shorter. A file
//! system that finds nothing changed, or much alike, has less to do than with a program's own data.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Streams begun so far, one for each thread.
static STREAMS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static STATE: Cell<u64> =
        Cell::new(STREAMS.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
}

/// The next number of a Weyl sequence, mixed (the finisher of SplitMix64): a bijection, so that a
/// thread's stream does not repeat itself.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0xd1b5_4a32_d192_ed03);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Fills `bytes` anew; returns them, to be written.
pub fn refresh(bytes: &mut [u8]) -> &[u8] {
    STATE.with(|kept| {
        let mut state = kept.get();
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&next(&mut state).to_le_bytes()[..part.len()]);
        }
        kept.set(state);
    });
    bytes
}

/// This many new bytes.
pub fn fresh<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    refresh(&mut bytes);
    bytes
}

#[cfg(test)]
#[path = "fresh_tests.rs"]
mod tests;
