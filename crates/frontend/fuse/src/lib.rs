//! siftfs-fuse
