//! How far it goes: sparse giants, deep trees, full volumes, very many files, large volumes,
//! volumes on other kinds of storage. Each leaves an image that e2fsck calls clean and that the
//! kernel reads as the mount showed it. Needs root, `/dev/fuse`, loop devices and e2fsprogs.

#[path = "limits/calls.rs"]
mod calls;
#[path = "limits/deep.rs"]
mod deep;
#[path = "limits/discard.rs"]
mod discard;
#[path = "limits/full.rs"]
mod full;
#[path = "limits/host.rs"]
mod host;
#[path = "limits/listing.rs"]
mod listing;
#[path = "limits/many.rs"]
mod many;
#[path = "limits/places.rs"]
mod places;
#[path = "limits/sparse.rs"]
mod sparse;
#[allow(dead_code)] // each test program uses a part of it
mod support;
