//! The target of a volume: the one process that opens its storage. Programs work on a mount that
//! reaches the volume through it, and at the target by themselves.

use siftfs_rig::device::Device;
use siftfs_rig::place::{Failed, Result, arg};
use siftfs_rig::volume::Volume;
use std::path::{Path, PathBuf};

/// Options of a mount whose programs may have direct leases. They exclude the writeback cache.
const DIRECT: &str = "write_cache=writethrough,private_logs=daemon";

/// A target that runs.
pub struct Target {
    device: Device,
    /// The volume there, as a mount names it.
    place: String,
    /// What its process says.
    log: PathBuf,
}

impl Target {
    /// Starts it, with a door for programs.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(volume: &Volume, scratch: &Path) -> Result<Self> {
        let socket = |name: &str| format!("unix:{}", scratch.join(name).display());
        let (address, programs, log) =
            (socket("target"), socket("programs"), scratch.join("target.log"));
        let device = volume.device(&address, &log, &["--programs", &programs])?;
        let name = volume.image.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| Failed("a volume without a name".into()))?;
        Ok(Self { device, place: format!("target:{address}/{name}"), log })
    }

    /// Mounts what it has where the volume says.
    ///
    /// # Errors
    /// What `siftfs mount` says.
    pub fn mount(&self, volume: &Volume) -> Result<()> {
        volume.siftfs(&["mount", &self.place, arg(&volume.dir)?, "-o", DIRECT]).map(drop)
    }

    /// SIGTERM, after which it must end well: the volume is plain ext4 then. Its log tells of no
    /// panic.
    ///
    /// # Errors
    /// It does not end, or its log does.
    pub fn end(self) -> Result<()> {
        self.device.end()?;
        let said = std::fs::read_to_string(&self.log).unwrap_or_default();
        match said.lines().find(|line| line.contains("panicked")) {
            None => Ok(()),
            Some(line) => Err(Failed(format!("the target: {line}"))),
        }
    }
}
