//! The load of SIFT's online pressure workload, which `siftfs-pressure` and `siftfs-bench` measure.

pub mod load;
pub mod steady;
