//! Called by mount(8), umount(8) and fsck(8) under the names that they search for (`mount.siftfs`,
//! `mount.fuse.siftfs`, `umount.siftfs`, `umount.fuse.siftfs`, `fsck.siftfs`): their arguments, and
//! the exit status that they pass on.
//!
//! `mount.siftfs SPEC DIR [-sfnvrw] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]`,
//! `umount.siftfs DIR|SPEC [-flnrv] [-N NAMESPACE] [-t TYPE]`; one-letter options may be joined,
//! and come before or after the others.

use crate::show::failure::Failure;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// mount(8): wrong usage, or not permitted.
const MOUNT_USAGE: u8 = 1;
/// mount(8): the mount failed.
const MOUNT_FAILED: u8 = 32;
/// fsck(8): wrong usage.
const FSCK_USAGE: u8 = 16;

/// By what name the program was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// `siftfs`.
    Command,
    /// `siftfs fsck`, `recover` or `inspect`, or fsck(8)'s helper, which speak like fsck(8).
    Check,
    /// A helper of mount(8) or umount(8).
    Helper,
}

/// What the program was called for.
#[derive(Debug)]
pub struct Call {
    /// The arguments as if `siftfs` had been called.
    pub arguments: Vec<OsString>,
    /// Mount namespace to work in: a process number or a namespace's file.
    pub namespace: Option<OsString>,
}

impl Role {
    /// The status to exit with for `code`, as [`crate::show::failure`] has it.
    pub fn exit_status(self, code: u8) -> u8 {
        match (self, code) {
            (_, 0) => 0,
            (Role::Helper, crate::show::failure::USAGE) => MOUNT_USAGE,
            (Role::Helper, _) => MOUNT_FAILED,
            (Role::Check, crate::show::failure::USAGE) => FSCK_USAGE,
            (_, code) => code,
        }
    }

    /// As [`Role::exit_status`], for a command that failed: 1 means something else to fsck(8).
    pub fn failure_status(self, code: u8) -> u8 {
        match (self, code) {
            (Role::Check, crate::show::failure::FAILED) => crate::show::failure::OPERATIONAL,
            (role, code) => role.exit_status(code),
        }
    }

    /// The role that the arguments say, the program's name first.
    pub fn of(given: &[OsString]) -> Self {
        match name_of(given).split_once('.') {
            Some(("mount" | "umount", _)) => Role::Helper,
            Some(("fsck", _)) => Role::Check,
            _ => {
                let check = ["fsck", "recover", "inspect"].map(OsStr::new);
                let is_check = given.get(1).is_some_and(|c| check.contains(&c.as_os_str()));
                if is_check { Role::Check } else { Role::Command }
            }
        }
    }
}

/// The name that the program was called by.
fn name_of(given: &[OsString]) -> &str {
    given.first().and_then(|p| Path::new(p).file_name()?.to_str()).unwrap_or_default()
}

/// Understands how the program was called.
///
/// # Errors
/// Wrong usage of a helper.
pub fn understand(given: Vec<OsString>) -> Result<Call, Failure> {
    let command = match name_of(&given).split_once('.') {
        Some(("mount", _)) => "mount",
        Some(("umount", _)) => "umount",
        Some(("fsck", _)) => {
            let arguments = crate::helper::fsck::understand(given.into_iter().skip(1))?;
            return Ok(Call { arguments, namespace: None });
        }
        _ => return Ok(Call { arguments: given, namespace: None }),
    };
    let mut helper = Helper::new(command);
    let mut rest = given.into_iter().skip(1);
    while let Some(arg) = rest.next() {
        helper.take(arg, &mut rest)?;
    }
    let arguments = helper.arguments;
    Ok(Call { arguments, namespace: helper.namespace })
}

/// A helper's arguments being read.
struct Helper {
    mounting: bool,
    arguments: Vec<OsString>,
    namespace: Option<OsString>,
}

