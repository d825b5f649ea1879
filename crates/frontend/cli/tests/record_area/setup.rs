//! A volume with a record area in memory, and a place of its own for what the command remembers.

use crate::support::{Process, Ran, SIFTFS, patient, run};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Setup {
    pub tmp: tempfile::TempDir,
    /// Memory: what lies there goes with the test.
    shm: tempfile::TempDir,
}

impl Setup {
    pub fn empty() -> Self {
        let tmp = tempfile::tempdir().unwrap();
        let shm = tempfile::Builder::new().prefix("siftfs-area").tempdir_in("/dev/shm").unwrap();
        fs::create_dir(tmp.path().join("m")).unwrap();
        Self { tmp, shm }
    }

    /// A fresh volume of 64 MiB with a record area of this size.
    pub fn new(size: &str) -> Self {
        let s = Self::empty();
        s.mkfs(&["--record-area-size", size]).ok();
        s
    }

    pub fn mkfs(&self, more: &[&str]) -> Ran {
        let mkfs = ["mkfs", &self.volume(), "--size", "64M", "--record-area", &self.place()];
        self.siftfs(&[&mkfs[..], more].concat())
    }

    pub fn text(&self, name: &str) -> String {
        self.tmp.path().join(name).into_os_string().into_string().unwrap()
    }

    /// A path in memory.
    pub fn memory(&self, name: &str) -> String {
        self.shm.path().join(name).into_os_string().into_string().unwrap()
    }

    pub fn volume(&self) -> String {
        self.text("volume")
    }

    pub fn area(&self) -> String {
        self.memory("area")
    }

    pub fn place(&self) -> String {
        format!("volatile:{}", self.area())
    }

    pub fn dir(&self) -> String {
        self.text("m")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.tmp.path().join("m").join(name)
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(SIFTFS);
        command.env("SIFTFS_STATE_DIR", self.tmp.path().join("state"));
        command
    }

    pub fn siftfs(&self, args: &[&str]) -> Ran {
        self.command().args(args).output().unwrap().into()
    }

    pub fn mount(&self, more: &[&str]) -> Ran {
        self.siftfs(&[&["mount", &self.volume(), &self.dir()][..], more].concat())
    }

    #[track_caller]
    pub fn umount(&self) {
        patient(|| self.siftfs(&["umount", &self.dir()])).ok();
    }

    pub fn status(&self) -> Value {
        let status = self.siftfs(&["status", &self.dir(), "--json"]).ok();
        serde_json::from_str(&status.out).unwrap()
    }

    pub fn dispatch(&self) -> Value {
        self.status()["runtime"]["runtime"]["dispatch"].clone()
    }

    /// Small files, each made durable by an fsync that succeeds.
    pub fn load(&self, name: &str, files: usize) {
        for i in 0..files {
            let mut file = fs::File::create(self.path(&format!("{name}{i}"))).unwrap();
            file.write_all(format!("{name}{i}").as_bytes()).unwrap();
            file.sync_all().unwrap();
        }
    }

    #[track_caller]
    pub fn holds(&self, name: &str, files: usize) {
        for i in 0..files {
            let wanted = format!("{name}{i}");
            assert_eq!(fs::read_to_string(self.path(&wanted)).unwrap(), wanted);
        }
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

    /// Mounts, loads, and kills the daemon.
    pub fn crash_with(&self, name: &str, files: usize) {
        self.mount(&[]).ok();
        self.load(name, files);
        self.kill();
    }

    #[track_caller]
    pub fn assert_plain_ext4(&self) {
        let e2fsck = run("e2fsck", &["-fn", &self.volume()]);
        assert_eq!(e2fsck.code, 0, "{e2fsck:?}");
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        while siftfs_fuse::detach(Path::new(&self.dir())).is_ok() {}
    }
}
