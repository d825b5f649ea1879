//! The systems that are compared, all in the same memory: a SiftFS volume whose programs have
//! private logs there, and ext4 on a loop device.

use crate::Plan;
use crate::job::{Done, FILE, Job};
use siftfs_rig::place::{Failed, Result, arg, failed, run};
use siftfs_rig::volume::Volume;
use siftfs_status::{Allocation, PrivateLogs};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Size of the volume.
const VOLUME: &str = "1G";
/// Bytes of ext4's image.
const EXT4: u64 = 1 << 30;

/// A file system that jobs work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum System {
    /// SiftFS, with the library.
    Sift,
    /// The kernel's ext4.
    Ext4,
    /// No file system: the memory itself.
    Raw,
}

/// Both systems.
pub struct Stage<'a> {
    plan: &'a Plan<'a>,
    volume: Volume,
    ext4: PathBuf,
    /// What starts a program with the library.
    pub accel: Vec<String>,
    /// This program under a name that the library does not let alone.
    pub worker: PathBuf,
}

impl<'a> Stage<'a> {
    /// Makes both, with this number of files in each.
    pub fn new(plan: &'a Plan<'a>, files: usize) -> Result<Self> {
        let place = plan.place;
        let own = std::env::current_exe().map_err(failed("own path"))?;
        let worker = place.path("worker");
        fs::copy(&own, &worker).map_err(failed(worker.display()))?;
        let program = own.with_file_name("siftfs");
        let (image, dir) = (place.path("volume.sift"), place.mount_point("sift")?);
        let accel = vec![arg(&program)?.to_owned(), "accel".into(), "--".into()];
        let volume = Volume { program, image, dir };
        run(&volume.program, &["mkfs", arg(&volume.image)?, "--size", VOLUME])?;
        volume.mount_with(&["-o", &options(plan, "")?])?;
        let (ext4, _) = siftfs_rig::ext4::directory(place, EXT4)?;
        fs::create_dir(&ext4).map_err(failed(ext4.display()))?;
        let stage = Self { plan, volume, ext4, accel, worker };
        for system in [System::Sift, System::Ext4, System::Raw] {
            (0..files).try_for_each(|number| fill(&stage.file(system, number)))?;
        }
        Ok(stage)
    }

    /// Mounts the volume anew, with these options as well.
    pub fn mount_again(&self, more: &str) -> Result<()> {
        self.volume.siftfs(&["umount", arg(&self.volume.dir)?])?;
        self.volume.mount_with(&["-o", &options(self.plan, more)?])
    }

    /// The file of this number on a system.
    pub fn file(&self, system: System, number: usize) -> PathBuf {
        let name = format!("file-{number}");
        match system {
            System::Sift => self.volume.dir.join(name),
            System::Ext4 => self.ext4.join(name),
            System::Raw => self.plan.place.path(&name),
        }
    }

    /// The command that does a job there.
    pub fn command(&self, system: System, job: &Job) -> Command {
        let before = match system {
            System::Sift => self.accel.as_slice(),
            System::Ext4 | System::Raw => &[],
        };
        job.command(before, &self.worker)
    }

    /// Runs one job by one program.
    pub fn run(&self, system: System, job: &Job) -> Result<Done> {
        self.plan.place.go_on()?;
        let logged = self.logs()?.records;
        let output = self.command(system, job).output().map_err(failed("a job"))?;
        if !output.status.success() {
            return Err(Failed(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        if system == System::Sift && job.op.writes() {
            self.ended()?;
            // What the program has left in its memory is taken in by now.
            if self.logs()?.records == logged {
                return Err(Failed("a program had no private log".into()));
            }
        }
        Job::done(&String::from_utf8_lossy(&output.stdout))
    }

    /// Waits until no program has a session.
    pub fn ended(&self) -> Result<()> {
        while self.logs()?.sessions > 0 {
            self.plan.place.go_on()?;
        }
        Ok(())
    }

    /// Everything is in its place, so that the next job does not pay for the one before.
    pub fn settle(&self, system: System) -> Result<()> {
        match system {
            System::Sift => self.volume.siftfs(&["checkpoint", arg(&self.volume.dir)?]).map(drop),
            System::Raw => Ok(()),
            System::Ext4 => {
                let dir = File::open(&self.ext4).map_err(failed(self.ext4.display()))?;
                rustix::fs::syncfs(&dir).map_err(|e| failed(self.ext4.display())(e.into()))
            }
        }
    }

    /// What the daemon has taken in of private logs.
    pub fn logs(&self) -> Result<PrivateLogs> {
        let status = self.volume.status()?;
        let logs = status.mounts.into_iter().next().and_then(|mount| mount.private_logs);
        logs.ok_or_else(|| Failed("the mount has no private logs".into()))
    }

    /// Where new blocks came from.
    pub fn allocation(&self) -> Result<Allocation> {
        Ok(self.volume.status()?.runtime.allocation)
    }

    /// Extents of files of the volume, by their names in its root. It is mounted anew afterwards.
    pub fn extents(&self, names: &[String]) -> Result<Vec<usize>> {
        self.volume.siftfs(&["umount", arg(&self.volume.dir)?])?;
        let is_extent = |line: &&str| line.trim_start().starts_with(|c: char| c.is_ascii_digit());
        let of = |name: &String| {
            let asked = format!("dump_extents -l /{name}");
            let said = run(Path::new("debugfs"), &["-R", &asked, arg(&self.volume.image)?])?;
            Ok(said.lines().filter(is_extent).count())
        };
        let extents = names.iter().map(of).collect();
        self.volume.mount_with(&["-o", &options(self.plan, "")?])?;
        extents
    }

    /// Unmounts the volume.
    pub fn close(self) -> Result<()> {
        self.volume.siftfs(&["umount", arg(&self.volume.dir)?]).map(drop)
    }
}

/// The options of a mount, with `more` of them.
fn options(plan: &Plan<'_>, more: &str) -> Result<String> {
    let logs = plan.place.path("logs");
    let always = format!("write_cache=writethrough,private_logs=volatile:{}", arg(&logs)?);
    let all = [always.as_str(), plan.options, more];
    Ok(all.into_iter().filter(|some| !some.is_empty()).collect::<Vec<_>>().join(","))
}

/// A file whose every byte was written and is durable: no later write allocates.
fn fill(path: &Path) -> Result<()> {
    let write = || {
        let mut file = File::create_new(path)?;
        let piece = vec![1; 1 << 20];
        (0..FILE >> 20).try_for_each(|_| file.write_all(&piece))?;
        file.sync_all()
    };
    write().map_err(failed(path.display()))
}
