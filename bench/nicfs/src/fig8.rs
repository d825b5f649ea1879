//! Figure 8: reads and writes of 4 and 16 KiB.

use crate::Plan;
use crate::table::{self, Figure};
use siftfs_rig::figure::Output;
use siftfs_rig::place::Result;

/// Measures it.
pub fn measure(plan: &Plan<'_>) -> Result<Output> {
    let figure = Figure {
        lengths: &[4 << 10, 16 << 10],
        targets: (1.1, 1.1),
        paper: "the paper (figure 8, no numbers in its text): NICFS above ext4 in all tests, by 10 to 21 % \
                at large lengths; near raw memory in writes",
    };
    table::measure(plan, &figure)
}
