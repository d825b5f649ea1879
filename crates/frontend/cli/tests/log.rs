//! A log elsewhere, adopting an ext4 volume and giving it back, rule R16. Needs root, `/dev/fuse`,
//! loop devices and e2fsprogs.

#[allow(dead_code)] // each test program uses a part of it
mod support;

#[path = "log/adopt.rs"]
mod adopt;
#[path = "log/elsewhere.rs"]
mod elsewhere;
#[path = "log/setup.rs"]
mod setup;
#[path = "log/spare.rs"]
mod spare;
#[path = "log/together.rs"]
mod together;
