//! Mounts of a volume that another process serves. Needs root, `/dev/fuse` and e2fsprogs.

#[allow(dead_code)] // each test program uses a part of it
mod support;

#[path = "remote_mount/away.rs"]
mod away;
#[path = "remote_mount/checked.rs"]
mod checked;
#[path = "remote_mount/checked_returns.rs"]
mod checked_returns;
#[path = "remote_mount/deaths.rs"]
mod deaths;
#[path = "remote_mount/elsewhere.rs"]
mod elsewhere;
#[path = "remote_mount/gone.rs"]
mod gone;
#[path = "remote_mount/healthy.rs"]
mod healthy;
#[path = "remote_mount/network.rs"]
mod network;
#[path = "remote_mount/placement.rs"]
mod placement;
#[path = "remote_mount/programs.rs"]
mod programs;
#[path = "remote_mount/refused.rs"]
mod refused;
#[path = "remote_mount/returns.rs"]
mod returns;
#[path = "remote_mount/shell.rs"]
mod shell;
#[path = "remote_mount/together.rs"]
mod together;
#[path = "remote_mount/woken.rs"]
mod woken;

use crate::support::serving::Server;
use crate::support::{Ran, SIFTFS, Setup, patient};
use rustix::process::{Pid, Signal};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::Duration;

/// A volume, its server, and directories to mount it on.
pub struct Served {
    /// The volume.
    pub setup: Setup,
    /// Its server, while there is one.
    pub server: Option<Server>,
}

/// One mount of it. It is detached when dropped.
pub struct Mount(PathBuf);

/// `siftfs`, whatever the environment says of mounts.
pub fn siftfs(args: &[&str]) -> Ran {
    Command::new(SIFTFS).args(args).output().unwrap().into()
}

impl Served {
    /// A new volume of 64 MiB, and its server.
    pub fn start() -> Self {
        Self::of_size("64M")
    }

    /// A new volume, and its server.
    pub fn of_size(size: &str) -> Self {
        let setup = Setup::empty();
        siftfs(&["mkfs", setup.volume(), "--size", size]).ok();
        let server = Some(Server::start(setup.volume()));
        Self { setup, server }
    }

    /// Where the server listens.
    pub fn address(&self) -> &str {
        &self.server.as_ref().expect("a server").address
    }

    /// Mounts it on a new directory.
    #[track_caller]
    pub fn mount(&self, name: &str, options: &str) -> Mount {
        let mount = Mount(self.setup.tmp.path().join(name));
        std::fs::create_dir_all(&mount.0).unwrap();
        let log = self.setup.tmp.path().join(format!("{name}.log"));
        let log = log.to_str().unwrap();
        siftfs(&["mount", self.address(), mount.dir(), "-o", options, "--log-file", log]).ok();
        mount
    }

    /// Kills the server, and starts another one in its place after `pause`, by a thread of its own.
    pub fn restart_after(&mut self, signal: Signal, pause: Duration) -> JoinHandle<Server> {
        self.server.take().expect("a server").end(signal);
        let volume = self.setup.volume().to_string();
        std::thread::spawn(move || {
            std::thread::sleep(pause);
            Server::start(&volume)
        })
    }

    /// Ends the server in order: the volume is plain ext4 then.
    #[track_caller]
    pub fn end(mut self) {
        assert!(self.server.take().expect("a server").end(Signal::TERM).success());
        self.setup.assert_plain_ext4();
    }
}

impl Mount {
    /// Where it is.
    pub fn dir(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// `siftfs umount`, with one more try while a test's child has it open.
    #[track_caller]
    pub fn umount(&self) {
        patient(|| siftfs(&["umount", self.dir()])).ok();
    }

    /// `siftfs status --json`.
    #[track_caller]
    pub fn status(&self) -> Value {
        serde_json::from_str(&siftfs(&["status", self.dir(), "--json"]).ok().out).unwrap()
    }

    /// Kills its daemon.
    pub fn kill(&self) {
        let pid = i32::try_from(self.status()["pid"].as_i64().unwrap()).unwrap();
        rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    }

    /// Is something mounted there?
    pub fn is_there(&self) -> bool {
        siftfs_fuse::top_mount(&self.0).unwrap().is_some()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        while siftfs_fuse::detach(Path::new(self.dir())).is_ok() {}
    }
}

/// The errno of something that has to fail.
#[track_caller]
pub fn errno<T>(result: std::io::Result<T>) -> i32 {
    result.err().expect("it fails").raw_os_error().expect("with an errno")
}
