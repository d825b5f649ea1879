//! `mount -o remount`: changing the options of a volume that is mounted. The kernel's flags are
//! changed by the command, in its own mount namespace; the rest, and what read-only means beyond
//! the kernel, by the daemon.

use crate::control::client::{Reached, has_died, reach};
use crate::control::messages::{Change, Op};
use crate::daemon::mounts::settings::Plan;
use crate::options::args::Mount;
use crate::options::mount as mount_options;
use crate::options::parsed::Options;
use crate::options::place::{self, resolve};
use crate::show::failure::{Failure, Outcome, USAGE};
use siftfs_fuse::{MountEntry, MountOptions, top_mount};

/// Words in the table of mounts that mount(8) repeats and the user did not give: the kernel's own,
/// and umount(8)'s.
const KERNELS: [&str; 7] =
    ["user_id", "group_id", "rootmode", "fd", "max_read", "blksize", "helper"];
const REMOUNT: &str = "remount";

fn words(lists: &[String]) -> impl Iterator<Item = &str> {
    lists.iter().flat_map(|list| list.split(',')).filter(|word| !word.is_empty())
}

/// Do these options say that a mount is to be changed?
pub fn is_asked(lists: &[String]) -> bool {
    words(lists).any(|word| word == REMOUNT)
}

/// The words that are meant for us.
pub fn meant(lists: &[String]) -> Vec<String> {
    let name = |word: &str| word.split('=').next().unwrap_or_default().to_string();
    let ours = |word: &&str| *word != REMOUNT && !KERNELS.contains(&&name(word)[..]);
    words(lists).filter(ours).map(str::to_string).collect()
}

/// `siftfs mount VOLUME DIR -o remount,...`, and mount(8)'s helper.
pub fn remount(a: &Mount) -> Outcome {
    let about = |e: &dyn std::fmt::Display| Failure::about(&a.dir, e);
    let words = meant(&a.options);
    mount_options::parse(&words, a.sloppy).map_err(|e| Failure::plain(e).with_code(USAGE))?;
    let dir = resolve(&a.dir).map_err(|e| about(&e))?;
    let mount = top_mount(&dir).map_err(|e| about(&e))?.filter(MountEntry::is_fuse);
    let mount = mount.ok_or_else(|| {
        about(&"not a SiftFS mount: remount changes the options of one that is there")
    })?;
    let volume = place::volume(&a.volume).unwrap_or_else(|_| a.volume.clone());
    if volume != mount.source {
        let (is, given) = (mount.source.display(), volume.display());
        return Err(about(&format!("the volume mounted there is {is}, not {given}")));
    }
    let change = Change { options: words, complete: a.helper, only_check: true };
    let plan = ask(a, &mount, &change)?;
    if a.fake {
        return Ok(0);
    }
    let mut flags = flags(&mount, &change, a.sloppy).map_err(Failure::plain)?;
    (flags.read_only, flags.sync) = (plan.read_only, plan.sync);
    (flags.nosuid, flags.nodev) = (flags.nosuid || plan.bound, flags.nodev || plan.bound);
    let change = Change { only_check: false, ..change };
    if !plan.read_only || plan.was_read_only {
        ask(a, &mount, &change)?;
        return set_flags(a, &mount, &flags).map(|()| 0);
    }
    // The kernel says whether something is open for writing, and lets nothing more through: then
    // the daemon makes everything durable.
    set_flags(a, &mount, &flags)?;
    ask(a, &mount, &change).inspect_err(|_| {
        let _ =
            siftfs_fuse::remount(&mount.mount_point, &MountOptions { read_only: false, ..flags });
    })?;
    Ok(0)
}

fn ask(a: &Mount, mount: &MountEntry, change: &Change) -> Result<Plan, Failure> {
    match reach(&a.dir, mount, &Op::Remount(change.clone()))? {
        Reached::Answers(_, value) => serde_json::from_value(value).map_err(|_| {
            Failure::about(
                &a.dir,
                "its daemon is of another version: unmount it and mount it again",
            )
        }),
        Reached::Dead => Err(has_died(&a.dir, mount)),
    }
}

/// The mount's own flags after the change: mount(8) names all flags that shall hold, users name
/// those that change.
fn flags(mount: &MountEntry, change: &Change, sloppy: bool) -> Result<MountOptions, String> {
    let mut now = Options::default();
    if !change.complete {
        let has = |option: &str| mount.has_option(option);
        let m = &mut now.mount;
        (m.nosuid, m.nodev, m.noexec) = (has("nosuid"), has("nodev"), has("noexec"));
        m.noatime = has("noatime");
    }
    mount_options::parse_onto(now, &change.options, sloppy).map(|o| o.mount)
}

fn set_flags(a: &Mount, mount: &MountEntry, flags: &MountOptions) -> Result<(), Failure> {
    siftfs_fuse::remount(&mount.mount_point, flags).map_err(|e| match e.raw_os_error() {
        Some(libc::EBUSY) => Failure::about(
            &a.dir,
            "in use: a file is open for writing there, or was removed and is still open (see `fuser -vm`); \
             close it, and remount it read-only then",
        ),
        Some(libc::EPERM) => Failure::about(&a.dir, "only root may remount"),
        _ => Failure::about(&a.dir, format!("the kernel does not remount it: {e}")),
    })
}
