//! The process that is killed, as the one that kills it sees it.

use crate::wire::Wire;
use siftfs_fuse::Requests;
use siftfs_kills::process::{LOOK, Process, Watch};
use siftfs_kills::stage::LIMIT;
use siftfs_rig::place::{Failed, Place, Result, arg, failed, run};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// After so long without any progress everything is ended.
const STUCK: Duration = Duration::from_secs(150);

/// The volume, where it is mounted, and the process that has it.
pub struct Host<'a> {
    place: &'a Place,
    /// The mounts.
    pub mounts: [PathBuf; 2],
    /// Ends what hangs.
    pub watch: Watch,
    requests: Requests,
    process: Option<Process>,
}

impl<'a> Host<'a> {
    /// No volume, and no process yet.
    ///
    /// # Errors
    /// When the directories cannot be made.
    pub fn new(place: &'a Place, requests: Requests) -> Result<Self> {
        siftfs_rig::connection::prepare()?;
        let mount = |name| place.mount_point(name)?.canonicalize().map_err(failed(name));
        let mounts = [mount("m1")?, mount("m2")?];
        let watch = Watch::start(&[&mounts[0], &mounts[1]], STUCK);
        Ok(Self { place, mounts, watch, requests, process: None })
    }

    /// The volume's file.
    pub fn volume(&self) -> PathBuf {
        self.place.path("volume")
    }

    /// Where the process listens.
    pub fn socket(&self) -> PathBuf {
        self.place.path("socket")
    }

    /// A connection on which the process's program does what it is asked for.
    ///
    /// # Errors
    /// When it does not listen.
    pub fn wire(&self) -> Result<Wire> {
        let mut wire = Wire::connect(&self.socket()).map_err(failed("the process"))?;
        wire.send(&["work"], &[]).map_err(failed("the process"))?;
        Ok(wire)
    }

    /// Starts the process: it opens the volume, with settings drawn from `seed`, and recovers it
    /// first if it has to.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&mut self, seed: u64) -> Result<()> {
        self.place.go_on()?;
        self.watch.alive();
        let socket = self.socket();
        if socket.exists() {
            std::fs::remove_file(&socket).map_err(failed(socket.display()))?;
        }
        let program = std::env::current_exe().map_err(failed("own path"))?;
        let mut command = Command::new(program);
        command.arg("--serve").arg(self.volume()).arg("--socket").arg(socket);
        command.arg("--seed").arg(seed.to_string());
        for dir in &self.mounts {
            command.arg("--on").arg(dir);
        }
        if self.requests == Requests::Ring {
            command.arg("--ring");
        }
        command.stdout(Stdio::piped());
        let log = self.place.path("log");
        self.process = Some(Process::start("the process", &mut command, &log, &self.watch)?);
        Ok(())
    }

    /// Waits until it has mounted the volume.
    ///
    /// # Errors
    /// When it ends instead.
    pub fn ready(&mut self) -> Result<()> {
        let mut line = String::new();
        if let Some(stdout) = self.process.as_mut().and_then(Process::stdout) {
            BufReader::new(stdout).read_line(&mut line).map_err(failed("the process"))?;
        }
        self.watch.alive();
        if line == "ready\n" {
            Ok(())
        } else {
            Err(Failed(format!("not mounted: {}", self.said())))
        }
    }

    /// What the processes said last.
    pub fn said(&self) -> String {
        let text = std::fs::read(self.place.path("log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }

    /// Has it ended by itself?
    ///
    /// # Errors
    /// If it has.
    pub fn look(&mut self) -> Result<()> {
        self.place.go_on()?;
        match self.process.as_mut().map_or(Ok(None), Process::ended)? {
            None => Ok(()),
            Some(status) => Err(Failed(format!("ended by itself: {status}\n{}", self.said()))),
        }
    }

    /// SIGKILL, and waits until it is gone. False if it had ended well before.
    ///
    /// # Errors
    /// When it does not end, or had ended badly.
    pub fn kill(&mut self) -> Result<bool> {
        let Some(mut process) = self.process.take() else { return Ok(false) };
        match process.ended()? {
            Some(status) if status.success() => Ok(false),
            Some(status) => Err(Failed(format!("ended by itself: {status}\n{}", self.said()))),
            None => process.kill(LIMIT).map(|_| true),
        }
    }

    /// Takes away what the dead process had mounted. No thread works there any more.
    ///
    /// # Errors
    /// When a dead mount does not say that it is dead.
    pub fn bury(&self) -> Result<()> {
        let start = Instant::now();
        for dir in &self.mounts {
            loop {
                siftfs_fuse::detach_dead(dir).map_err(failed(dir.display()))?;
                let left = siftfs_fuse::top_mount(dir).map_err(failed(dir.display()))?;
                let Some(left) = left.filter(|mount| mount.is_fuse()) else { break };
                if start.elapsed() > LIMIT {
                    return Err(Failed(format!("a dead mount stays: {left:?}")));
                }
                sleep(LOOK);
            }
        }
        Ok(())
    }

    /// Asks for the end, and does not wait for it.
    ///
    /// # Errors
    /// When the process does not listen.
    pub fn ask_to_end(&self) -> Result<Wire> {
        let mut wire = Wire::connect(&self.socket()).map_err(failed("the process"))?;
        wire.send(&["end"], &[]).map_err(failed("the process"))?;
        Ok(wire)
    }

    /// Has everything closed in order. The volume is plain ext4 then.
    ///
    /// # Errors
    /// What went wrong, or e2fsck says.
    pub fn close(&mut self) -> Result<()> {
        self.watch.alive();
        let answer = self.ask_to_end()?.receive().map_err(failed("the process"))?;
        let Some(mut process) = self.process.take() else { return Ok(()) };
        let status = process.wait(LIMIT)?;
        if answer.is_none() || !status.success() {
            return Err(Failed(format!("closing: {status}\n{}", self.said())));
        }
        self.watch.alive();
        crate::stage::e2fsck(&self.volume())
    }

    /// Copies the volume as it is before a recovery.
    ///
    /// # Errors
    /// What cp says.
    pub fn copy(&self) -> Result<()> {
        let to = self.place.path("before-recovery");
        run("cp", &["--sparse=always", arg(&self.volume())?, arg(&to)?]).map(drop)
    }

    /// Ends the process and its mounts.
    pub fn end_all(&mut self) {
        self.process = None;
        for dir in &self.mounts {
            while siftfs_fuse::detach(dir).is_ok() {}
        }
    }
}

impl Drop for Host<'_> {
    fn drop(&mut self) {
        self.end_all();
    }
}
