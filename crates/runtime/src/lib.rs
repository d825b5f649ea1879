//! siftfs-runtime
