//! Running e2fsck on the ext4 area, which starts at the volume's first byte, following how far it
//! is, and understanding how it ended.

use crate::helper::descriptor;
use crate::show::failure::{Failure, OPERATIONAL};
use crate::show::progress::Display;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::Signal;
use siftfs_placement::child::Child;
use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, Read, Write, pipe};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Longest line of progress, in bytes.
const MAX_LINE: u64 = 1 << 12;
/// How far the work is when each pass begins, in percent: the second half of the passes is quick.
const PASSES: [u64; 7] = [0, 0, 70, 90, 92, 95, 100];
/// e2fsck's bits: errors corrected, and corrected so that a system that runs from it must start
/// anew.
const CORRECTED_BITS: i32 = 1 | 2;
/// e2fsck's bit: errors left as they are.
const LEFT_BIT: i32 = 4;
/// What e2fsck says behind each error that it leaves: to a question, and where it may not ask.
const ERRORS_LEFT: [&str; 3] = ["? no", "IGNORED.", "UNEXPECTED INCONSISTENCY"];

/// How e2fsck ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With this exit status, whose bits fsck(8) describes.
    Exit(i32),
    /// By this signal, which was not ours.
    Signal(i32),
    /// e2fsck took so much processor time without getting further, and was killed.
    GivenUp(Duration),
}

/// What an end says about the ext4 area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing is wrong.
    Sound,
    /// Something was wrong, and is no more.
    Corrected,
    /// Something is wrong.
    Damaged,
    /// Nothing wrong was seen, but not everything was checked.
    Unseen,
}

/// What e2fsck said and how it ended.
pub struct Ran {
    /// How e2fsck ended.
    pub end: End,
    /// Standard output and standard error.
    pub text: String,
}

impl Ran {
    /// Judges the end, bit by bit. Damage that was seen outweighs an incomplete check. `may_repair`
    /// says that e2fsck was allowed to repair: a read-only check has corrected nothing, whatever it
    /// reports.
    pub fn verdict(&self, may_repair: bool) -> Verdict {
        let seen = || self.text.lines().any(|l| ERRORS_LEFT.iter().any(|e| l.contains(e)));
        match self.end {
            End::Exit(0) => Verdict::Sound,
            End::Exit(bits) if bits & LEFT_BIT != 0 => Verdict::Damaged,
            End::Exit(bits) if bits & CORRECTED_BITS != 0 && !may_repair => Verdict::Damaged,
            End::Exit(bits) if bits & !CORRECTED_BITS == 0 => Verdict::Corrected,
            _ if seen() => Verdict::Damaged,
            _ => Verdict::Unseen,
        }
    }

    /// Why it did not come to its end, for people.
    pub fn trouble(&self) -> Option<String> {
        match self.end {
            End::GivenUp(work) => Some(format!(
                "e2fsck was killed: it had worked for {} s without getting further, as it does when \
                 damage sends it in circles; --timeout gives it longer",
                work.as_secs()
            )),
            End::Signal(signal) => Some(format!("e2fsck was killed by signal {signal}")),
            End::Exit(_) => None,
        }
    }
}

/// Where progress goes, besides to the watch over a loop.
pub enum Progress<'a> {
    /// To people, if there are any.
    Shown(&'a mut Display),
    /// As e2fsck's own lines to this descriptor, which the caller opened.
    Passed(i32),
}

/// Runs `e2fsck FLAGS VOLUME`, which may take `idle_work` of processor time without getting
/// further.
///
/// # Errors
/// It is not installed, or its progress descriptor is invalid.
pub fn run(
    volume: &Path,
    flags: &str,
    idle_work: Option<Duration>,
    mut progress: Progress<'_>,
) -> Result<Ran, Failure> {
    let cannot = |what: String| Failure::about(volume, what).with_code(OPERATIONAL);
    let mut passed = match progress {
        Progress::Passed(fd) => Some(descriptor::copy(fd).map_err(|e| {
            cannot(format!("descriptor {fd}, where progress shall go, is not open: {e}"))
        })?),
        Progress::Shown(_) => None,
    };
    let started = || -> std::io::Result<(PipeReader, Child)> {
        let mut path = std::env::var_os("PATH").unwrap_or_default();
        path.push(":/usr/sbin:/sbin");
        let (lines, writer) = pipe()?;
        fcntl_setfd(&writer, FdFlags::empty())?;
        let mut command = Command::new("e2fsck");
        command.arg(flags).arg(format!("-C{}", writer.as_raw_fd())).arg("--").arg(volume);
        // One that repairs is to end in order.
        let on_death = if flags.contains('n') { Signal::KILL } else { Signal::TERM };
        Ok((lines, Child::start(command.env("PATH", path), on_death)?))
    };
    let (lines, child) =
        started().map_err(|e| cannot(format!("cannot run e2fsck ({e}); install e2fsprogs")))?;
    let further = AtomicU64::new(0);
    let ran = std::thread::scope(|scope| {
        scope.spawn(|| follow(lines, &further, &mut |line| show(&mut progress, &mut passed, line)));
        child.wait(idle_work, &further)
    });
    let out = ran.map_err(|e| cannot(format!("cannot wait for e2fsck: {e}")))?;
    let mut text = String::from_utf8_lossy(&out.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&out.stderr));
    let end = match (out.given_up, out.status.code()) {
        (Some(work), _) => End::GivenUp(work),
        (None, Some(bits)) => End::Exit(bits),
        (None, None) => End::Signal(out.status.signal().unwrap_or_default()),
    };
    Ok(Ran { end, text })
}

/// Takes the lines of progress to their end. `further` grows by each that says more than all
/// before: a check that begins anew has not got further.
fn follow(lines: PipeReader, further: &AtomicU64, show: &mut dyn FnMut(&[u8])) {
    let mut lines = BufReader::new(lines);
    let mut farthest = None;
    loop {
        let mut line = Vec::new();
        match lines.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(n) if n > 0 => {}
            _ => return,
        }
        let at = numbers(&String::from_utf8_lossy(&line)).map(|(pass, done, _)| (pass, done));
        if at > farthest {
            farthest = at;
            further.fetch_add(1, Ordering::AcqRel);
        }
        show(&line);
    }
}

fn show(progress: &mut Progress<'_>, passed: &mut Option<File>, line: &[u8]) {
    if let Some(file) = passed
        && file.write_all(line).is_err()
    {
        // Its reader has gone.
        *passed = None;
    }
    if let Progress::Shown(display) = progress
        && let Some(percent) = percent(&String::from_utf8_lossy(line))
    {
        display.update("checking the ext4 area", percent, 100);
    }
}

/// A line says pass, done, total and device.
fn numbers(line: &str) -> Option<(usize, u64, u64)> {
    let mut numbers = line.split_whitespace().map(str::parse::<u64>);
    let mut next = || numbers.next()?.ok();
    Some((usize::try_from(next()?).ok()?, next()?, next()?))
}

fn percent(line: &str) -> Option<u64> {
    let (pass, done, total) = numbers(line)?;
    let (start, end) = (*PASSES.get(pass)?, *PASSES.get(pass + 1)?);
    let part = u128::from(done.min(total)) * u128::from(end - start) / u128::from(total.max(1));
    Some(start + u64::try_from(part).ok()?)
}

#[cfg(test)]
#[path = "e2fsck_tests.rs"]
mod tests;
