//! The kernel's connection of a mount, ended by force.

use crate::mount::mountinfo::MountEntry;
use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::io;
use std::os::fd::OwnedFd;

/// Ends the kernel's connection of `mount`: each call that waits for its daemon fails, and so does
/// each that comes later, whatever the daemon does. Neither the mount nor the daemon is asked.
///
/// # Errors
/// The caller may not do so, or the kernel has no such connection any more.
pub fn abort(mount: &MountEntry) -> io::Result<()> {
    let control = control()?;
    let (path, flags) = (format!("{}/abort", mount.minor), OFlags::WRONLY | OFlags::CLOEXEC);
    let abort = openat(&control, path.as_str(), flags, Mode::empty())?;
    rustix::io::write(&abort, b"1")?;
    Ok(())
}

/// All connections of the kernel, on a mount of our own: the usual one may be missing.
fn control() -> io::Result<OwnedFd> {
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}
