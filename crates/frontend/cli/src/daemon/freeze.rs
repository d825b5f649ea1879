//! The daemon's part of `siftfs freeze`: the volume is held while a command of the caller's makes a
//! snapshot. The hold ends with the caller's word, with the end of its connection, or with the term
//! that it named, whichever comes first.

use crate::control::messages::{Answer, Freeze, Freezing, MOST_WITHIN, Thaw, Thawed, VERSION};
use crate::control::messages::{receive, send};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use siftfs_base::Error;
use siftfs_placement::{Freezer, Frozen, Held};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SERVED: &str = "another process has the volume open and serves it: freeze a mount of that process, on its machine";

/// Holds the volume for the command at the other end of `stream`. Returns the last answer.
///
/// # Errors
/// The command has gone. The hold has ended.
pub fn freeze(
    freezer: Option<&Arc<Freezer>>,
    wanted: &Freeze,
    stream: &mut UnixStream,
) -> io::Result<Result<Value, String>> {
    let Some(freezer) = freezer else { return Ok(Err(SERVED.into())) };
    let within = Duration::from_secs(wanted.within_s);
    if within.is_zero() || within > MOST_WITHIN {
        return Ok(Err(format!("a volume is held for 1 to {} seconds", MOST_WITHIN.as_secs())));
    }
    let held = match freezer.freeze(within) {
        Ok(Frozen::Held(held)) => Some(held),
        Ok(Frozen::Plain) => None,
        Err(error) => return Ok(Err(refusal(&error, within))),
    };
    let until = held.as_ref().map(|held| held.since() + within);
    tracing::info!(held = held.is_some(), within_s = wanted.within_s, "frozen");
    let first = serde_json::to_value(Freezing { held: held.is_some() })?;
    send(stream, &Answer { version: VERSION, error: None, value: first })?;
    let spoke = wait(stream, until)?;
    let lasted = held.map_or(Ok(true), Held::thaw);
    let done = spoke && receive::<Thaw>(stream).is_ok();
    tracing::info!(done, "thawed");
    if spoke && !done {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let last = lasted.map(|lasted| Thawed { whole: lasted && done });
    let last = last.map_err(|error| format!("the end of the hold: {error}"));
    Ok(last.and_then(|last| serde_json::to_value(last).map_err(|e| e.to_string())))
}

/// Waits until the other end says something or has gone; false if it has not by then.
fn wait(stream: &UnixStream, until: Option<Instant>) -> io::Result<bool> {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = left.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(stream, PollFlags::IN)], timeout.as_ref()) {
            Ok(0) if left.is_some_and(|left| left.is_zero()) => return Ok(false),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
}

fn refusal(error: &Error, within: Duration) -> String {
    match error {
        Error::Posix(libc::EBUSY) => format!(
            "not everything could be brought into the area within {} s, and changes go on: name more by \
             --within, or try again",
            within.as_secs()
        ),
        Error::Posix(libc::ESHUTDOWN) => "it is being unmounted".into(),
        other => other.to_string(),
    }
}

#[cfg(test)]
#[path = "freeze_tests.rs"]
mod tests;
