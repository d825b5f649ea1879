//! XFS and btrfs as further systems: each in an image on the same disk, on a loop device with
//! direct I/O, so that nothing is cached twice.

use siftfs_rig::place::{Failed, Place, Result, arg, failed, output, run};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes written at once while an image is made.
const PIECE: usize = 4 << 20;

/// A file system beside ext4.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The file system's name, for mount(8) and in the table.
    pub name: &'static str,
    mkfs: &'static [&'static str],
    version: &'static [&'static str],
}

/// All of them.
pub const PEERS: [Peer; 2] = [
    Peer { name: "xfs", mkfs: &["mkfs.xfs", "-q", "-f"], version: &["mkfs.xfs", "-V"] },
    Peer {
        name: "btrfs",
        mkfs: &["mkfs.btrfs", "-q", "-f"],
        version: &["mkfs.btrfs", "--version"],
    },
];

/// A file system on a loop device. Dropped, it is unmounted and the device is detached.
pub struct LoopMount {
    /// Where the file system is mounted.
    pub dir: PathBuf,
    device: String,
    kind: &'static str,
}

impl Peer {
    /// Makes and mounts it in an image of `bytes`; why not, in words, where its tools or the
    /// kernel's module are missing.
    pub fn mount(
        &self,
        place: &Place,
        bytes: u64,
    ) -> Result<std::result::Result<LoopMount, String>> {
        if let Err(Failed(why)) = self.tools() {
            return Ok(Err(why));
        }
        let image = place.path(&format!("{}.image", self.name));
        write_zeros(&image, bytes).map_err(failed(image.display()))?;
        let (program, options) = self.mkfs.split_first().ok_or_else(|| Failed("mkfs".into()))?;
        run(program, &[options, &[arg(&image)?]].concat())?;
        let mount = LoopMount::attach(&image, place.mount_point(self.name)?, self.name)?;
        Ok(match mount.mount() {
            Ok(()) => Ok(mount),
            Err(Failed(why)) => Err(why),
        })
    }

    /// The version of its tools.
    pub fn tools(&self) -> Result<String> {
        let (program, options) = self.version.split_first().ok_or_else(|| Failed("mkfs".into()))?;
        let out = output(program, options)?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        Ok(text.split_whitespace().last().unwrap_or("?").trim_start_matches('v').to_owned())
    }
}

/// Every block is there beforehand: a write into a hole of the image would be a transaction of the
/// file system below.
fn write_zeros(image: &Path, bytes: u64) -> std::io::Result<()> {
    let file = File::create_new(image)?;
    let zeros = vec![0; PIECE];
    for at in (0..bytes).step_by(PIECE) {
        file.write_all_at(&zeros, at)?;
    }
    file.sync_all()
}

impl LoopMount {
    /// The image on a loop device with direct I/O, not mounted yet.
    pub fn attach(image: &Path, dir: PathBuf, kind: &'static str) -> Result<Self> {
        let device = run("losetup", &["--find", "--show", "--direct-io=on", arg(image)?])?;
        Ok(Self { dir, device: device.trim().to_owned(), kind })
    }

    /// Mounts it.
    pub fn mount(&self) -> Result<()> {
        run("mount", &["-t", self.kind, &self.device, arg(&self.dir)?]).map(drop)
    }

    /// Unmounts and mounts.
    pub fn mount_again(&self) -> Result<()> {
        run("umount", &[arg(&self.dir)?])?;
        self.mount()
    }
}

impl Drop for LoopMount {
    fn drop(&mut self) {
        // Neither is there after a mount that failed.
        let _ = output("umount", &["-q", &self.dir.to_string_lossy()]);
        if let Err(Failed(e)) = run("losetup", &["--detach", &self.device]) {
            eprintln!("{e}");
        }
    }
}
