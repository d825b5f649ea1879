//! The mapping layer by FUSE over io_uring. Switches it on in the kernel where it is off. A kernel
//! without it serves the same tests over the device, and is asked to say so.

#![allow(unsafe_code)]

#[path = "ring/blocked.rs"]
mod blocked;
#[path = "mount/cases.rs"]
mod cases;
#[path = "support/rings.rs"]
mod rings;
mod support;
#[path = "mount/times.rs"]
mod times;

use siftfs_fuse::{FuseMount, MountOptions, Requests};
use std::sync::Arc;
use support::Mem;

/// How the cases are mounted.
fn options() -> MountOptions {
    let requests = if rings::has_rings() { Requests::Ring } else { Requests::Auto };
    MountOptions { requests, ..MountOptions::default() }
}

fn mounting(mount: impl FnOnce() -> std::io::Result<FuseMount>) -> std::io::Result<FuseMount> {
    rings::offering(true, mount)
}

/// Mounts, and says how requests come and why.
fn chosen(offered: bool, requests: Requests) -> Result<(&'static str, String), String> {
    let dir = tempfile::tempdir().unwrap();
    let options = MountOptions { requests, ..MountOptions::default() };
    let make = || FuseMount::new(Arc::new(Mem::new()), dir.path(), &options);
    let mount = rings::offering(offered, make).map_err(|e| e.to_string())?;
    let traffic = mount.traffic();
    let server = std::thread::spawn(move || mount.serve());
    rustix::fs::statfs(dir.path()).unwrap();
    let found = traffic.request_loop();
    cases::unmount_patiently(dir.path());
    server.join().unwrap().unwrap();
    if found.kind == "ring" {
        assert!(found.queues > 0 && found.threads >= found.queues, "{found:?}");
    }
    Ok((found.kind, found.why))
}

#[test]
fn rings_are_used_where_the_kernel_offers_them() {
    let (on, off) = (chosen(true, Requests::Auto), chosen(false, Requests::Auto));
    let (kind, why) = off.unwrap();
    assert_eq!(kind, "device");
    let refused = chosen(false, Requests::Ring).unwrap_err();
    if rings::has_rings() {
        assert!(why.contains("switched off"), "{why}");
        assert!(refused.contains("switched off"), "{refused}");
        assert_eq!(on.unwrap(), ("ring", "the kernel offers it".into()));
        assert_eq!(chosen(true, Requests::Ring).unwrap().0, "ring");
    } else {
        assert!(why.contains("no FUSE over io_uring"), "{why}");
        assert!(refused.contains("no FUSE over io_uring"), "{refused}");
        assert_eq!(on.unwrap().0, "device");
    }
    assert_eq!(chosen(true, Requests::Device).unwrap().0, "device");
}
