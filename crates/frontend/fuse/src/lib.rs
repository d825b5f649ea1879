//! The FUSE Frontend: serves a [`siftfs_proto::FileService`] to the kernel.
//!
//! `kernel` speaks the protocol of `/dev/fuse`: messages in, answers out. In `serve`, `adapter`
//! turns its operations into file-protocol requests; everything that is a decision (which xattr
//! namespaces exist, how a directory buffer is filled, how a range is copied) is in `server`, which
//! knows no kernel structure. `pages` has what the kernel keeps written or dropped, `ioctl` has
//! SiftFS's own operations, `logs` the way into private logs, `front` makes the mount one of
//! several of its volume, and `mount` attaches all of that to a directory.
//!
//! The kernel checks permissions (`default_permissions`, and access control lists that it asks us
//! for) and keeps locks and the page cache; umask and default lists are the Runtime's. Locks of a
//! mount that is shared are the Runtime's, too: `locks`. A mount that is not shared is the volume's
//! only writer, so cached names and attributes stay valid until the kernel itself changes them.

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used))]

mod front;
mod ioctl;
mod kernel;
mod locks;
mod logs;
mod mount;
mod pages;
mod serve;

pub use front::cache::Front;
pub use front::rights::vouching;
pub use kernel::priority::Priority;
pub use kernel::transport::{RequestLoop, Requests};
pub use logs::tokens::{Peer, Redeemed, Tokens};
pub use mount::connection::abort;
pub use mount::detached::{attach, take_back};
pub use mount::fuse_mount::{
    FuseMount, MountOptions, NewMount, Traffic, WriteCache, detach, detach_dead, is_dead,
    is_silent, remount, says_dead, unmount,
};
pub use mount::mountinfo::{
    Elsewhere, MountEntry, containing, mount_of_id, mounted_elsewhere, mounts, mounts_of, top_mount,
};
pub use mount::switch::Switch;
pub use pages::expiry::WriteBack;
pub use pages::own_mount::{Syncing, apart};
pub use pages::writers::{Writers, flush};
pub use serve::gate::Gate;
