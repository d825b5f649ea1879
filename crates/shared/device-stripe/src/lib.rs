//! One area over several devices: the members of a striped volume as one [`Device`]
//! (`docs/design/stripes.md`).
//!
//! [`Device`]: siftfs_device::Device

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used))]

mod device;
mod geometry;
mod label;
mod member;
mod open;
mod place;
mod stamp;

pub use device::StripedDevice;
pub use geometry::{DATA_BEGIN, DEFAULT_UNIT, Geometry, MAX_MEMBERS, MAX_UNIT, MIN_UNIT};
pub use label::{Standing, is_member, set_free};
pub use member::Member;
pub use place::{StripePlace, is_at_target, parts_of, principal};
pub use stamp::{Guard, stamp_range};
