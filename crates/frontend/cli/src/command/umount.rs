//! `siftfs umount`.
//!
//! A mount that is taken away may be the last of its file system or one of several (bind mounts,
//! other mount namespaces). The daemon closes the volume after the last one, and only then is there
//! something to wait for.

use crate::command::live::check_log_of;
use crate::control::client::{Daemon, Reached, Silence, is_served, is_there, reach};
use crate::control::messages::{Gone, Left, Op};
use crate::control::waiting::{PATIENCE, Waiting};
use crate::options::args::Umount;
use crate::options::parsed::ServedOptions;
use crate::options::place::{self, resolve};
use crate::options::served::{absolute, served};
use crate::options::target;
use crate::show::failure::{Failure, Outcome};
use crate::show::output::complain;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{OpenTreeFlags, open_tree};
use serde::Deserialize;
use serde_json::Value;
use siftfs_fuse::{
    Elsewhere, MountEntry, abort, detach, mounted_elsewhere, mounts, mounts_of, top_mount, unmount,
};
use siftfs_placement::StripePlace;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long another mount namespace may hold the volume before that is said: most are short-lived.
const FAREWELL: Duration = Duration::from_secs(5);
/// How long a daemon that has closed its volume may take to end.
const ENDING: Duration = Duration::from_secs(30);
const CLOSING: &str = "waiting for the daemon to bring everything into the ext4 area";

/// The mount on the directory `given`, or of the volume `given`: umount(8) takes both.
fn mounted_as(given: &Path) -> io::Result<Option<MountEntry>> {
    if let Some(mount) = top_mount(given)?.filter(MountEntry::is_fuse) {
        return Ok(Some(mount));
    }
    let volume = !std::fs::metadata(given).is_ok_and(|m| m.is_dir());
    let of_it = |m: &MountEntry| volume && m.is_fuse() && m.source == given;
    let found = mounts()?.into_iter().rev().find(of_it);
    match found {
        Some(mount) => Ok(top_mount(&mount.mount_point)?.filter(|top| top.id == mount.id)),
        None => Ok(None),
    }
}

/// The path as it was given, if a mount is there: nothing is asked then, and so nothing waits.
fn plain_mount_point(given: &Path) -> Option<PathBuf> {
    let dir: PathBuf = std::path::absolute(given).ok()?.components().collect();
    top_mount(&dir).ok()??;
    Some(dir)
}

/// Has the kernel send the times that it keeps: with the writeback cache it owns the ctime of a
/// file, which a rename or a link changes, and an unmount would not send it. Files that are open
/// make the unmount fail; all others have no dirty pages.
fn send_times(dir: &Path) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // Through a mount of its own, so that another unmount meanwhile does not find this one busy.
    let copy = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let root = open_tree(rustix::fs::CWD, dir, copy)
        .and_then(|tree| rustix::fs::openat(&tree, ".", flags, Mode::empty()));
    if let Ok(root) = root {
        // Times that differ by less than a tick are no reason not to unmount.
        let _ = rustix::fs::syncfs(&root);
    }
}

/// `siftfs umount`.
pub fn umount(a: &Umount) -> Outcome {
    let about = |e: &dyn std::fmt::Display| Failure::about(&a.dir, e);
    let named =
        plain_mount_point(&a.dir).map_or_else(|| target::named(&a.dir), |dir| Ok(Some(dir)));
    let stripes = StripePlace::parse(&a.dir).map(|_| place::volume(&a.dir)).transpose()?;
    let given = match named?.or(stripes) {
        Some(named) => named,
        None => match served(&a.dir, &ServedOptions::default()) {
            Ok(Some(served)) => absolute(&a.dir, &served).map_err(|e| about(&e))?,
            _ => resolve(&a.dir).map_err(|e| about(&e))?,
        },
    };
    let mount = mounted_as(&given).map_err(|e| about(&e))?;
    let mount = mount.ok_or_else(|| about(&"not a SiftFS mount"))?;
    if a.force {
        return force(a, &mount);
    }
    if a.log.is_some() {
        check_log_of(&a.dir, a.log.as_deref())?;
    }
    // Asked before the mount goes: the daemon waits for the clients that it serves, and no others.
    match reach(&a.dir, &mount, &Op::WaitClosed)? {
        Reached::Answers(daemon, left) => leave(a, &mount, daemon, left),
        Reached::Dead => leave_dead(a, &mount),
    }
}

/// Ends the kernel's connection, whatever the daemon does, and takes the mount away. A daemon that
/// lives then closes its volume.
fn force(a: &Umount, mount: &MountEntry) -> Outcome {
    let daemon = Daemon::of(mount).ok();
    let daemon = daemon.and_then(|mut d| d.ask(Op::WaitClosed).is_ok().then_some(d));
    match abort(mount) {
        Ok(()) => {}
        // It has ended by itself.
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {}
        Err(e) => return Err(refused(a, mount, &e)),
    }
    match detach(&mount.mount_point) {
        Err(e) if is_there(mount) => return Err(refused(a, mount, &e)),
        _ => {}
    }
    match daemon {
        Some(mut daemon) => wait_closed(a, mount, daemon.answer(), daemon),
        None => Err(died(a, mount)),
    }
}

/// Takes a mount away whose daemon lives.
fn leave(a: &Umount, mount: &MountEntry, daemon: Daemon, left: Value) -> Outcome {
    let dir = &mount.mount_point;
    // A served volume's kernel keeps none, and its server may be lost.
    if !is_served(mount) {
        send_times(dir);
    }
    let before = mounts_of(mount).unwrap_or_default();
    match if a.lazy { detach(dir) } else { unmount_patiently(dir) } {
        Ok(()) => {}
        // Another process took it away at the same time; both wait for the same end.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) && !is_there(mount) => {}
        Err(e) => return Err(refused(a, mount, &e)),
    }
    let now = mounts_of(mount).unwrap_or_default();
    let other = now.iter().find(|m| before.iter().any(|b| b.id == m.id && b.id != mount.id));
    if let Some(other) = other {
        tell_others(a, mount, Some(&other.mount_point));
        return Ok(0);
    }
    wait_closed(a, mount, Ok(left), daemon)
}

