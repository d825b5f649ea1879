//! The FUSE Frontend: serves a [`siftfs_proto::FileService`] to the kernel.
//!
//! `kernel` speaks the protocol of `/dev/fuse`: messages in, answers out. `adapter` turns its
//! operations into file-protocol requests; everything that is a decision (which xattr namespaces
//! exist, how a directory buffer is filled, how a range is copied) is in `server`, which knows no
//! kernel structure.
//!
//! The kernel checks permissions (`default_permissions`, and access control lists that it asks us
//! for) and keeps locks and the page cache; umask and default lists are the Runtime's.
//! This mount is the volume's only writer, so cached names and attributes stay valid until the
//! kernel itself changes them.

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used))]

mod adapter;
mod calls;
mod commit_all;
mod compound;
mod connection;
mod convert;
mod copied_up;
mod descriptors;
mod dirty;
mod expiry;
mod file_flags;
mod gate;
mod handles;
mod idmap;
mod invalidator;
mod kernel;
mod kernel_cache;
mod kernel_times;
mod mount;
mod mountinfo;
mod names;
mod open_files;
mod operations;
mod own_mount;
mod pages;
mod privileges;
mod publish;
mod section_table;
mod sections;
mod server;
mod stale;
mod switch;
mod timers;
mod trim;
mod view;
mod writers;

pub use connection::abort;
pub use expiry::WriteBack;
pub use gate::Gate;
pub use kernel::priority::Priority;
pub use kernel::transport::{RequestLoop, Requests};
pub use mount::{
    FuseMount, MountOptions, Traffic, WriteCache, detach, detach_dead, is_dead, is_silent, remount,
    says_dead, unmount,
};
pub use mountinfo::{
    Elsewhere, MountEntry, containing, mount_of_id, mounted_elsewhere, mounts, mounts_of, top_mount,
};
pub use own_mount::{Syncing, apart};
pub use switch::Switch;
pub use writers::{Writers, flush};
