//! One volume that a process serves, mounted by two others: each is killed in the middle.

use crate::twice::take_turns;
use siftfs_rig::place::{Failed, Place, Result, arg, failed};
use siftfs_rig::volume::Volume;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Lines that are made durable before each death.
pub const LINES: usize = 200;

/// A server, and two mounts of its volume: what is done at one is seen at the other. The daemon of
/// one is killed, and the other goes on; then the server is killed: the other mount waits until it
/// has recovered, and everything is there, synced or not.
pub fn demonstrate(place: &Place) -> Result<()> {
    let volume = Volume::make(place, "served", "256M")?;
    let address = format!("unix:{}", place.path("served.sock").display());
    let server = volume.serve(&address, &place.path("served.log"), &[])?;
    let dirs = [place.mount_point("served-one")?, place.mount_point("served-two")?];
    for dir in &dirs {
        volume.siftfs(&["mount", &address, arg(dir)?])?;
    }
    let [one, two] = &dirs;
    let each = take_turns(one, two)?;
    println!("  appends with fsync on one mount, each read on the other at once: {each} us");

    append(&one.join("first"))?;
    let lock = File::options().write(true).open(one.join("first")).map_err(failed("first"))?;
    lock.lock().map_err(failed("first"))?;
    volume.kill_daemon_of(one)?;
    drop(lock);
    let theirs = File::options().write(true).open(two.join("first")).map_err(failed("first"))?;
    theirs.lock().map_err(failed("first"))?;
    drop(theirs);
    holds(&two.join("first"))?;
    append(&two.join("second"))?;
    println!(
        "  killed one mount's daemon with SIGKILL: its lock is free, and the other mount went on"
    );

    // What nobody has synced is the server's and the mount's memory.
    fs::write(two.join("third"), "written before the server died").map_err(failed("third"))?;
    server.kill()?;
    let waits = {
        let second = two.join("second");
        std::thread::spawn(move || holds(&second))
    };
    let server = volume.serve(&address, &place.path("served.log"), &[])?;
    waits.join().map_err(|_| Failed("a program that waits for the server failed".into()))??;
    holds(&two.join("first"))?;
    let third = fs::read(two.join("third")).map_err(failed("third"))?;
    if third != b"written before the server died" {
        return Err(Failed("what was written before the server died is not there".into()));
    }
    println!(
        "  killed the server with SIGKILL and started it again: the mount has waited, {} lines \
         and what was not synced are there",
        2 * LINES
    );
    volume.siftfs(&["umount", arg(two)?])?;
    server.end()?;
    volume.e2fsck()
}

fn line(number: usize) -> String {
    format!("{number:07} durable\n")
}

/// Appends lines, each of which is durable before the next.
pub fn append(path: &PathBuf) -> Result<()> {
    let said = || failed(path.display());
    let mut file = File::create(path).map_err(said())?;
    for number in 0..LINES {
        file.write_all(line(number).as_bytes()).map_err(said())?;
        file.sync_data().map_err(said())?;
    }
    Ok(())
}

/// Are all of them there?
pub fn holds(path: &Path) -> Result<()> {
    let text = fs::read_to_string(path).map_err(failed(path.display()))?;
    let whole: String = (0..LINES).map(line).collect();
    match text == whole {
        true => Ok(()),
        false => Err(Failed(format!("{} has lost what was durable", path.display()))),
    }
}
