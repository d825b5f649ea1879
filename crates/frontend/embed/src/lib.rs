//! siftfs
