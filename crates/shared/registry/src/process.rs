//! The process that a log was made for: is it gone for certain (rule R37)?

use siftfs_base::{Error, Result, errno};
use std::os::unix::fs::MetadataExt;

/// A process, told apart from every other that has had its number or will have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    /// Its number, in the namespace of the daemon's that wrote this.
    pub id: u32,
    /// When it was started, in the kernel's ticks since the machine was.
    pub started: u64,
    /// The run of the machine that it is of.
    pub boot: [u8; 16],
    /// The namespace that the number is of.
    pub namespace: u64,
}

impl Process {
    /// The process that has this number now.
    ///
    /// # Errors
    /// `ESRCH` if there is none; `Refused` if /proc does not tell.
    pub fn of(id: u32) -> Result<Self> {
        let started = started(id).ok_or_else(|| errno(libc::ESRCH))?;
        let untold = || Error::Refused("/proc does not tell which run of the machine it is".into());
        let (boot, namespace) = boot().zip(namespace()).ok_or_else(untold)?;
        Ok(Self { id, started, boot, namespace })
    }

    /// May it still run? Not if the machine was started anew, or its number is nobody's or
    /// another's. Where that cannot be told, it may.
    pub fn may_run(&self) -> bool {
        let Some(boot) = boot() else { return true };
        if boot != self.boot {
            return false;
        }
        if namespace() != Some(self.namespace) {
            return true;
        }
        match std::fs::read_to_string(format!("/proc/{}/stat", self.id)) {
            Ok(stat) => started_of(&stat).is_none_or(|started| started == self.started),
            Err(error) => {
                let gone = [Some(libc::ENOENT), Some(libc::ESRCH)].contains(&error.raw_os_error());
                !(gone && started(std::process::id()).is_some())
            }
        }
    }
}

fn started(id: u32) -> Option<u64> {
    started_of(&std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
}

/// Field 22. The second one is a name in brackets, which may hold anything.
fn started_of(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
}

fn namespace() -> Option<u64> {
    std::fs::metadata("/proc/self/ns/pid").ok().map(|found| found.ino())
}

fn boot() -> Option<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: Vec<char> = text.chars().filter(char::is_ascii_hexdigit).collect();
    let (pairs, rest) = digits.as_chunks::<2>();
    let byte =
        |[high, low]: &[char; 2]| Some(high.to_digit(16)? as u8 * 16 + low.to_digit(16)? as u8);
    let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
    rest.is_empty().then_some(bytes?)?.try_into().ok()
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;
