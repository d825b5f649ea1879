//! What changes while the volume is open: some settings, and whether it may be changed at all.

use crate::config::Compact;
use crate::runtime::{MAX_ROUNDS, Runtime};
use crate::session::recall::end_leases;
use crate::state::log::running::Push;
use siftfs_base::{Result, Timestamp, errno};
use siftfs_ext4::own_bytes;
use siftfs_wire::Urgency;
use std::time::Duration;

/// Settings that may change while a volume is open; see [`crate::Config`] for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Age after which unsynced state is journaled.
    pub commit_age: Duration,
    /// Page cache bound in bytes.
    pub page_cache: u64,
    /// Clean metadata cache bound in bytes.
    pub meta_cache: u64,
    /// Bound of the adaptive group-commit wait.
    pub group_wait: Duration,
    /// Free share of staging or journal in percent below which a checkpoint starts.
    pub low_watermark: u64,
    /// Whether freed blocks are given back by themselves, where the storage can; `None`: as when
    /// the volume was opened.
    pub discard: Option<bool>,
    /// What the record area takes, where there is one.
    pub record_area: Compact,
    /// Keep no access times.
    pub noatime: bool,
}

impl Runtime {
    /// Puts new settings into effect. A cache that becomes smaller gives up what is clean with the
    /// next request.
    pub fn tune(&self, new: &Tuning) {
        let mut st = self.lock();
        st.metadata.log.config.commit_age = new.commit_age;
        st.metadata.log.config.low_watermark = new.low_watermark;
        st.metadata.log.config.noatime = new.noatime;
        let online = new.discard.unwrap_or(st.metadata.log.config.discard.online);
        st.discards.set_online(online);
        st.metadata.log.config.record_area = new.record_area;
        (st.metadata.log.config.page_cache, st.metadata.log.config.meta_cache) =
            (new.page_cache, new.meta_cache);
        st.pages.set_limit(new.page_cache);
        st.metadata.tree.meta.set_limit(new.meta_cache);
        st.metadata.log.config.group_wait = new.group_wait;
        st.shrink_caches(self.seq.oldest_unwritten());
        drop(st);
        self.seq.set_wait(new.group_wait);
        self.wake();
    }

    /// Refuses every change from now on. When this returns, everything done before is durable and
    /// in the area, the log is empty, and nothing is written any more. The caller has made sure
    /// that no thread changes anything meanwhile; a change that comes all the same is waited for.
    ///
    /// # Errors
    /// Something could not be made durable; changes are taken as before.
    pub fn make_read_only(&self) -> Result<()> {
        end_leases(self);
        let made = stop_changes(self);
        if made.is_err() {
            self.lock().leases.close(false);
        }
        made
    }

    /// How old unsynced state may become.
    pub fn commit_age(&self) -> Duration {
        self.lock().metadata.log.config.commit_age
    }

    /// The superblock on storage says since `now` that the volume is in use, as `marked` does: so
    /// does every copy that is written from here on (rule R15).
    pub fn note_marked(&self, marked: &[u8; 1024], now: Timestamp) {
        let mut st = self.lock();
        st.metadata.tree.fs.superblock.set_mount_time(now);
        st.metadata.tree.fs.superblock.set_marker(true);
        st.metadata.tree.fs.superblock.set_own_bytes(&own_bytes(marked));
    }

    /// Takes changes again.
    ///
    /// # Errors
    /// A latched failure (rule R21): only opening the volume again mends it.
    pub fn make_writable(&self) -> Result<()> {
        self.seq.check()?;
        let mut st = self.lock();
        st.metadata.log.config.read_only = false;
        st.leases.close(false);
        Ok(())
    }
}

/// Everything done before is durable and in the area, and no change is taken any more.
fn stop_changes(runtime: &Runtime) -> Result<()> {
    for _ in 0..MAX_ROUNDS {
        let _durable = runtime.sync_all()?;
        runtime.checkpoint(Urgency::Emergency)?;
        runtime.finish_discards()?;
        // No other thread makes a transaction meanwhile.
        let _assembly = runtime.assembly_lock();
        let mut st = runtime.lock();
        let idle = st.metadata.log.ledger.is_empty() && st.discards.is_idle();
        if idle && !st.has_work(&Push::All) {
            st.metadata.log.config.read_only = true;
            return Ok(());
        }
    }
    Err(errno(libc::EBUSY))
}
