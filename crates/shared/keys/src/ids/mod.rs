//! What becomes of the ids that a client names (rule R52).

pub mod acl;
mod map;
mod squash;

pub use map::{IdMap, IdRange, NOBODY};
pub use squash::{Claimed, Ids, Squash};
