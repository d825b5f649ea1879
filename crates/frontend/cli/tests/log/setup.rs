//! A volume, its log, and a place of its own for what the command remembers.

use crate::support::{Process, Ran, SIFTFS, patient, run};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A temporary directory with names for a volume, its log and a mount.
pub struct Apart {
    tmp: tempfile::TempDir,
}

impl Apart {
    /// Nothing but the directory to mount on.
    pub fn empty() -> Self {
        let tmp = tempfile::tempdir().unwrap();
        fs::create_dir(tmp.path().join("m")).unwrap();
        Self { tmp }
    }

    /// A fresh volume of 32 MiB with a log of 8 MiB.
    pub fn new() -> Self {
        let s = Self::empty();
        s.siftfs(&["mkfs", &s.volume(), "--size", "32M", "--log", &s.log(), "--log-size", "8M"])
            .ok();
        s
    }

    pub fn text(&self, name: &str) -> String {
        self.tmp.path().join(name).into_os_string().into_string().unwrap()
    }

    pub fn volume(&self) -> String {
        self.text("volume")
    }

    /// The log's path; not the name that is searched for beside the volume.
    pub fn log(&self) -> String {
        self.text("fast")
    }

    pub fn dir(&self) -> String {
        self.text("m")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.tmp.path().join("m").join(name)
    }

    pub fn siftfs(&self, args: &[&str]) -> Ran {
        let mut command = Command::new(SIFTFS);
        command.args(args).env("SIFTFS_STATE_DIR", self.tmp.path().join("state"));
        command.output().unwrap().into()
    }

    /// What the command remembers is gone.
    pub fn forget(&self) {
        fs::remove_dir_all(self.tmp.path().join("state")).unwrap();
    }

    pub fn mount(&self) {
        self.siftfs(&["mount", &self.volume(), &self.dir()]).ok();
    }

    #[track_caller]
    pub fn umount(&self) {
        patient(|| self.siftfs(&["umount", &self.dir()])).ok();
    }

    pub fn status(&self) -> serde_json::Value {
        let status = self.siftfs(&["status", &self.dir(), "--json"]).ok();
        serde_json::from_str(&status.out).unwrap()
    }

    /// The daemon dies; the dead mount is taken away.
    pub fn kill(&self) {
        let pid = i32::try_from(self.status()["pid"].as_i64().unwrap()).unwrap();
        let pid = Pid::from_raw(pid).unwrap();
        let daemon = Process { pid, fd: pidfd_open(pid, PidfdFlags::empty()).unwrap() };
        daemon.signal(Signal::KILL);
        daemon.wait();
        self.siftfs(&["umount", &self.dir()]).fails(1, &["not plain ext4 yet"]);
    }

    /// Mounts, makes a durable file of this name, and kills the daemon.
    pub fn crash_with(&self, name: &str) {
        self.mount();
        fs::write(self.path(name), name).unwrap();
        fs::File::open(self.path(name)).unwrap().sync_all().unwrap();
        self.kill();
    }

    /// The volume is plain ext4, and no checker complains.
    #[track_caller]
    pub fn assert_plain_ext4(&self) {
        clean(&self.volume());
        self.siftfs(&["fsck", &self.volume()]).ok();
    }

    /// The kernel's ext4 mounts the volume; `work` checks it.
    pub fn kernel(&self, options: &str, work: impl FnOnce(&Path)) {
        let dir = self.dir();
        let options = format!("loop,{options}");
        run("mount", &["-t", "ext4", "-o", &options, &self.volume(), &dir]).ok();
        work(Path::new(&dir));
        umount(&dir);
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        while siftfs_fuse::detach(Path::new(&self.dir())).is_ok() {}
    }
}

/// Unmounts what the kernel has mounted.
#[track_caller]
pub fn umount(dir: &str) {
    patient(|| run("umount", &[dir])).ok();
}

/// `e2fsck -fn` finds nothing.
#[track_caller]
pub fn clean(volume: &str) {
    let e2fsck = run("e2fsck", &["-fn", volume]);
    assert_eq!(e2fsck.code, 0, "{e2fsck:?}");
}

/// A loop device over a file, detached at the end.
pub struct Loop(pub String);

impl Loop {
    pub fn over(file: &str) -> Self {
        let made = run("losetup", &["--find", "--show", file]).ok();
        Self(made.out.trim().to_string())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["-d", &self.0]);
    }
}
