//! An open regular file.

use crate::{Attr, Result, Section, Shared, Ticket};
use siftfs_base::InodeNr;
use siftfs_proto::{Handle, Reply, Request, SetAttr, WriteData};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Largest piece of one read or write request, in bytes.
pub(crate) const PIECE: usize = 1 << 20;

/// Closed when dropped. May be used from several threads at once; must not outlive its volume's
/// `close`, after which every call fails.
pub struct File {
    open: Arc<Opened>,
}

/// What keeps a file open: its handle, and the sections started on it.
pub(crate) struct Opened {
    pub(crate) shared: Arc<Shared>,
    pub(crate) ino: InodeNr,
    pub(crate) handle: Handle,
    /// The handle is closed elsewhere.
    closed: AtomicBool,
}

impl File {
    pub(crate) fn new(shared: Arc<Shared>, ino: InodeNr, handle: Handle) -> Self {
        let closed = AtomicBool::new(false);
        Self { open: Arc::new(Opened { shared, ino, handle, closed }) }
    }

    pub(crate) fn handle(&self) -> Handle {
        self.open.handle
    }

    /// Its handle is closed by somebody else: by a compound, or with a direct file.
    pub(crate) fn closed(self) {
        self.open.closed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn call(&self, request: Request) -> Result<Reply> {
        self.open.shared.call(request)
    }

    /// Inode number.
    pub fn ino(&self) -> InodeNr {
        self.open.ino
    }

    /// Attributes as they are now, durable or not.
    ///
    /// # Errors
    /// What the storage reports.
    pub fn stat(&self) -> Result<Attr> {
        self.open.shared.call(Request::GetAttr { file: self.open.handle.into() })?.attr()
    }

    /// Up to `len` bytes from `offset`; fewer only at the end of the file.
    ///
    /// # Errors
    /// What the storage reports.
    pub fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        while out.len() < len {
            let want = (len - out.len()).min(PIECE);
            let req = Request::Read {
                file: self.open.handle.into(),
                offset: offset + out.len() as u64,
                len: u32::try_from(want).unwrap_or(u32::MAX),
            };
            match self.open.shared.call(req)? {
                Reply::Blocks(blocks) => {
                    out.reserve(len - out.len());
                    blocks.parts().for_each(|part| out.extend_from_slice(part));
                }
                other => match other.data()? {
                    data if data.is_empty() => break,
                    data => out.extend_from_slice(&data),
                },
            }
        }
        Ok(out)
    }

    /// Writes all of `data` at `offset`, in pieces of 1 MiB. Not durable before a sync.
    ///
    /// # Errors
    /// `ENOSPC`, `EFBIG`, `EPERM` for an immutable file, `EROFS`; `Latched` after a failed write or
    /// flush. Pieces before the one that failed are written.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut at = offset;
        for piece in data.chunks(PIECE) {
            self.carry_out(Request::write(self.open.handle, at, WriteData::copy_of(at, piece)))?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Writes all of `data` at the end, wherever that is then; at most 1 MiB, so that it is whole.
    /// Not durable before a sync.
    ///
    /// # Errors
    /// `EINVAL` for more than 1 MiB; those of [`File::write_at`], with nothing written. `EIO` if
    /// the volume's server died before it answered: nobody can say then whether the bytes are
    /// there.
    pub fn append(&self, data: &[u8]) -> Result<()> {
        if data.len() > PIECE {
            return Err(siftfs_base::errno(libc::EINVAL));
        }
        let (file, data) = (self.open.handle.into(), data.to_vec().into());
        self.carry_out(Request::Write {
            file,
            offset: 0,
            data,
            append: true,
            kill_priv: false,
            times: true,
        })
    }

    fn carry_out(&self, write: Request) -> Result<()> {
        self.open.shared.call(write)?.written().map(drop)
    }

    /// Starts an atomic section: what is written into it becomes the file's by
    /// [`Section::commit`], all of it or nothing. A file has one section at a time.
    ///
    /// # Errors
    /// `EBUSY` if the file has one, `EMFILE` if the volume has 1,024, `ENOENT` if the file was
    /// removed.
    pub fn section(&self) -> Result<Section> {
        Section::start(self.open.clone())
    }

    /// Sets the size; what is beyond the old end reads as zeros. Not durable before a sync.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn set_len(&self, size: u64) -> Result<()> {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.open
            .shared
            .call(Request::SetAttr { file: self.open.handle.into(), set, times: true })
            .map(drop)
    }

    /// fsync: data, size, attributes and name are durable on return.
    ///
    /// # Errors
    /// `ENOSPC` if dirty bytes do not fit any more; `Latched` (`EIO`) after a failed write
    /// or flush: nothing more is promised then until the volume is opened again.
    pub fn sync_all(&self) -> Result<()> {
        self.open
            .shared
            .call(Request::Fsync { file: self.open.handle.into(), datasync: false })
            .map(drop)
    }

    /// fdatasync: as [`File::sync_all`], but times may be left out.
    ///
    /// # Errors
    /// As [`File::sync_all`].
    pub fn sync_data(&self) -> Result<()> {
        self.open
            .shared
            .call(Request::Fsync { file: self.open.handle.into(), datasync: true })
            .map(drop)
    }

    /// Stages what [`File::sync_all`] would make durable, without a wait for storage: what the file
    /// is now has its place in the order of all that is staged, and the ticket tells when it is
    /// durable. After a crash nothing is there that was staged later if this is not.
    ///
    /// What cannot be staged (`docs/limits.md`) is durable when this returns.
    ///
    /// ```no_run
    /// # fn main() -> siftfs::Result<()> {
    /// # let volume = siftfs::Volume::open("/var/lib/data.sift".as_ref())?;
    /// let file = volume.open_file("/orders/today")?;
    /// let mut tickets = Vec::new();
    /// for order in 0..64u64 {
    ///     file.write_at(order * 4096, &[7; 4096])?;
    ///     tickets.push(file.stage()?);
    /// }
    /// // One write and one flush for all of them.
    /// tickets.last().expect("some").wait()?;
    /// assert!(tickets[0].is_durable()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EAGAIN` when 65,536 tickets are not durable; those of [`File::sync_all`].
    pub fn stage(&self) -> Result<Ticket> {
        Ticket::drawn(
            &self.open.shared,
            Request::Stage { file: self.open.handle.into(), datasync: false },
        )
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if !self.closed.load(Ordering::Relaxed) {
            // No caller is left to receive an error; closing promises nothing.
            let _ = self.shared.call(Request::Release { handle: self.handle });
        }
    }
}
