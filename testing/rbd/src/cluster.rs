//! The cluster, by `cluster.sh`.

use rustix::process::{Pid, Signal, kill_process};
use siftfs_rig::place::{Failed, Result, arg, run};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// The daemons that have the data.
pub const OSDS: [&str; 3] = ["osd.0", "osd.1", "osd.2"];
/// The monitor.
pub const MONITOR: &str = "mon.a";
/// How long a killed process may take to be gone.
const DYING: Duration = Duration::from_secs(20);

/// A cluster, which ends with this value.
pub struct Cluster {
    script: PathBuf,
    dir: PathBuf,
}

impl Cluster {
    /// Makes a cluster in `dir`, and waits until it works. With `iops`, the pool `slow` is on OSDs
    /// of its own, whose reads, and whose writes, of the disk together are at most this many in a
    /// second.
    ///
    /// # Errors
    /// What does not start, in words.
    pub fn make(dir: &Path, iops: Option<u32>) -> Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster.sh");
        let cluster = Self { script, dir: dir.to_owned() };
        let iops = iops.map(|iops| iops.to_string());
        let mut words = vec!["up"];
        words.extend(iops.as_deref());
        cluster.call(&words)?;
        Ok(cluster)
    }

    /// Starts what of it does not run, and waits until it works.
    pub fn up(&self) -> Result<()> {
        self.call(&["up"]).map(drop)
    }

    /// The cluster's configuration.
    pub fn conf(&self) -> PathBuf {
        self.dir.join("ceph.conf")
    }

    /// Where its daemons' sockets for administrators are ([`crate::osd_counts`]).
    pub fn sockets(&self) -> PathBuf {
        self.dir.join("run")
    }

    /// Kills a daemon, and waits until its process is gone.
    pub fn kill(&self, name: &str) -> Result<()> {
        let pid = self.call(&["pid", name])?;
        let number: i32 = pid.trim().parse().map_err(|_| Failed(format!("{name}: {pid}")))?;
        let pid = Pid::from_raw(number).ok_or_else(|| Failed(format!("{name}: no process")))?;
        kill_process(pid, Signal::KILL).map_err(|e| Failed(format!("{name}: {e}")))?;
        let until = Instant::now() + DYING;
        while Path::new(&format!("/proc/{number}")).exists() {
            if Instant::now() > until {
                return Err(Failed(format!("{name} does not die")));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn call(&self, words: &[&str]) -> Result<String> {
        let (what, rest) = words.split_first().ok_or_else(|| Failed("no command".into()))?;
        run(&self.script, &[&[*what, arg(&self.dir)?], rest].concat())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Err(Failed(what)) = self.call(&["down"]) {
            eprintln!("the cluster in {} is left: {what}", self.dir.display());
        }
    }
}
