//! A mount's options in its daemon, and which of them can be changed while it is mounted.

use crate::control::messages::Change;
use crate::daemon::logging;
use crate::options::mount;
use crate::options::parsed::Options;
use crate::options::place::absolute_place;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use siftfs_fuse::{Switch, WriteBack};
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
        let mut one = mount::parse_onto(now.clone(), std::slice::from_ref(word), true)?;
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
    new.daemon.log_level = now.daemon.log_level;
    new == *now
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
