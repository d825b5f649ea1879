//! The mount through which a program calls an ioctl of ours. For a system call by path the kernel
//! checks that mount: whether it is read-only, whether it maps ids, and what is mounted on the way.
//! For an ioctl it checks nothing of that, so the paths and files of an argument are checked here
//! ("Through which mount" in `docs/design/operations.md`).

use crate::mount::mountinfo::MountEntry;
use siftfs_base::{Result, errno};
use siftfs_proto::ioctl::compound::{File, Step};
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;

/// One mount of the volume, as the caller has it.
#[derive(Debug)]
pub(crate) struct View {
    /// The mount's number.
    id: u64,
    read_only: bool,
    /// The last names of the places where something is mounted on the volume. Only the name is
    /// compared and not what is above it: a program can rename a directory above between a look at
    /// the table of mounts and the change, and nobody can rename a place where something is
    /// mounted.
    covered: BTreeSet<Vec<u8>>,
}

impl View {
    /// The mount number `id` of the table `mounts`, if it shows `volume`.
    ///
    /// # Errors
    /// EOPNOTSUPP for a mount that maps ids: those of a request are not the ids that it would give.
    pub(crate) fn of(mounts: &[MountEntry], volume: &MountEntry, id: u64) -> Result<Option<Self>> {
        let Some(mount) = mounts.iter().find(|m| m.id == id && m.is_same_as(volume)) else {
            return Ok(None);
        };
        if mount.has_option("idmapped") {
            return Err(errno(libc::EOPNOTSUPP));
        }
        let ours: BTreeSet<u64> =
            mounts.iter().filter(|m| m.is_same_as(volume)).map(|m| m.id).collect();
        let above = mounts.iter().filter(|m| ours.contains(&m.parent));
        let covered = above.filter_map(|m| Some(m.mount_point.file_name()?.as_bytes().to_vec()));
        let (read_only, covered) = (mount.has_option("ro"), covered.collect());
        Ok(Some(Self { id, read_only, covered }))
    }

    /// May files and names be changed through this mount?
    ///
    /// # Errors
    /// EROFS if it is read-only.
    pub(crate) fn may_change(&self) -> Result<()> {
        if self.read_only { Err(errno(libc::EROFS)) } else { Ok(()) }
    }

    /// Does the path stay in the volume, as far as the caller sees it?
    ///
    /// # Errors
    /// EXDEV if it may lead through a directory on which something else is mounted, EBUSY if
    /// something may be mounted on the file itself.
    pub(crate) fn may_follow(&self, path: &[u8]) -> Result<()> {
        if self.covered.is_empty() {
            return Ok(());
        }
        let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).rev();
        let covers = |name: &[u8]| self.covered.contains(name);
        if names.next().is_some_and(covers) {
            return Err(errno(libc::EBUSY));
        }
        if names.any(covers) { Err(errno(libc::EXDEV)) } else { Ok(()) }
    }

    /// May a file that was opened through `other` get a name here?
    ///
    /// # Errors
    /// EXDEV if that is another mount, as for linkat(2).
    pub(crate) fn may_link(&self, other: &Self) -> Result<()> {
        if self.id == other.id { Ok(()) } else { Err(errno(libc::EXDEV)) }
    }

    /// May a step be called for on a directory of this mount? What it does through a descriptor
    /// was checked when that was opened, but for [`View::may_use`].
    ///
    /// # Errors
    /// Those of [`View::may_change`] and [`View::may_follow`].
    pub(crate) fn may_step(&self, step: &Step) -> Result<()> {
        use Step as S;
        let by_path = |file: &File| matches!(file, File::Step(_));
        let changes = match step {
            S::Create { .. } | S::Rename { .. } | S::Link { .. } | S::Unlink { .. } => true,
            S::Open { access, truncate, .. } => access.writes() || *truncate,
            S::Write { file, .. }
            | S::Append { file, .. }
            | S::Patch { file, .. }
            | S::Add { file, .. }
            | S::CompareAndSet { file, .. }
            | S::SetSize { file, .. }
            | S::SetAttributes { file, .. } => by_path(file),
            S::Lookup { .. }
            | S::Read { .. }
            | S::Checksum { .. }
            | S::Compress { .. }
            | S::Decompress { .. }
            | S::Join { .. }
            | S::Close { .. } => false,
        };
        if changes {
            self.may_change()?;
        }
        match step {
            S::Rename { from, to, .. } => {
                self.may_follow(from)?;
                self.may_follow(to)
            }
            S::Lookup { path }
            | S::Open { path, .. }
            | S::Create { path, .. }
            | S::Unlink { path }
            | S::Link { to: path, .. } => self.may_follow(path),
            _ => Ok(()),
        }
    }

    /// May a step use a descriptor that was opened through `opened`?
    ///
    /// # Errors
    /// EROFS for attributes of a file of a read-only mount, which need no descriptor that writes;
    /// EXDEV as [`View::may_link`].
    pub(crate) fn may_use(&self, opened: &Self, purpose: Purpose) -> Result<()> {
        match purpose {
            Purpose::Attributes => opened.may_change(),
            Purpose::Link => self.may_link(opened),
            Purpose::Data => Ok(()),
        }
    }
}

/// What a step uses its file for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Its bytes, as it was opened for.
    Data,
    /// Its attributes are set.
    Attributes,
    /// It gets a name.
    Link,
}

impl Purpose {
    pub(crate) fn of(step: &Step) -> Self {
        match step {
            Step::SetAttributes { .. } => Self::Attributes,
            Step::Link { .. } => Self::Link,
            _ => Self::Data,
        }
    }
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
