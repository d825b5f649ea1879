//! Figure 9: reads and writes of 256 bytes.

use crate::Plan;
use crate::table::{self, Figure};
use siftfs_rig::figure::Output;
use siftfs_rig::place::Result;

/// Measures it.
pub fn measure(plan: &Plan<'_>) -> Result<Output> {
    let figure = Figure {
        lengths: &[256],
        targets: (1.5, 1.1),
        paper: "the paper (figure 9, no numbers in its text): NICFS more than 2 times ext4; 1.19 times \
                ext4-DAX in reads, 1.51 times in writes",
    };
    table::measure(plan, &figure)
}
