//! `mount -o remount`: changing the options of a volume that is mounted. The kernel's flags are
//! changed by the command, in its own mount namespace; the rest, and what read-only means beyond
//! the kernel, by the daemon.

use crate::args::Mount;
use crate::client::{Reached, has_died, reach};
use crate::control::{Change, Op};
use crate::failure::{Failure, Outcome, USAGE};
use crate::logging;
use crate::mount::{absolute_place, resolve};
use crate::options::{self, Options};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use siftfs_fuse::{MountEntry, MountOptions, Switch, WriteBack, top_mount};
use siftfs_placement::Remounter;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Words in the table of mounts that mount(8) repeats and the user did not give: the kernel's own,
/// and umount(8)'s.
const KERNELS: [&str; 7] =
    ["user_id", "group_id", "rootmode", "fd", "max_read", "blksize", "helper"];
const REMOUNT: &str = "remount";

/// What a change comes to.
#[derive(Serialize, Deserialize)]
struct Plan {
    read_only: bool,
    was_read_only: bool,
    sync: bool,
}

fn words(lists: &[String]) -> impl Iterator<Item = &str> {
    lists.iter().flat_map(|list| list.split(',')).filter(|word| !word.is_empty())
}

/// Do these options say that a mount is to be changed?
pub fn is_asked(lists: &[String]) -> bool {
    words(lists).any(|word| word == REMOUNT)
}

/// The words that are meant for us.
fn meant(lists: &[String]) -> Vec<String> {
    let name = |word: &str| word.split('=').next().unwrap_or_default().to_string();
    let ours = |word: &&str| *word != REMOUNT && !KERNELS.contains(&&name(word)[..]);
    words(lists).filter(ours).map(str::to_string).collect()
}

/// `siftfs mount VOLUME DIR -o remount,...`, and mount(8)'s helper.
pub fn remount(a: &Mount) -> Outcome {
    let about = |e: &dyn std::fmt::Display| Failure::about(&a.dir, e);
    let words = meant(&a.options);
    options::parse(&words, a.sloppy).map_err(|e| Failure::plain(e).with_code(USAGE))?;
    let dir = resolve(&a.dir).map_err(|e| about(&e))?;
    let mount = top_mount(&dir).map_err(|e| about(&e))?.filter(MountEntry::is_fuse);
    let mount = mount.ok_or_else(|| {
        about(&"not a SiftFS mount: remount changes the options of one that is there")
    })?;
    let volume = a.volume.canonicalize().unwrap_or_else(|_| a.volume.clone());
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
    options::parse_onto(now, &change.options, sloppy).map(|o| o.mount)
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

/// A mount's options in its daemon.
pub struct Settings {
    now: Mutex<Options>,
    /// As they were given.
    shown: Mutex<String>,
    remounter: Arc<Remounter>,
    write_back: WriteBack,
    operations: Switch,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Settings {
    /// The options that the volume was mounted with, and `shown`, the words in which they were
    /// given.
    pub fn new(
        now: Options,
        shown: String,
        remounter: Arc<Remounter>,
        (write_back, operations): (WriteBack, Switch),
    ) -> Self {
        let (now, shown) = (Mutex::new(now), Mutex::new(shown));
        Self { now, shown, remounter, write_back, operations }
    }

    /// As they were given and changed.
    pub fn shown(&self) -> String {
        lock(&self.shown).clone()
    }

    /// Does what a command asks; one at a time.
    ///
    /// # Errors
    /// Which option cannot be changed, or why the volume cannot be; then nothing has changed.
    pub fn change(&self, change: &Change) -> Result<Value, String> {
        let mut now = lock(&self.now);
        let new = changed(&now, change)?;
        let (read_only, was_read_only) = (new.open.read_only, now.open.read_only);
        let plan = Plan { read_only, was_read_only, sync: new.mount.sync };
        let plan = serde_json::to_value(plan).map_err(|e| e.to_string())?;
        if change.only_check {
            return Ok(plan);
        }
        match (was_read_only, read_only) {
            (false, true) => self.remounter.make_read_only().map_err(|e| {
                format!("it stays writable, for not everything could be made durable: {e}")
            })?,
            (true, false) => self.remounter.make_writable().map_err(|e| e.to_string())?,
            _ => {}
        }
        self.remounter.tune(&new.open);
        self.write_back.set_every(new.mount.write_back_every);
        self.operations.set(new.mount.operations);
        if let Some(level) = new.daemon.log_level
            && now.daemon.log_level != Some(level)
        {
            logging::set_level(level)?;
        }
        tracing::info!(options = change.options.join(","), "remounted");
        let mut shown = lock(&self.shown);
        for word in &change.options {
            let there = shown.split(',').any(|s| s == word);
            if !there {
                let comma = if shown.is_empty() { "" } else { "," };
                *shown += &format!("{comma}{word}");
            }
        }
        *now = new;
        Ok(plan)
    }
}

/// The options after a change.
fn changed(now: &Options, change: &Change) -> Result<Options, String> {
    for word in &change.options {
        let mut one = options::parse_onto(now.clone(), std::slice::from_ref(word), true)?;
        // As it was opened.
        one.open.log = one.open.log.map(|log| log.canonicalize().unwrap_or(log));
        let place = one.open.record_area_at.take();
        one.open.record_area_at = place.map(|p| absolute_place(&p).unwrap_or(p));
        if !may_become(now, one) {
            return Err(format!(
                "{word}: this cannot be changed while it is mounted; unmount it, and mount it again with that"
            ));
        }
    }
    let mut base = now.clone();
    if change.complete {
        let m = &mut base.mount;
        (m.read_only, m.nosuid, m.nodev, m.noexec) = (false, false, false, false);
        m.noatime = false;
        (base.open.read_only, base.open.noatime) = (false, false);
    }
    options::parse_onto(base, &change.options, true)
}

/// Do both differ only in what can be changed?
fn may_become(now: &Options, mut new: Options) -> bool {
    let (m, was) = (&mut new.mount, &now.mount);
    (m.read_only, m.nosuid, m.nodev, m.noexec) = (was.read_only, was.nosuid, was.nodev, was.noexec);
    m.noatime = was.noatime;
    m.operations = was.operations;
    // It follows `commit=`.
    m.write_back_every = was.write_back_every;
    let (o, was) = (&mut new.open, &now.open);
    (o.read_only, o.noatime) = (was.read_only, was.noatime);
    (o.commit_ms, o.group_wait_us, o.low_watermark) =
        (was.commit_ms, was.group_wait_us, was.low_watermark);
    (o.page_cache, o.meta_cache) = (was.page_cache, was.meta_cache);
    (o.record_area, o.discard) = (was.record_area, was.discard);
    new.daemon.log_level = now.daemon.log_level;
    new == *now
}

#[cfg(test)]
#[path = "remount_tests.rs"]
mod tests;
