//! A hold at a checkpoint, under which the volume's area is a clean ext4 file system
//! (`docs/design/replicated.md`, "Freeze").
//!
//! What is written, each durable before the next: everything home; the header says clean; the
//! marker goes, backups first; the hold; the header says mounted, in the same epoch; the marker
//! comes back; changes are taken again. So a crash finds what a crash in an unmount or in a mount
//! leaves (rules R15 and R16), and under the hold what an unmount leaves.

use crate::mount::open::write_clean;
use crate::mount::private_logs::PrivateLogs;
use crate::mount::remount::{Mark, Remounter};
use crate::volume::marker::{self, SuperBytes};
use siftfs_base::{Error, Result, corrupt, errno};
use siftfs_device::Origin;
use siftfs_log::{AreaLink, HostRecord, HostState, RegistryName};
use siftfs_runtime::{hold, let_go, prepare_hold};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

const ANOTHER: &str = "it is frozen already: wait for the end of the other `siftfs freeze`";
const ELSEWHERE: &str = "another process does the volume's background work (the mount's option `service`), and has \
                         the area: a volume is frozen only where one process does both";
/// How often it is looked whether programs' logs have been taken in.
const LOOK: Duration = Duration::from_millis(5);

/// Freezes a volume, from any thread, until the volume is closed.
pub struct Freezer {
    remounter: Arc<Remounter>,
    private_logs: Arc<PrivateLogs>,
    /// Does another process do the Service's part?
    elsewhere: bool,
    holds: Mutex<Holds>,
}

/// Held by the thread that begins a hold.
#[derive(Default)]
struct Holds {
    /// How many there have been.
    drawn: u64,
    /// The volume is being closed, and no hold begins any more.
    closing: bool,
}

/// What came of [`Freezer::freeze`].
pub enum Frozen {
    /// The volume was opened read-only. It is plain ext4 anyway, and nothing is held.
    Plain,
    /// Changes wait until the end of this.
    Held(Held),
}

/// A hold. It ends when it is dropped.
pub struct Held {
    freezer: Arc<Freezer>,
    number: u64,
    since: Instant,
}

impl Held {
    /// When changes began to wait.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Ends the hold: the volume says again that it is in use, durably, and what waits goes on.
    /// Returns whether the hold had lasted until now, so that a snapshot made under it is whole.
    ///
    /// # Errors
    /// The volume could not be marked again, or something else has changed it: nothing that waits
    /// is promised any more (rule R21).
    pub fn thaw(self) -> Result<bool> {
        self.end()
    }

    fn end(&self) -> Result<bool> {
        let remounter = &self.freezer.remounter;
        let mut mark = remounter.mark();
        let Mark::Frozen { number, plain, registry } = &*mark else { return Ok(false) };
        if *number != self.number {
            return Ok(false);
        }
        let marked = remounter.mark_again(plain, registry.as_ref());
        // What failed is latched, and those who wait are told.
        marked.as_ref().inspect_err(|error| remounter.runtime.fail(error)).ok();
        *mark = Mark::Marked;
        let_go(&remounter.runtime);
        marked.map(|()| true)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(%error, "the end of a hold");
        }
    }
}

impl Freezer {
    pub(crate) fn new(
        remounter: Arc<Remounter>,
        private_logs: Arc<PrivateLogs>,
        elsewhere: bool,
    ) -> Self {
        Self { remounter, private_logs, elsewhere, holds: Mutex::default() }
    }

