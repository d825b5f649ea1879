//! A volume with its host and its device process, and the commands that start and end them.

mod served;

use crate::keys::{Keys, listed};
use crate::plan::{Geometry, Mount, Placement};
use crate::process::{LOOK, Process, Watch};
use crate::summary::Summary;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Signal;
use serde_json::Value;
use siftfs_rig::connection;
use siftfs_rig::ext4::under_the_kernel;
use siftfs_rig::place::{self, Failed, Place, Result, arg, failed, output, run};
use siftfs_rig::rings::{self, Offer};
use siftfs_rig::status;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longest wait for a process to start, to end, or to do what it must.
pub const LIMIT: Duration = Duration::from_secs(60);
/// After so long without any progress everything is ended.
const STUCK: Duration = Duration::from_secs(150);
/// f_type of a FUSE mount.
const FUSE: u64 = 0x6573_5546;

/// The directories, the volume and the processes of a run.
pub struct Stage<'a> {
    /// The temporary directory.
    pub place: &'a Place,
    /// The command.
    pub siftfs: PathBuf,
    /// Where volumes are mounted.
    pub dir: PathBuf,
    /// Ends what hangs.
    pub watch: Watch,
    /// Counts.
    pub summary: Summary,
    kernel: PathBuf,
    /// The host, while there is one.
    pub host: Option<Process>,
    /// The kernel's rings are switched on for a host that mounts.
    rings: Option<Offer>,
    device: Option<Process>,
    /// What has the volume, if the host is a mount of a served one.
    server: Option<Process>,
    tcp: Option<String>,
    served_tcp: Option<String>,
    keys: Keys,
    started: u64,
}

impl<'a> Stage<'a> {
    /// No volume yet.
    pub fn new(place: &'a Place, siftfs: &Path) -> Result<Self> {
        let (dir, kernel) = (place.mount_point("mount")?, place.mount_point("kernel")?);
        let home = place.mount_point("home")?;
        std::fs::create_dir_all(place.path("logs")).map_err(failed("logs"))?;
        connection::prepare()?;
        let watch = Watch::start(&[&dir, &home], STUCK);
        Ok(Self {
            place,
            siftfs: siftfs.into(),
            dir,
            watch,
            summary: Summary::default(),
            kernel,
            host: None,
            rings: None,
            device: None,
            server: None,
            tcp: None,
            served_tcp: None,
            keys: Keys::at(place),
            started: 0,
        })
    }

    /// The volume's file.
    pub fn volume(&self) -> PathBuf {
        self.place.path("volume")
    }

    /// The file of the volume's log, which exists if the log is apart.
    pub fn log(&self) -> PathBuf {
        self.place.path("volume.log")
    }

    /// The file of the record area, which exists if there is one.
    pub fn area(&self) -> PathBuf {
        self.place.path("volume.area")
    }

    /// Where the record area is, as commands are told.
    fn area_place(&self) -> Option<String> {
        self.area().exists().then(|| format!("volatile:{}", self.area().display()))
    }

    /// A file for what a process says; removed when its round was good.
    fn said(&mut self, name: &str) -> PathBuf {
        self.started += 1;
        self.place.path(&format!("logs/{:06}-{name}.log", self.started))
    }

    /// `siftfs mkfs`, over what was there.
    pub fn make(&mut self, g: &Geometry) -> Result<()> {
        for old in [self.volume(), self.log(), self.area()] {
            if old.exists() {
                std::fs::remove_file(&old).map_err(failed(old.display()))?;
            }
        }
        let (volume, log) = (self.volume(), self.log());
        let (size, log_size) = (format!("{}M", g.size), format!("{}M", g.log));
        let lanes = g.lanes.to_string();
        let mut args = vec!["mkfs", arg(&volume)?, "--size", &size, "--lanes", &lanes];
        args.extend(["--log-size", log_size.as_str()]);
        if g.apart {
            args.extend(["--log", arg(&log)?]);
        }
        if g.copies {
            args.push("--journal-data=copy");
        }
        let place = format!("volatile:{}", self.area().display());
        let area_size = format!("{}K", g.area.unwrap_or_default());
        if g.area.is_some() {
            args.extend(["--record-area", &place, "--record-area-size", &area_size]);
        }
        run(&self.siftfs, &args).map(drop)
    }

    fn apart(&self) -> bool {
        self.log().exists()
    }

    fn with_log(&self, command: &mut Command) {
        if self.apart() {
            command.arg("--log").arg(self.log());
        }
        if let Some(place) = self.area_place() {
            command.args(["--record-area", &place]);
        }
    }

