//! A volume whose storage one process has, and whose host reaches it through that one alone: each
//! is killed in the middle. Then a program goes to the storage by itself, too.

use crate::served::{LINES, append, holds};
use siftfs::{Direct, DirectFile};
use siftfs_rig::device::Device;
use siftfs_rig::place::{Failed, Place, Result, arg};
use siftfs_rig::volume::Volume;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Blocks of the program's file.
const BLOCKS: u64 = 256;
/// How long until they are granted.
const GRANTED: Duration = Duration::from_secs(30);

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
    let target = by_itself(place, &volume, &at, target)?;
    target.end()?;
    volume.e2fsck()
}

/// A program writes its file's blocks at the target, without the host; the target is killed, and
/// what the program made durable is there, as others read it by the host.
fn by_itself(place: &Place, volume: &Volume, at: &str, target: Device) -> Result<Device> {
    let (listen, log) = (format!("unix:{}", place.path("host.sock").display()), "host.log");
    let host = Device::serve(&volume.program, Path::new(at), &listen, &place.path(log), &[])?;
    let session = Direct::connect(host.address(), "").map_err(said)?;
    let file = session.create("/direct", 0o600).map_err(said)?;
    file.write_at(0, &vec![0; (BLOCKS << 12) as usize]).map_err(said)?;
    file.sync_all().map_err(said)?;
    until_granted(&file)?;
    for block in 0..BLOCKS {
        file.write_durable_at(block << 12, &[(block % 251) as u8 + 1; 4096]).map_err(said)?;
    }
    let address = target.address().to_owned();
    target.kill()?;
    let target = volume.device(&address, &place.path("target.log"), &[])?;
    let other = siftfs::Volume::connect(host.address()).map_err(said)?;
    let found = other.open_file("/direct").map_err(said)?;
    for block in 0..BLOCKS {
        if found.read_at(block << 12, 4096).map_err(said)? != [(block % 251) as u8 + 1; 4096] {
            return Err(Failed(format!("block {block} has lost what was durable")));
        }
    }
    println!(
        "  a program wrote {BLOCKS} blocks at the target without the host; killed the target with \
         SIGKILL: they are there"
    );
    drop((file, session, found));
    other.close().map_err(said)?;
    host.end()?;
    Ok(target)
}

fn until_granted(file: &DirectFile) -> Result<()> {
    let begun = Instant::now();
    while !file.is_direct() {
        if begun.elapsed() > GRANTED {
            return Err(Failed("the host grants nothing of the file".into()));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn said(error: siftfs::Error) -> Failed {
    Failed(error.to_string())
}
