//! Storage that Ceph replicates: a [`siftfs_device::Device`] over an image of RADOS block devices
//! (RBD), with one writer at a time, and a fence between it and the next
//! (`docs/design/replicated.md`).

#[cfg(not(feature = "librbd"))]
mod absent;
#[cfg(feature = "librbd")]
mod beside;
#[cfg(feature = "librbd")]
mod cluster;
#[cfg(feature = "librbd")]
mod completion;
#[cfg(feature = "librbd")]
mod device;
#[cfg(feature = "librbd")]
mod functions;
#[cfg(feature = "librbd")]
mod health;
#[cfg(feature = "librbd")]
mod image;
#[cfg(feature = "librbd")]
mod images;
#[cfg(feature = "librbd")]
mod notes;
#[cfg(feature = "librbd")]
mod owner;
mod place;
#[cfg(feature = "librbd")]
mod wait;

#[cfg(not(feature = "librbd"))]
pub use absent::{LookedImage, RbdDevice, RbdImages, RbdWait};
#[cfg(feature = "librbd")]
pub use device::RbdDevice;
#[cfg(feature = "librbd")]
pub use images::{LookedImage, RbdImages};
pub use place::{Access, Had, RbdPlace, RbdPool, Standing, Whom, Words, is_rbd};
#[cfg(feature = "librbd")]
pub use wait::RbdWait;
