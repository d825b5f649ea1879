//! What changes while a volume is open: settings, and whether it may be changed.

use crate::mount::open::{Pair, Volume};
use crate::options::OpenOptions;
use siftfs_base::{Clock, Error, Result};
use siftfs_log::EpochKey;
use siftfs_runtime::{Runtime, Tuning};
use siftfs_volume::HostSlots;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Changes an open volume's settings, from any thread.
pub struct Remounter {
    runtime: Arc<Runtime>,
    clock: Arc<dyn Clock>,
    host: Arc<Mutex<HostSlots>>,
    key: EpochKey,
    unmarked: Mutex<Option<Unmarked>>,
}

/// A volume that was opened read-only: neither header nor superblock says that it is in use.
pub(crate) struct Unmarked {
    pub volume: Volume,
    /// May its devices be written?
    pub writable: bool,
}

impl Remounter {
    pub(crate) fn new(pair: &Pair, clock: Arc<dyn Clock>, unmarked: Option<Unmarked>) -> Self {
        let (runtime, host) = (pair.runtime.clone(), pair.host.clone());
        Self { runtime, clock, host, key: pair.key, unmarked: Mutex::new(unmarked) }
    }

    fn unmarked(&self) -> MutexGuard<'_, Option<Unmarked>> {
        self.unmarked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does the volume say that it is in use, so that closing it has to take that back?
    pub(crate) fn is_marked(&self) -> bool {
        self.unmarked().is_none()
    }

    /// Puts those settings of `opts` into effect that a Runtime takes while it runs.
    pub fn tune(&self, opts: &OpenOptions) {
        self.runtime.tune(&Tuning {
            commit_age: Duration::from_millis(opts.commit_ms),
            page_cache: opts.page_cache,
            meta_cache: opts.meta_cache,
            group_wait: Duration::from_micros(opts.group_wait_us),
            low_watermark: u64::from(opts.low_watermark),
            discard: opts.discard,
            record_area: opts.record_area,
            noatime: opts.noatime,
        });
    }

    /// See [`Runtime::make_read_only`]. The marker stays until the volume is closed: a crash before
    /// that needs a recovery, which finds an empty log.
    ///
    /// # Errors
    /// Something could not be made durable; nothing has changed.
    pub fn make_read_only(&self) -> Result<()> {
        self.runtime.make_read_only()
    }

    /// Takes changes. One that was opened read-only is first marked, as opening it for writing
    /// would have done: header, then superblock, then the first append (rule R15).
    ///
    /// # Errors
    /// Its storage is write-protected, it has features that only readers may ignore, something else
    /// has used it uncleanly, or writing failed.
    pub fn make_writable(&self) -> Result<()> {
        let mut unmarked = self.unmarked();
        if let Some(Unmarked { volume, writable }) = &*unmarked {
            volume.media.read_to_write()?;
            if !writable {
                return Err(Error::Refused(
                    "the volume or its log is write-protected: only a read-only mount can use it"
                        .into(),
                ));
            }
            // The Service has regions of its own; it was never sent anything to write.
            let storage = volume.storage()?;
            let mut host = self.host.lock().unwrap_or_else(PoisonError::into_inner);
            let now = self.clock.now();
            let superblock = volume.note_mounted(&storage, &mut host, self.key, now)?;
            self.runtime.note_marked(&superblock, now);
            *unmarked = None;
        }
        self.runtime.make_writable()
    }
}
