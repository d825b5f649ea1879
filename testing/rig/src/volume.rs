//! The volume under test, driven through the `siftfs` command as a user would.

use crate::device::Device;
use crate::ext4::under_the_kernel;
use crate::place::{Failed, Place, Result, arg, failed, output, run, step};
use crate::status;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};
use siftfs_status::{OriginCounts, Status};
use std::path::{Path, PathBuf};

/// A volume and where it is mounted.
pub struct Volume {
    /// The `siftfs` command.
    pub program: PathBuf,
    /// The volume's file.
    pub image: PathBuf,
    /// Where the volume is mounted.
    pub dir: PathBuf,
}

/// Counts at the storage backend since the mount.
#[derive(Clone, Copy, Debug, Default)]
pub struct Io {
    /// Writes that a caller waited for.
    pub writes: u64,
    /// Flushes that a caller waited for.
    pub flushes: u64,
    /// Bytes written to staging.
    pub staged_bytes: u64,
    /// Bytes written to the journal.
    pub journal_bytes: u64,
    /// Bytes written to the ext4 area.
    pub checkpoint_bytes: u64,
}

impl Volume {
    /// `siftfs mkfs` in a file `NAME.sift`; it will be mounted on `NAME`. Uses the `siftfs` beside
    /// the running program.
    pub fn make(place: &Place, name: &str, size: &str) -> Result<Self> {
        Self::make_with(place, name, size, &[])
    }

    /// As [`Volume::make`], with more options for mkfs.
    pub fn make_with(place: &Place, name: &str, size: &str, more: &[&str]) -> Result<Self> {
        let exe = std::env::current_exe().map_err(failed("own path"))?;
        let program = exe.with_file_name("siftfs");
        let dir = place.mount_point(name)?;
        let volume = Self { program, image: place.path(&format!("{name}.sift")), dir };
        step(&format!("siftfs mkfs --size {size}"), || {
            let first = ["mkfs", arg(&volume.image)?, "--size", size];
            volume.siftfs(&[&first, more].concat())
        })?;
        Ok(volume)
    }

    /// Runs `siftfs` with these arguments, which must succeed; answers what it printed.
    pub fn siftfs(&self, args: &[&str]) -> Result<String> {
        run(&self.program, args)
    }

    /// `siftfs mount`.
    pub fn mount(&self) -> Result<()> {
        self.mount_with(&[])
    }

    /// `siftfs mount` with more arguments. What SIFTFS_TEST_OPTIONS says comes before their
    /// options, which count more.
    pub fn mount_with(&self, more: &[&str]) -> Result<()> {
        let options = std::env::var("SIFTFS_TEST_OPTIONS").unwrap_or_default();
        let usual = ["mount", "-o", &options, arg(&self.image)?, arg(&self.dir)?];
        self.siftfs(&[&usual, more].concat()).map(drop)
    }

    /// `siftfs device` with more options, until it listens at `address`; its log goes to `log`.
    pub fn device(&self, address: &str, log: &Path, more: &[&str]) -> Result<Device> {
        Device::start(&self.program, &self.image, address, log, more)
    }

    /// `siftfs serve` with more options, until it listens at `address`; its log goes to `log`.
    pub fn serve(&self, address: &str, log: &Path, more: &[&str]) -> Result<Device> {
        Device::serve(&self.program, &self.image, address, log, more)
    }

    /// `siftfs umount`.
    pub fn unmount(&self) -> Result<()> {
        step("siftfs umount", || self.siftfs(&["umount", arg(&self.dir)?]).map(drop))
    }

    /// `siftfs sync`.
    pub fn sync(&self) -> Result<()> {
        self.siftfs(&["sync", arg(&self.dir)?]).map(drop)
    }

    /// `siftfs checkpoint`.
    pub fn checkpoint(&self) -> Result<()> {
        step("siftfs checkpoint", || self.siftfs(&["checkpoint", arg(&self.dir)?]).map(drop))
    }

    /// `siftfs status --json`.
    pub fn status(&self) -> Result<Status> {
        self.status_of(&self.dir)
    }

    fn status_of(&self, dir: &Path) -> Result<Status> {
        status::read(&self.siftfs(&["status", arg(dir)?, "--json"])?)
    }

    /// Counts from `siftfs status --json`.
    pub fn io(&self) -> Result<Io> {
        let storage = self.status()?.runtime.storage;
        let waited = storage.sum(|o| o.foreground);
        let bytes = |o: &OriginCounts| (o.foreground + o.background).write_bytes;
        Ok(Io {
            writes: waited.writes,
            flushes: waited.flushes,
            staged_bytes: bytes(&storage.staging),
            journal_bytes: bytes(&storage.journal),
            checkpoint_bytes: bytes(&storage.area),
        })
    }

    /// SIGKILL of the daemon, found through the status, and waits until it is gone.
    pub fn kill_daemon(&self) -> Result<()> {
        self.kill_daemon_and(|| Ok(()))
    }

    /// As [`Volume::kill_daemon`], with something else that is done at once after the signal.
    pub fn kill_daemon_and(&self, also: impl FnOnce() -> Result<()>) -> Result<()> {
        kill(self.status()?.pid, also)
    }

    /// As [`Volume::kill_daemon`], of another mount's.
    pub fn kill_daemon_of(&self, dir: &Path) -> Result<()> {
        kill(self.status_of(dir)?.pid, || Ok(()))
    }

    /// `e2fsck -fn` must find nothing at all.
    pub fn e2fsck(&self) -> Result<()> {
        step("e2fsck -fn", || {
            let out = output("e2fsck", &["-fn", arg(&self.image)?])?;
            if out.status.code() == Some(0) {
                return Ok(());
            }
            let text = String::from_utf8_lossy(&out.stdout).into_owned();
            Err(Failed(format!("e2fsck found damage ({}):\n{text}", out.status)))
        })
    }

    /// Runs `work` on the volume's file as the kernel's ext4 shows it, mounted with `options`
    /// (such as `loop,ro`).
    pub fn with_kernel_mount<T>(
        &self,
        place: &Place,
        options: &str,
        work: impl FnOnce(&Path) -> Result<T>,
    ) -> Result<T> {
        let dir = place.mount_point("kernel")?;
        under_the_kernel(&self.image, &dir, options, work)
    }
}

/// SIGKILL of a process, and something else at once after it; waits until the process is gone.
fn kill(pid: u32, also: impl FnOnce() -> Result<()>) -> Result<()> {
    let pid = i32::try_from(pid).ok();
    let pid = pid.and_then(rustix::process::Pid::from_raw);
    let pid = pid.ok_or_else(|| Failed("status has no pid".into()))?;
    let process =
        pidfd_open(pid, PidfdFlags::empty()).map_err(|e| Failed(format!("daemon {pid:?}: {e}")))?;
    rustix::process::kill_process(pid, rustix::process::Signal::KILL)
        .map_err(|e| Failed(format!("kill: {e}")))?;
    also()?;
    let mut fds = [PollFd::new(&process, PollFlags::IN)];
    let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
    match poll(&mut fds, Some(&limit)) {
        Ok(1) => Ok(()),
        _ => Err(Failed("the daemon does not die of SIGKILL".into())),
    }
}
