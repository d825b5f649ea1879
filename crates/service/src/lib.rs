//! siftfs-service