    /// Where the device process of `placement` listens.
    fn address(&mut self, placement: Placement) -> Result<String> {
        if placement != Placement::Tcp {
            return Ok(format!("unix:{}", self.place.path("service").display()));
        }
        if let Some(address) = &self.tcp {
            return Ok(address.clone());
        }
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
        let address = format!("tcp:{}", free.map_err(failed("a port on loopback"))?);
        Ok(self.tcp.insert(address).clone())
    }

    /// Starts a device process; returns when it listens.
    pub fn start_device(&mut self, mount: &Mount) -> Result<()> {
        let (log, address) = (self.said("device"), self.address(mount.placement)?);
        let mut command = Command::new(&self.siftfs);
        command.arg("device").arg(self.volume()).args(["--listen", &address, "--json"]);
        command.args(&mount.device).stdout(Stdio::piped());
        if mount.placement == Placement::Tcp {
            command.args(self.keys.of_the_device()?);
        }
        self.with_log(&mut command);
        let mut device = Process::start("the device process", &mut command, &log, &self.watch)?;
        let mut line = String::new();
        if let Some(stdout) = device.stdout() {
            BufReader::new(stdout).read_line(&mut line).map_err(failed("device process"))?;
        }
        if serde_json::from_str::<Value>(&line).is_err() {
            let status = device.wait(LIMIT)?;
            return Err(Failed(format!(
                "the device process did not start: {status}: {line}{}",
                tail(&log)
            )));
        }
        self.device = Some(device);
        Ok(())
    }

    /// SIGKILL of the device process, if there is one.
    pub fn kill_device(&mut self) -> Result<()> {
        self.end_device(Signal::KILL)
    }

    /// Ends the device process by a signal, if there is one. After SIGTERM it must end well.
    pub fn end_device(&mut self, signal: Signal) -> Result<()> {
        let Some(mut device) = self.device.take() else { return Ok(()) };
        if let Some(status) = device.ended()? {
            return Err(Failed(format!("the device process ended by itself: {status}")));
        }
        self.summary.device_cpu_s += device.cpu().as_secs_f64();
        device.signal(signal)?;
        let status = device.wait(LIMIT)?;
        if signal == Signal::TERM && !status.success() {
            return Err(Failed(format!("the device process ended with {status} after SIGTERM")));
        }
        Ok(())
    }

    /// SIGSTOP.
    pub fn stop_device(&self) -> Result<()> {
        self.device.as_ref().map_or(Ok(()), |d| d.signal(Signal::STOP))
    }

    /// Is there a device process?
    pub fn has_device(&self) -> bool {
        self.device.is_some()
    }

    /// Fails if a process that should live has ended.
    pub fn look(&mut self) -> Result<()> {
        self.place.go_on()?;
        let all = [&mut self.host, &mut self.server, &mut self.device];
        for process in all.into_iter().flatten() {
            if let Some(status) = process.ended()? {
                return Err(Failed(format!("{} ended by itself: {status}", process.name)));
            }
        }
        Ok(())
    }

    /// Starts a host, and a device process if the mount needs one and none runs. A host that is a
    /// mount of a served volume finds its server, which is started before.
    pub fn start_host(&mut self, mount: &Mount) -> Result<()> {
        if let Some(served) = &mount.served {
            if !self.has_server() {
                self.start_server(mount)?;
            }
            let address = self.served_at(served)?;
            let mut command = self.host_of(Path::new(&address), mount)?;
            if served.tcp {
                command.args(["-o", &listed(&self.keys.of_the_client()?)]);
            }
            return self.spawn_host(command);
        }
        if mount.has_device() && !self.has_device() {
            self.start_device(mount)?;
        }
        let address = self.address(mount.placement)?;
        let volume = match mount.target {
            true => format!("target:{address}/volume").into(),
            false => self.volume(),
        };
        let mut command = self.host_of(&volume, mount)?;
        if mount.has_device() && !mount.target {
            command.args(["--service", &address]);
        }
        if mount.placement == Placement::Tcp {
            command.args(["-o", &listed(&self.keys.of_the_host(false)?)]);
        }
        if let Some(seconds) = mount.fallback {
            command.arg(format!("--service-fallback={seconds}"));
        }
        if !mount.target {
            self.with_log(&mut command);
        }
        self.spawn_host(command)
    }

