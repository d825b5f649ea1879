//! siftfs-model
