//! One more mount of the volume, for a command that asks for it. The daemon makes the mount, which
//! is nowhere then, and sends the command its descriptor; the command puts it on the directory. So
//! who may mount where, and on what a path leads to, is decided by the kernel for the caller, and
//! in the caller's mount namespace.

use crate::control::messages::{Answer, Attach, Attached, Attaching, VERSION, receive, send};
use crate::control::passing;
use crate::daemon::mounts::live::{Mounts, NoPlace, Place};
use crate::daemon::mounts::mounted::{Mounted, Wanted};
use crate::daemon::mounts::settings::{Settings, unprivileged};
use crate::daemon::mounts::subdir;
use crate::options::mount;
use crate::options::parsed::Options;
use crate::options::place::{self, absolute_place};
use serde_json::Value;
use siftfs_fuse::{FuseMount, MountOptions, NewMount, WriteCache};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// How long a command may take to put a mount on its directory: others may keep that one locked.
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes a mount of the volume for the command at the other end of `stream`, which is process
/// `pid`. Returns the last answer.
///
/// # Errors
/// The command has gone.
pub fn attach(
    mounts: &Arc<Mounts>,
    settings: &Settings,
    ask: &Attach,
    (stream, pid): (&mut UnixStream, i32),
) -> io::Result<Result<Value, String>> {
    let place = match mounts.begin() {
        Ok(place) => place,
        Err(NoPlace::Closing) => return Ok(document(&Attaching::Closing)),
        Err(NoPlace::TooMany) => return Ok(Err("it is mounted too often already".into())),
    };
    let (made, wanted) = match make(mounts, settings, ask, pid) {
        Ok(made) => made,
        Err(why) => return Ok(Err(why)),
    };
    let first = document(&Attaching::Made { warnings: wanted.warnings.clone() });
    let first = first.map_err(io::Error::other)?;
    send(stream, &Answer { version: VERSION, error: None, value: first })?;
    passing::send(&*stream, made.tree())?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let told = receive::<Attached>(stream);
    // Whatever the command says, or has come to: the mount is there or it is not.
    let Some(mount) = made.attached()? else {
        let why = match told {
            Ok(Attached { done: true }) => OUTSIDE.into(),
            Ok(_) => "it was not put on a directory".into(),
            Err(e) => format!("the command that asked for it has gone: {e}"),
        };
        return Ok(Err(why));
    };
    Ok(serve(mounts, place, mount, wanted))
}

const OUTSIDE: &str = "it is not to be seen where the volume's daemon is: the directory is in another mount namespace";

fn serve(
    mounts: &Arc<Mounts>,
    place: Place,
    mount: FuseMount,
    wanted: Wanted,
) -> Result<Value, String> {
    let served = mounts.serve(place, mount, wanted);
    served.map(|()| Value::Null).map_err(|e| format!("it cannot be served: {e}"))
}

/// A mount that is nowhere yet.
fn make(
    mounts: &Mounts,
    settings: &Settings,
    ask: &Attach,
    pid: i32,
) -> Result<(NewMount, Wanted), String> {
    may_share(&mounts.live())?;
    same_namespace(pid)?;
    let usual = settings.for_one_more();
    let (mut options, mut warnings) = (attached(&usual, &ask.options)?, Vec::new());
    if usual.open.read_only && !options.mount.read_only {
        options.mount.read_only = true;
        warnings.push("mounted read-only, because the volume is".into());
    }
    // Its directory stays looked up until the mount holds it.
    let found = subdir::find(mounts, options.subdir.as_deref())?;
    options.mount.root = found.ino;
    bind(&mut options);
    let made = mounts.open_front(&options.mount)?;
    Ok((made, Wanted { options, shown: ask.options.join(","), warnings }))
}

/// What holds for every mount of this daemon, whatever was said.
pub fn bind(options: &mut Options) {
    if unprivileged() {
        (options.mount.nosuid, options.mount.nodev) = (true, true);
    }
}

/// May there be one more mount beside these?
fn may_share(live: &[Arc<Mounted>]) -> Result<(), String> {
    match live.iter().find(|front| !front.settings.mount().shared) {
        None => Ok(()),
        Some(front) => {
            let dir = front.entry.mount_point.display();
            Err(format!(
                "in use by process {} (siftfs), which has it mounted on {dir} without the option `shared`: \
                 then it can have no other mount; unmount it (`siftfs umount {dir}`), and mount it there \
                 again with -o shared (-o share for mount(8) and fstab)",
                std::process::id()
            ))
        }
    }
}

/// A mount belongs where its daemon sees it.
fn same_namespace(pid: i32) -> Result<(), String> {
    let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt"));
    let own = of("self").map_err(|e| format!("its mount namespace is not to be seen: {e}"))?;
    match of(&pid.to_string()) {
        Ok(theirs) if theirs == own => Ok(()),
        Ok(_) => Err(format!(
            "its daemon (process {}) is in another mount namespace: mount it once more from there \
             (nsenter -m -t {})",
            std::process::id(),
            std::process::id()
        )),
        Err(_) => {
            Err("it cannot be seen whether the caller is in the mount namespace of its daemon"
                .into())
        }
    }
}

/// The options of one more mount: `usual`, changed by `words`. What belongs to the volume may be
/// said, if it is as it is.
fn attached(usual: &Options, words: &[String]) -> Result<Options, String> {
    // That it is shared is not said.
    let plain = MountOptions { shared: false, ..usual.mount.clone() };
    let plain = Options { mount: plain, ..usual.clone() };
    for word in words {
        let one = mount::parse_onto(plain.clone(), std::slice::from_ref(word), true)?;
        let mut volume = Options { mount: plain.mount.clone(), subdir: None, ..one };
        // Each mount has its own.
        volume.open.read_only = plain.open.read_only;
        // As the first mount's were taken.
        volume.open.log = volume.open.log.map(|log| place::device(&log).unwrap_or(log));
        volume.open.log_spare =
            volume.open.log_spare.map(|spare| place::device(&spare).unwrap_or(spare));
        let place = volume.open.record_area_at.take();
        volume.open.record_area_at = place.map(|p| absolute_place(&p).unwrap_or(p));
        if volume != plain {
            return Err(format!(
                "{word}: this belongs to the volume, which is mounted already and has it otherwise: leave \
                 it out, or change the volume's with -o remount where that is possible"
            ));
        }
    }
    let mut all = mount::parse_onto(plain, words, true)?;
    if all.mount.write_cache == WriteCache::Writeback {
        return Err(NO_WRITEBACK.into());
    }
    all.mount.shared = true;
    Ok(all)
}

const NO_WRITEBACK: &str = "write_cache=writeback and a second mount exclude each other: the other mounts would \
                            not see what the kernel holds back; leave it out";

fn document(value: &impl serde::Serialize) -> Result<Value, String> {
    serde_json::to_value(value).map_err(|e| e.to_string())
}

#[cfg(test)]
#[path = "attach_tests.rs"]
mod tests;