    /// `siftfs mount` of the volume at `what`.
    fn host_of(&mut self, what: &Path, mount: &Mount) -> Result<Command> {
        let mut command = Command::new(&self.siftfs);
        let options = std::env::var("SIFTFS_TEST_OPTIONS").unwrap_or_default();
        command.args(["mount", "-o", &options]).arg(what).arg(&self.dir).arg("--foreground");
        command.args(["-o", &self.offered(mount)?]).stdout(Stdio::null());
        Ok(command)
    }

    fn spawn_host(&mut self, mut command: Command) -> Result<()> {
        let log = self.said("host");
        self.host = Some(Process::start("the host", &mut command, &log, &self.watch)?);
        Ok(())
    }

    /// [`Stage::start_host`], and waits until the mount can be used.
    pub fn mount(&mut self, mount: &Mount) -> Result<()> {
        self.watch.alive();
        self.start_host(mount)?;
        let start = Instant::now();
        while !is_mounted(&self.dir) {
            self.look().map_err(|Failed(e)| {
                Failed(format!("{e}\n{}", tail_of_newest(&self.place.path("logs"), "host")))
            })?;
            if start.elapsed() > LIMIT {
                return Err(Failed(format!("not mounted within {LIMIT:?}")));
            }
            sleep(LOOK);
        }
        self.rings = None;
        self.watch.alive();
        Ok(())
    }

    /// The mount's options, with the kernel's rings switched on until it is mounted if it wants
    /// them. A kernel that has none is asked for what there is.
    fn offered(&mut self, mount: &Mount) -> Result<String> {
        let ring = "requests=ring";
        if !mount.options.split(',').any(|o| o == ring) {
            return Ok(mount.options.clone());
        }
        if !rings::has_rings() {
            return Ok(mount.options.replace(ring, "requests=auto"));
        }
        if self.rings.is_none() {
            self.rings = Some(Offer::new()?);
        }
        Ok(mount.options.clone())
    }

    /// SIGKILL of the host, if there is one. Its mount stays, dead: to a load that still runs, what
    /// lies below it would look like a tree that has lost everything.
    pub fn kill_host(&mut self) -> Result<()> {
        self.rings = None;
        let Some(mut host) = self.host.take() else { return Ok(()) };
        self.summary.host_cpu_s += host.cpu().as_secs_f64();
        host.kill(LIMIT).map(drop)
    }

    /// Takes dead mounts away. The load has stopped.
    pub fn detach(&self) {
        while unmount(&self.dir, UnmountFlags::DETACH).is_ok() {}
    }

    /// Starts `siftfs umount`.
    pub fn start_unmount(&mut self) -> Result<Process> {
        let log = self.said("umount");
        let mut command = Command::new(&self.siftfs);
        command.arg("umount").arg(&self.dir).stdout(Stdio::null());
        Process::start("siftfs umount", &mut command, &log, &self.watch)
    }

    /// Waits until an unmount has ended well, and the host with it; then the server ends in order.
    pub fn finish_unmount(&mut self, command: Process) -> Result<()> {
        self.finish_unmount_alone(command)?;
        self.end_server(Signal::TERM)
    }

    /// Waits until an unmount has ended well, and the host with it.
    fn finish_unmount_alone(&mut self, mut command: Process) -> Result<()> {
        let status = command.wait(LIMIT)?;
        if !status.success() {
            let said = tail_of_newest(&self.place.path("logs"), "umount");
            return Err(Failed(format!("siftfs umount: {status}\n{said}")));
        }
        let Some(mut host) = self.host.take() else { return Ok(()) };
        self.summary.host_cpu_s += host.cpu().as_secs_f64();
        match host.wait(LIMIT)? {
            status if status.success() => Ok(()),
            status => Err(Failed(format!("the host ended an unmount with {status}"))),
        }
    }

    /// Starts `siftfs recover`.
    pub fn start_recover(&mut self) -> Result<Process> {
        let log = self.said("recover");
        let mut command = Command::new(&self.siftfs);
        command.arg("recover").arg(self.volume()).stdout(Stdio::null());
        self.with_log(&mut command);
        Process::start("siftfs recover", &mut command, &log, &self.watch)
    }

    /// `siftfs recover`, which must succeed.
    pub fn recover(&mut self) -> Result<()> {
        let mut command = self.start_recover()?;
        match command.wait(LIMIT)? {
            status if status.success() => Ok(()),
            status => {
                let said = tail_of_newest(&self.place.path("logs"), "recover");
                Err(Failed(format!("siftfs recover: {status}\n{said}")))
            }
        }
    }

