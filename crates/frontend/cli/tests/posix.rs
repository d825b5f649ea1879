//! The mount behaves as the kernel's own ext4 does: the same calls, the same answers.
//! Needs root, `/dev/fuse`, loop devices, e2fsprogs and acl.

#[path = "posix/accelerated.rs"]
mod accelerated;
#[path = "posix/acls.rs"]
mod acls;
#[path = "posix/attrs.rs"]
mod attrs;
#[path = "posix/c_library.rs"]
mod c_library;
#[path = "posix/checked.rs"]
mod checked;
#[path = "posix/data.rs"]
mod data;
#[path = "posix/examples.rs"]
mod examples;
#[path = "posix/flags.rs"]
mod flags;
#[path = "posix/handles.rs"]
mod handles;
#[path = "posix/idmapped.rs"]
mod idmapped;
#[path = "posix/many.rs"]
mod many;
#[path = "posix/names.rs"]
mod names;
#[path = "posix/overlay.rs"]
mod overlay;
#[path = "posix/owners.rs"]
mod owners;
#[path = "posix/pair.rs"]
mod pair;
#[path = "posix/pressure.rs"]
mod pressure;
#[path = "posix/programs.rs"]
mod programs;
#[path = "posix/publish.rs"]
mod publish;
#[path = "posix/python.rs"]
mod python;
#[path = "posix/random.rs"]
mod random;
#[path = "posix/rights.rs"]
mod rights;
#[path = "posix/shared.rs"]
mod shared;
#[allow(dead_code)] // each test program uses a part of it
mod support;
#[path = "posix/synchronous.rs"]
mod synchronous;
#[path = "posix/tickets.rs"]
mod tickets;
#[path = "posix/told.rs"]
mod told;
#[path = "posix/unnamed.rs"]
mod unnamed;
#[path = "posix/written_back.rs"]
mod written_back;
