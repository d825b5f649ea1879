//! Volumes in files on a small file system that has less room than they may come to need.

use crate::support::{Setup, run, siftfs};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// An ext4 of its own in a file, mounted by the kernel; taken away at the end.
pub struct SmallDisk {
    image: tempfile::NamedTempFile,
    dir: tempfile::TempDir,
}

impl SmallDisk {
    /// Of this size, such as `96M`.
    pub fn new(size: &str) -> Self {
        let (image, dir) = (tempfile::NamedTempFile::new().unwrap(), tempfile::tempdir().unwrap());
        let disk = Self { image, dir };
        let path = disk.image.path().to_str().unwrap();
        run("mke2fs", &["-q", "-F", "-t", "ext4", "-m", "0", "-O", "^has_journal", path, size])
            .ok();
        run("mount", &["-o", "loop", path, disk.dir.path().to_str().unwrap()]).ok();
        disk
    }

    /// No volume yet, and a directory to mount one on.
    pub fn setup(&self) -> Setup {
        let tmp = tempfile::tempdir_in(self.dir.path()).unwrap();
        fs::create_dir(tmp.path().join("m")).unwrap();
        Setup { tmp }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        run("umount", &["-l", self.dir.path().to_str().unwrap()]);
    }
}

/// Bytes of the blocks that a file has.
fn taken(path: &str) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

/// A file that may outgrow what it lies on is made, with a warning; one that shall have all of its
/// blocks is not made at all, or has them.
#[test]
fn a_volume_that_is_larger_than_what_it_lies_on() {
    let disk = SmallDisk::new("96M");
    let s = disk.setup();
    let sparse = siftfs(&["mkfs", s.volume(), "--size", "512M", "--log-size", "16M"]).ok();
    assert!(sparse.err.contains("--reserve") && sparse.err.contains("free"), "{sparse:?}");
    assert!(taken(s.volume()) < 40 << 20, "a file is sparse");
    let asked = ["mkfs", s.volume(), "--size", "512M", "--reserve", "--force"];
    siftfs(&asked).fails(1, &["cannot reserve 536870912 bytes", "No space left"]);
    fs::remove_file(s.volume()).unwrap();
    siftfs(&["mkfs", s.volume(), "--size", "512M", "--reserve"]).fails(1, &["cannot reserve"]);
    assert!(!fs::exists(s.volume()).unwrap(), "an unfinished file stays");

    let made = siftfs(&["mkfs", s.volume(), "--size", "48M", "--reserve"]).ok();
    assert!(made.out.contains("its blocks are reserved") && made.err.is_empty(), "{made:?}");
    assert!(taken(s.volume()) >= 48 << 20, "{} bytes taken", taken(s.volume()));
    // A sparse file that is there gets its blocks as well.
    siftfs(&["mkfs", s.volume(), "--size", "40M", "--force"]).ok();
    assert!(taken(s.volume()) < 36 << 20, "{} bytes taken", taken(s.volume()));
    let seen = siftfs(&["inspect", s.volume(), "--json"]).ok();
    assert!(seen.out.contains("\"reserved\": false"), "{seen:?}");
    siftfs(&["mkfs", s.volume(), "--force", "--reserve"]).ok();
    assert!(taken(s.volume()) >= 40 << 20, "{} bytes taken", taken(s.volume()));
    let seen = siftfs(&["inspect", s.volume(), "--json"]).ok();
    assert!(seen.out.contains("\"reserved\": true"), "{seen:?}");
    s.mount("");
    fs::write(s.path("f"), b"works").unwrap();
    s.umount();
    s.assert_plain_ext4();
}
