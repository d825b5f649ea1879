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

/// Where servers are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// On this machine.
    Here,
    /// Each as on a machine of its own: no file of this one says who lives.
    Apart,
    /// On this machine, and each can be cut off from the cluster ([`Servers::cut_off`]).
    Severable,
}

/// The group of the first server that can be cut off; others have the next ones.
const GROUP: usize = 61_000;

/// Servers of one volume, each of which takes it when it can.
pub struct Servers<'a> {
    stage: &'a Stage<'a>,
    volume: String,
    place: Where,
    all: Vec<Server>,
}

/// A server's messages to the cluster are lost for as long as this value lives. Those to its
/// clients, which have no address, are not.
pub struct CutOff {
    group: String,
}

impl CutOff {
    fn rule(&self, what: &str) -> Result<()> {
        let rule = [what, "OUTPUT", "-o", "lo", "-p", "tcp", "-m", "owner", "--gid-owner"];
        let out = Command::new("iptables").args(rule).args([&self.group, "-j", "DROP"]).output();
        let out = out.map_err(failed("iptables"))?;
        let why = || String::from_utf8_lossy(&out.stderr).trim().to_owned();
        if out.status.success() {
            Ok(())
        } else {
            Err(Failed(format!("iptables {what}: {}", why())))
        }
    }
}

impl Drop for CutOff {
    fn drop(&mut self) {
        if let Err(Failed(why)) = self.rule("-D") {
            eprintln!("a rule for the group {} is left: {why}", self.group);
        }
    }
}

impl<'a> Servers<'a> {
    /// Starts this number of servers, and waits until one of them has the volume.
    pub fn start(stage: &'a Stage<'a>, volume: &str, count: usize, place: Where) -> Result<Self> {
        let mut servers = Self { stage, volume: volume.into(), place, all: Vec::new() };
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
        let mut command = match self.place {
            Where::Here => self.stage.siftfs(&words),
            Where::Apart => self.apart(&words)?,
            Where::Severable => self.in_group(n, &words)?,
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

    fn program(&self) -> Result<String> {
        Ok(arg(std::path::Path::new(self.stage.siftfs(&[]).get_program()))?.to_owned())
    }

    /// `siftfs`, whose connections are those of a group of its own.
    fn in_group(&self, n: usize, words: &[&str]) -> Result<Command> {
        let mut command = self.stage.command("setpriv");
        let group = (GROUP + n).to_string();
        command.args(["--regid", &group, "--keep-groups", &self.program()?]).args(words);
        Ok(command)
    }

    /// Cuts the server of this number, which is [`Where::Severable`], off from the cluster.
    pub fn cut_off(&self, n: usize) -> Result<CutOff> {
        assert!(self.place == Where::Severable, "its group is known");
        let cut = CutOff { group: (GROUP + n).to_string() };
        cut.rule("-A").map(|()| cut)
    }

    /// `siftfs`, where no file of this machine says who lives.
    fn apart(&self, words: &[&str]) -> Result<Command> {
        let program = self.program()?;
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
