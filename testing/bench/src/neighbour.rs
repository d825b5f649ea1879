//! Somebody who gives the file system a lot to do and never syncs.

use crate::cell::CHUNK;
use crate::system::{BLOCK, Mode, Mounted, System, any_block};
use siftfs_rig::place::{Failed, Result, failed};
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// One that has to wait for the disk ends in this time, or is killed.
const END: Duration = Duration::from_secs(30);
/// Files that are made, and then removed.
const FILES: u64 = 4000;
/// Bytes of each.
const FILE_BYTES: usize = 2000;

/// What it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Neighbour {
    /// Writes a large file, from its begin again after so many bytes.
    Stream,
    /// Writes blocks of a sparse file in no order.
    Scatter,
    /// Makes thousands of small files, and removes them.
    Litter,
}

impl Neighbour {
    /// Goes on until told to stop, in `dir`, where only one file is left behind.
    pub fn work(
        self,
        system: &dyn System,
        dir: &str,
        bytes: u64,
        stop: &AtomicBool,
    ) -> io::Result<()> {
        let go_on = || !stop.load(Ordering::Relaxed);
        match self {
            Self::Stream => stream(system, dir, bytes, go_on),
            Self::Scatter => scatter(system, dir, bytes, go_on),
            Self::Litter => litter(system, dir, go_on),
        }
    }
}

fn stream(system: &dyn System, dir: &str, bytes: u64, go_on: impl Fn() -> bool) -> io::Result<()> {
    let file = system.open(&format!("{dir}/neighbour"), Mode::Create)?;
    let chunk = vec![9; CHUNK];
    let mut at = 0;
    while go_on() {
        file.write_at(at, &chunk)?;
        at = (at + CHUNK as u64) % bytes;
    }
    Ok(())
}

fn scatter(system: &dyn System, dir: &str, bytes: u64, go_on: impl Fn() -> bool) -> io::Result<()> {
    let file = system.open(&format!("{dir}/neighbour"), Mode::Create)?;
    let mut random = 1u64;
    while go_on() {
        file.write_at(any_block(&mut random, bytes), &[9; BLOCK])?;
    }
    Ok(())
}

fn litter(system: &dyn System, dir: &str, go_on: impl Fn() -> bool) -> io::Result<()> {
    let many = format!("{dir}/many");
    while go_on() {
        system.make_dir(&many)?;
        for i in (0..FILES).take_while(|_| go_on()) {
            system.open(&format!("{many}/{i}"), Mode::Create)?.write_at(0, &[9; FILE_BYTES])?;
        }
        system.remove_all(&many)?;
    }
    Ok(())
}

/// The process of its own: works in a directory until its standard input ends.
pub fn process(what: Neighbour, dir: &Path, bytes: u64) -> Result<()> {
    let system = Mounted::there(dir.to_path_buf());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| what.work(&system, ".", bytes, &stop));
        let _ = io::stdin().read(&mut [0]);
        stop.store(true, Ordering::Relaxed);
        let result = worker.join().unwrap_or_else(|_| Err(io::Error::other("panicked")));
        result.map_err(failed(dir.display()))
    })
}

/// This program again, working.
pub struct Process(Child);

impl Process {
    /// Starts it.
    pub fn start(what: Neighbour, dir: &Path, bytes: u64) -> Result<Self> {
        let exe = std::env::current_exe().map_err(failed("own path"))?;
        let mut command = Command::new(exe);
        let name = format!("{what:?}").to_lowercase();
        command.arg("--neighbour").arg(name).arg("--neighbour-in").arg(dir);
        command.arg("--neighbour-bytes").arg(bytes.to_string()).stdin(Stdio::piped());
        Ok(Self(command.spawn().map_err(failed("the neighbour"))?))
    }

    /// Ends it; fails if it failed.
    pub fn stop(mut self) -> Result<()> {
        drop(self.0.stdin.take());
        let start = Instant::now();
        while start.elapsed() < END {
            match self.0.try_wait().map_err(failed("the neighbour"))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(Failed(format!("the neighbour: {status}"))),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        Err(Failed("the neighbour did not end".into()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
#[path = "neighbour_tests.rs"]
mod tests;
