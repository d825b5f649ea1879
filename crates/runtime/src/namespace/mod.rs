//! Which name is which inode, and what may be done to it.

pub mod access;
pub mod acl;
pub mod attributes;
pub mod entries;
pub mod flags;
pub mod kinds;
pub mod rename;
pub mod unchecked;
