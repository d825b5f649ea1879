//! Atomic writes of a file: by the target's redo lane where all of its blocks are granted, else by
//! an atomic section of the host.

use crate::file::{Again, DirectFile, PIECE, TRIES, of_way, split};
use crate::state::{State, Use};
use siftfs_base::{Error, Result, errno};
use siftfs_device_target::{Fate, Outcome};
use siftfs_proto::{Reply, Request, SectionId};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of one section at most.
const MOST: usize = 16 << 20;
/// How long until the host has a lease back that the program has not any more, and how often that
/// is looked at.
const RETURNED: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(2);

/// Writes of one file that happen together: after their commit, or a crash, all of them are there,
/// or none. They are kept in the program until then, so nothing shows them, reads by this program
/// as little as others. Dropped, it was never there.
pub struct AtomicSection<'f> {
    file: &'f DirectFile,
    writes: Vec<(u64, Vec<u8>)>,
    bytes: usize,
}

impl DirectFile {
    /// Begins an atomic section, which changes nothing before its commit.
    pub fn atomic_start(&self) -> AtomicSection<'_> {
        AtomicSection { file: self, writes: Vec::new(), bytes: 0 }
    }
}

/// What an atomic write at the target came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// All of it is there, durably.
    There,
    /// The target does not do it, and nothing of it is there.
    Not,
    /// The target has not answered. Nothing of it is there if the lease lasts; else it may be.
    NotWhileLeased,
}

impl DirectFile {
    /// Makes all of these writes, the later ones over the earlier ones, or none: by the redo lane,
    /// in one round trip for up to 256 KiB, where all of their blocks are granted, lie within the
    /// size, and were written before. Durable when it says that they are there.
    ///
    /// # Errors
    /// As of [`AtomicSection::commit`].
    pub fn write_atomic(&self, writes: &[(u64, Vec<u8>)]) -> Result<Written> {
        if self.opened.to == Use::Reads {
            return Err(errno(libc::EBADF));
        }
        if writes.is_empty() {
            return Ok(Written::There);
        }
        let (fate, mut unknown) = (Arc::new(Fate::default()), Written::Not);
        for _ in 0..TRIES {
            let again = {
                let state = self.opened.reach_now();
                match self.by_target(&state, writes, &fate) {
                    Ok(true) => return Ok(Written::There),
                    Ok(false) => return Ok(unknown),
                    Err(again) => again,
                }
            };
            self.another_way(again)?;
            match fate.outcome() {
                // Another write may have come over it: it must not be made again.
                Outcome::Done => return Ok(Written::There),
                Outcome::InDoubt => return Err(errno(libc::EIO)),
                // By the next life, or, where the target has died, by the host, behind the lane's
                // replay.
                Outcome::Undone => unknown = Written::NotWhileLeased,
            }
        }
        Ok(unknown)
    }

    /// Is it written? `false`: the target does not do this, and nothing of it is there.
    fn by_target(
        &self,
        state: &State,
        writes: &[(u64, Vec<u8>)],
        fate: &Arc<Fate>,
    ) -> std::result::Result<bool, Again> {
        let Some(way) = &state.way else { return Ok(false) };
        let left: Vec<(u64, &[u8])> = writes.iter().map(|(at, b)| (*at, &**b)).collect();
        let (granted, beside) = split(way, &left);
        let size = self.opened.size.load(Ordering::Acquire);
        let grows = granted.iter().any(|part| part.file.end > size);
        if !beside.is_empty() || grows || granted.iter().any(|p| way.fresh().concerns(&p.file)) {
            return Ok(false);
        }
        let parts: Vec<_> = granted.iter().map(|part| (part.area, part.data)).collect();
        match way.queue().write_atomic(&parts, fate) {
            Ok(()) => Ok(true),
            Err(Error::Posix(libc::EOPNOTSUPP | libc::EFBIG)) => Ok(false),
            Err(error) => Err(of_way(state, error)),
        }
    }
}

impl AtomicSection<'_> {
    /// Writes at `offset`, over what was written in this section before.
    ///
    /// # Errors
    /// `EFBIG`: the section has more than 16 MiB, or the file would end too far. The section stays
    /// as it was.
    pub fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        let ends = offset.checked_add(data.len() as u64).is_some();
        if !ends || self.bytes + data.len() > MOST {
            return Err(errno(libc::EFBIG));
        }
        if !data.is_empty() {
            self.bytes += data.len();
            self.writes.push((offset, data.to_vec()));
        }
        Ok(())
    }

    /// All writes of the section become the file's, durably: one round trip to the target for up to
    /// 256 KiB, where all of the blocks are granted and were written before.
    ///
    /// # Errors
    /// Nothing of it is there, or all of it: what the target or the host reports. `EIO`: which one
    /// is not known, because the grant was gone before that could be asked. `ECANCELED`: with
    /// the host, others changed the file meanwhile, and nothing of it is there.
    pub fn commit(self) -> Result<()> {
        match self.file.write_atomic(&self.writes)? {
            Written::There => Ok(()),
            Written::Not | Written::NotWhileLeased => self.by_host(),
        }
    }

    /// The section was never there.
    pub fn abort(self) {}

    /// No lease stands beside a section (rule R48).
    fn by_host(&self) -> Result<()> {
        let shared = &self.file.opened.shared;
        let _without = self.file.opened.without_lease();
        let section = self.started()?;
        let committed = self.fill(section).and_then(|()| {
            let sections = vec![section];
            let commit = Request::SectionCommit { sections, durable: true, times: true };
            shared.call(commit).map(drop)
        });
        if committed.is_err() {
            // A host that does not hear of it drops the section with the session.
            let _ = shared.call(Request::SectionAbort { section });
        }
        committed
    }

    /// A lease that was recalled is the session's at the host until its thread has returned it, or
    /// its term is over: that is waited for.
    fn started(&self) -> Result<SectionId> {
        let (begun, opened) = (Instant::now(), &self.file.opened);
        loop {
            let file = opened.handle.into();
            match opened.shared.call(Request::SectionStart { file }).and_then(Reply::section) {
                Err(Error::Posix(libc::EBUSY)) if begun.elapsed() < RETURNED => {
                    thread::sleep(PAUSE);
                }
                started => return started,
            }
        }
    }

    fn fill(&self, section: SectionId) -> Result<()> {
        let piece = usize::try_from(PIECE).unwrap_or(usize::MAX);
        for (offset, bytes) in &self.writes {
            for (at, part) in (*offset..).step_by(piece).zip(bytes.chunks(piece)) {
                let data = part.to_vec().into();
                let write = Request::SectionWrite { section, offset: at, data };
                self.file.opened.shared.call(write).and_then(Reply::written)?;
            }
        }
        Ok(())
    }
}
