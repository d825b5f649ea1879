//! Called by mount(8) and umount(8) under the names they look for (`mount.siftfs`,
//! `mount.fuse.siftfs`, `umount.siftfs`, `umount.fuse.siftfs`).

use std::ffi::OsString;
use std::path::Path;

/// The arguments as if `siftfs` had been called.
pub fn arguments(given: Vec<OsString>) -> Vec<OsString> {
    let name = given.first().and_then(|p| Path::new(p).file_name()?.to_str()).unwrap_or_default();
    let command = match name.split_once('.') {
        Some(("mount", _)) => "mount",
        Some(("umount", _)) => "umount",
        _ => return given,
    };
    let mut out: Vec<OsString> = vec!["siftfs".into(), command.into()];
    let mut rest = given.into_iter().skip(1);
    while let Some(arg) = rest.next() {
        match arg.to_str() {
            Some("-o") if command == "mount" => {
                out.push(arg);
                out.extend(rest.next());
            }
            Some("-l") if command == "umount" => out.push("--lazy".into()),
            // The type, the namespace: said already by the name we were called by.
            Some("-t" | "-N") => drop(rest.next()),
            // Sloppy, fake, no mtab, verbose, force, read-only fallback: nothing to do.
            Some("-s" | "-f" | "-n" | "-v" | "-r" | "-i") => {}
            _ => out.push(arg),
        }
    }
    out
}

#[cfg(test)]
#[path = "helper_tests.rs"]
mod tests;
