//! A file whose lease somebody else has taken, keeps, and ends without asking: a mount's grantor,
//! for a program that knows nothing of it (`docs/design/target.md`, "Programs that are not
//! changed").

use crate::file::DirectFile;
use crate::session::{Finds, Shared};
use crate::state::{Opened, Use};
use siftfs_base::{Result, errno};
use siftfs_device_target::RequestOrder;
use siftfs_proto::{FileService, Handle};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of an append that are written at once.
const APPENDED: u64 = 64 << 10;

impl DirectFile {
    /// A file of a service that has this one alone, with whatever handle, and answers the one
    /// `Lease` that is asked for. `finds` finds the connections to a target. The session has no
    /// thread of its own.
    pub fn lent(finds: Finds, service: Arc<dyn FileService>) -> Self {
        let shared = Shared::lent(finds, service);
        let how = (Use::Alone, RequestOrder::default());
        Self::new(Opened::new(shared, Handle(0), how))
    }

    /// Has something been granted now, be it nothing of what the file has so far? Asks, if that is
    /// due.
    pub fn has_way(&self) -> bool {
        self.opened.reach().way.is_some()
    }

    /// The file's size in bytes, as long as nobody else uses it.
    pub fn size(&self) -> u64 {
        self.opened.size.load(Ordering::Acquire)
    }

    /// Writes `data` behind the file's end, and says where that was and how much is written. The
    /// caller sees to it that one append is made at a time, and that nobody else uses the file.
    /// What is written is a begin of `data`, whole pieces of it: each lies in one run at the
    /// target, or beside all of them, and is there or is not. Not durable before a sync.
    ///
    /// # Errors
    /// Nothing of it is written, and the reason is one of pwrite(2); `EIO` if that is not known.
    pub fn append(&self, data: &[u8]) -> Result<(u64, usize)> {
        let begin = self.size();
        let end = begin.checked_add(data.len() as u64).ok_or_else(|| errno(libc::EFBIG))?;
        self.opened.make_room(&(begin..end));
        let mut written = 0;
        while begin + (written as u64) < end {
            let piece = self.piece(begin + written as u64..end);
            let len = usize::try_from(piece.end - piece.start).unwrap_or(usize::MAX);
            let part = data.get(written..).and_then(|rest| rest.get(..len)).unwrap_or_default();
            match self.write_in_room(piece.start, part) {
                Ok(()) => written += part.len(),
                // A write that is cut short is one that a program knows.
                Err(_) if written > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok((begin, written))
    }

    /// The first piece of a range, which is not empty.
    fn piece(&self, range: Range<u64>) -> Range<u64> {
        let state = self.opened.reach();
        let range = range.start..range.end.min(range.start.saturating_add(APPENDED));
        let first = state.way.as_ref().and_then(|way| way.pieces(range.clone()).into_iter().next());
        first.map_or(range, |first| first.file)
    }

    /// Gives everything up that is granted, in order.
    ///
    /// # Errors
    /// `EIO` if something that was written may be lost, which no sync has told.
    pub fn give_up(&self) -> Result<()> {
        self.opened.give_up();
        match self.opened.take_doubt() {
            true => Err(errno(libc::EIO)),
            false => Ok(()),
        }
    }
}
