//! siftfs-log