    /// `siftfs fsck` and `e2fsck -fn` of the unmounted volume: nothing to complain about.
    pub fn fsck(&mut self) -> Result<()> {
        self.watch.alive();
        self.summary.e2fsck_runs += 1;
        siftfs_crash::e2fsck(&self.volume()).map_err(Failed)?;
        let volume = self.volume();
        let log = self.log();
        let mut args = vec!["fsck", arg(&volume)?];
        if self.apart() {
            args.extend(["--log", arg(&log)?]);
        }
        let place = self.area_place();
        if let Some(place) = &place {
            args.extend(["--record-area", place]);
        }
        run(&self.siftfs, &args).map(drop)
    }

    /// Runs `work` on the unmounted volume as the kernel's ext4 shows it.
    pub fn with_kernel<T>(&mut self, work: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
        let (volume, dir) = (self.volume(), self.kernel.clone());
        let result = under_the_kernel(&volume, &dir, "loop,ro", work);
        self.watch.alive();
        result
    }

    /// What the mount says of itself, while it lives.
    pub fn note_status(&mut self) -> Result<()> {
        let out = output(&self.siftfs, &["status", arg(&self.dir)?, "--json"])?;
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        let status = status::read(&String::from_utf8_lossy(&out.stdout))
            .map_err(|Failed(e)| Failed(format!("siftfs {e}: {said}")))?;
        if let Some(why) = &status.runtime.failed {
            return Err(Failed(format!("the mount failed: {why}")));
        }
        self.summary.add_status(&status);
        if self.summary.sessions_ended > 0 {
            return Err(Failed(format!(
                "private logs ended as they should not: {:?}",
                status.mounts
            )));
        }
        Ok(())
    }

    /// Copies volume, log and record area to `NAME`, `NAME.log` and `NAME.area`, holes kept.
    pub fn copy(&self, to: &Path) -> Result<()> {
        let (log, area) = (to.with_extension("log"), to.with_extension("area"));
        for (from, to) in [(self.volume(), to), (self.log(), &log), (self.area(), &area)] {
            if from.exists() {
                run("cp", &["--sparse=always", arg(&from)?, arg(to)?])?;
            } else if to.exists() {
                // Of an earlier volume, which had one.
                std::fs::remove_file(to).map_err(failed(to.display()))?;
            }
        }
        Ok(())
    }

    /// Fails if a process said that an assertion failed. Forgets what the dead said otherwise.
    pub fn read_logs(&mut self) -> Result<()> {
        let dir = self.place.path("logs");
        for path in logs_in(&dir) {
            let text = std::fs::read(&path).map_err(failed(path.display()))?;
            let text = String::from_utf8_lossy(&text);
            let odd = |l: &&str| l.contains("panicked") || l.contains("assertion");
            if let Some(line) = text.lines().find(odd) {
                return Err(Failed(format!("{}: {line}", path.display())));
            }
        }
        let all = [&self.host, &self.server, &self.device];
        let living = all.map(|p| p.as_ref().map(|p| p.stderr.clone()));
        for path in logs_in(&dir).into_iter().filter(|p| !living.contains(&Some(p.clone()))) {
            std::fs::remove_file(&path).map_err(failed(path.display()))?;
        }
        Ok(())
    }

    /// Ends all processes and mounts.
    pub fn end_all(&mut self) {
        let _killed = self.kill_host();
        self.detach();
        while unmount(&self.kernel, UnmountFlags::DETACH).is_ok() {}
        self.server = None;
        self.leave_home();
        self.device = None;
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        self.end_all();
    }
}

fn is_mounted(dir: &Path) -> bool {
    rustix::fs::statfs(dir).is_ok_and(|s| u64::try_from(s.f_type).is_ok_and(|t| t == FUSE))
}

/// The files in a directory of logs, the oldest first.
pub fn logs_in(dir: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        std::fs::read_dir(dir).map(|d| d.flatten().map(|e| e.path()).collect()).unwrap_or_default();
    all.sort();
    all
}

/// The end of what a process said.
fn tail(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(12)..).unwrap_or_default().join("\n")
}

fn tail_of_newest(dir: &Path, kind: &str) -> String {
    let suffix = format!("-{kind}.log");
    let newest = logs_in(dir).into_iter().rev().find(|p| p.to_string_lossy().ends_with(&suffix));
    newest.map(|p| tail(&p)).unwrap_or_default()
}

/// Runs a command of the place's tools; for callers outside this module.
pub fn make_dirs(dirs: &[PathBuf]) -> Result<()> {
    for dir in dirs {
        std::fs::create_dir(dir).map_err(place::failed(dir.display()))?;
    }
    Ok(())
}
