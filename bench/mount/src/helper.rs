//! This program again: as a process that works until it is stopped (a neighbour, or a busy loop),
//! or with the library of private logs.

use siftfs_rig::place::{Failed, Result, failed};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A helper that has to wait for the disk ends in this time, or is killed.
const END: Duration = Duration::from_secs(30);
/// A busy loop ends by itself after this time, whatever became of the bench.
const LONGEST: Duration = Duration::from_secs(300);
/// Busy loops beside a program.
const BUSY_LOOPS: usize = 2;
/// Where the library is named, and its file.
const PRELOAD: &str = "LD_PRELOAD";
const LIBRARY: &str = "libsiftfs_preload.so";
/// Steps of a busy loop between two reads of the clock.
const STEPS: u64 = 100_000;

/// A running helper. It is killed when this is dropped.
pub struct Helper(Child);

impl Helper {
    /// Starts this program with these arguments.
    pub fn start(args: &[&str]) -> Result<Self> {
        let exe = std::env::current_exe().map_err(failed("own path"))?;
        let child = Command::new(exe).args(args).stdin(Stdio::piped()).spawn();
        child.map(Self).map_err(failed("a helper process"))
    }

    /// Ends it; fails if it failed.
    pub fn stop(mut self) -> Result<()> {
        drop(self.0.stdin.take());
        let start = Instant::now();
        while start.elapsed() < END {
            match self.0.try_wait().map_err(failed("a helper process"))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(Failed(format!("a helper process: {status}"))),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        Err(Failed("a helper process did not end".into()))
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two processes that compute and do nothing else.
pub struct BusyLoops(Vec<Helper>);

impl BusyLoops {
    /// Starts both.
    pub fn start() -> Result<Self> {
        (0..BUSY_LOOPS).map(|_| Helper::start(&["--busy"])).collect::<Result<_>>().map(Self)
    }

    /// Ends both.
    pub fn stop(self) -> Result<()> {
        self.0.into_iter().try_for_each(Helper::stop)
    }
}

/// Is the library of private logs loaded?
pub fn is_accelerated() -> bool {
    std::env::var_os(PRELOAD).is_some_and(|all| all.to_string_lossy().contains(LIBRARY))
}

/// A program that would have that library is started without it, but with others that are loaded.
pub fn unload(command: &mut Command) {
    match std::env::var(PRELOAD).map(|all| without(&all)) {
        Ok(rest) if !rest.is_empty() => command.env(PRELOAD, rest),
        _ => command.env_remove(PRELOAD),
    };
}

fn without(all: &str) -> String {
    let others = all.split([':', ' ']).filter(|one| !one.is_empty() && !one.ends_with(LIBRARY));
    others.collect::<Vec<_>>().join(":")
}

/// This process begins anew with that library in it and all programs that it starts, by the
/// `siftfs accel` that is beside this program. Returns only if that cannot be started.
pub fn accelerate() -> Result<()> {
    let exe = std::env::current_exe().map_err(failed("own path"))?;
    let siftfs = exe.with_file_name("siftfs");
    let mut command = Command::new(&siftfs);
    let error = command.args(["accel", "--"]).arg(&exe).args(std::env::args_os().skip(1)).exec();
    Err(Failed(format!("{}: {error}; build -p siftfs-cli -p siftfs-preload", siftfs.display())))
}

/// The busy loop itself: until standard input ends, or for [`LONGEST`].
pub fn busy_loop() {
    let stop = Arc::new(AtomicBool::new(false));
    let told = stop.clone();
    std::thread::spawn(move || {
        let _ = io::stdin().read(&mut [0]);
        told.store(true, Ordering::Relaxed);
    });
    spin(&stop, LONGEST);
}

fn spin(stop: &AtomicBool, longest: Duration) {
    let start = Instant::now();
    while !stop.load(Ordering::Relaxed) && start.elapsed() < longest {
        for n in 0..STEPS {
            std::hint::black_box(n);
        }
    }
}

#[cfg(test)]
#[path = "helper_tests.rs"]
mod tests;
