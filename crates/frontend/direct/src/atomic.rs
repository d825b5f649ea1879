//! Atomic writes of a file: by the target's redo lane where all of its blocks are granted, else by
//! an atomic section of the host.

use crate::file::{Again, DirectFile, PIECE, TRIES, of_way, split};
use crate::state::{State, Use};
use siftfs_base::{Error, Result, errno};
use siftfs_device_target::{Fate, Outcome};
use siftfs_proto::{Reply, Request, SectionId};
use std::sync::Arc;

/// Bytes of one section at most.
const MOST: usize = 16 << 20;

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
        if self.file.opened.to == Use::Reads {
            return Err(errno(libc::EBADF));
        }
        if self.writes.is_empty() {
            return Ok(());
        }
        let fate = Arc::new(Fate::default());
        for _ in 0..TRIES {
            let again = {
                let state = self.file.opened.reach();
                match self.by_target(&state, &fate) {
                    Ok(true) => return Ok(()),
                    Ok(false) => break,
                    Err(again) => again,
                }
            };
            self.file.another_way(again)?;
            match fate.outcome() {
                // Another write may have come over it: it must not be made again.
                Outcome::Done => return Ok(()),
                Outcome::InDoubt => return Err(errno(libc::EIO)),
                // By the next life, or, where the target has died, by the host, behind the lane's
                // replay.
                Outcome::Undone => {}
            }
        }
        self.by_host()
    }

    /// The section was never there.
    pub fn abort(self) {}

    /// Is it committed? `false`: the target does not do this, and nothing of it is there.
    fn by_target(&self, state: &State, fate: &Arc<Fate>) -> std::result::Result<bool, Again> {
        let Some(way) = &state.way else { return Ok(false) };
        let left: Vec<(u64, &[u8])> = self.writes.iter().map(|(at, b)| (*at, &**b)).collect();
        let (granted, beside) = split(way, &left);
        let size = self.file.opened.size.load(std::sync::atomic::Ordering::Acquire);
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

    /// No lease stands beside a section (rule R48).
    fn by_host(&self) -> Result<()> {
        let shared = &self.file.opened.shared;
        self.file.opened.give_up();
        let file = self.file.opened.handle.into();
        let section = shared.call(Request::SectionStart { file })?.section()?;
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
