//! The device process.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use siftfs_placement::ReplayMode;
use siftfs_rig::place::{Failed, Result, arg, failed};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// `siftfs device`, until it is dropped.
pub struct Device {
    child: Child,
    address: String,
}

impl Device {
    /// Starts it and waits until it listens at a unix socket.
    pub fn start(
        siftfs: &Path,
        image: &Path,
        socket: &Path,
        mode: ReplayMode,
        quota: u64,
    ) -> Result<Self> {
        let address = format!("unix:{}", arg(socket)?);
        let mut child = Command::new(siftfs)
            .args(["device", arg(image)?, "--listen", &address, "--json", "--log-level", "warn"])
            .args(["--replay", &mode.to_string(), "--cpu-quota", &quota.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed("siftfs device"))?;
        let out =
            child.stdout.take().ok_or_else(|| Failed("siftfs device has no output".into()))?;
        let device = Self { child, address };
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).map_err(failed("siftfs device"))?;
        match serde_json::from_str::<Value>(&line) {
            Ok(said) if said["listening"].is_string() => Ok(device),
            _ => Err(Failed(format!("siftfs device does not listen: {line:?}"))),
        }
    }

    /// Where it listens, for `--service`.
    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // Its own end, which removes its control group; it may have ended already.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        if let Err(e) = self.child.wait() {
            eprintln!("siftfs device: {e}");
        }
    }
}