impl Helper {
    fn new(command: &str) -> Self {
        let mounting = command == "mount";
        let mut arguments = vec!["siftfs".into(), command.into()];
        arguments.extend(mounting.then(|| "--helper".into()));
        Self { mounting, arguments, namespace: None }
    }

    fn push(&mut self, arguments: &[&str]) {
        self.arguments.extend(arguments.iter().map(OsString::from));
    }

    /// One argument; a value that it wants is in its rest or comes next.
    fn take(
        &mut self,
        arg: OsString,
        rest: &mut impl Iterator<Item = OsString>,
    ) -> Result<(), Failure> {
        let bytes = arg.as_bytes();
        if bytes.len() < 2 || bytes[0] != b'-' || bytes[1] == b'-' {
            self.arguments.push(arg);
            return Ok(());
        }
        for (i, letter) in bytes.iter().enumerate().skip(1) {
            if matches!(letter, b'N' | b't') || (*letter == b'o' && self.mounting) {
                let joined = OsStr::from_bytes(&bytes[i + 1..]);
                let value = (!joined.is_empty()).then(|| joined.to_owned()).or_else(|| rest.next());
                return self.value(*letter, value);
            }
            self.flag(*letter)?;
        }
        Ok(())
    }

    fn flag(&mut self, letter: u8) -> Result<(), Failure> {
        match (letter, self.mounting) {
            (b'f', true) => self.push(&["--fake"]),
            (b's', true) => self.push(&["--sloppy"]),
            (b'v', true) => self.push(&["--verbose"]),
            (b'r', true) => self.push(&["-o", "ro"]),
            (b'w', true) => self.push(&["-o", "rw"]),
            (b'l', false) => self.push(&["--lazy"]),
            (b'f', false) => self.push(&["--force"]),
            // No mtab is kept; a failed umount leaves the mount as it was.
            (b'n', _) | (b'i', _) | (b'r' | b'v', false) => {}
            _ => return Err(usage(&format!("unknown option -{}", char::from(letter)))),
        }
        Ok(())
    }

    fn value(&mut self, letter: u8, value: Option<OsString>) -> Result<(), Failure> {
        let missing = || usage(&format!("option -{} needs a value", char::from(letter)));
        let value = value.ok_or_else(missing)?;
        match letter {
            b'N' => self.namespace = Some(value),
            b'o' => self.arguments.extend(["-o".into(), value]),
            _ => {
                let text = value.to_string_lossy();
                let subtype = match &*text {
                    "siftfs" | "fuse" | "fuse.siftfs" => None,
                    other => match other.strip_prefix("siftfs.") {
                        Some(subtype) if !subtype.is_empty() => Some(subtype),
                        _ => return Err(usage(&format!("type {other} is not siftfs"))),
                    },
                };
                if let (Some(subtype), true) = (subtype, self.mounting) {
                    self.push(&["-o", &format!("subtype={subtype}")]);
                }
            }
        }
        Ok(())
    }
}

fn usage(what: &str) -> Failure {
    Failure::plain(what).with_code(crate::show::failure::USAGE)
}

/// Enters a mount namespace, given as mount(8) gives it: a process number or the namespace's file.
/// The process must have one thread only.
///
/// # Errors
/// When there is no such namespace, or it may not be entered.
pub fn enter_namespace(namespace: &OsStr) -> Result<(), Failure> {
    let number = namespace.to_str().filter(|s| s.bytes().all(|b| b.is_ascii_digit()));
    let path = match number {
        Some(pid) => PathBuf::from(format!("/proc/{pid}/ns/mnt")),
        None => PathBuf::from(namespace),
    };
    let about = |e: &dyn std::fmt::Display| {
        Failure::about(&path, format!("cannot enter this mount namespace: {e}"))
    };
    let file = File::open(&path).map_err(|e| about(&e))?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Mount)).map_err(|e| about(&e))
}

#[cfg(test)]
#[path = "called_tests.rs"]
mod tests;
