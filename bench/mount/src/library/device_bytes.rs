//! Bytes at the disk for each byte that a program made durable: a count and no time. The volumes,
//! their private logs and ext4 lie on a loop device of their own, which nothing else writes to.

use crate::area::{Bound, Measured, WorkArea};
use crate::counts::{Counts, Disk};
use crate::peers::LoopMount;
use crate::programs::Program;
use crate::system::{Mounted, Named, disk_of};
use siftfs_rig::place::{Place, Result, arg, failed, run};
use siftfs_rig::volume::Volume;
use std::fs::File;
use std::io;

/// Name of the directory where the loop device is mounted.
const BED: &str = "bed";
/// Bytes of the image, of which only what is written has blocks on the disk.
const IMAGE_BYTES: u64 = 8 << 30;
/// Size of each volume in it.
const VOLUME_SIZE: &str = "1G";
/// Operations of a program: a number and no time, so that the count is the same on a machine that
/// does something else. A log of private logs is filled many times over.
const SUSTAINED: u64 = 20_000;

/// The systems on a loop device of their own.
pub struct Bed {
    /// ext4 there, and each configuration of SiftFS with its volume there.
    pub named: Vec<Named>,
    /// The loop device.
    pub disk: Disk,
    /// Unmounted after the systems.
    _mount: LoopMount,
}

impl Bed {
    /// Makes ext4's directory, called `ext4`, and a volume for each name and options.
    pub fn make<'a>(
        place: &Place,
        ext4: &str,
        configs: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self> {
        let image = place.path("bed.image");
        let file = File::create_new(&image).map_err(failed(image.display()))?;
        file.set_len(IMAGE_BYTES).map_err(failed(image.display()))?;
        let whole = "lazy_itable_init=0,lazy_journal_init=0";
        run("mke2fs", &["-q", "-F", "-t", "ext4", "-E", whole, arg(&image)?])?;
        let mount = LoopMount::attach(&image, place.mount_point(BED)?, "ext4")?;
        mount.mount()?;
        let disk = disk_of(&mount.dir)?;
        let named = |name: &str, system| Named {
            name: name.to_owned(),
            every: 1,
            system: Box::new(system),
        };
        let mut all = vec![named(ext4, Mounted::directory(mount.dir.join("ext4"))?)];
        for (n, (name, options)) in configs.enumerate() {
            let volume = Volume::make(place, &format!("{BED}/mount-{n}"), VOLUME_SIZE)?;
            all.push(named(name, Mounted::fuse(volume, options)?));
        }
        Ok(Self { named: all, disk, _mount: mount })
    }
}

/// The program works, and then all that it left to the background is done. `durable` is what one
/// operation makes durable, in bytes: a record of the log, or the payload of SQLite's row.
pub fn measure(program: Program, durable: u64, area: &WorkArea) -> io::Result<Measured> {
    area.rest()?;
    let written = || area.probe.disk.read().ok_or_else(|| missing("the disk has no counters"));
    let before = written()?;
    let measured = program.work(area, Bound::Operations(SUSTAINED))?;
    area.rest()?;
    let disk = written()?.since(&before);
    let rate = for_a_byte(disk.write_bytes, measured.operations * durable);
    let rate = rate.ok_or_else(|| missing("nothing was made durable"))?;
    let counts = Counts { disk: Some(disk), ..measured.counts };
    Ok(Measured { rate, counts, ..measured })
}

fn missing(what: &str) -> io::Error {
    io::Error::other(what)
}

fn for_a_byte(written: u64, durable: u64) -> Option<f64> {
    (durable > 0).then(|| written as f64 / durable as f64)
}

#[cfg(test)]
#[path = "device_bytes_tests.rs"]
mod tests;
