//! The judge that knows nothing of this project: `e2fsck`.

use siftfs_device::Image;
use std::path::Path;
use std::process::Command;

/// `e2fsck -fn` on a file; what it had to say unless it was content. Content means exit status
/// 0 and nothing printed but pass lines and the summary.
pub fn e2fsck(path: &Path) -> Result<(), String> {
    // A clock that is always later than any time in a test volume's superblock.
    let now = ("E2FSCK_TIME", "4000000000");
    let run =
        Command::new("e2fsck").arg("-fn").arg(path).env("LC_ALL", "C").env(now.0, now.1).output();
    let out = run.map_err(|e| format!("e2fsck does not run: {e}"))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let odd: Vec<&str> = text.lines().filter(|l| !is_usual(l)).collect();
    if out.status.success() && odd.is_empty() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&out.stderr).into_owned();
    Err(format!("e2fsck -fn: {}\n{text}{errors}", out.status))
}

fn is_usual(line: &str) -> bool {
    let summary = line.contains(" files (") && line.contains(" blocks");
    line.is_empty() || line.starts_with("Pass ") || summary
}

/// As [`e2fsck`], on an image in memory.
pub fn e2fsck_image(image: &Image) -> Result<(), String> {
    let dir = if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" };
    let file = tempfile::Builder::new()
        .prefix("siftfs-e2fsck-")
        .tempfile_in(dir)
        .map_err(|e| format!("a temporary file in {dir}: {e}"))?;
    image.save(file.path()).map_err(|e| format!("saving the image: {e}"))?;
    e2fsck(file.path())
}
