//! Atomic sections: many writes that become the file's together.

use crate::Result;
use crate::file::{Opened, PIECE};
use siftfs_base::errno;
use siftfs_proto::{Request, SectionId, WriteData};
use std::sync::Arc;

/// Writes of one file that are nobody else's before [`Section::commit`], and then all are the
/// file's: also after a crash, either all of them are there or none. Dropped without a commit, it
/// leaves nothing behind.
///
/// ```no_run
/// # fn main() -> siftfs::Result<()> {
/// # let volume = siftfs::Volume::open("/var/lib/data.sift".as_ref())?;
/// let file = volume.open_file("/accounts")?;
/// let section = file.section()?;
/// section.write_at(0, b"ten less")?;
/// section.write_at(1 << 20, b"ten more")?;
/// section.commit()?; // durable, both or neither
/// # Ok(())
/// # }
/// ```
///
/// Half a section cannot be asked for: what was committed or aborted is gone.
///
/// ```compile_fail,E0382
/// # fn main() -> siftfs::Result<()> {
/// # let volume = siftfs::Volume::open("/var/lib/data.sift".as_ref())?;
/// let section = volume.open_file("/accounts")?.section()?;
/// section.commit()?;
/// section.write_at(0, b"more")?;
/// # Ok(())
/// # }
/// ```
pub struct Section {
    open: Arc<Opened>,
    id: SectionId,
    ended: bool,
}

impl Section {
    pub(crate) fn start(open: Arc<Opened>) -> Result<Self> {
        let req = Request::SectionStart { file: open.handle.into() };
        let id = open.shared.call(req)?.section()?;
        Ok(Self { open, id, ended: false })
    }

    /// Writes all of `data` at `offset`, or, on an error, the first of its pieces of 1 MiB.
    ///
    /// # Errors
    /// `EFBIG` if the section would be more than one staged transaction takes: an eighth of a lane,
    /// and 8 MiB. What was written before stays.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut at = offset;
        for piece in data.chunks(PIECE) {
            let data = WriteData::copy_of(at, piece);
            let req = Request::SectionWrite { section: self.id, offset: at, data };
            self.open.shared.call(req)?.written()?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Up to `len` bytes from `offset` of the file as the commit will leave it; fewer only at its
    /// end.
    ///
    /// # Errors
    /// `EIO` if the storage cannot be read.
    pub fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        while out.len() < len {
            let offset = offset + out.len() as u64;
            let len = u32::try_from((len - out.len()).min(PIECE)).unwrap_or(u32::MAX);
            let req = Request::SectionRead { section: self.id, offset, len };
            match self.open.shared.call(req)?.data()? {
                data if data.is_empty() => break,
                data => out.extend_from_slice(&data),
            }
        }
        Ok(out)
    }

    /// Everything that was written is the file's, and durable, when this returns.
    ///
    /// # Errors
    /// `ECANCELED` if another caller changed a byte that this section wrote, or truncated or
    /// removed the file; `ENOSPC`; `EAGAIN` if what kept it from being staged came back again and
    /// again. Nothing of it is the file's then. `EIO` after a failure of the storage: what is
    /// durable, the next recovery finds.
    pub fn commit(self) -> Result<()> {
        commit_all(vec![self])
    }

    /// Forgets everything that was written. As dropping it, with the error.
    ///
    /// # Errors
    /// `EINVAL` if the volume was closed meanwhile.
    pub fn abort(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        self.ended = true;
        self.open.shared.call(Request::SectionAbort { section: self.id }).map(drop)
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        if !self.ended {
            // No caller is left to receive an error; nothing of it was anywhere.
            let _ = self.end();
        }
    }
}

/// Commits sections of several files of one volume together: all of them or none.
///
/// # Errors
/// Those of [`Section::commit`], `EFBIG` if they are more than one staged transaction takes
/// together, `EXDEV` if they are of different volumes.
pub fn commit_all(sections: Vec<Section>) -> Result<()> {
    commit(sections, true)
}

/// As [`commit_all`], without a wait for storage: a crash shows all of them or none, and nothing
/// that is made durable later survives one without them.
///
/// # Errors
/// Those of [`commit_all`].
pub fn commit_ordered(sections: Vec<Section>) -> Result<()> {
    commit(sections, false)
}

fn commit(mut sections: Vec<Section>, durable: bool) -> Result<()> {
    let Some(first) = sections.first() else { return Ok(()) };
    let shared = first.open.shared.clone();
    if sections.iter().any(|s| !Arc::ptr_eq(&s.open.shared, &shared)) {
        return Err(errno(libc::EXDEV));
    }
    let ids = sections.iter().map(|s| s.id).collect();
    shared.call(Request::SectionCommit { sections: ids, durable, times: true })?;
    sections.iter_mut().for_each(|s| s.ended = true);
    Ok(())
}
