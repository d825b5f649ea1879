//! Programs with the library loaded that catches their calls, on a mount with private logs; and
//! what the daemon says of them, so that a run in which no lease was granted is no success.

use crate::work::Needs;
use siftfs_rig::place::{Failed, Result, failed};
use siftfs_rig::volume::Volume;
use std::fmt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Options of a mount whose programs may have private logs. They exclude the writeback cache.
const LOGS: &str = "write_cache=writethrough,private_logs=on";
/// Set in the process that was started with the library.
const LOADED: &str = "SIFTFS_APPS_LOADED";

/// Starts this program once more by `siftfs accel`, so that all programs that it starts have the
/// library loaded; `direct`: by `siftfs accel --direct`. Returns in the second one. Programs whose
/// names begin with "siftfs", such as this one, are let alone by the library themselves.
///
/// # Errors
/// There is no `siftfs` beside this program, or it is without its library.
pub fn load(direct: bool) -> Result<()> {
    if std::env::var_os(LOADED).is_some() {
        return Ok(());
    }
    let exe = std::env::current_exe().map_err(failed("own path"))?;
    let siftfs = exe.with_file_name("siftfs");
    let mut command = Command::new(&siftfs);
    let words: &[&str] = if direct { &["accel", "--direct", "--"] } else { &["accel", "--"] };
    command.args(words).arg(&exe).args(std::env::args_os().skip(1)).env(LOADED, "1");
    Err(failed(siftfs.display())(command.exec()))
}

/// Mounts a volume, with private logs if they are wanted.
pub fn mount(volume: &Volume, accelerated: bool) -> Result<()> {
    if accelerated { volume.mount_with(&["-o", LOGS]) } else { volume.mount() }
}

/// What the daemons of a trial said of its programs' private logs, each just before its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Leases at most at one time.
    pub leases: u64,
    /// Programs with a file log, at most at one time.
    pub file_logs: u64,
    /// Records that were taken in.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Connections, tokens and leases that were refused.
    pub refused: u64,
    /// Sessions that were ended because they broke a rule.
    pub ended: u64,
    /// Leases that ended before all that was published of their files was taken in.
    pub lost: u64,
    /// Calls of fsync(2) and fdatasync(2) that the kernel sent, of whichever program and file.
    pub by_mount: u64,
    /// Requests that programs made at the target, where the volume has one.
    pub at_target: Option<u64>,
}

impl Taken {
    /// Adds what the mount says now; to be asked once per mount, just before its end.
    pub fn add(&mut self, volume: &Volume) -> Result<()> {
        let status = volume.status()?;
        let logs = status.mounts.iter().find_map(|mount| mount.private_logs.as_ref());
        let logs = logs.ok_or_else(|| Failed("the mount has no private logs".into()))?;
        self.leases = self.leases.max(logs.leases);
        self.file_logs = self.file_logs.max(logs.file_logs);
        self.records += logs.records;
        self.bytes += logs.bytes;
        self.refused += logs.refused;
        self.ended += logs.ended;
        self.lost += logs.lost;
        self.by_mount += status.requests.get("fsync").copied().unwrap_or(0);
        if let (Some(all), Some(target)) = (&mut self.at_target, &status.runtime.service.device) {
            // Since the target's start, which is that of the trial.
            *all = target.programs.requests.max(*all);
        }
        Ok(())
    }

    /// Is it what a trial must have seen that `needs` this?
    pub fn verdict(&self, needs: Needs) -> Result<()> {
        if self.ended > 0 || self.lost > 0 {
            return Err(Failed(format!("a session broke a rule, or lost what it had: {self}")));
        }
        // A record has a lease, which may have ended since.
        let few = match self.at_target {
            Some(requests) => requests == 0,
            None => self.file_logs == 0 || self.records == 0,
        };
        match needs {
            Needs::Leases if few => Err(Failed(format!("it was not accelerated: {self}"))),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { leases, file_logs, records, bytes, refused, ended, lost, by_mount, at_target } =
            self;
        write!(
            f,
            "{leases} leases and {file_logs} file logs at once, {records} records of {bytes} bytes, \
             {by_mount} fsyncs by the mount, {refused} refused, {ended} sessions ended, {lost} leases \
             lost"
        )?;
        at_target.map_or(Ok(()), |requests| write!(f, ", {requests} requests at the target"))
    }
}

#[cfg(test)]
#[path = "accel_tests.rs"]
mod tests;
