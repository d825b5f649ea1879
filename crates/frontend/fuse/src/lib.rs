//! The FUSE Frontend: serves a [`siftfs_proto::FileService`] to the kernel.
//!
//! The `fuser` crate appears in one module only (`adapter`), which turns kernel requests into
//! file-protocol requests; everything that is a decision (kill-privilege rules, which xattr
//! namespaces exist, how a directory buffer is filled) is in `server`, which knows no `fuser`.
//!
//! The kernel keeps permissions (`default_permissions`), locks, the page cache and the umask.
//! This mount is the volume's only writer, so cached names and attributes stay valid until the
//! kernel itself changes them.

mod adapter;
mod convert;
mod gate;
mod mount;
mod mountinfo;
mod pool;
mod server;
mod writers;

pub use gate::Gate;
pub use mount::{FuseMount, MountOptions, detach, detach_dead, is_dead, unmount};
pub use mountinfo::{MountEntry, containing, mounts, top_mount};
pub use writers::{Writers, flush};