    /// Brings everything into the area, has changes and fsyncs wait, and takes the marker off,
    /// durably: when this returns, the area is what an unmount would leave. Reads go on. What
    /// changes wait for here is ended after `within`; how long the hold itself lasts is the
    /// caller's business.
    ///
    /// # Errors
    /// `Refused` if there is a hold, or something is in the way: it says what. `EBUSY` if `within`
    /// was too short. Then nothing has changed, and nothing waits. Where writing failed, the
    /// failure is latched (rule R21).
    pub fn freeze(self: &Arc<Self>, within: Duration) -> Result<Frozen> {
        let mut holds = match self.holds.try_lock() {
            Ok(holds) => holds,
            Err(TryLockError::Poisoned(holds)) => holds.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(Error::Refused(ANOTHER.into())),
        };
        if holds.closing {
            return Err(errno(libc::ESHUTDOWN));
        }
        let Remounter { runtime, .. } = &*self.remounter;
        match &*self.remounter.mark() {
            Mark::Unmarked { .. } => return Ok(Frozen::Plain),
            Mark::Frozen { .. } => return Err(Error::Refused(ANOTHER.into())),
            Mark::Marked if self.elsewhere => return Err(Error::Refused(ELSEWHERE.into())),
            Mark::Marked => {}
        }
        prepare_hold(runtime)?;
        let mut mark = self.remounter.mark();
        let since = Instant::now();
        hold(runtime, within)?;
        let clean = self.logs_are_home(since + within).and_then(|()| self.remounter.check_empty());
        clean.inspect_err(|_| let_go(runtime))?;
        let registry = self.remounter.host().newest().registry.clone();
        let unmarked = self.remounter.unmark().inspect_err(|error| {
            runtime.fail(error);
            let_go(runtime);
        });
        holds.drawn += 1;
        let number = holds.drawn;
        *mark = Mark::Frozen { number, plain: Box::new(unmarked?), registry };
        Ok(Frozen::Held(Held { freezer: self.clone(), number, since }))
    }

    /// The volume is about to be closed: a hold ends here, and no other begins. A failure to mark
    /// the volume again is latched.
    pub fn close(self: &Arc<Self>) {
        let mut holds = self.holds();
        holds.closing = true;
        let number = holds.drawn;
        drop(holds);
        drop(Held { freezer: self.clone(), number, since: Instant::now() });
    }

    fn holds(&self) -> MutexGuard<'_, Holds> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What programs had in logs of their own is in the volume. The leases are over; a log is done
    /// with a little later.
    fn logs_are_home(&self, until: Instant) -> Result<()> {
        while !self.private_logs.is_idle() {
            if Instant::now() >= until {
                return Err(Error::Refused(
                    "programs have logs of their own that were not taken in".into(),
                ));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

impl Remounter {
    /// Nothing is in the log by the Service's durable record either, on which recovery relies.
    fn check_empty(&self) -> Result<()> {
        let (heads, _) = self.runtime.log_position();
        match self.volume.media.read()?.service.lane_tails == heads {
            true => Ok(()),
            false => Err(corrupt("header", "the log is empty, and the Service's record is not so")),
        }
    }

    /// The header says clean, and then the superblocks do. Returns the primary one.
    fn unmark(&self) -> Result<SuperBytes> {
        let storage = self.volume.storage()?;
        let area = storage.take_superblocks()?;
        let plain = marker::final_super(&area, self.clock.now())?;
        write_clean(&mut self.host(), self.runtime.log_position(), &plain)?;
        marker::clear(&area, &plain)?;
        Ok(plain)
    }

    /// The header says that the volume is in use, and then the superblocks do, as when it was
    /// mounted. Nothing has changed the file system since it was unmarked.
    fn mark_again(&self, plain: &SuperBytes, registry: Option<&RegistryName>) -> Result<()> {
        let storage = self.volume.storage()?;
        let area = storage.take_superblocks()?;
        if marker::read_primary(&area)? != *plain {
            let what = "another program has changed the file system while it was frozen";
            return Err(corrupt("superblock", what));
        }
        let (view, now) = (self.volume.view(), self.clock.now());
        let link = AreaLink { volume: view.header.volume, epoch: self.key.epoch };
        let link = view.header.external_log().then_some(link);
        let superblock = marker::marked_super(&area, now, link)?;
        let mut host = self.host();
        let mounted = HostRecord {
            state: HostState::Mounted,
            superblock: Box::new(superblock),
            ..host.newest().clone()
        };
        host.write(Origin::Admin, &mounted)?;
        marker::set(&area, &superblock)?;
        self.runtime.note_marked(&superblock, now);
        match registry {
            None => Ok(()),
            Some(name) => {
                host.write(Origin::Admin, &HostRecord { registry: Some(name.clone()), ..mounted })
            }
        }
    }
}
