//! The systems as other programs see them: a directory of the disk's own file system, and volumes
//! mounted through FUSE.

use crate::side::Side;
use siftfs_rig::place::{Place, Result, arg, failed};
use siftfs_rig::volume::Volume;
use siftfs_status::Dispatch;
use std::fs;
use std::path::{Path, PathBuf};

/// Size of each volume.
const VOLUME: &str = "3G";
/// Bytes of an ext4 of its own, where the disk has another file system.
const DISK: u64 = 2 << 30;
/// Size of a record area: the paper's.
const AREA: &str = "64M";

/// Where all of it is.
pub struct Site<'a> {
    /// On the disk.
    pub place: &'a Place,
    /// In memory, for record areas.
    pub memory: &'a Path,
    /// More options of the mounts with a record area, with commas between.
    pub options: &'a str,
}

/// A directory of its own on a file system.
pub struct Mounted {
    /// Which system.
    pub side: Side,
    /// The directory, empty at first.
    pub dir: PathBuf,
    volume: Option<Volume>,
    area: Option<PathBuf>,
}

impl Mounted {
    /// Makes it.
    pub fn new(side: Side, site: &Site<'_>) -> Result<Self> {
        let Site { place, memory, options } = site;
        let own = |dir: PathBuf| fs::create_dir(&dir).map_err(failed(dir.display())).map(|()| dir);
        if side == Side::Disk {
            let dir = own(siftfs_rig::ext4::directory(place, DISK)?.0)?;
            return Ok(Self { side, dir, volume: None, area: None });
        }
        let name = side.word();
        let area = side.has_area().then(|| memory.join(format!("siftfs-{name}.area")));
        let at = area.as_ref().map(|area| format!("volatile:{}", area.display()));
        let more = match &at {
            Some(at) => vec!["--record-area", at, "--record-area-size", AREA],
            None => Vec::new(),
        };
        let program = std::env::current_exe().map_err(failed("own path"))?.with_file_name("siftfs");
        let (image, dir) = (place.path(&format!("{name}.sift")), place.mount_point(name)?);
        let volume = Volume { program, image, dir };
        volume.siftfs(&[&["mkfs", arg(&volume.image)?, "--size", VOLUME], &more[..]].concat())?;
        let slow = format!("record_read_back={},{options}", side.read_back().as_nanos());
        let options = ["-o", &slow];
        volume.mount_with(if side.has_area() { &options } else { &[] })?;
        let dir = own(volume.dir.join("work"))?;
        Ok(Self { side, dir, volume: Some(volume), area })
    }

    /// Everything is durable and in its place, so that the next measurement does not pay for the
    /// one before.
    pub fn settle(&self) -> Result<()> {
        let dir = fs::File::open(&self.dir).map_err(failed(self.dir.display()))?;
        rustix::fs::syncfs(&dir).map_err(|e| failed(self.dir.display())(e.into()))?;
        match &self.volume {
            Some(volume) => volume.siftfs(&["checkpoint", arg(&volume.dir)?]).map(drop),
            None => Ok(()),
        }
    }

    /// What the dispatcher has done so far, where there is one.
    pub fn dispatch(&self) -> Result<Option<Dispatch>> {
        let Some(volume) = self.volume.as_ref().filter(|_| self.area.is_some()) else {
            return Ok(None);
        };
        Ok(Some(volume.status()?.runtime.runtime.dispatch))
    }

    /// Unmounts it.
    pub fn close(mut self) -> Result<()> {
        match self.volume.take() {
            Some(volume) => volume.siftfs(&["umount", arg(&volume.dir)?]).map(drop),
            None => Ok(()),
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // What is in memory goes with the volume; `Place` takes the rest away.
        let _ = self.area.as_ref().map(fs::remove_file);
    }
}
