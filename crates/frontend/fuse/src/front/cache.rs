//! The kernel's cache of a mount, as the Runtime sees it.

use crate::front::teller::Teller;
use crate::kernel::notify::Notifier;
use crate::mount::mountinfo::MountEntry;
use crate::serve::scope::Part;
use crate::serve::server::Server;
use crate::serve::told::TakesBack;
use siftfs_base::InodeNr;
use siftfs_proto::{Cache, Notice, Owed};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The cache of a mount that may be one of several. It is made before the mount, because the
/// mount's session is opened with it; until the mount is served its kernel knows nothing.
#[derive(Default)]
pub struct Front {
    teller: OnceLock<Teller>,
    part: Part,
    /// May others change what the kernel knows?
    others: AtomicBool,
    /// The session may be lost: for how long what is told counts, as it was said last, and when.
    trusted: Mutex<Option<(Instant, Duration)>>,
}

impl Front {
    /// Of a mount whose root is the directory `root` ([`crate::MountOptions::root`]).
    #[must_use]
    pub fn of(root: InodeNr) -> Self {
        Self { part: Part(root), ..Self::default() }
    }

    /// The kernel of `entry` is served from here on.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub(crate) fn start(
        &self,
        server: &Arc<Server>,
        notifier: Notifier,
        entry: &MountEntry,
    ) -> io::Result<()> {
        let teller = Teller::start(server, notifier, entry.clone())?;
        assert!(self.teller.set(teller).is_ok(), "a mount is served once");
        // Whatever is said from here on is said to the teller, too.
        self.shares(self.others.load(Ordering::SeqCst));
        let trusted = *self.trusted.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some((at, time)), Some(teller)) = (trusted, self.teller.get()) {
            teller.trust(time.saturating_sub(at.elapsed()));
        }
        Ok(())
    }
}

impl TakesBack for Front {
    fn take_back_own(&self, notice: Notice) {
        if let Some(teller) = self.teller.get() {
            teller.tell_own(notice);
        }
    }
}

impl Cache for Front {
    fn take_back(&self, mut notice: Notice) {
        self.part.show_notice(&mut notice);
        if let Some(teller) = self.teller.get() {
            teller.tell(notice);
        }
    }

    fn shares(&self, others: bool) {
        self.others.store(others, Ordering::SeqCst);
        if let Some(teller) = self.teller.get() {
            teller.shares(others);
        }
    }

    fn forget_all(&self, mut notice: Notice) {
        self.part.show_notice(&mut notice);
        if let Some(teller) = self.teller.get() {
            teller.forget_all(notice);
        }
    }

    fn trusts(&self, time: Duration) {
        let mut trusted = self.trusted.lock().unwrap_or_else(PoisonError::into_inner);
        *trusted = Some((Instant::now(), time));
        if let Some(teller) = self.teller.get() {
            teller.trust(time);
        }
    }

    fn doubts(&self, mut known: Vec<(InodeNr, u32)>) {
        // It needs no lookup.
        if known.iter().all(|(ino, _)| *ino != self.part.0) {
            known.push((self.part.0, 0));
        }
        known.retain_mut(|(ino, _)| self.part.shows(ino));
        if let Some(teller) = self.teller.get() {
            teller.doubt(&known);
        }
    }

    fn lost(&self, known: Vec<InodeNr>) {
        let mut owed = Owed::default();
        let mut notice = Notice::new(&mut owed);
        notice.attributes = known;
        // It needs no lookup.
        notice.attributes.push(self.part.0);
        self.part.show_notice(&mut notice);
        if let Some(teller) = self.teller.get() {
            teller.lost(&notice.attributes);
        }
    }
}
