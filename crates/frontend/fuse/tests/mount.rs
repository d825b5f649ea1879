//! The mapping layer over `/dev/fuse`, or as SIFTFS_TEST_OPTIONS says. Needs root and `/dev/fuse`.

#![allow(unsafe_code)]

#[path = "mount/cases.rs"]
mod cases;
#[path = "mount/late.rs"]
mod late;
mod support;
#[path = "mount/times.rs"]
mod times;

use siftfs_fuse::{FuseMount, MountOptions, Requests, WriteCache};

/// How the cases are mounted.
fn options() -> MountOptions {
    let mut options = MountOptions { requests: Requests::Device, ..MountOptions::default() };
    let given = std::env::var("SIFTFS_TEST_OPTIONS").unwrap_or_default();
    for option in given.split(',').filter(|o| !o.is_empty()) {
        match option {
            "requests=ring" => options.requests = Requests::Ring,
            "requests=device" => options.requests = Requests::Device,
            "requests=auto" => options.requests = Requests::Auto,
            "write_cache=writethrough" => options.write_cache = WriteCache::Writethrough,
            "write_cache=writeback" => options.write_cache = WriteCache::Writeback,
            other => panic!("SIFTFS_TEST_OPTIONS: this crate has no option {other}"),
        }
    }
    options
}

fn mounting(mount: impl FnOnce() -> std::io::Result<FuseMount>) -> std::io::Result<FuseMount> {
    mount()
}
