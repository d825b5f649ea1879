//! Locks on files across two mounts of one volume, by programs of their own, over the device and by
//! rings. Needs root, `/dev/fuse` and python3.

#[path = "locks/bytes.rs"]
mod bytes;
#[path = "locks/differential.rs"]
mod differential;
#[path = "locks/ends.rs"]
mod ends;
#[path = "locks/pair.rs"]
mod pair;
#[path = "locks/programs.rs"]
mod programs;
#[path = "locks/puppet.rs"]
mod puppet;
#[path = "support/rings.rs"]
mod rings;
