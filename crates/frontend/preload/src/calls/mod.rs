//! What is done by a lease, and what is left to the kernel.

pub mod data;
pub mod descriptors;
pub mod sections;
pub mod sync;
