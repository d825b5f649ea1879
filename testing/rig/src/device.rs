//! A device process, or one that serves a volume, driven through the `siftfs` command.

use crate::place::{Failed, Result, failed};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a device process may take to listen, and to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// A `siftfs device` or `siftfs serve` at work. It is killed when this is dropped.
pub struct Device {
    child: Child,
    address: String,
}

impl Device {
    /// Runs `siftfs device IMAGE --listen ADDRESS` with more options, until it listens. Its log
    /// goes to `log`. The calling thread's table of descriptors holds no file of a mount that may
    /// be waiting for this device process ([`crate::descriptors`]).
    pub fn start(
        siftfs: &Path,
        image: &Path,
        address: &str,
        log: &Path,
        more: &[&str],
    ) -> Result<Self> {
        Self::run("device", siftfs, image, (address, log), more)
    }

    /// As [`Device::start`], of `siftfs serve`.
    pub fn serve(
        siftfs: &Path,
        image: &Path,
        address: &str,
        log: &Path,
        more: &[&str],
    ) -> Result<Self> {
        Self::run("serve", siftfs, image, (address, log), more)
    }

    fn run(
        what: &str,
        siftfs: &Path,
        image: &Path,
        (address, log): (&str, &Path),
        more: &[&str],
    ) -> Result<Self> {
        let child = Command::new(siftfs)
            .arg(what)
            .arg(image)
            .args(["--listen", address, "--json", "--log-file"])
            .arg(log)
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed(siftfs.display()))?;
        let mut device = Self { child, address: address.to_owned() };
        let out = device.child.stdout.take();
        let out = out.ok_or_else(|| Failed("the device process has no output".into()))?;
        let mut fds = [PollFd::new(&out, PollFlags::IN)];
        let said = poll(&mut fds, Some(&timeout())).is_ok_and(|n| n == 1);
        let mut line = String::new();
        if said {
            BufReader::new(out).read_line(&mut line).map_err(failed("device process"))?;
        }
        let said: Value = serde_json::from_str(&line).unwrap_or_default();
        let address = said["listening"].as_str().ok_or_else(|| {
            Failed("the device process does not listen; its reason is above".into())
        })?;
        device.address = address.into();
        Ok(device)
    }

    /// Where the process listens, by its own word: with the port that the kernel chose for port 0.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The id of the device process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill().map_err(failed("device process"))?;
        self.child.wait().map_err(failed("device process")).map(drop)
    }

    /// SIGTERM, after which it must end with status 0.
    pub fn end(mut self) -> Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).map_err(|e| Failed(format!("device process: {e}")))?;
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let status = self.child.try_wait().map_err(failed("device process"))?;
            match status {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    return Err(Failed(format!("the device process ended with {status}")));
                }
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        Err(Failed("the device process does not end after SIGTERM".into()))
    }
}

fn timeout() -> Timespec {
    Timespec { tv_sec: i64::try_from(PATIENCE.as_secs()).unwrap_or(i64::MAX), tv_nsec: 0 }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
