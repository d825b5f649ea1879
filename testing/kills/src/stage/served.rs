//! The server of a volume: a process between the device process and the workers' mount.

use super::{LIMIT, Stage, is_mounted, tail};
use crate::keys::{listed, words};
use crate::plan::served::{By, Served};
use crate::plan::{Mount, Placement};
use crate::process::{LOOK, Process};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Signal;
use siftfs_rig::place::{Failed, Result, arg, failed, output};
use siftfs_rig::status;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

impl Stage<'_> {
    /// Where the server of a volume listens.
    pub fn served_at(&mut self, served: &Served) -> Result<String> {
        if !served.tcp {
            return Ok(format!("unix:{}", self.place.path("served").display()));
        }
        if let Some(address) = &self.served_tcp {
            return Ok(address.clone());
        }
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
        let address = format!("tcp:{}", free.map_err(failed("a port on loopback"))?);
        Ok(self.served_tcp.insert(address).clone())
    }

    /// Starts the server of `mount`'s volume, and a device process if it needs one and there is
    /// none. It is not waited for.
    pub fn spawn_server(&mut self, mount: &Mount) -> Result<()> {
        let served = mount.served.as_ref().ok_or_else(|| Failed("nobody serves it".into()))?;
        if mount.has_device() && !self.has_device() {
            self.start_device(mount)?;
        }
        let (log, address) = (self.said("server"), self.served_at(served)?);
        let remote = served.tcp || mount.placement == Placement::Tcp;
        let keys = if remote { self.keys.of_the_host(served.tcp)? } else { Vec::new() };
        let mut command = Command::new(&self.siftfs);
        match served.by {
            By::Serve => {
                command.arg("serve").arg(self.volume()).args(["--listen", &address, "--json"]);
                command.args(&served.server).args(words(&keys)).stdout(Stdio::piped());
            }
            By::Mount => {
                self.leave_home();
                let home = self.place.path("home");
                command.arg("mount").arg(self.volume()).arg(home).arg("--foreground");
                command.args(&served.server).args(["--listen", &address]).stdout(Stdio::null());
                command.args(["-o", &listed(&keys)]);
                if let Some(seconds) = mount.fallback {
                    command.arg(format!("--service-fallback={seconds}"));
                }
            }
        }
        if mount.has_device() {
            command.args(["--service", &self.address(mount.placement)?]);
        }
        self.with_log(&mut command);
        self.server = Some(Process::start("the server", &mut command, &log, &self.watch)?);
        Ok(())
    }

    /// [`Stage::spawn_server`], and waits until it serves.
    pub fn start_server(&mut self, mount: &Mount) -> Result<()> {
        self.spawn_server(mount)?;
        let told = self.until_it_serves(mount);
        told.map_err(|Failed(e)| {
            let log = self.server.as_ref().map(|server| tail(&server.stderr));
            Failed(format!("the server did not start: {e}\n{}", log.unwrap_or_default()))
        })
    }

    fn until_it_serves(&mut self, mount: &Mount) -> Result<()> {
        let Some(server) = self.server.as_mut() else { return Ok(()) };
        if let Some(stdout) = server.stdout() {
            let mut line = String::new();
            BufReader::new(stdout).read_line(&mut line).map_err(failed("server"))?;
            if !line.contains("listening") {
                return Err(Failed(format!("{line}{}", server.wait(LIMIT)?)));
            }
        }
        if mount.served.as_ref().is_some_and(|served| served.by == By::Mount) {
            let (home, start) = (self.place.path("home"), Instant::now());
            while !is_mounted(&home) {
                self.look()?;
                if start.elapsed() > LIMIT {
                    return Err(Failed(format!("not mounted within {LIMIT:?}")));
                }
                sleep(LOOK);
            }
        }
        Ok(())
    }

    /// A server that is killed while it recovers the volume, perhaps with its device process, which
    /// dies before or after.
    pub fn killed_server(&mut self, mount: &Mount, after: Duration, how: u64) -> Result<()> {
        self.spawn_server(mount)?;
        sleep(after);
        self.look()?;
        let kill_device = |stage: &mut Self| {
            stage.summary.device_kills += u64::from(stage.has_device());
            stage.kill_device()
        };
        if how == 1 {
            kill_device(self)?;
        }
        self.summary.server_kills += 1;
        // One that opens the volume ends by itself when its device process dies.
        if let Some(mut server) = self.server.take()
            && server.ended()?.is_none()
        {
            server.kill(LIMIT)?;
        }
        self.leave_home();
        if how == 2 { kill_device(self) } else { Ok(()) }
    }

    /// Ends the server by a signal, if there is one. After SIGTERM it must end well.
    pub fn end_server(&mut self, signal: Signal) -> Result<()> {
        let Some(mut server) = self.server.take() else { return Ok(()) };
        if let Some(status) = server.ended()? {
            return Err(Failed(format!("the server ended by itself: {status}")));
        }
        self.summary.server_cpu_s += server.cpu().as_secs_f64();
        server.signal(signal)?;
        let status = server.wait(LIMIT)?;
        self.leave_home();
        if signal == Signal::TERM && !status.success() {
            let said = tail(&server.stderr);
            return Err(Failed(format!("the server ended with {status} after SIGTERM\n{said}")));
        }
        Ok(())
    }

    /// SIGKILL of the server, if there is one.
    pub fn kill_server(&mut self) -> Result<()> {
        self.summary.server_kills += u64::from(self.server.is_some());
        self.end_server(Signal::KILL)
    }

    /// SIGSTOP, or SIGCONT.
    pub fn signal_server(&self, signal: Signal) -> Result<()> {
        self.server.as_ref().map_or(Ok(()), |server| server.signal(signal))
    }

    /// Is there a server?
    pub fn has_server(&self) -> bool {
        self.server.is_some()
    }

    /// Takes the mount away that a dead server had of its own.
    pub(super) fn leave_home(&self) {
        while unmount(self.place.path("home"), UnmountFlags::DETACH).is_ok() {}
    }

    /// Waits until the workers' mount has its server again.
    pub fn until_it_is_back(&mut self) -> Result<()> {
        let start = Instant::now();
        loop {
            self.look()?;
            let out = output(&self.siftfs, &["status", arg(&self.dir)?, "--json"])?;
            let said = status::read(&String::from_utf8_lossy(&out.stdout))?;
            let Some(why) = said.server.and_then(|server| server.lost) else { return Ok(()) };
            if start.elapsed() > LIMIT {
                return Err(Failed(format!("the mount does not come back in {LIMIT:?}: {why}")));
            }
            sleep(10 * LOOK);
        }
    }
}
