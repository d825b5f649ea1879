//! Which file has each block of the area, for all grants of a target
//! (`docs/design/target.md`, "The permission table").
//!
//! The table is a radix tree whose leaves cover 512 blocks each. A leaf whose blocks are all alike
//! is one entry in its node. The others are in memory or in a scratch file: a clock chooses which
//! of them leaves memory when there is no room. Nothing here outlives the process.
//!
//! **Locks**, in the order in which they are taken: the books (`Mutex`), then one node (`RwLock`),
//! never two. A check takes its leaf's node to read, and nothing else if the leaf is in memory.
//! Every change of a leaf, and of where a leaf lies, is made under the books. So what was read of a
//! leaf under the books stays true while they are held, with no node's lock. The scratch file is
//! written under no node's lock, and read under one that is held to read: a slot has no new
//! contents while somebody reads it.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

mod books;
mod clock;
mod entry;
mod give;
mod leaf;
mod owners;
mod spill;
mod store;
mod table;
mod tree;

pub use entry::Owner;
pub use table::{Checked, Counts, Memory, Permissions};
