//! Several mounts of one volume in one daemon: how they come and go, what each has of its own, and
//! what is refused. Needs root, `/dev/fuse` and e2fsprogs.

#[allow(dead_code)] // each test program uses a part of it
mod support;

#[path = "several/alone.rs"]
mod alone;
#[path = "several/attach.rs"]
mod attach;
#[path = "several/own.rs"]
mod own;
#[path = "manners/place.rs"]
#[allow(dead_code)]
mod place;
#[path = "several/refused.rs"]
mod refused;
#[path = "several/shown.rs"]
mod shown;
#[path = "several/subdir.rs"]
mod subdir;
#[path = "several/timing.rs"]
mod timing;

use crate::support::{Ran, Setup, siftfs};
use std::path::{Path, PathBuf};

/// Whatever SIFTFS_TEST_OPTIONS says: the writeback cache excludes a second mount.
pub const THROUGH: &str = "write_cache=writethrough";

/// A second directory to mount on. What is mounted there goes with it.
pub struct Beside(PathBuf);

impl Beside {
    /// Beside the usual one.
    pub fn of(s: &Setup, name: &str) -> Self {
        let path = s.tmp.path().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Its path.
    pub fn dir(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Mounts the volume here too.
    pub fn attach(&self, s: &Setup, options: &str) -> Ran {
        siftfs(&["mount", s.volume(), self.dir(), "-o", &format!("{THROUGH},{options}")])
    }

    /// Unmounts it, with one more try while a test's child has it open.
    #[track_caller]
    pub fn umount(&self) -> Ran {
        crate::support::patient(|| siftfs(&["umount", self.dir()])).ok()
    }

    /// Is something mounted here?
    pub fn is_mounted(&self) -> bool {
        siftfs_fuse::top_mount(&self.0).unwrap().is_some()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        while siftfs_fuse::detach(&self.0).is_ok() {}
    }
}

/// A volume that is mounted so that others may be attached.
pub fn shared() -> Setup {
    let s = Setup::new();
    s.mount(&format!("{THROUGH},shared"));
    s
}

/// The volume's status, asked through `dir`.
#[track_caller]
pub fn status(dir: &str) -> serde_json::Value {
    serde_json::from_str(&siftfs(&["status", dir, "--json"]).ok().out).unwrap()
}

/// Where the daemon says that the volume is mounted.
#[track_caller]
pub fn places(dir: &str) -> Vec<String> {
    let status = status(dir);
    let all = status["mounts"].as_array().unwrap();
    all.iter().map(|m| m["dir"].as_str().unwrap().to_string()).collect()
}

/// The names in a directory.
#[track_caller]
pub fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Makes a device `fuse` in `dir` that every user may open, as it is on most machines.
pub fn fuse_for_all(dir: &Path) {
    use rustix::fs::{CWD, FileType, Mode, chmod, makedev, mknodat};
    let (path, mode) = (dir.join("fuse"), Mode::from_raw_mode(0o666));
    mknodat(CWD, &path, FileType::CharacterDevice, mode, makedev(10, 229)).unwrap();
    chmod(&path, mode).unwrap();
}
