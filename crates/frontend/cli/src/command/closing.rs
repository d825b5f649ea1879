//! Waiting for an unmount that is under way: a volume that is about to be closed is not in use for
//! ever.

use crate::control::client::{Daemon, Silence, dies, ends_abandoned, is_there};
use crate::control::messages::{Left, Op, volume_socket_path};
use crate::control::waiting::Waiting;
use crate::options::place;
use crate::show::failure::Failure;
use crate::show::output::complain;
use serde::Deserialize;
use siftfs_fuse::{MountEntry, mounts};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a mount that a command is about to take away may stay.
const LEAVING: Duration = Duration::from_secs(30);
/// How long the kernel may take to tell a daemon that its mount has gone.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long closing a volume may take without any less being left to do.
const STANDSTILL: Duration = Duration::from_secs(60);
/// How long a daemon that has closed its volume may take to end.
const ENDING: Duration = Duration::from_secs(30);
const WHAT: &str = "waiting for the volume's last unmount to end";

/// Is this mount about to go, or gone? Waits, but not for ever, for a mount that a command is
/// taking away, and for a daemon that is ending. Returns false at once if neither is the case.
///
/// # Errors
/// The daemon does not run.
pub fn is_going(mount: &MountEntry) -> Result<bool, Failure> {
    let Ok(mut daemon) = Daemon::of(mount) else {
        return Ok(dies(mount) || !is_there(mount));
    };
    let until = Instant::now() + LEAVING;
    let mut said = daemon.ask(Op::Watch).and_then(|()| daemon.answer());
    while is_there(mount) && Instant::now() < until {
        match said {
            Ok(value) if Left::deserialize(&value).is_ok_and(|l| l.leaving) => {}
            Ok(_) | Err(Silence::Error(_)) => return Ok(!is_there(mount)),
            Err(Silence::Stopped) => {
                return Err(Failure::about(&mount.mount_point, daemon.stopped()));
            }
            // Then its connection goes, too, and the next command that asks sees it.
            Err(Silence::Ended | Silence::Nothing) => return Ok(daemon.wait_end(ENDING)),
        }
        said = daemon.answer();
    }
    Ok(!is_there(mount))
}

/// Waits until the volume is closed, if its mount has gone and the daemon still closes it. Returns
/// at once if the volume is mounted, or if no daemon has it: opening it shows whether it can be
/// opened.
///
/// # Errors
/// It takes too long, or the daemon does not run.
pub fn wait_closed(volume: &Path) -> Result<(), Failure> {
    let Ok(socket) = volume_socket_path(volume) else { return Ok(()) };
    let Ok(mut daemon) = Daemon::connect(&socket) else { return Ok(()) };
    let about = |what: &str| Failure::about(volume, what);
    let mut said = daemon.ask(Op::Watch).and_then(|()| daemon.answer());
    let mut waiting = Waiting::new(volume, WHAT);
    let start = Instant::now();
    loop {
        match said {
            Ok(value) => match Left::deserialize(&value) {
                Ok(left) if left.mounted == Some(false) => waiting.update(left),
                Ok(_) if start.elapsed() < FAREWELL && !is_mounted(volume) => {}
                Ok(_) => return Ok(()),
                Err(_) => break,
            },
            Err(Silence::Stopped) => return Err(about(&daemon.stopped())),
            // It was closed, or its daemon died: then the next one recovers it.
            Err(Silence::Ended) => break,
            Err(Silence::Nothing) => waiting.goes_on(),
            Err(Silence::Error(_)) => return Ok(()),
        }
        if waiting.stands_since() >= STANDSTILL {
            return Err(about(&format!(
                "it is still being unmounted by {}, which has not got further for {} s: wait for that process \
                 to end",
                daemon.name(),
                STANDSTILL.as_secs()
            )));
        }
        said = daemon.answer();
    }
    daemon.wait_end(ENDING);
    Ok(())
}

/// Ends the connections of mounts of the volume that a daemon left when it died. Others that wait
/// there would wait for ever.
pub fn end_abandoned(volume: &Path) {
    let volume = place::volume(volume).unwrap_or_else(|_| volume.to_path_buf());
    for mount in mounts().unwrap_or_default() {
        if mount.source == volume && ends_abandoned(&mount) {
            let dir = mount.mount_point.display();
            complain(format_args!("{dir}: ended the mount, whose daemon had died"));
        }
    }
}

/// Does this mount namespace show it mounted?
pub fn is_mounted(volume: &Path) -> bool {
    let volume = place::volume(volume).unwrap_or_else(|_| volume.to_path_buf());
    mounts().is_ok_and(|all| all.iter().any(|m| m.is_fuse() && m.source == volume))
}
