//! What changes while a volume is open: settings, and whether it may be changed.

use crate::mount::open::{Pair, Volume};
use crate::options::OpenOptions;
use crate::volume::marker::SuperBytes;
use siftfs_base::{Clock, Error, Result};
use siftfs_log::{EpochKey, RegistryName};
use siftfs_runtime::{Runtime, Tuning};
use siftfs_volume::HostSlots;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Changes an open volume's settings, from any thread.
pub struct Remounter {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) host: Arc<Mutex<HostSlots>>,
    pub(crate) key: EpochKey,
    pub(crate) volume: Volume,
    mark: Mutex<Mark>,
}

/// What header and superblock on storage say of the volume.
pub(crate) enum Mark {
    /// The volume was opened read-only: neither says that it is in use.
    Unmarked {
        /// May its devices be written?
        writable: bool,
    },
    /// Both say that it is in use.
    Marked,
    /// Neither says so, as long as a hold lasts.
    Frozen {
        /// Tells the hold from all others.
        number: u64,
        /// The primary superblock under it.
        plain: Box<SuperBytes>,
        /// The registry of private logs that the header named before.
        registry: Option<RegistryName>,
    },
}

impl Remounter {
    pub(crate) fn new(pair: &Pair, clock: Arc<dyn Clock>, volume: Volume, mark: Mark) -> Self {
        let (runtime, host) = (pair.runtime.clone(), pair.host.clone());
        Self { runtime, clock, host, key: pair.key, volume, mark: Mutex::new(mark) }
    }

    /// What the volume says of itself. It stays so until this is dropped.
    pub(crate) fn mark(&self) -> MutexGuard<'_, Mark> {
        self.mark.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The host's header slots. They come behind [`Remounter::mark`].
    pub(crate) fn host(&self) -> MutexGuard<'_, HostSlots> {
        self.host.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does the volume say that it is in use, so that closing it has to take that back?
    pub(crate) fn is_marked(&self) -> bool {
        matches!(*self.mark(), Mark::Marked)
    }

    /// Puts those settings of `opts` into effect that a Runtime takes while it runs.
    pub fn tune(&self, opts: &OpenOptions) {
        if let Some(pair) = &self.volume.media.pair {
            pair.set_bound(opts.log_stall);
        }
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
    /// Something could not be made durable, or the volume is frozen; nothing has changed.
    pub fn make_read_only(&self) -> Result<()> {
        not_frozen(&self.mark())?;
        self.runtime.make_read_only()
    }

    /// Takes changes. One that was opened read-only is first marked, as opening it for writing
    /// would have done: header, then superblock, then the first append (rule R15).
    ///
    /// # Errors
    /// Its storage is write-protected, it has features that only readers may ignore, something else
    /// has used it uncleanly, it is frozen, or writing failed.
    pub fn make_writable(&self) -> Result<()> {
        let mut mark = self.mark();
        not_frozen(&mark)?;
        if let Mark::Unmarked { writable } = *mark {
            self.volume.media.read_to_write()?;
            if !writable {
                return Err(Error::Refused(
                    "the volume or its log is write-protected: only a read-only mount can use it"
                        .into(),
                ));
            }
            // The Service has regions of its own; it was never sent anything to write.
            let storage = self.volume.storage()?;
            let now = self.clock.now();
            let superblock = self.volume.note_mounted(&storage, &mut self.host(), self.key, now)?;
            self.runtime.note_marked(&superblock, now);
            *mark = Mark::Marked;
        }
        self.runtime.make_writable()
    }
}

fn not_frozen(mark: &Mark) -> Result<()> {
    match mark {
        Mark::Frozen { .. } => {
            Err(Error::Refused("the volume is frozen: wait for the end of `siftfs freeze`".into()))
        }
        Mark::Unmarked { .. } | Mark::Marked => Ok(()),
    }
}
