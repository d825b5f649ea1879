//! The log on a pool of fast devices, and the area on a pool of slow ones.

use crate::Plan;
use crate::fsync::images;
use siftfs_rbd_tests::stage::Stage;
use siftfs_rig::figure::Output;
use siftfs_rig::place::Result;

/// Measures a volume that is slow altogether, one with a fast log, and one that is fast altogether.
///
/// # Errors
/// What could not be done, for people.
pub fn measure(stage: &Stage<'_>, plan: &Plan) -> Result<Output> {
    let slow = stage.volume("slow", "alone", 512)?;
    let fast = stage.volume("fast", "alone", 512)?;
    stage.rbd(&["create", "--size", "512M", "slow/apart"])?;
    stage.rbd(&["create", "--size", "64M", "fast/apart-log"])?;
    stage.run(&["mkfs", "rbd:slow/apart", "--log", "rbd:fast/apart-log"])?;
    stage.rbd(&["create", "--size", "64M", "slow/apart-raw"])?;
    stage.rbd(&["create", "--size", "64M", "fast/apart-raw"])?;
    let (slow_raw, fast_raw) = ("rbd:slow/apart-raw", "rbd:fast/apart-raw");
    images(stage, plan, &[(&slow, slow_raw), ("rbd:slow/apart", fast_raw), (&fast, fast_raw)])
}
