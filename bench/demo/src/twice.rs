//! One volume mounted at two places: what is done at one of them is seen at the other.

use siftfs_rig::place::{Failed, Place, Result, arg, failed, run};
use siftfs_rig::volume::Volume;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Instant;

const TURNS: usize = 500;

/// Two mounts take turns: one appends a line and makes it durable, the other one reads the end.
/// Then names change at one and are looked for at the other, and one goes while the other stays.
pub fn demonstrate(place: &Place) -> Result<()> {
    let volume = Volume::make(place, "twice", "256M")?;
    volume.mount_with(&["-o", "shared"])?;
    let second = place.mount_point("twice-too")?;
    volume.siftfs(&["mount", arg(&volume.image)?, arg(&second)?])?;
    let each = take_turns(&volume.dir, &second)?;
    rename_over(&volume.dir, &second)?;
    println!(
        "  {TURNS} appends with fsync on one mount, each read on the other at once: {each} us"
    );
    volume.siftfs(&["umount", arg(&second)?])?;
    let left = fs::read(volume.dir.join("log")).map_err(failed("log"))?;
    if left.len() != TURNS * line(0).len() {
        return Err(Failed(format!("{} bytes are left of the log", left.len())));
    }
    volume.unmount()?;
    volume.e2fsck()
}

fn line(number: usize) -> String {
    format!("{number:07} a line of a log\n")
}

/// Appends lines at one and the other, each of which is read where it was not written. Returns
/// the microseconds of a turn.
pub fn take_turns(one: &Path, other: &Path) -> Result<u128> {
    let said = failed("log");
    let append = |dir: &Path| File::options().create(true).append(true).open(dir.join("log"));
    let mut writers = [append(one).map_err(failed("log"))?, append(other).map_err(said)?];
    let start = Instant::now();
    for turn in 0..TURNS {
        let wanted = line(turn);
        let (writer, reader) = if turn % 2 == 0 { (0, other) } else { (1, one) };
        writers[writer].write_all(wanted.as_bytes()).map_err(failed("log"))?;
        writers[writer].sync_data().map_err(failed("log"))?;
        let text = fs::read_to_string(reader.join("log")).map_err(failed("log"))?;
        if !text.ends_with(&wanted) || text.len() != (turn + 1) * wanted.len() {
            return Err(Failed(format!("line {turn} is not seen on the other mount")));
        }
    }
    Ok(start.elapsed().as_micros() / TURNS as u128)
}

fn rename_over(one: &Path, other: &Path) -> Result<()> {
    let said = || failed("names");
    for number in 0..20 {
        let text = format!("version {number}");
        fs::write(one.join("new"), &text).map_err(said())?;
        fs::rename(one.join("new"), one.join("current")).map_err(said())?;
        let seen = fs::read_to_string(other.join("current")).map_err(said())?;
        if seen != text || other.join("new").exists() {
            return Err(Failed(format!("{seen:?} instead of {text:?} on the other mount")));
        }
    }
    run("ls", &["-l", arg(other)?]).map(drop)
}
