//! The ext4 that SiftFS is compared with: the disk's own, or one on a loop device.

use crate::place::{Failed, Place, Result, arg, failed, run};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a loop device may stay after its unmount: a mount namespace made meanwhile, as tests
/// make them, has it mounted, too, while it lives.
const DETACHED: Duration = Duration::from_secs(60);

/// A directory on the kernel's ext4, not yet made, and in words which ext4 that is: the place's own
/// where that is ext4, else an image of `bytes`, allocated beforehand, on a loop device.
pub fn directory(place: &Place, bytes: u64) -> Result<(PathBuf, &'static str)> {
    let here = place.path("ext4");
    let parent = here.parent().unwrap_or(&here);
    // statfs cannot tell ext2, ext3 and ext4 apart; the mount table can.
    if run("findmnt", &["-n", "-o", "FSTYPE", "-T", arg(parent)?])?.trim() == "ext4" {
        return Ok((here, "ext4 (this disk's own)"));
    }
    let image = place.path("ext4.image");
    allocate(&image, bytes)?;
    run("mke2fs", &["-q", "-F", "-t", "ext4", "-E", "lazy_itable_init=0", arg(&image)?])?;
    let dir = place.mount_point("ext4-loop")?;
    run("mount", &["-o", "loop", arg(&image)?, arg(&dir)?])?;
    Ok((dir.join("ext4"), "ext4 (loop image)"))
}

fn allocate(image: &Path, bytes: u64) -> Result<()> {
    let file = File::create(image).map_err(failed(image.display()))?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)
        .map_err(|e| Failed(format!("{}: {e}", image.display())))
}

/// Runs `work` on `image`, mounted at `dir` by the kernel's ext4 with these options (such as
/// `loop,ro`). No loop device has the image when this returns: a program that happens to read the
/// loop device, as every program that searches all of them does, keeps it for that moment.
pub fn under_the_kernel<T>(
    image: &Path,
    dir: &Path,
    options: &str,
    work: impl FnOnce(&Path) -> Result<T>,
) -> Result<T> {
    run("mount", &["-t", "ext4", "-o", options, arg(image)?, arg(dir)?])?;
    let result = work(dir);
    let unmounted = run("umount", &[arg(dir)?]);
    let value = result?;
    unmounted?;
    let start = Instant::now();
    while !run("losetup", &["--noheadings", "--associated", arg(image)?])?.trim().is_empty() {
        if start.elapsed() > DETACHED {
            return Err(Failed(format!("{}: its loop device stays", image.display())));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(value)
}
