//! siftfs-fsck
