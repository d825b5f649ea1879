//! siftfs-placement
