//! What an application gets to work with, and what it is asked to do.

use crate::program::{Handle, Output, Program};
use siftfs_rig::place::{Failed, Result};
use siftfs_rig::volume::Volume;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// No single program that must end by itself runs longer.
pub const LIMIT: Duration = Duration::from_secs(120);

/// An unmodified application, and its own checker.
pub trait App: Sync {
    /// The application's name, for `--only` and the table.
    fn name(&self) -> &'static str;

    /// What must be there before it works: databases, trees. Durable on return.
    fn prepare(&mut self, at: &Site) -> Result<()>;

    /// Works and counts what is acknowledged, until [`Site::stopped`] or the file system dies
    /// under it. An acknowledgement counts only if [`Site::alive`] afterwards.
    fn work(&self, at: &Site) -> Result<()>;

    /// The application's checker finds its data whole, and everything acknowledged is there. Called
    /// on SiftFS after a crash, after more work, and under the kernel's ext4.
    fn check(&mut self, at: &Site) -> Result<()>;

    /// Acknowledgements so far, in words, also while it works.
    fn acknowledged(&self) -> String;

    /// It does what a mount cannot repeat whose server died before it answered (publishes, atomic
    /// sections): such a call is an error, with which it may give up.
    fn is_told_of_a_lost_server(&self) -> bool {
        false
    }

    /// What the daemon must have seen of it when it works with the library loaded.
    fn needs(&self) -> Needs {
        Needs::Nothing
    }
}

/// What the daemon must have seen of a program with the library loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Its processes have each other's files open to be written, or it calls no fsync(2): it may
    /// have no lease.
    Nothing,
    /// One process alone writes files and calls fsync(2) all the time: it gets leases and a file
    /// log, and the daemon takes its records in.
    Leases,
}

/// Where an application works.
pub struct Site<'v> {
    /// The application's directory: a mount of SiftFS, or of the kernel's ext4.
    pub dir: PathBuf,
    /// A directory outside the mount, for sources, sockets and logs.
    pub scratch: PathBuf,
    /// The mounted volume; none under the kernel's ext4.
    volume: Option<&'v Volume>,
    stop: AtomicBool,
    programs: Mutex<Vec<Handle>>,
}

impl<'v> Site<'v> {
    /// On a mount of SiftFS.
    pub fn mounted(volume: &'v Volume, scratch: &Path) -> Self {
        Self::new(volume.dir.clone(), scratch, Some(volume))
    }

    /// Under the kernel's ext4.
    pub fn kernel(dir: &Path, scratch: &Path) -> Self {
        Self::new(dir.to_path_buf(), scratch, None)
    }

    fn new(dir: PathBuf, scratch: &Path, volume: Option<&'v Volume>) -> Self {
        Self {
            dir,
            scratch: scratch.to_path_buf(),
            volume,
            stop: AtomicBool::new(false),
            programs: Mutex::default(),
        }
    }

    /// Whether work is to end.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Asks for the end of work.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Kills every program still at work.
    pub fn kill(&self) {
        let programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        programs.iter().for_each(Handle::kill);
    }

    /// Whether the file system still answers. Asking with statfs makes nothing durable. A program
    /// may take a daemon's death between two of its steps for success, so what it acknowledges
    /// counts only if this is true afterwards.
    pub fn alive(&self) -> bool {
        rustix::fs::statfs(&self.dir).is_ok()
    }

    /// Whether it is SiftFS's mount, and not the kernel's.
    pub fn is_ours(&self) -> bool {
        self.volume.is_some()
    }

    /// The program that mounted it; none under the kernel's ext4.
    pub fn siftfs(&self) -> Option<&Path> {
        self.volume.map(|volume| volume.program.as_path())
    }

    /// Everything written so far is durable: what stands in for an acknowledgement where a program
    /// gives none.
    pub fn sync(&self) -> Result<()> {
        let Some(volume) = self.volume else { return Ok(()) };
        let start = Instant::now();
        loop {
            match volume.sync() {
                // Commands do not wait for a server.
                Err(Failed(why)) if why.contains("lost") && start.elapsed() < LIMIT => {
                    if self.stopped() {
                        return Err(Failed(why));
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
                synced => return synced,
            }
        }
    }

    /// Starts a guarded program that is killed when work must end.
    pub fn start(&self, name: &str, command: Command, output: Output) -> Result<Program> {
        let program = Program::start(name, &self.scratch, command, output)?;
        self.programs.lock().unwrap_or_else(PoisonError::into_inner).push(program.handle());
        Ok(program)
    }

    /// Runs a guarded program to its successful end; answers what it printed (its end, if long).
    pub fn run(&self, name: &str, command: Command) -> Result<String> {
        let program = self.start(name, command, Output::Logged)?;
        let status = program.wait(LIMIT, || self.stopped())?;
        if status.success() {
            return Ok(program.printed());
        }
        Err(Failed(format!("{name}: {status}\n{}", program.printed())))
    }
}
