//! The systems that are compared: volumes that `siftfs serve` serves through shared memory, and the
//! kernel's ext4.

use crate::Plan;
use crate::job::{BEGUN, Done, Job, ticks};
use siftfs_rig::device::Device;
use siftfs_rig::place::{Failed, Result, arg, failed, run};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Size of a volume.
const VOLUME: &str = "1G";
/// Bytes of ext4's image.
const EXT4: u64 = 1 << 30;
/// Microseconds that both ends spin which have a processor of their own.
const SPIN: u64 = 20;

/// What jobs run on.
pub struct Stage<'a> {
    plan: &'a Plan<'a>,
    program: PathBuf,
    own: PathBuf,
    /// A directory on ext4.
    pub ext4: PathBuf,
    /// Which ext4 that is, in words.
    pub ext4_name: &'static str,
}

/// A volume and its server.
pub struct Served {
    server: Device,
    /// For jobs.
    pub address: PathBuf,
}

impl Served {
    /// Processor time of the server in seconds: its own, and the kernel's for it.
    pub fn time(&self) -> Result<(f64, f64)> {
        let path = format!("/proc/{}/stat", self.server.pid());
        let stat = std::fs::read_to_string(&path).map_err(failed(&path))?;
        ticks(&stat).ok_or_else(|| Failed(format!("{path}: not as expected")))
    }

    /// Ends the server.
    pub fn end(self) -> Result<()> {
        self.server.end()
    }
}

impl<'a> Stage<'a> {
    /// Makes ext4's directory.
    pub fn new(plan: &'a Plan<'a>) -> Result<Self> {
        let own = std::env::current_exe().map_err(failed("own path"))?;
        let program = own.with_file_name("siftfs");
        let (ext4, ext4_name) = siftfs_rig::ext4::directory(plan.place, EXT4)?;
        std::fs::create_dir(&ext4).map_err(failed(ext4.display()))?;
        Ok(Self { plan, program, own, ext4, ext4_name })
    }

    /// Makes a volume of this name, and serves it with more options.
    pub fn serve(&self, name: &str, more: &[&str]) -> Result<Served> {
        let place = self.plan.place;
        let image = place.path(&format!("{name}.sift"));
        run(&self.program, &["mkfs", arg(&image)?, "--size", VOLUME])?;
        let address = format!("unix:{}", arg(&place.path(&format!("{name}.sock")))?);
        let log = place.path(&format!("{name}.log"));
        let (spin, mut pinned) = (SPIN.to_string(), Vec::new());
        let processor = self.plan.pin.0.map(|(server, _)| server.to_string());
        if let Some(processor) = &processor {
            pinned = vec!["--cpus", processor, "--spin", &spin];
        }
        let all = [&pinned[..], more].concat();
        let server = Device::serve(&self.program, &image, &address, &log, &all)?;
        Ok(Served { server, address: address.into() })
    }

    /// Starts a job in a process of its own.
    pub fn start(&self, job: &Job) -> Result<Child> {
        self.plan.place.go_on()?;
        let mut job = job.clone();
        let mut command = match self.plan.pin.0 {
            None => Command::new(&self.own),
            Some((_, client)) => {
                job.spin = SPIN;
                let mut command = Command::new("taskset");
                command.args(["-c", &client.to_string()]).arg(&self.own);
                command
            }
        };
        let started = command.args(job.arguments()).stdout(Stdio::piped()).spawn();
        started.map_err(failed("a job"))
    }

    /// Runs a job to its end.
    pub fn run(&self, job: &Job) -> Result<Done> {
        finish(self.start(job)?)
    }

    /// A job of the plan's time.
    pub fn job(&self, at: &Path, op: crate::job::Op, bytes: usize, compound: bool) -> Job {
        let (at, time) = (at.to_owned(), self.plan.time);
        Job { at, op, bytes, compound, threads: 1, time, spin: 0 }
    }
}

/// A job that goes on while others are measured.
pub struct Neighbour(Child);

impl Neighbour {
    /// Waits until a job has begun with what it does.
    pub fn begun(mut job: Child) -> Result<Self> {
        let mut line = String::new();
        if let Some(out) = job.stdout.as_mut() {
            BufReader::new(out).read_line(&mut line).map_err(failed("a job"))?;
        }
        match line.trim() == BEGUN {
            true => Ok(Self(job)),
            false => Err(Failed(format!("a job printed \"{line}\""))),
        }
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn finish(child: Child) -> Result<Done> {
    let output = child.wait_with_output().map_err(failed("a job"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).map_err(|_| Failed(format!("a job printed \"{text}\"")))
}
