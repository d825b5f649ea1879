//! Atomic sections: many writes that become the file's together.

use crate::raw;
use siftfs_proto::Level;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// An atomic section of an open file: what is written through that one from now on becomes the
/// file's with [`Section::commit`], all of it or nothing, also after a crash. Dropped without a
/// commit, it leaves nothing behind.
///
/// The file is open to read and write, and is written through as ever: by `write_all_at`, say, or
/// by `Write` for `&File`. What a program keeps back, as a `BufWriter` does, is not in the section
/// before it is flushed. Reads through it see the section.
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// use std::os::unix::fs::FileExt;
/// let accounts = std::fs::File::options().read(true).write(true).open("/mnt/accounts")?;
/// let section = siftfs_client::Section::start(&accounts)?;
/// accounts.write_all_at(b"ten less", 0)?;
/// accounts.write_all_at(b"ten more", 1 << 20)?;
/// section.commit() // durable, both or neither; a `?` above aborts
/// # }
/// ```
///
/// Half a section cannot be asked for: what was committed or aborted is gone, and the file outlives
/// its section.
///
/// ```compile_fail,E0382
/// # fn main() -> std::io::Result<()> {
/// # let accounts = std::fs::File::options().read(true).write(true).open("/mnt/accounts")?;
/// let section = siftfs_client::Section::start(&accounts)?;
/// section.commit()?;
/// section.abort()
/// # }
/// ```
///
/// ```compile_fail,E0505
/// # fn main() -> std::io::Result<()> {
/// # let accounts = std::fs::File::options().read(true).write(true).open("/mnt/accounts")?;
/// let section = siftfs_client::Section::start(&accounts)?;
/// drop(accounts);
/// section.commit()
/// # }
/// ```
///
/// A close(2) of *any* descriptor of the file by this process ends the section without a commit, as
/// it drops the process's POSIX locks; [`Section::commit`] is `EINVAL` then.
#[derive(Debug)]
#[must_use = "dropped at once, it is aborted"]
pub struct Section<'f> {
    file: BorrowedFd<'f>,
    ended: bool,
}

impl<'f> Section<'f> {
    /// Starts a section. A file has one at a time.
    ///
    /// # Errors
    /// `ENOTTY` if the file is not on a SiftFS mount; `EBADF` if it is not open to read and write;
    /// `EACCES` if it is another user's; `EBUSY` if it has a section; `EMFILE` if the mount has
    /// 1,024; `EROFS`; `ENOENT` if it was removed.
    pub fn start(file: &'f impl AsFd) -> io::Result<Self> {
        let file = file.as_fd();
        raw::start(file)?;
        Ok(Self { file, ended: false })
    }

    /// Everything that was written is the file's, and durable, when this returns. If not, the
    /// section is aborted.
    ///
    /// # Errors
    /// `ECANCELED` if another program changed a byte that was written here, or the file's size;
    /// `EFBIG` if it is more than a record takes; `EINVAL` if the section ended before; `ENOSPC`;
    /// `EAGAIN`. Nothing of it is the file's then. `EIO` after a failure of the storage: the next
    /// mount tells.
    pub fn commit(mut self) -> io::Result<()> {
        raw::commit(self.file)?;
        self.ended = true;
        Ok(())
    }

    /// Forgets everything that was written. As dropping it, with the error.
    ///
    /// # Errors
    /// `EINVAL` if the section ended before.
    pub fn abort(mut self) -> io::Result<()> {
        self.ended = true;
        raw::abort(self.file)
    }
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // No caller is left to receive an error; nothing of it is anywhere.
            let _ = raw::abort(self.file);
        }
    }
}

/// Commits sections of several files of one mount together: all of them or none. With
/// [`Level::Durable`] they are durable on return; with [`Level::Atomic`] nothing that is made
/// durable later survives a crash without them ([`Level::Visible`] is the same here). If not, they
/// are aborted.
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// use siftfs_client::{Level, Section, commit_all};
/// use std::os::unix::fs::FileExt;
/// let open = |name| std::fs::File::options().read(true).write(true).open(name);
/// let (from, to) = (open("/mnt/from")?, open("/mnt/to")?);
/// let sections = vec![Section::start(&from)?, Section::start(&to)?];
/// from.write_all_at(b"ten less", 0)?;
/// to.write_all_at(b"ten more", 0)?;
/// commit_all(sections, Level::Durable)
/// # }
/// ```
///
/// # Errors
/// Those of [`Section::commit`]; `EFBIG` if they are more than a record takes together; `EXDEV` if
/// they are of several mounts.
pub fn commit_all(mut sections: Vec<Section<'_>>, level: Level) -> io::Result<()> {
    if sections.is_empty() {
        return Ok(());
    }
    let files: Vec<_> = sections.iter().map(|section| section.file).collect();
    raw::commit_all(&files, level)?;
    sections.iter_mut().for_each(|section| section.ended = true);
    Ok(())
}