/// Says that the volume stays mounted.
fn tell_others(a: &Umount, mount: &MountEntry, on: Option<&PathBuf>) {
    let (dir, volume) = (a.dir.display(), mount.source.display());
    match on {
        Some(on) => complain(format_args!(
            "{dir}: unmounted; its volume {volume} stays mounted on {}",
            on.display()
        )),
        None => complain(format_args!("{dir}: unmounted; its volume {volume} stays mounted")),
    }
}

/// How long a mount may be in use without a word of it.
const MOMENT: Duration = Duration::from_secs(2);

/// Calls umount(2) again and again for a moment while the mount is in use. Its daemon checks the
/// mount now and then, has the kernel drop pages when its server is lost, and another unmount has
/// its times sent first; each keeps it in use for as long as that takes.
fn unmount_patiently(dir: &Path) -> io::Result<()> {
    let start = Instant::now();
    loop {
        match unmount(dir) {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) && start.elapsed() < MOMENT => {
                std::thread::sleep(Duration::from_millis(10));
            }
            result => return result,
        }
    }
}

fn refused(a: &Umount, mount: &MountEntry, e: &io::Error) -> Failure {
    let about = |what: &str| Failure::about(&a.dir, what);
    let below = |m: &MountEntry| {
        m.id != mount.id
            && m.mount_point != mount.mount_point
            && m.mount_point.starts_with(&mount.mount_point)
    };
    match e.raw_os_error() {
        Some(libc::EBUSY) => match mounts().unwrap_or_default().into_iter().rev().find(below) {
            Some(m) => about(&format!(
                "in use: {} is mounted below it; unmount that first, or use --lazy",
                m.mount_point.display()
            )),
            None => about(
                "in use: a process has a file open or its working directory there (see \
                 `fuser -vm`); end it, or use --lazy",
            ),
        },
        Some(libc::EPERM) => about("only root may unmount"),
        _ => Failure::about(&a.dir, e),
    }
}

/// Takes a mount away whose daemon has died. Its other mounts are of no use any more either; they
/// are left to the users who made them.
fn leave_dead(a: &Umount, mount: &MountEntry) -> Outcome {
    detach(&mount.mount_point).map_err(|e| Failure::about(&a.dir, e))?;
    Err(died(a, mount))
}

fn died(a: &Umount, mount: &MountEntry) -> Failure {
    let volume = mount.source.display();
    let then = match is_served(mount) {
        true => format!("its volume is the server's at {volume}: mount it again"),
        false => format!(
            "but the volume is not plain ext4 yet: run `siftfs recover {volume}`, or mount it again"
        ),
    };
    let what = format!("its daemon had died; the mount is detached, {then}");
    Failure::about(&a.dir, what)
}

/// Waits until the daemon has closed the volume and is gone; not if the mount was not the last one.
fn wait_closed(
    a: &Umount,
    mount: &MountEntry,
    mut said: Result<Value, Silence>,
    mut daemon: Daemon,
) -> Outcome {
    let about = |what: &str| Failure::about(&a.dir, what);
    let mut waiting = Waiting::new(&a.dir, CLOSING);
    let mut look = waiting.since() + FAREWELL;
    loop {
        match said {
            Ok(value) => {
                if let Ok(Gone { stays_on }) = Gone::deserialize(&value) {
                    tell_others(a, mount, stays_on.last());
                    return Ok(0);
                }
                let Ok(left) = Left::deserialize(&value) else { break };
                if left.mounted == Some(true) && Instant::now() >= look {
                    if is_held(a, mount, waiting.since()) {
                        return Ok(0);
                    }
                    look = Instant::now() + FAREWELL;
                }
                waiting.update(left);
            }
            Err(Silence::Nothing) => waiting.goes_on(),
            Err(Silence::Stopped) => return Err(about(&daemon.stopped())),
            Err(Silence::Error(e)) => return Err(Failure::about(&a.dir, e)),
            Err(Silence::Ended) => {
                if is_served(mount) {
                    return Err(died(a, mount));
                }
                let volume = mount.source.display();
                return Err(about(&format!(
                    "the daemon died before the volume was plain ext4; nothing acknowledged is lost: \
                     run `siftfs recover {volume}`, or mount it again"
                )));
            }
        }
        said = daemon.answer();
    }
    drop(waiting);
    match daemon.wait_end(ENDING) {
        true => Ok(0),
        false => Err(about("the volume is closed, but its daemon does not end")),
    }
}

/// Does something else hold the file system? If so, that is reported, and the unmount does not wait
/// for it. A lazy unmount waits for programs with open files, but not for other mounts.
fn is_held(a: &Umount, mount: &MountEntry, since: Instant) -> bool {
    let (dir, volume) = (a.dir.display(), mount.source.display());
    if let Some(Elsewhere { pid, program, mount_point }) = mounted_elsewhere(mount) {
        complain(format_args!(
            "{dir}: unmounted here; its volume {volume} stays mounted on {} in another mount namespace, that \
             of process {pid} ({program}), until that ends or unmounts it",
            mount_point.display()
        ));
        return true;
    }
    if a.lazy || since.elapsed() < PATIENCE {
        return false;
    }
    complain(format_args!(
        "{dir}: unmounted here; its volume {volume} stays in use by a program that has a file open on a mount \
         of it that was detached before, or in a mount namespace that cannot be seen from here"
    ));
    true
}
