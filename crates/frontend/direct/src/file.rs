//! Reading and writing one file.

use crate::state::{MOST_UNTOLD, Opened, State, Use};
use crate::way::{Piece, Way};
use siftfs_base::{BLOCK_BYTES, Error, Result, errno};
use siftfs_device_target::{Failed, Kind, Queue, Turn};
use siftfs_proto::{LeaseId, Reply, Request, SetAttr};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Largest piece of a request to the host, in bytes.
pub(crate) const PIECE: u64 = 1 << 20;
/// Ways that one call tries: each may end while it is at it.
pub(crate) const TRIES: usize = 8;

/// An open file. Calls from several threads are made at once; where they meet they are ordered, so
/// that each reads or writes as a whole while the program has the file alone and its blocks are
/// granted ([`siftfs_device_target::RequestOrder`]). Closed when dropped.
pub struct DirectFile {
    pub(crate) opened: Arc<Opened>,
}

/// Why a call is to be tried another way.
pub(crate) enum Again {
    /// The grant, or its connection, is not there any more.
    Way(u64),
    /// The target does not do this: the grant is another one than was thought.
    Refused(u64),
    /// As `Way`, of a write that the queue has, and sees to.
    Kept(u64),
    /// The grant is lost, as the host says, and what was written under it may be.
    Lost(u64),
    /// The lease has ended.
    Lease(LeaseId),
    /// It fails by any way.
    Failed(Error),
}

/// A write, as far as it has come.
struct Writing<'a> {
    /// Bytes that are not written, and where in the file they belong.
    left: Vec<(u64, &'a [u8])>,
    /// Asked to be durable.
    durable: bool,
    /// Something was written that is not durable yet.
    volatile: Volatile,
}

