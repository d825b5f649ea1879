//! siftfs-crash
