//! A program that gives the file system a lot to do: without a sync, or with one after the other.

use crate::area::CHUNK;
use crate::helper::Helper;
use crate::system::{BLOCK, LOG, Mode, Mounted, System, any_block};
use siftfs_rig::fresh::{fresh, refresh};
use siftfs_rig::place::{Result, arg, failed};
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Files that are made, and then removed.
const FILES: u64 = 4000;
/// Bytes of each.
const FILE_BYTES: usize = 2000;
/// How long the neighbour waits before it looks again whether that file is there.
const POLL: Duration = Duration::from_millis(5);

/// What the neighbour does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Neighbour {
    /// Writes a large file, from its begin again after this many bytes.
    Stream,
    /// Writes blocks of a sparse file in no order.
    Scatter,
    /// Makes thousands of small files, and removes them.
    Litter,
    /// Delivers messages: each is written, fsynced and renamed, and its directory fsynced.
    Mail,
    /// Writes the first block of the program's log, with an fsync each time.
    Rival,
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
            Self::Mail => mail(system, dir, go_on),
            Self::Rival => rival(system, dir, go_on),
        }
    }
}

fn mail(system: &dyn System, dir: &str, go_on: impl Fn() -> bool) -> io::Result<()> {
    let (tmp, new) = (format!("{dir}/neighbour-tmp"), format!("{dir}/neighbour-new"));
    system.make_dir(&tmp)?;
    system.make_dir(&new)?;
    for n in (0..).take_while(|_| go_on()) {
        let (from, to) = (format!("{tmp}/{n}"), format!("{new}/{n}"));
        let message = system.open(&from, Mode::Create)?;
        message.write_at(0, &fresh::<FILE_BYTES>())?;
        message.sync()?;
        system.rename(&from, &to)?;
        system.sync_dir(&new)?;
    }
    Ok(())
}

fn rival(system: &dyn System, dir: &str, go_on: impl Fn() -> bool) -> io::Result<()> {
    let path = format!("{dir}/{LOG}");
    while go_on() {
        let file = match system.open(&path, Mode::Open) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                std::thread::sleep(POLL);
                continue;
            }
            Err(e) => return Err(e),
        };
        while go_on() {
            file.write_at(0, &fresh::<BLOCK>())?;
            file.sync()?;
        }
    }
    Ok(())
}

fn stream(system: &dyn System, dir: &str, bytes: u64, go_on: impl Fn() -> bool) -> io::Result<()> {
    let file = system.open(&format!("{dir}/neighbour"), Mode::Create)?;
    let mut chunk = vec![0; CHUNK];
    let mut at = 0;
    while go_on() {
        file.write_at(at, refresh(&mut chunk))?;
        at = (at + CHUNK as u64) % bytes;
    }
    Ok(())
}

fn scatter(system: &dyn System, dir: &str, bytes: u64, go_on: impl Fn() -> bool) -> io::Result<()> {
    let file = system.open(&format!("{dir}/neighbour"), Mode::Create)?;
    let mut random = 1u64;
    while go_on() {
        file.write_at(any_block(&mut random, bytes), &fresh::<BLOCK>())?;
    }
    Ok(())
}

fn litter(system: &dyn System, dir: &str, go_on: impl Fn() -> bool) -> io::Result<()> {
    let many = format!("{dir}/many");
    while go_on() {
        system.make_dir(&many)?;
        for i in (0..FILES).take_while(|_| go_on()) {
            system
                .open(&format!("{many}/{i}"), Mode::Create)?
                .write_at(0, &fresh::<FILE_BYTES>())?;
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

/// Starts the process of its own.
pub fn start(what: Neighbour, dir: &Path, bytes: u64) -> Result<Helper> {
    let name = format!("{what:?}").to_lowercase();
    let (dir, bytes) = (arg(dir)?, bytes.to_string());
    Helper::start(&["--neighbour", &name, "--neighbour-in", dir, "--neighbour-bytes", &bytes])
}

#[cfg(test)]
#[path = "neighbour_tests.rs"]
mod tests;
