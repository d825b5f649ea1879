//! The options of a volume and its mounts in their daemon, and which of them can be changed while
//! they are mounted.

use crate::control::messages::Change;
use crate::daemon::logging;
use crate::daemon::mounts::mounted::Mounted;
use crate::options::mount;
use crate::options::parsed::Options;
use crate::options::place::{self, absolute_place};
use crate::options::served;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use siftfs_fuse::{FuseMount, MountOptions, Switch, WriteBack};
use siftfs_placement::Remounter;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a change comes to.
#[derive(Serialize, Deserialize)]
pub struct Plan {
    /// Whether the volume is read-only then.
    pub read_only: bool,
    /// Whether it is now.
    pub was_read_only: bool,
    /// Whether each write is durable before it returns.
    pub sync: bool,
    /// It stays nosuid and nodev, whatever was said.
    pub bound: bool,
}

/// A mount's own options in its daemon.
pub struct OwnSettings {
    now: Mutex<Shown>,
    write_back: WriteBack,
    operations: Switch,
    read_only: Switch,
}

/// Options of a mount, and the words in which they were given.
#[derive(Clone)]
struct Shown {
    mount: MountOptions,
    words: String,
}

impl OwnSettings {
    /// The options that a mount was made with, and the words in which they were given.
    pub fn new(of: &FuseMount, mount: MountOptions, words: String) -> Self {
        Self {
            now: Mutex::new(Shown { mount, words }),
            write_back: of.write_back(),
            operations: of.operations(),
            read_only: of.read_only(),
        }
    }

    /// As they were given and changed.
    pub fn shown(&self) -> String {
        lock(&self.now).words.clone()
    }

    /// The options now.
    pub fn mount(&self) -> MountOptions {
        lock(&self.now).mount.clone()
    }

    fn set(&self, mount: MountOptions, more: &[String]) {
        self.write_back.set_every(mount.write_back_every);
        self.operations.set(mount.operations);
        let mut now = lock(&self.now);
        now.mount = mount;
        for word in more {
            if !now.words.split(',').any(|s| s == word) {
                let comma = if now.words.is_empty() { "" } else { "," };
                now.words += &format!("{comma}{word}");
            }
        }
    }
}

/// The volume's options in its daemon. Those of its mounts are [`OwnSettings`].
pub struct Settings {
    now: Mutex<Options>,
    /// None for a volume that another process has open.
    remounter: Option<Arc<Remounter>>,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Settings {
    /// The options that the volume was mounted with first.
    pub fn new(now: Options, remounter: Option<Arc<Remounter>>) -> Self {
        Self { now: Mutex::new(now), remounter }
    }

    /// The options of the volume, and of a mount that says nothing of its own.
    pub fn for_one_more(&self) -> Options {
        let now = lock(&self.now).clone();
        let mount = MountOptions { noatime: now.open.noatime, shared: true, ..mount::usual() };
        Options { mount, subdir: None, ..now }
    }

    /// Does what a command asks of a mount; one at a time. The volume is read-only when all its
    /// mounts are: `others` are those beside `front`.
    ///
    /// # Errors
    /// Which option cannot be changed, or why the volume cannot be; then nothing has changed.
    pub fn change(
        &self,
        front: &Mounted,
        others: &[Arc<Mounted>],
        change: &Change,
    ) -> Result<Value, String> {
        let mut now = lock(&self.now);
        let mount = front.settings.mount();
        let subdir = front.subdir.clone();
        let mut own = Options { mount, subdir, ..now.clone() };
        let volume_was_read_only = own.open.read_only;
        own.open.read_only = own.mount.read_only;
        let mut new = changed(&own, change)?;
        if self.remounter.is_none() {
            served::refuse(&change.options, &new)?;
        }
        let (read_only, was_read_only) = (new.mount.read_only, own.mount.read_only);
        let bound = unprivileged();
        let plan = Plan { read_only, was_read_only, sync: new.mount.sync, bound };
        let plan = serde_json::to_value(plan).map_err(|e| e.to_string())?;
        if change.only_check {
            return Ok(plan);
        }
        new.open.read_only = read_only && others.iter().all(|f| f.settings.mount().read_only);
        front.settings.read_only.set(read_only);
        if new.open.read_only && !volume_was_read_only {
            others.iter().for_each(|f| f.take_logs_in());
            front.take_logs_in();
        }
        let done = self.set_volume(volume_was_read_only, &new);
        done.inspect_err(|_| front.settings.read_only.set(was_read_only))?;
        if let Some(level) = new.daemon.log_level
            && now.daemon.log_level != Some(level)
        {
            logging::set_level(level)?;
        }
        tracing::info!(options = change.options.join(","), "remounted");
        front.settings.set(new.mount.clone(), &change.options);
        *now = new;
        Ok(plan)
    }

    /// Has the volume be as `new` says, if it is this process's.
    fn set_volume(&self, was_read_only: bool, new: &Options) -> Result<(), String> {
        let Some(remounter) = &self.remounter else { return Ok(()) };
        match (was_read_only, new.open.read_only) {
            (false, true) => remounter.make_read_only().map_err(|e| {
                format!("it stays writable, for not everything could be made durable: {e}")
            })?,
            (true, false) => remounter.make_writable().map_err(|e| e.to_string())?,
            _ => {}
        }
        remounter.tune(&new.open);
        Ok(())
    }
}

/// Is this the daemon of a user who is not the machine's root? What its mounts show is nothing that
/// the machine may believe: set-id bits and device files do not count there.
pub fn unprivileged() -> bool {
    // The map of the machine's own user namespace.
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let whole = map.split_whitespace().eq(["0", "0", "4294967295"]);
    !(rustix::process::geteuid().is_root() && whole)
}

/// The options after a change.
fn changed(now: &Options, change: &Change) -> Result<Options, String> {
    for word in &change.options {
        let mut one = mount::parse_onto(now.clone(), std::slice::from_ref(word), true)?;
        // As it was opened.
        one.open.log = one.open.log.map(|log| place::device(&log).unwrap_or(log));
        one.open.log_spare = one.open.log_spare.map(|spare| place::device(&spare).unwrap_or(spare));
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
    mount::parse_onto(base, &change.options, true)
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
    o.log_stall = was.log_stall;
    new.daemon.log_level = now.daemon.log_level;
    new == *now
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
