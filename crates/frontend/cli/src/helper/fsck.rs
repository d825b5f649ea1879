//! Called by fsck(8) and at boot under the name `fsck.siftfs`:
//! `fsck.siftfs [-apynfrvTlMPRVs] [-C[FD]] [-t TYPE] VOLUME`; one-letter options may be joined.

use crate::show::failure::{Failure, USAGE};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// The arguments of `siftfs fsck` for these of `fsck.siftfs` (the program's name left out).
///
/// # Errors
/// Wrong usage.
pub fn understand(given: impl Iterator<Item = OsString>) -> Result<Vec<OsString>, Failure> {
    let mut call = Call::default();
    let mut rest = given.peekable();
    while let Some(arg) = rest.next() {
        let bytes = arg.as_bytes();
        if bytes == b"--" {
            call.volumes.extend(rest);
            break;
        }
        if bytes.len() < 2 || bytes[0] != b'-' {
            call.volumes.push(arg);
            continue;
        }
        for (i, letter) in bytes.iter().enumerate().skip(1) {
            let joined = String::from_utf8_lossy(&bytes[i + 1..]);
            match letter {
                b'C' if joined.trim().is_empty() => {
                    let number = |next: &OsString| next.to_str().is_some_and(is_number);
                    call.progress = rest.next_if(number);
                    break;
                }
                b'C' if is_number(joined.trim()) => {
                    call.progress = Some(joined.trim().into());
                    break;
                }
                b't' => {
                    let mut named = || rest.next().map(|t| t.to_string_lossy().into_owned());
                    check_type(if joined.is_empty() { named() } else { Some(joined.into()) })?;
                    break;
                }
                letter => call.flag(*letter)?,
            }
        }
    }
    call.arguments()
}

fn is_number(text: &str) -> bool {
    text.parse::<i32>().is_ok_and(|n| n >= 0)
}

fn check_type(name: Option<String>) -> Result<(), Failure> {
    match name.as_deref() {
        Some("siftfs" | "fuse.siftfs") => Ok(()),
        Some(other) => Err(usage(&format!("type {other} is not siftfs"))),
        None => Err(usage("option -t needs a value")),
    }
}

#[derive(Default)]
struct Call {
    repair: Option<&'static str>,
    force: bool,
    progress: Option<OsString>,
    volumes: Vec<OsString>,
}

impl Call {
    fn flag(&mut self, letter: u8) -> Result<(), Failure> {
        match letter {
            b'a' | b'p' => self.repair("safe"),
            b'y' => self.repair("all"),
            b'n' => self.repair("nothing"),
            b'f' => {
                self.force = true;
                Ok(())
            }
            // It never asks, says what it finds in any case, and locks the volume in any case; the
            // rest is fsck(8)'s own.
            b'r' | b'v' | b's' | b'V' | b'T' | b'l' | b'M' | b'P' | b'R' => Ok(()),
            _ => Err(usage(&format!("unknown option -{}", char::from(letter)))),
        }
    }

    fn repair(&mut self, what: &'static str) -> Result<(), Failure> {
        if self.repair.is_some_and(|before| before != what) {
            return Err(usage("only one of -n, -p (or -a) and -y can be meant"));
        }
        self.repair = Some(what);
        Ok(())
    }

    fn arguments(self) -> Result<Vec<OsString>, Failure> {
        let mut all: Vec<OsString> = vec!["siftfs".into(), "fsck".into()];
        all.extend(["--repair".into(), self.repair.unwrap_or("nothing").into()]);
        if !self.force {
            all.push("--quick".into());
        }
        if let Some(fd) = self.progress {
            all.extend(["--progress-fd".into(), fd]);
        }
        match <[OsString; 1]>::try_from(self.volumes) {
            Ok(volume) => all.extend(["--".into()].into_iter().chain(volume)),
            Err(none) if none.is_empty() => return Err(usage("say which volume to check")),
            Err(_) => return Err(usage("one volume is checked at a time")),
        }
        Ok(all)
    }
}

fn usage(what: &str) -> Failure {
    Failure::plain(what).with_code(USAGE)
}

#[cfg(test)]
#[path = "fsck_tests.rs"]
mod tests;
