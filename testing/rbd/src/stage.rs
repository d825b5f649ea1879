//! A cluster with volumes on it, and their mounts.

use crate::cluster::Cluster;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use siftfs_rig::place::{Failed, Place, Result, arg, failed};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a mount may take to be there, or to end.
const PATIENCE: Duration = Duration::from_secs(90);

/// A cluster with volumes on it.
pub struct Stage<'a> {
    /// Where everything lies.
    pub place: &'a Place,
    /// The cluster.
    pub cluster: Cluster,
    /// How long a load goes on.
    pub time: Duration,
    program: PathBuf,
}

/// A volume that a process of its own has mounted.
pub struct Mounted {
    daemon: Child,
    /// Where it is mounted.
    pub dir: PathBuf,
    said: PathBuf,
}

impl<'a> Stage<'a> {
    /// Makes a cluster in `place`. `program` is the `siftfs` command; without it, it is the one
    /// beside this program.
    ///
    /// # Errors
    /// What does not start, in words.
    pub fn new(place: &'a Place, program: Option<PathBuf>, time: Duration) -> Result<Self> {
        Self::with_slow_devices(place, program, time, None)
    }

    /// As [`Stage::new`], with a pool `slow` of slow devices ([`Cluster::make`]).
    ///
    /// # Errors
    /// What does not start, in words.
    pub fn with_slow_devices(
        place: &'a Place,
        program: Option<PathBuf>,
        time: Duration,
        iops: Option<u32>,
    ) -> Result<Self> {
        let own = std::env::current_exe().map_err(failed("own path"))?;
        let program = program.unwrap_or_else(|| own.with_file_name("siftfs"));
        let begun = Instant::now();
        let cluster = Cluster::make(&place.path("ceph"), iops)?;
        eprintln!("a cluster of Ceph: {:.1} s", begun.elapsed().as_secs_f64());
        Ok(Self { place, cluster, time, program })
    }

    /// A program that talks to the cluster with the product's key.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.env("CEPH_CONF", self.cluster.conf()).env("CEPH_ARGS", "--id sift");
        command.env("SIFTFS_STATE_DIR", self.place.path("state"));
        command
    }

    /// `siftfs` with these arguments.
    pub fn siftfs(&self, args: &[&str]) -> Command {
        let mut command = self.command(&self.program);
        command.args(args);
        command
    }

    /// Runs `siftfs`, which must succeed.
    pub fn run(&self, args: &[&str]) -> Result<String> {
        succeed(&mut self.siftfs(args))
    }

    /// Runs `rbd`, which must succeed.
    pub fn rbd(&self, args: &[&str]) -> Result<String> {
        succeed(self.command("rbd").args(args))
    }

    /// Runs `siftfs`, which must refuse with one message that has `part` in it.
    pub fn refused(&self, args: &[&str], part: &str) -> Result<()> {
        is_refusal(&mut self.siftfs(args), part)
    }

    /// A new volume on a new image: its name.
    pub fn volume(&self, pool: &str, image: &str, mib: u32) -> Result<String> {
        let spec = format!("{pool}/{image}");
        self.rbd(&["create", "--size", &format!("{mib}M"), &spec])?;
        let name = format!("rbd:{spec}");
        self.run(&["mkfs", &name])?;
        Ok(name)
    }

    /// Mounts a volume, and waits until it is there.
    pub fn mount(&self, volume: &str, at: &str) -> Result<Mounted> {
        self.mount_by(volume, at, &[])
    }

    /// The same, with options.
    pub fn mount_by(&self, volume: &str, at: &str, options: &[&str]) -> Result<Mounted> {
        let dir = self.place.mount_point(at)?;
        let said = self.place.path(&format!("{at}.said"));
        let err = File::create(&said).map_err(failed("a file for messages"))?;
        let daemon = self
            .siftfs(&["mount", "--foreground", volume, arg(&dir)?])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(err)
            .spawn()
            .map_err(failed("siftfs mount"))?;
        let mut mounted = Mounted { daemon, dir, said };
        wait_until("a mount is there", || {
            if let Ok(Some(status)) = mounted.daemon.try_wait() {
                return Err(Failed(format!("siftfs mount: {status}: {}", mounted.said())));
            }
            is_mounted(&mounted.dir)
        })?;
        Ok(mounted)
    }

    /// Takes a mount away, and checks the volume.
    pub fn end(&self, mounted: Mounted, volume: &str) -> Result<()> {
        self.unmount(mounted)?;
        self.run(&["fsck", volume]).map(drop)
    }

    /// Takes a mount away as a user does.
    pub fn unmount(&self, mut mounted: Mounted) -> Result<()> {
        self.run(&["umount", arg(&mounted.dir)?])?;
        wait_until("the mount's process ends", || {
            Ok(matches!(mounted.daemon.try_wait(), Ok(Some(_))))
        })
    }

    /// What `siftfs status --json` says of a mount.
    pub fn status(&self, mounted: &Mounted) -> Result<serde_json::Value> {
        let text = self.run(&["status", "--json", arg(&mounted.dir)?])?;
        serde_json::from_str(&text).map_err(|e| Failed(format!("status: {e}")))
    }
}

impl Mounted {
    /// What its process has written to standard error.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap_or_default().trim().to_owned()
    }

    /// Sends its process a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_child(&self.daemon);
        kill_process(pid, signal).map_err(|e| Failed(format!("a signal: {e}")))
    }

    /// Kills its process, and takes what is left of the mount away.
    pub fn kill(mut self) -> Result<()> {
        self.signal(Signal::KILL)?;
        self.daemon.wait().map_err(failed("the mount's process"))?;
        self.take_away();
        Ok(())
    }

    /// Takes the mount away without waiting for anything.
    pub fn take_away(&self) {
        let _ = unmount(&self.dir, UnmountFlags::DETACH);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !matches!(self.daemon.try_wait(), Ok(Some(_))) {
            let _ = self.daemon.kill();
            let _ = self.daemon.wait();
        }
        self.take_away();
    }
}

/// Runs a program that must succeed.
pub fn succeed(command: &mut Command) -> Result<String> {
    let out = output(command)?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let (out_text, err) = (text(&out.stdout), text(&out.stderr));
    Err(Failed(format!("{command:?}: {}\n{out_text}{err}", out.status)))
}

/// Runs a program that must fail with one message that has `part` in it.
pub fn is_refusal(command: &mut Command, part: &str) -> Result<()> {
    let out = output(command)?;
    let said = text(&out.stderr);
    if out.status.success() || !said.contains(part) || said.trim().lines().count() != 1 {
        return Err(Failed(format!(
            "{command:?}: {}, not with one message of {part}: {said}",
            out.status
        )));
    }
    Ok(())
}

fn output(command: &mut Command) -> Result<Output> {
    command.stdin(Stdio::null()).output().map_err(failed(format!("{command:?}")))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits until `done` says so.
pub fn wait_until(what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    while !done()? {
        if Instant::now() > until {
            return Err(Failed(format!("waited for {PATIENCE:?} until {what}")));
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Is something mounted there? Asks the kernel's list, and not the mount, which may be dead.
fn is_mounted(dir: &Path) -> Result<bool> {
    let list = fs::read_to_string("/proc/self/mountinfo").map_err(failed("mountinfo"))?;
    let dir = arg(dir)?;
    Ok(list.lines().any(|line| line.split(' ').nth(4) == Some(dir)))
}
