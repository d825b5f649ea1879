//! Running e2fsck on the ext4 area, which starts at the volume's first byte, and following how far it is.

use crate::failure::{Failure, OPERATIONAL};
use crate::progress::Display;
use rustix::io::{FdFlags, fcntl_setfd};
use std::io::{BufRead, BufReader, PipeReader, Read, pipe};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Longest line of progress, in bytes.
const MAX_LINE: u64 = 1 << 12;
/// How far the work is when each pass begins, in percent: the second half of the passes is quick.
const PASSES: [u64; 7] = [0, 0, 70, 90, 92, 95, 100];

/// What it said and how it ended.
pub struct Ran {
    /// fsck(8)'s exit status.
    pub status: i32,
    /// Standard output and standard error.
    pub text: String,
}

/// Where progress goes.
pub enum Progress<'a> {
    /// To people, if there are any.
    Shown(&'a mut Display),
    /// As e2fsck's own lines to this descriptor, which the caller opened.
    Passed(i32),
}

/// Runs `e2fsck FLAGS VOLUME`.
///
/// # Errors
/// It is not installed, or was killed.
pub fn run(volume: &Path, flags: &str, progress: Progress<'_>) -> Result<Ran, Failure> {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    let mut command = Command::new("e2fsck");
    command.arg(flags).env("PATH", path).stdin(Stdio::null());
    let ran = match progress {
        Progress::Passed(fd) => command.arg(format!("-C{fd}")).arg(volume).output(),
        Progress::Shown(display) if display.is_shown() => followed(&mut command, volume, display),
        Progress::Shown(_) => command.arg(volume).output(),
    };
    let out = ran.map_err(|e| {
        Failure::about(volume, format!("cannot run e2fsck ({e}); install e2fsprogs"))
            .with_code(OPERATIONAL)
    })?;
    let mut text = String::from_utf8_lossy(&out.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&out.stderr));
    let killed = || Failure::about(volume, "e2fsck was killed").with_code(OPERATIONAL);
    Ok(Ran { status: out.status.code().ok_or_else(killed)?, text })
}

/// As `Command::output`, showing how far it is meanwhile.
fn followed(
    command: &mut Command,
    volume: &Path,
    display: &mut Display,
) -> std::io::Result<Output> {
    let (lines, writer) = pipe()?;
    fcntl_setfd(&writer, FdFlags::empty())?;
    command.arg(format!("-C{}", writer.as_raw_fd())).arg(volume);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    // The pipe ends with e2fsck.
    drop(writer);
    std::thread::scope(|scope| {
        scope.spawn(|| follow(lines, display));
        child.wait_with_output()
    })
}

fn follow(lines: PipeReader, display: &mut Display) {
    let mut lines = BufReader::new(lines);
    loop {
        let mut line = Vec::new();
        match lines.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(n) if n > 0 => {}
            _ => return,
        }
        if let Some(percent) = percent(&String::from_utf8_lossy(&line)) {
            display.update("checking the ext4 area", percent, 100);
        }
    }
}

/// A line says pass, done, total and device.
fn percent(line: &str) -> Option<u64> {
    let mut numbers = line.split_whitespace().map(str::parse::<u64>);
    let mut next = || numbers.next()?.ok();
    let (pass, done, total) = (usize::try_from(next()?).ok()?, next()?, next()?);
    let (start, end) = (*PASSES.get(pass)?, *PASSES.get(pass + 1)?);
    let part = u128::from(done.min(total)) * u128::from(end - start) / u128::from(total.max(1));
    Some(start + u64::try_from(part).ok()?)
}

#[cfg(test)]
#[path = "e2fsck_tests.rs"]
mod tests;
