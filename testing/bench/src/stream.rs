//! Somebody who writes a lot and never syncs.

use crate::cell::CHUNK;
use crate::system::Handle;
use siftfs_rig::place::{Failed, Result, failed};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A stream that has to wait for the disk ends in this time, or is killed.
const END: Duration = Duration::from_secs(30);

/// Writes chunk after chunk, from the begin again after `bytes`, until told to stop.
pub fn write(file: &dyn Handle, bytes: u64, stop: &AtomicBool) -> io::Result<()> {
    let chunk = vec![9; CHUNK];
    let mut at = 0;
    while !stop.load(Ordering::Relaxed) {
        file.write_at(at, &chunk)?;
        at = (at + CHUNK as u64) % bytes;
    }
    Ok(())
}

/// The process of its own: streams to a new file until its standard input ends.
pub fn process(path: &Path, bytes: u64) -> Result<()> {
    let file = File::create(path).map_err(failed(path.display()))?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(&file, bytes, &stop));
        let _ = io::stdin().read(&mut [0]);
        stop.store(true, Ordering::Relaxed);
        let result = writer.join().unwrap_or_else(|_| Err(io::Error::other("panicked")));
        result.map_err(failed(path.display()))
    })
}

/// This program again, streaming.
pub struct Stream(Child);

impl Stream {
    /// Starts it.
    pub fn start(path: &Path, bytes: u64) -> Result<Self> {
        let exe = std::env::current_exe().map_err(failed("own path"))?;
        let mut command = Command::new(exe);
        command.arg("--stream-into").arg(path).arg("--stream-bytes").arg(bytes.to_string());
        command.stdin(Stdio::piped());
        Ok(Self(command.spawn().map_err(failed("the streaming process"))?))
    }

    /// Ends it; fails if it failed.
    pub fn stop(mut self) -> Result<()> {
        drop(self.0.stdin.take());
        let start = Instant::now();
        while start.elapsed() < END {
            match self.0.try_wait().map_err(failed("the streaming process"))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(Failed(format!("the streaming process: {status}"))),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        Err(Failed("the streaming process did not end".into()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
