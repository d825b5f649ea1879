//! Servers of one volume, as processes of their own.

use crate::stage::{Stage, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use siftfs_rig::place::{Failed, Result, arg, failed};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// One of them.
pub struct Server {
    process: Child,
    /// What it has written to its standard output and standard error.
    out: PathBuf,
    err: PathBuf,
}

/// Servers of one volume, each of which takes it when it can.
pub struct Servers<'a> {
    stage: &'a Stage<'a>,
    volume: String,
    /// Each as on a machine of its own: no file of this one says who lives.
    apart: bool,
    all: Vec<Server>,
}

impl<'a> Servers<'a> {
    /// Starts this number of servers, and waits until one of them has the volume.
    pub fn start(stage: &'a Stage<'a>, volume: &str, count: usize, apart: bool) -> Result<Self> {
        let mut servers = Self { stage, volume: volume.into(), apart, all: Vec::new() };
        for n in 0..count {
            let server = servers.launch(n)?;
            servers.all.push(server);
        }
        servers.active()?;
        Ok(servers)
    }

    fn socket(&self, n: usize) -> Result<String> {
        let name = self.volume.rsplit('/').next().unwrap_or_default();
        Ok(format!("unix:{}", arg(&self.stage.place.path(&format!("{name}-{n}")))?))
    }

    /// All addresses, as a client names them.
    pub fn addresses(&self) -> String {
        let all: Result<Vec<String>> = (0..self.all.len()).map(|n| self.socket(n)).collect();
        all.unwrap_or_default().join(",")
    }

    /// The volume.
    pub fn volume(&self) -> &str {
        &self.volume
    }

    /// The one of this number.
    pub fn at(&mut self, n: usize) -> &mut Server {
        &mut self.all[n]
    }

    fn launch(&self, n: usize) -> Result<Server> {
        let socket = self.socket(n)?;
        let (path, place) = (socket.trim_start_matches("unix:"), &self.stage.place);
        // Of a server that was killed.
        let _ = fs::remove_file(path);
        let name = path.rsplit('/').next().unwrap_or_default();
        let (out, err) = (place.path(&format!("{name}.out")), place.path(&format!("{name}.err")));
        // What it has said in its lives before stays: of the present one is what is behind.
        let file = |path: &PathBuf| {
            let file = File::options().append(true).create(true).open(path);
            file.map_err(failed("a file for messages"))
        };
        let words = ["serve", &self.volume, "--listen", &socket, "--standby"];
        let mut command = match self.apart {
            false => self.stage.siftfs(&words),
            true => self.apart(&words)?,
        };
        let process = command
            .stdin(Stdio::null())
            .stdout(File::create(&out).map_err(failed("a file for messages"))?)
            .stderr(file(&err)?)
            .spawn()
            .map_err(failed("siftfs serve"))?;
        let server = Server { process, out, err };
        wait_until("a server waits or serves", || Ok(server.says("a standby at")))?;
        Ok(server)
    }

    /// `siftfs`, where no file of this machine says who lives.
    fn apart(&self, words: &[&str]) -> Result<Command> {
        let program = self.stage.siftfs(&[]);
        let program = arg(std::path::Path::new(program.get_program()))?.to_owned();
        let mut command = self.stage.command("unshare");
        // What this machine has mounted is not to stay because the other one has it, too.
        let script = "mount -t tmpfs none /run; umount -l -a -t fuse.siftfs; exec \"$0\" \"$@\"";
        command.args(["--mount", "--propagation", "private", "sh", "-c", script, &program]);
        command.args(words);
        Ok(command)
    }

    /// Which one has the volume; waits until one has.
    pub fn active(&mut self) -> Result<usize> {
        let mut found = None;
        wait_until("a server has the volume", || {
            found = self.all.iter_mut().position(|server| server.lives() && server.serves());
            Ok(found.is_some())
        })?;
        found.ok_or_else(|| Failed("no server has the volume".into()))
    }

    /// Waits until another one than `had` has the volume.
    pub fn wait_for_another(&mut self, had: usize) -> Result<()> {
        wait_until("another server has the volume", || {
            let mut others = self.all.iter_mut().enumerate().filter(|(n, _)| *n != had);
            Ok(others.any(|(_, server)| server.lives() && server.serves()))
        })
    }

    /// Starts one anew that has ended, or is about to.
    pub fn restart(&mut self, n: usize) -> Result<()> {
        self.all[n].wait_for_end()?;
        self.all[n] = self.launch(n)?;
        Ok(())
    }

    /// Ends all, those that wait first.
    pub fn end(mut self) -> Result<()> {
        let had = self.active()?;
        let order = (0..self.all.len()).filter(|n| *n != had).chain([had]);
        for n in order.collect::<Vec<_>>() {
            let server = &mut self.all[n];
            if !server.lives() {
                return Err(Failed(format!("a server has ended by itself: {}", server.said())));
            }
            server.signal(Signal::TERM)?;
            server.wait_for_end()?;
            let status = server.process.wait().map_err(failed("siftfs serve"))?;
            if !status.success() {
                return Err(Failed(format!("siftfs serve: {status}: {}", server.said())));
            }
        }
        Ok(())
    }
}

impl Server {
    fn says(&self, what: &str) -> bool {
        fs::read_to_string(&self.out).is_ok_and(|said| said.contains(what))
    }

    fn serves(&self) -> bool {
        self.says("is served at")
    }

    fn lives(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// What its process has written to standard error.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.err).unwrap_or_default().trim().to_owned()
    }

    /// Sends its process a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, signal).map_err(|e| Failed(format!("a signal: {e}")))
    }

    /// Waits until its process has ended: what it has written to standard error.
    pub fn wait_for_end(&mut self) -> Result<String> {
        wait_until("a server ends", || Ok(!self.lives()))?;
        Ok(self.said())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
