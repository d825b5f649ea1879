//! What is kept in memory of the storage, and the order in which it is given up.

pub mod eviction;
pub mod meta_cache;
pub mod page_cache;
