//! A volume whose storage one process has, and whose host reaches it through that one alone: each
//! is killed in the middle.

use crate::served::{LINES, append, holds};
use siftfs_rig::place::{Failed, Place, Result, arg};
use siftfs_rig::volume::Volume;
use std::thread;
use std::time::Duration;

/// A target and its host. The target is killed while a program appends: its fsyncs wait, and go on
/// with the target that is started next. Then the host is killed, and another one recovers the
/// volume through the target. Every line that was synced is there.
pub fn demonstrate(place: &Place) -> Result<()> {
    let volume = Volume::make(place, "target", "256M")?;
    let (address, log) = (format!("unix:{}", place.path("target.sock").display()), "target.log");
    let target = volume.device(&address, &place.path(log), &[])?;
    let name = volume.image.file_name().unwrap_or_default().to_string_lossy();
    let at = format!("target:{address}/{name}");
    volume.siftfs(&["mount", &at, arg(&volume.dir)?])?;
    let (first, second) = (volume.dir.join("first"), volume.dir.join("second"));
    let appending = thread::spawn({
        let first = first.clone();
        move || append(&first)
    });
    thread::sleep(Duration::from_millis(20));
    target.kill()?;
    thread::sleep(Duration::from_millis(300));
    let target = volume.device(&address, &place.path(log), &[])?;
    appending.join().map_err(|_| Failed("a program that waits for the target failed".into()))??;
    holds(&first)?;
    println!(
        "  killed the target with SIGKILL and started it again: fsyncs waited for it, and {LINES} \
         lines are there"
    );
    append(&second)?;
    volume.kill_daemon()?;
    volume.siftfs(&["mount", &at, arg(&volume.dir)?])?;
    holds(&first)?;
    holds(&second)?;
    println!(
        "  killed the host with SIGKILL: another one has recovered all lines through the target"
    );
    volume.siftfs(&["umount", arg(&volume.dir)?])?;
    target.end()?;
    volume.e2fsck()
}
