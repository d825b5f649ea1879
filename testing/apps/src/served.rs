//! The server of a volume: `siftfs serve`, started again whenever it dies, as systemd would. The
//! programs work on a mount of it.

use rustix::process::{Pid, Signal, kill_process};
use siftfs_rig::place::{Failed, Result, arg, failed};
use siftfs_rig::volume::Volume;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server may take that long to start, and to end.
const LIMIT: Duration = Duration::from_secs(60);
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// Starts the server until it ends in order, or this program is gone. It is a process of its own:
/// at a time when the mount waits for its server, this program can start none, because the kernel
/// closes what programs have open there when a new one begins.
const SUPERVISOR: &str = "while kill -0 \"$1\"; do \"$0\" serve \"$2\" --listen \"$3\" --json >\"$4\" \
                          2>>\"$5\" && exit; sleep 0.2; done";

/// A server, and what starts it again.
pub struct Served {
    supervisor: Child,
    /// What the present one said.
    said: PathBuf,
    address: String,
    /// How often it was killed.
    deaths: u32,
}

impl Served {
    /// Serves the volume at a unix socket.
    ///
    /// # Errors
    /// It does not start; the message has what it said.
    pub fn start(volume: &Volume, scratch: &Path) -> Result<Self> {
        let said = scratch.join("served");
        let log = scratch.join("served.log");
        let address = format!("unix:{}", scratch.join("server").display());
        let own = std::process::id().to_string();
        let supervisor = Command::new("sh")
            .args(["-c", SUPERVISOR, arg(&volume.program)?, &own, arg(&volume.image)?, &address])
            .args([&said, &log])
            .stdin(Stdio::null())
            .spawn()
            .map_err(failed("server"))?;
        let served = Self { supervisor, said, address, deaths: 0 };
        served.until_it_is_not(None).map_err(|Failed(e)| {
            Failed(format!("{e}\n{}", std::fs::read_to_string(&log).unwrap_or_default()))
        })?;
        Ok(served)
    }

    /// The process that serves just now.
    fn pid(&self) -> Option<Pid> {
        let said = std::fs::read_to_string(&self.said).ok()?;
        let line: serde_json::Value = serde_json::from_str(said.lines().next()?).ok()?;
        Pid::from_raw(i32::try_from(line.get("pid")?.as_i64()?).ok()?)
    }

    /// Waits until there is a server, and another one than that.
    fn until_it_is_not(&self, old: Option<Pid>) -> Result<()> {
        let start = Instant::now();
        while self.pid().is_none_or(|pid| Some(pid) == old) {
            if start.elapsed() > LIMIT {
                return Err(Failed(format!("no server within {LIMIT:?}")));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Mounts what it serves where the volume says.
    ///
    /// # Errors
    /// What `siftfs mount` says.
    pub fn mount(&self, volume: &Volume) -> Result<()> {
        volume.siftfs(&["mount", &self.address, arg(&volume.dir)?]).map(drop)
    }

    /// Kills the server's process; returns when another process serves.
    ///
    /// # Errors
    /// No process serves, or no other process came in time.
    pub fn kill(&mut self) -> Result<()> {
        let pid = self.pid().ok_or_else(|| Failed("there is no server".into()))?;
        kill_process(pid, Signal::KILL).map_err(|e| Failed(format!("server: {e}")))?;
        self.deaths += 1;
        self.until_it_is_not(Some(pid))
    }

    /// SIGTERM, after which it must end well: the volume is plain ext4 then.
    ///
    /// # Errors
    /// It does not end, or was not the one that was started last.
    pub fn end(mut self) -> Result<()> {
        let pid = self.pid().ok_or_else(|| Failed("there is no server".into()))?;
        kill_process(pid, Signal::TERM).map_err(|e| Failed(format!("server: {e}")))?;
        let start = Instant::now();
        while start.elapsed() < LIMIT {
            match self.supervisor.try_wait().map_err(failed("server"))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(Failed(format!("the server ended with {status}"))),
                None => std::thread::sleep(LOOK),
            }
        }
        Err(Failed(format!("the server does not end within {LIMIT:?}")))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let over = matches!(self.supervisor.try_wait(), Ok(Some(_)));
        if !over {
            let _ = self.supervisor.kill();
            let _ = self.supervisor.wait();
            if let Some(pid) = self.pid() {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}
