//! A record area on byte-addressable memory, as a user meets it. Needs root, `/dev/fuse`,
//! `/dev/shm` and e2fsprogs.

#[allow(dead_code)] // each test program uses a part of it
mod support;

#[path = "record_area/life.rs"]
mod life;
#[path = "record_area/refused.rs"]
mod refused;
#[path = "record_area/setup.rs"]
mod setup;
