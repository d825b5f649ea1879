//! `siftfs mount` of a volume that is mounted: its daemon makes one more mount.

use crate::command::closing;
use crate::command::remount;
use crate::control::client::{Daemon, Silence};
use crate::control::messages::{Attach, Attached, Attaching, Op, volume_socket_path};
use crate::options::args::Mount;
use crate::options::parsed::Options;
use crate::show::failure::{Failure, Outcome};
use crate::show::output::{complain, say};
use serde::Deserialize;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// How often is asked again: after a wait for a volume that was being closed, or because the daemon
/// does not take the question.
const TURNS: u32 = 8;
/// How long a daemon that closes its connection may take to end before it is asked again.
const ENDING: Duration = Duration::from_secs(2);

/// Mounts the volume on `dir` through the daemon that has it mounted. `None` if there is no such
/// daemon: then the volume is to be opened. A volume that is being closed is waited for.
///
/// # Errors
/// What the daemon refuses, and what keeps the mount from `dir`.
pub fn attach(
    a: &Mount,
    volume: &Path,
    dir: &Path,
    options: &Options,
) -> Result<Option<u8>, Failure> {
    let (mut last, mut refused) = (String::new(), false);
    for _ in 0..TURNS {
        let Some(mut daemon) = find(volume)? else { return Ok(None) };
        if a.foreground {
            return Err(Failure::about(
                volume,
                format!(
                    "it is mounted by {} already, which would serve this mount too: leave --foreground out",
                    daemon.name()
                ),
            ));
        }
        let wanted = Attach { options: words(a, options) };
        let said = daemon.ask(Op::Attach(wanted)).and_then(|()| daemon.answer());
        match said.and_then(made) {
            Ok(Some(warnings)) => {
                let put = put(&mut daemon, volume, dir)?;
                warnings.iter().for_each(|w| complain(format_args!("{}: {w}", dir.display())));
                if a.verbose {
                    let (volume, dir) = (volume.display(), dir.display());
                    say(format_args!("siftfs: {volume} mounted on {dir}"))?;
                }
                return Ok(Some(put));
            }
            Ok(None) => {
                closing::wait_closed(volume)?;
                last = "it is unmounted and mounted again and again".into();
            }
            // The kernel may not have told the daemon yet that its mount has gone.
            Err(Silence::Error(_)) if !refused && !closing::is_mounted(volume) => {
                closing::wait_closed(volume)?;
                refused = true;
            }
            // It was closed meanwhile, or died: then it is as if it were not mounted.
            Err(Silence::Ended) => {
                daemon.wait_end(ENDING);
                last = format!(
                    "its daemon ({}) serves too many commands at once, or is ending",
                    daemon.name()
                );
            }
            Err(other) => return Err(failure(volume, &daemon, &other)),
        }
    }
    Err(Failure::about(volume, format!("{last}: try again")))
}

/// The daemon that has the volume.
fn find(volume: &Path) -> Result<Option<Daemon>, Failure> {
    let Ok(socket) = volume_socket_path(volume) else { return Ok(None) };
    match Daemon::connect(&socket) {
        Ok(daemon) => Ok(Some(daemon)),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied && closing::is_mounted(volume) => {
            Err(Failure::about(
                volume,
                "it is mounted by another user: only that user and root may mount it once more",
            ))
        }
        Err(_) => Ok(None),
    }
}

/// The warnings of a mount that was made; `None` if the volume is being closed.
fn made(value: serde_json::Value) -> Result<Option<Vec<String>>, Silence> {
    match Attaching::deserialize(&value) {
        Ok(Attaching::Made { warnings }) => Ok(Some(warnings)),
        Ok(Attaching::Closing) => Ok(None),
        Err(e) => Err(Silence::Error(io::Error::other(e))),
    }
}

/// Puts the mount, whose descriptor comes now, on its directory, and waits until it is served.
fn put(daemon: &mut Daemon, volume: &Path, dir: &Path) -> Outcome {
    let tree = daemon.descriptor().map_err(|e| failure(volume, daemon, &e))?;
    if let Err(e) = siftfs_fuse::attach(tree.as_fd(), dir) {
        drop(tree);
        let hint =
            if e.raw_os_error() == Some(libc::EPERM) { " (mounting needs root)" } else { "" };
        // It tells the daemon's log, and the daemon need not wait for the connection's end.
        let _ = daemon.say(&Attached { done: false }).and_then(|()| daemon.answer());
        return Err(Failure::plain(format!("mount on {}: {e}{hint}", dir.display())));
    }
    match daemon.say(&Attached { done: true }).and_then(|()| daemon.answer()) {
        Ok(_) => Ok(0),
        Err(e) => {
            // A mount that nobody serves does not stay.
            let _ = siftfs_fuse::take_back(tree.as_fd());
            Err(failure(volume, daemon, &e))
        }
    }
}

fn failure(volume: &Path, daemon: &Daemon, silence: &Silence) -> Failure {
    match silence {
        Silence::Stopped => Failure::about(volume, daemon.stopped()),
        Silence::Error(e) => Failure::about(volume, e),
        Silence::Ended | Silence::Nothing => {
            Failure::about(volume, format!("its daemon ({}) ended meanwhile", daemon.name()))
        }
    }
}

/// What was said of the new mount, as `-o` has it, with paths that hold everywhere.
fn words(a: &Mount, options: &Options) -> Vec<String> {
    let paths =
        ["log", "log_spare", "record_area", "service", "service_fallback", "log_file", "log_level"];
    let named = |word: &String| paths.contains(&word.split('=').next().unwrap_or_default());
    let mut words = remount::meant(&a.options);
    words.retain(|word| !named(word));
    let mut add = |name: &str, value: Option<String>| {
        words.extend(value.map(|value| format!("{name}={value}")));
    };
    add("log", options.open.log.as_ref().map(|log| log.display().to_string()));
    add("log_spare", options.open.log_spare.as_ref().map(|spare| spare.display().to_string()));
    add("record_area", options.open.record_area_at.as_ref().map(ToString::to_string));
    add("service", options.service.address.as_ref().map(ToString::to_string));
    let fallback = options.service.fallback;
    add("service_fallback", fallback.map(|patience| patience.as_secs().to_string()));
    let file = a.log_file.as_ref().or(options.daemon.log_file.as_ref());
    let file = file.map(|log| std::path::absolute(log).unwrap_or_else(|_| log.clone()));
    add("log_file", file.map(|log| log.display().to_string()));
    let level = a.log_level.or(options.daemon.log_level);
    add("log_level", level.map(|level| level.name().to_string()));
    words
}
