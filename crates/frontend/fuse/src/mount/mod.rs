//! A mount, from mount(2) to the end of its connection, and the table of all mounts.

pub(crate) mod connection;
pub(crate) mod detached;
pub(crate) mod fuse_mount;
pub(crate) mod mountinfo;
pub(crate) mod switch;
