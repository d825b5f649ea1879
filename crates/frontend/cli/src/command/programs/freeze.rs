//! `siftfs freeze`: a command that makes a snapshot, while its volume is held by the daemon.

use crate::command::live::{mount_of, sync_kernel, tell_lost};
use crate::control::client::{Daemon, Reached, Silence, has_died, reach};
use crate::control::messages::{self, Freezing, Op, Thaw, Thawed};
use crate::options::programs::Freeze;
use crate::show::failure::{Failure, Outcome};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use serde::Deserialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::io::{self, ErrorKind};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// As timeout(1) has it: the command was killed, or came too late.
const NO_SNAPSHOT: u8 = 124;
/// As env(1) and shells have them.
const NOT_RUN: u8 = 126;
const NO_PROGRAM: u8 = 127;
/// Added to the number of the signal that ended the command, as shells do.
const SIGNALLED: i32 = 128;
/// How often it is looked for a signal.
const LOOK: Duration = Duration::from_millis(100);
const NONE_MADE: &str = "what it has made is no snapshot: remove it";

/// How the command ended.
enum Ended {
    /// By itself.
    Itself(ExitStatus),
    /// It was killed, for this reason.
    Killed(&'static str),
}

/// `siftfs freeze`. The exit status is the command's own, if the snapshot is one.
pub fn freeze(a: &Freeze) -> Outcome {
    let lost = sync_kernel(&a.dir)?;
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        flag::register(signal, interrupted.clone()).map_err(Failure::plain)?;
    }
    let within = Duration::from_secs(a.within);
    let (mut daemon, held) = hold(a)?;
    let until = held.then(|| Instant::now() + within);
    let ended = match start(a) {
        Ok(child) => watch(child, &mut daemon, until, &interrupted).map_err(Failure::plain),
        Err(failure) => Err(failure),
    };
    // Whatever came of the command: what waits on the volume goes on now.
    let whole = thaw(&mut daemon);
    let code = match (ended?, whole) {
        (Ended::Killed(why), _) => return Err(no_snapshot(&a.dir, why)),
        (_, Err(why)) => return Err(no_snapshot(&a.dir, &why)),
        (Ended::Itself(status), Ok(())) => code_of(status),
    };
    tell_lost(&a.dir, lost).map(|_| code)
}

fn no_snapshot(dir: &Path, why: &str) -> Failure {
    Failure::about(dir, format!("{why}; {NONE_MADE}")).with_code(NO_SNAPSHOT)
}

/// Has the daemon hold the volume. Returns whether that was needed.
fn hold(a: &Freeze) -> Result<(Daemon, bool), Failure> {
    let mount = mount_of(&a.dir)?;
    let wanted = messages::Freeze { within_s: a.within };
    match reach(&a.dir, &mount, &Op::Freeze(wanted))? {
        Reached::Dead => Err(has_died(&a.dir, &mount)),
        Reached::Answers(daemon, value) => match Freezing::deserialize(&value) {
            Ok(Freezing { held }) => Ok((daemon, held)),
            Err(e) => Err(Failure::about(&a.dir, e)),
        },
    }
}

/// Starts the command in a process group of its own, so that all of it can be killed.
fn start(a: &Freeze) -> Result<Child, Failure> {
    let (program, arguments) =
        a.command.split_first().ok_or_else(|| Failure::plain("no command is named"))?;
    Command::new(program).args(arguments).process_group(0).spawn().map_err(|e| {
        let code = if e.kind() == ErrorKind::NotFound { NO_PROGRAM } else { NOT_RUN };
        Failure::about(Path::new(program), e).with_code(code)
    })
}

/// Waits for the command, until the hold ends or a signal comes: then the command is killed.
fn watch(
    mut child: Child,
    daemon: &mut Daemon,
    until: Option<Instant>,
    interrupted: &AtomicBool,
) -> io::Result<Ended> {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let group = group.ok_or_else(|| io::Error::other("a process without a number"))?;
    let process = pidfd_open(group, PidfdFlags::empty())?;
    let why = loop {
        if interrupted.load(Ordering::Relaxed) {
            break "interrupted, and the command was killed";
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            break "the command took too long, and was killed";
        }
        let [has_ended, speaks] =
            daemon.wait_beside(&process, left.map_or(LOOK, |left| left.min(LOOK)))?;
        if has_ended {
            return child.wait().map(Ended::Itself);
        }
        if speaks {
            break "the hold has ended before the command, which was killed";
        }
    };
    // It may have ended meanwhile. One that waits for the volume itself ends after the hold.
    let _ = kill_process_group(group, Signal::KILL);
    let _ = daemon.say(&Thaw {});
    child.wait()?;
    Ok(Ended::Killed(why))
}

/// Ends the hold; an error says why it had ended before.
fn thaw(daemon: &mut Daemon) -> Result<(), String> {
    let told = daemon.say(&Thaw {}).and_then(|()| daemon.answer());
    match told.map(|value| Thawed::deserialize(&value)) {
        Ok(Ok(Thawed { whole: true })) => Ok(()),
        Ok(Ok(Thawed { whole: false })) => Err("the hold had ended before the command".into()),
        Ok(Err(e)) => Err(e.to_string()),
        Err(Silence::Error(e)) => Err(e.to_string()),
        Err(Silence::Stopped) => Err(daemon.stopped()),
        Err(Silence::Ended | Silence::Nothing) => {
            Err(format!("its daemon ({}) ended meanwhile", daemon.name()))
        }
    }
}

fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(SIGNALLED + status.signal()?));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(NO_SNAPSHOT)
}
