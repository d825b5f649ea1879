//! Reading and writing one file.

use crate::state::{MOST_UNTOLD, Opened, State};
use crate::way::{Piece, Way};
use siftfs_base::{Error, Result, errno};
use siftfs_proto::{LeaseId, Reply, Request, SetAttr};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Largest piece of a request to the host, in bytes.
const PIECE: u64 = 1 << 20;
/// Ways that one call tries: each may end while it is at it.
const TRIES: usize = 8;

/// An open file. Calls from several threads are made at once, and their bytes come in any order
/// where they meet; a call that begins behind an answer comes behind what was answered. Closed when
/// dropped.
pub struct DirectFile {
    opened: Arc<Opened>,
}

/// Why a call is to be tried another way.
enum Again {
    /// The grant, or its connection, is not there any more.
    Way(u64),
    /// The lease has ended.
    Lease(LeaseId),
    /// It fails by any way.
    Failed(Error),
}

/// What of a write went to the host, or is to be told there.
enum Given {
    Nothing,
    Some,
    /// It is written at the target, and the host has not heard of it.
    Fresh,
}

impl DirectFile {
    pub(crate) fn new(opened: Arc<Opened>) -> Self {
        Self { opened }
    }

    /// Up to `len` bytes from `offset`; fewer only at the end of the file.
    ///
    /// # Errors
    /// What the storage reports.
    pub fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.try_ways(|state| self.read_once(state, offset, len as u64))
    }

    /// Writes all of `data` at `offset`. Not durable before a sync.
    ///
    /// # Errors
    /// Those of pwrite(2). Any part may be written then.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.make_room(offset, data);
        self.try_ways(|state| self.write_once(state, (offset, data), false)).map(drop)
    }

    /// As [`DirectFile::write_at`], and these bytes are durable when it returns: one round trip to
    /// the target, where all of them are granted. It says nothing of any other write.
    ///
    /// # Errors
    /// As [`DirectFile::write_at`].
    pub fn write_durable_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.make_room(offset, data);
        match self.try_ways(|state| self.write_once(state, (offset, data), true))? {
            Given::Nothing => Ok(()),
            Given::Some => {
                self.opened.syncs();
                self.sync_host(true, false)
            }
            Given::Fresh => self.sync_data(),
        }
    }

    /// fdatasync(2): every write that was answered is durable.
    ///
    /// # Errors
    /// `EIO` if something that was written may be lost, once; what the storage reports.
    pub fn sync_data(&self) -> Result<()> {
        self.opened.syncs();
        self.try_ways(|state| self.sync_once(state))?;
        self.tell_doubt()
    }

    /// fsync(2): as [`DirectFile::sync_data`], and the file's times and name are durable.
    ///
    /// # Errors
    /// As [`DirectFile::sync_data`].
    pub fn sync_all(&self) -> Result<()> {
        self.opened.syncs();
        self.try_ways(|state| self.sync_by_host(state, false))?;
        self.tell_doubt()
    }

    /// Sets the size; what is beyond the old end reads as zeros. Not durable before a sync.
    ///
    /// # Errors
    /// Those of ftruncate(2).
    pub fn set_len(&self, size: u64) -> Result<()> {
        // The lease has a size of its own.
        self.opened.give_up();
        let (file, set) =
            (self.opened.handle.into(), SetAttr { size: Some(size), ..SetAttr::default() });
        self.opened.shared.call(Request::SetAttr { file, set, times: true })?;
        self.opened.given.store(true, Ordering::Release);
        Ok(())
    }

    /// Is anything of the file granted now, so that it is read and written at the target?
    pub fn is_direct(&self) -> bool {
        self.opened.reach().way.as_ref().is_some_and(|way| way.blocks() > 0)
    }

    fn make_room(&self, offset: u64, data: &[u8]) {
        let end = offset.saturating_add(data.len() as u64);
        self.opened.make_room(&(offset..end));
    }

    fn tell_doubt(&self) -> Result<()> {
        if !self.opened.take_doubt() {
            return Ok(());
        }
        // The host has found the same, and would tell it by its next fsync.
        let _ = self.sync_host(true, true);
        Err(errno(libc::EIO))
    }

    /// Makes one call by the way that there is, and by another one where that has ended.
    fn try_ways<T>(
        &self,
        mut attempt: impl FnMut(&State) -> std::result::Result<T, Again>,
    ) -> Result<T> {
        for _ in 0..TRIES {
            let again = {
                let state = self.opened.reach();
                match attempt(&state) {
                    Ok(done) => return Ok(done),
                    Err(again) => again,
                }
            };
            match again {
                Again::Way(life) => self.opened.lost_way(life),
                Again::Lease(lease) => self.opened.lost_lease(lease),
                Again::Failed(error) => return Err(error),
            }
        }
        Err(errno(libc::EIO))
    }

    fn read_once(
        &self,
        state: &State,
        offset: u64,
        len: u64,
    ) -> std::result::Result<Vec<u8>, Again> {
        let Some(way) = &state.way else { return self.read_by_host(offset, len) };
        let size = self.opened.size.load(Ordering::Acquire);
        let end = size.min(offset.saturating_add(len));
        let mut bytes = Vec::new();
        for Piece { file, area } in way.pieces(offset..end.max(offset)) {
            let len = usize::try_from(file.end - file.start).unwrap_or(usize::MAX);
            match area {
                Some(area) => {
                    let mut part = vec![0; len];
                    let read = way.attached().read(area, &mut part);
                    read.map_err(|error| of_way(state, error))?;
                    bytes.extend(part);
                }
                None => {
                    self.opened.beside.fetch_add(1, Ordering::Relaxed);
                    let before = bytes.len();
                    bytes.extend(self.read_by_host(file.start, file.end - file.start)?);
                    if state.lease.is_some() {
                        // The host may not know of the end yet, and has nothing behind its own.
                        bytes.resize(before + len, 0);
                    }
                }
            }
        }
        Ok(bytes)
    }

    fn read_by_host(&self, offset: u64, len: u64) -> std::result::Result<Vec<u8>, Again> {
        let (mut bytes, file) = (Vec::new(), self.opened.handle.into());
        while (bytes.len() as u64) < len {
            let want = (len - bytes.len() as u64).min(PIECE) as u32;
            let offset = offset + bytes.len() as u64;
            let read = self.opened.shared.call(Request::Read { file, offset, len: want });
            let before = bytes.len();
            match read.map_err(Again::Failed)? {
                Reply::Blocks(blocks) => {
                    blocks.parts().for_each(|part| bytes.extend_from_slice(part));
                }
                other => bytes.extend(other.data().map_err(Again::Failed)?),
            }
            if bytes.len() == before {
                break;
            }
        }
        Ok(bytes)
    }

    fn write_once(
        &self,
        state: &State,
        (offset, data): (u64, &[u8]),
        durable: bool,
    ) -> std::result::Result<Given, Again> {
        let end = offset.checked_add(data.len() as u64);
        let end = end.ok_or_else(|| Again::Failed(errno(libc::EFBIG)))?;
        let pieces = match &state.way {
            Some(way) => way.pieces(offset..end),
            None => vec![Piece { file: offset..end, area: None }],
        };
        let (mut left, mut given, mut fresh) = (data, Given::Nothing, false);
        for Piece { file, area } in pieces {
            let len = usize::try_from(file.end - file.start).unwrap_or(usize::MAX);
            let (part, rest) = left.split_at_checked(len).unwrap_or((left, &[]));
            match (area, &state.way) {
                (Some(area), Some(way)) => {
                    if self.write_granted(state, way, (area, &file), (part, durable))? {
                        fresh = true;
                    }
                }
                _ => {
                    self.give(state.lease, file.start, part)?;
                    given = Given::Some;
                }
            }
            left = rest;
        }
        Ok(if fresh { Given::Fresh } else { given })
    }

    /// Writes granted bytes at the target. Has the host to hear of it before it is durable?
    fn write_granted(
        &self,
        state: &State,
        way: &Way,
        (area, file): (u64, &Range<u64>),
        (part, durable): (&[u8], bool),
    ) -> std::result::Result<bool, Again> {
        let grows = file.end > self.opened.size.load(Ordering::Acquire);
        let fresh = grows || way.fresh().concerns(file);
        if fresh && way.fresh().owes() && way.attached().kept_bytes() > MOST_UNTOLD {
            self.sync_by_host(state, true)?;
        }
        let written = way.attached().write(area, part, durable && !fresh);
        // Before anything is answered: a sync that comes behind that tells the host of it.
        way.fresh().wrote(file, grows);
        written.map_err(|error| of_way(state, error))?;
        self.opened.size.fetch_max(file.end, Ordering::AcqRel);
        Ok(fresh)
    }

    /// Gives bytes to the host: under the lease, or as anybody does.
    fn give(
        &self,
        lease: Option<LeaseId>,
        offset: u64,
        data: &[u8],
    ) -> std::result::Result<(), Again> {
        let opened = &self.opened;
        opened.beside.fetch_add(1, Ordering::Relaxed);
        for (at, part) in (offset..).step_by(PIECE as usize).zip(data.chunks(PIECE as usize)) {
            let data = part.to_vec().into();
            let request = match lease {
                Some(lease) => Request::LeaseWrite { lease, offset: at, data, time: None },
                None => Request::write(opened.handle, at, data),
            };
            let written = opened.shared.call(request).and_then(Reply::written);
            opened.given.store(true, Ordering::Release);
            match (written, lease) {
                (Err(Error::Posix(libc::ESTALE)), Some(lease)) => return Err(Again::Lease(lease)),
                (Err(error), _) => return Err(Again::Failed(error)),
                (Ok(_), _) => {
                    opened.size.fetch_max(at + part.len() as u64, Ordering::AcqRel);
                }
            }
        }
        Ok(())
    }

    fn sync_once(&self, state: &State) -> std::result::Result<(), Again> {
        let opened = &self.opened;
        if state.way.as_ref().is_some_and(|way| way.fresh().owes()) {
            return self.sync_by_host(state, true);
        }
        if let Some(way) = &state.way
            && !way.attached().is_flushed()
        {
            way.attached().flush().map_err(|error| of_way(state, error))?;
        }
        if opened.given.swap(false, Ordering::AcqRel) || state.lease.is_none() {
            self.sync_host(true, false).map_err(|error| {
                opened.given.store(true, Ordering::Release);
                Again::Failed(error)
            })?;
        }
        Ok(())
    }

    /// The host has the target flush what is granted, and tell what was written for the first time.
    fn sync_by_host(&self, state: &State, datasync: bool) -> std::result::Result<(), Again> {
        let telling = state.way.as_ref().map(|way| (way.fresh(), way.fresh().tells()));
        let owes = telling.as_ref().is_some_and(|(fresh, _)| fresh.owes());
        let attached = state.way.as_ref().map(|way| way.attached());
        let covered = attached.map(|attached| attached.covers());
        let unflushed = owes || attached.is_some_and(|attached| !attached.is_flushed());
        self.opened.given.store(false, Ordering::Release);
        match self.sync_host(datasync, unflushed) {
            Ok(()) => {
                if let (Some(attached), Some(covered)) = (attached, &covered) {
                    attached.covered(covered);
                }
                if let Some((fresh, telling)) = &telling {
                    fresh.told(telling);
                }
                Ok(())
            }
            Err(error) => {
                self.opened.given.store(true, Ordering::Release);
                // What was written may be lost with the grant, and is given to the host then.
                let lost = unflushed && error.errno() == libc::EIO;
                Err(if lost { Again::Way(state.life) } else { Again::Failed(error) })
            }
        }
    }

    /// fsync(2) by the host. It says once that something may be lost which was written under a
    /// grant that was: of no concern where nothing was that had not been flushed.
    fn sync_host(&self, datasync: bool, unflushed: bool) -> Result<()> {
        let file = self.opened.handle.into();
        let fsync = || self.opened.shared.call(Request::Fsync { file, datasync }).map(drop);
        match fsync() {
            Err(Error::Posix(libc::EIO)) if !unflushed => fsync(),
            synced => synced,
        }
    }
}

/// A call at the target failed: is there another way?
fn of_way(state: &State, error: Error) -> Again {
    match error {
        Error::Link(_) | Error::Posix(libc::ESTALE) | Error::Refused(_) => Again::Way(state.life),
        other => Again::Failed(other),
    }
}