/// What makes a write durable that is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Volatile {
    Nothing,
    /// The host's fsync.
    Host,
    /// A sync of what went by either way, and of what the host has to hear of.
    All,
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

    /// The file's size in bytes.
    ///
    /// # Errors
    /// What the host reports.
    #[allow(clippy::len_without_is_empty)] // a file, not a collection
    pub fn len(&self) -> Result<u64> {
        let state = self.opened.reach();
        if state.lease.is_some() {
            return Ok(self.opened.size.load(Ordering::Acquire));
        }
        let file = self.opened.handle.into();
        let attr = self.opened.shared.call(Request::GetAttr { file })?.attr()?;
        Ok(attr.size)
    }

    /// Writes all of `data` at `offset`. Not durable before a sync.
    ///
    /// # Errors
    /// Those of pwrite(2). Any part may be written then.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.make_room(offset, data);
        self.write_in_room(offset, data)
    }

    /// As [`DirectFile::write_at`], once there is the room that is to be had.
    pub(crate) fn write_in_room(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.write_all(offset, data, false).map(drop)
    }

    /// As [`DirectFile::write_at`], and these bytes are durable when it returns: one round trip to
    /// the target, where all of them are granted. It says nothing of any other write.
    ///
    /// # Errors
    /// As [`DirectFile::write_at`].
    pub fn write_durable_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.make_room(offset, data);
        match self.write_all(offset, data, true)? {
            Volatile::Nothing => Ok(()),
            Volatile::Host => {
                self.opened.syncs();
                self.sync_host(true, false)
            }
            Volatile::All => self.sync_data(),
        }
    }

    fn write_all(&self, offset: u64, data: &[u8], durable: bool) -> Result<Volatile> {
        let end = offset.checked_add(data.len() as u64).ok_or_else(|| errno(libc::EFBIG))?;
        if self.opened.to == Use::Reads {
            return Err(errno(libc::EBADF));
        }
        let left = vec![(offset, data)];
        let mut writing = Writing { left, durable, volatile: Volatile::Nothing };
        for _ in 0..TRIES {
            let again = {
                let state = self.opened.reach();
                self.write_once(&state, &mut writing)
            };
            match again {
                Ok(()) => return Ok(writing.volatile),
                // What the queue had of it is carried out, in doubt, or as if never asked for.
                Err(Again::Kept(life)) => match self.opened.lost_way(life) {
                    Err(Error::Posix(libc::ESTALE)) => writing.left = vec![(offset, data)],
                    done => {
                        done?;
                        self.opened.size.fetch_max(end, Ordering::AcqRel);
                        writing.volatile = Volatile::All;
                    }
                },
                Err(again) => self.another_way(again)?,
            }
        }
        Err(errno(libc::EIO))
    }

    /// fdatasync(2): every write that was answered is durable.
    ///
    /// # Errors
    /// `EIO` if something that was written may be lost, once; what the storage reports.
    pub fn sync_data(&self) -> Result<()> {
        self.opened.syncs();
        let synced = self.try_ways(|state| self.sync_once(state));
        self.told(synced)
    }

    /// fsync(2): as [`DirectFile::sync_data`], and the file's times and name are durable.
    ///
    /// # Errors
    /// As [`DirectFile::sync_data`].
    pub fn sync_all(&self) -> Result<()> {
        self.opened.syncs();
        let synced = self.try_ways(|state| self.sync_by_host(state, false));
        self.told(synced)
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
        self.opened.given.note();
        Ok(())
    }

    /// Is anything of the file granted now, so that it is read and written at the target? Asks for
    /// it, if that was not done yet.
    pub fn is_direct(&self) -> bool {
        self.opened.reach_now().way.as_ref().is_some_and(|way| way.blocks() > 0)
    }

    fn make_room(&self, offset: u64, data: &[u8]) {
        let end = offset.saturating_add(data.len() as u64);
        self.opened.make_room(&(offset..end));
    }

    /// What a sync says: that something may be lost goes before what else came of it.
    fn told(&self, synced: Result<()>) -> Result<()> {
        if !self.opened.take_doubt() {
            return synced;
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
            self.another_way(again)?;
        }
        Err(errno(libc::EIO))
    }

    /// Makes room for another way.
    pub(crate) fn another_way(&self, again: Again) -> Result<()> {
        match again {
            Again::Way(life) | Again::Kept(life) => drop(self.opened.lost_way(life)),
            Again::Lost(life) => self.opened.lost_grant(life),
            Again::Refused(life) => self.opened.give_way_up(life),
            Again::Lease(lease) => self.opened.lost_lease(lease),
            Again::Failed(error) => return Err(error),
        }
        Ok(())
    }

    fn read_once(
        &self,
        state: &State,
        offset: u64,
        len: u64,
    ) -> std::result::Result<Vec<u8>, Again> {
        let Some(way) = &state.way else {
            self.opened.goes_early(len);
            return self.read_by_host(offset, len);
        };
        let size = self.opened.size.load(Ordering::Acquire);
        let end = size.min(offset.saturating_add(len));
        let pieces = way.pieces(offset..end.max(offset));
        let lens = pieces.iter().filter(|piece| piece.area.is_some()).map(Piece::len);
        let by_host = pieces.iter().any(|piece| piece.area.is_none());
        let turn = way.queue().turn(Kind::Read, lens, by_host);
        let mut granted: Vec<_> =
            pieces.iter().filter_map(|piece| Some((piece.area?, vec![0; piece.len()]))).collect();
        let mut parts: Vec<_> = granted.iter_mut().map(|(at, buf)| (*at, &mut **buf)).collect();
        way.queue().read(&turn, &mut parts).map_err(|error| of_way(state, error))?;
        let (mut bytes, mut granted) = (Vec::new(), granted.into_iter());
        for piece in &pieces {
            match piece.area {
                // Most reads are one piece.
                Some(_) if bytes.is_empty() => bytes = granted.next().map_or(bytes, |(_, b)| b),
                Some(_) => {
                    granted.next().iter().for_each(|(_, part)| bytes.extend_from_slice(part))
                }
                None => {
                    self.opened.goes_beside(piece.file.start / BLOCK_BYTES);
                    let before = bytes.len();
                    bytes.extend(self.read_by_host(piece.file.start, piece.len() as u64)?);
                    if state.lease.is_some() {
                        // The host may not know of the end yet, and has nothing behind its own.
                        bytes.resize(before + piece.len(), 0);
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

    /// Writes what is left, and says what of it is.
    fn write_once(
        &self,
        state: &State,
        writing: &mut Writing<'_>,
    ) -> std::result::Result<(), Again> {
        if let Some(way) = &state.way {
            let (granted, beside) = split(way, &writing.left);
            let lens = granted.iter().map(|part| part.data.len());
            let turn = way.queue().turn(Kind::Write, lens, !beside.is_empty());
            match self.write_granted(state, way, &turn, (&granted, writing))? {
                Ok(()) => writing.left = beside,
                Err(Failed { kept: true, .. }) => {
                    writing.left = beside;
                    return Err(Again::Kept(state.life));
                }
                Err(Failed { error, .. }) => return Err(of_way(state, error)),
            }
            return self.give_left(state, writing);
        }
        self.opened.goes_early(writing.left.iter().map(|(_, part)| part.len() as u64).sum());
        self.give_left(state, writing)
    }

    /// Writes granted bytes at the target. What of them the host has to hear of before it is
    /// durable is noted.
    fn write_granted(
        &self,
        state: &State,
        way: &Way,
        turn: &Turn<'_>,
        (granted, writing): (&[Granted<'_>], &mut Writing<'_>),
    ) -> std::result::Result<std::result::Result<(), Failed>, Again> {
        let size = self.opened.size.load(Ordering::Acquire);
        let concerns = |file: &Range<u64>| file.end > size || way.fresh().concerns(file);
        let fresh = granted.iter().any(|part| concerns(&part.file));
        if fresh && way.fresh().owes() && way.queue().kept_bytes() > MOST_UNTOLD {
            self.sync_by_host(state, true)?;
        }
        let parts: Vec<_> = granted.iter().map(|part| (part.area, part.data)).collect();
        let written = way.queue().write(turn, &parts, writing.durable && !fresh);
        // Before anything is answered: a sync that comes behind that tells the host of it.
        granted.iter().for_each(|part| way.fresh().wrote(&part.file, part.file.end > size));
        if fresh {
            writing.volatile = Volatile::All;
        }
        if written.is_ok() {
            let end = granted.iter().map(|part| part.file.end).max().unwrap_or(0);
            self.opened.size.fetch_max(end, Ordering::AcqRel);
        }
        Ok(written)
    }

    fn give_left(
        &self,
        state: &State,
        writing: &mut Writing<'_>,
    ) -> std::result::Result<(), Again> {
        while let Some((offset, part)) = writing.left.first() {
            // The last one makes those before it durable.
            let durable = writing.durable && writing.left.len() == 1;
            let durable = self.give((state.lease, durable), *offset, part)?;
            if durable {
                self.opened.syncs();
            }
            writing.left.remove(0);
            writing.volatile = match writing.volatile {
                Volatile::Nothing | Volatile::Host if durable => Volatile::Nothing,
                Volatile::Nothing => Volatile::Host,
                other => other,
            };
        }
        Ok(())
    }

    /// Gives bytes to the host: under the lease, or as anybody does. Under a lease they, and what
    /// was given before, are made durable in the same step, if that is wanted. Says whether.
    fn give(
        &self,
        (lease, durable): (Option<LeaseId>, bool),
        offset: u64,
        data: &[u8],
    ) -> std::result::Result<bool, Again> {
        let opened = &self.opened;
        opened.goes_beside(offset / BLOCK_BYTES);
        let end = offset + data.len() as u64;
        for (at, part) in (offset..).step_by(PIECE as usize).zip(data.chunks(PIECE as usize)) {
            let durable = durable && at + part.len() as u64 == end;
            let data = part.to_vec().into();
            let request = match lease {
                Some(lease) => Request::LeaseWrite { lease, offset: at, data, time: None, durable },
                None => Request::write(opened.handle, at, data),
            };
            let written = opened.shared.call(request).and_then(Reply::written);
            // A record is there as a whole, or its writer knows that it is not.
            let some = written.is_ok() || !opened.shared.gives_records();
            if some && (!durable || lease.is_none() || written.is_err()) {
                opened.given.note();
            }
            match (written, lease) {
                (Err(Error::Posix(libc::ESTALE)), Some(lease)) => return Err(Again::Lease(lease)),
                (Err(error), _) => return Err(Again::Failed(error)),
                (Ok(_), _) => {
                    opened.size.fetch_max(at + part.len() as u64, Ordering::AcqRel);
                }
            }
        }
        Ok(durable && lease.is_some())
    }

    fn sync_once(&self, state: &State) -> std::result::Result<(), Again> {
        let opened = &self.opened;
        if opened.owes() || state.way.as_ref().is_some_and(|way| way.fresh().owes()) {
            return self.sync_by_host(state, true);
        }
        if let Some(way) = &state.way
            && !way.queue().is_flushed()
        {
            way.queue().flush().map_err(|error| of_way(state, error))?;
        }
        if state.lease.is_none() {
            opened.goes_early(0);
        }
        let given = opened.given.now();
        if !opened.given.is_synced() || state.lease.is_none() {
            self.sync_host(true, false).map_err(Again::Failed)?;
            opened.given.synced(given);
        }
        Ok(())
    }

    /// The host has the target flush what is granted, and tell what was written for the first time.
    fn sync_by_host(&self, state: &State, datasync: bool) -> std::result::Result<(), Again> {
        let telling = state.way.as_ref().map(|way| (way.fresh(), way.fresh().tells()));
        let owes = telling.as_ref().is_some_and(|(fresh, _)| fresh.owes());
        let queue = state.way.as_ref().map(Way::queue);
        let covered = queue.map(Queue::covers);
        let volatile = owes || queue.is_some_and(|queue| !queue.is_flushed());
        let untold = self.opened.owes();
        let given = self.opened.given.now();
        match self.sync_host(datasync, volatile || untold) {
            Ok(()) => {
                self.opened.given.synced(given);
                self.opened.settled();
                if let (Some(queue), Some(covered)) = (queue, &covered) {
                    queue.covered(covered);
                }
                if let Some((fresh, telling)) = &telling {
                    fresh.told(telling);
                }
                Ok(())
            }
            Err(error) => {
                // What was written may be lost with the grant, and is given to the host then. What
                // an earlier grant told the host is not there to be given.
                let lost = error.errno() == libc::EIO;
                if lost && untold {
                    self.opened.is_lost();
                }
                Err(if lost && volatile { Again::Lost(state.life) } else { Again::Failed(error) })
            }
        }
    }

    /// fsync(2) by the host. It says once that something may be lost which was written under a
    /// grant that was: of no concern where nothing was that had not been flushed. It says the same
    /// of a record that could not be taken in, which is of concern.
    fn sync_host(&self, datasync: bool, unflushed: bool) -> Result<()> {
        let opened = &self.opened;
        let file = opened.handle.into();
        let fsync = || opened.shared.call(Request::Fsync { file, datasync }).map(drop);
        let concerns = unflushed || opened.shared.gives_records() && !opened.given.is_synced();
        match fsync() {
            Err(Error::Posix(libc::EIO)) if !concerns => fsync(),
            synced => synced,
        }
    }
}

/// Granted bytes of a write.
pub(crate) struct Granted<'a> {
    pub file: Range<u64>,
    pub area: u64,
    pub data: &'a [u8],
}

/// What of these bytes of the file is granted, and what is not.
pub(crate) fn split<'a>(
    way: &Way,
    left: &[(u64, &'a [u8])],
) -> (Vec<Granted<'a>>, Vec<(u64, &'a [u8])>) {
    let (mut granted, mut beside) = (Vec::new(), Vec::new());
    for (offset, mut data) in left.iter().copied() {
        for Piece { file, area } in way.pieces(offset..offset + data.len() as u64) {
            let len = usize::try_from(file.end - file.start).unwrap_or(usize::MAX);
            let (part, rest) = data.split_at_checked(len).unwrap_or((data, &[]));
            data = rest;
            match area {
                Some(area) => granted.push(Granted { file, area, data: part }),
                None => beside.push((file.start, part)),
            }
        }
    }
    (granted, beside)
}

/// A call at the target failed: is there another way?
pub(crate) fn of_way(state: &State, error: Error) -> Again {
    match error {
        Error::Link(_) | Error::Posix(libc::ESTALE | libc::EAGAIN) => Again::Way(state.life),
        Error::Refused(_) => Again::Refused(state.life),
        other => Again::Failed(other),
    }
}
