//! What a request names: the one list of it, for all that check or translate numbers.

use crate::{Request, Target};
use siftfs_base::InodeNr;

/// A file, which may be open, and inodes by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names<F, I> {
    /// The file that the request is about.
    pub file: Option<F>,
    /// Inodes besides, which only their numbers stand for.
    pub inodes: [Option<I>; 2],
}

impl<F, I> Names<F, I> {
    fn file(file: F) -> Self {
        Self { file: Some(file), inodes: [None, None] }
    }

    fn one(ino: I) -> Self {
        Self { file: None, inodes: [Some(ino), None] }
    }

    fn both(one: I, other: I) -> Self {
        Self { file: None, inodes: [Some(one), Some(other)] }
    }

    /// Nothing.
    pub fn nothing() -> Self {
        Self { file: None, inodes: [None, None] }
    }
}

macro_rules! names {
    ($request:expr, $($borrow:tt)+) => {{
        use Request as R;
        match $request {
            R::GetAttr { file }
            | R::SetAttr { file, .. }
            | R::Read { file, .. }
            | R::Write { file, .. }
            | R::Append { file, .. }
            | R::WriteBack { file, .. }
            | R::Fsync { file, .. }
            | R::Stage { file, .. }
            | R::Allocate { file, .. }
            | R::Seek { file, .. }
            | R::GetXattr { file, .. }
            | R::ListXattr { file }
            | R::SetXattr { file, .. }
            | R::RemoveXattr { file, .. }
            | R::GetFlags { file }
            | R::SetFlags { file, .. }
            | R::GetLock { file, .. }
            | R::SetLock { file, .. }
            | R::SectionStart { file }
            | R::Lease { file, .. }
            | R::LeaseDirect { file, .. }
            | R::LeaseExtend { file, .. }
            | R::ReadDirect { file } => Names::file(file),
            R::Forget { ino, .. }
            | R::CloseLocks { ino, .. }
            | R::ReadLink { ino }
            | R::Open { ino, .. }
            | R::Hold { ino }
            | R::OpenDir { ino } => Names::one(ino),
            R::Lookup { parent, .. }
            | R::MakeNode { parent, .. }
            | R::MakeDir { parent, .. }
            | R::Symlink { parent, .. }
            | R::Unlink { parent, .. }
            | R::RemoveDir { parent, .. }
            | R::Create { parent, .. }
            | R::TmpFile { parent, .. } => Names::one(parent),
            R::Link { ino, parent, .. } => Names::both(ino, parent),
            R::Rename { parent, new_parent, .. } => Names::both(parent, new_parent),
            R::Publish { base, .. } => Names::one(base),
            R::Compound(compound) => Names::one($($borrow)+ compound.base),
            R::Release { .. }
            | R::Barrier
            | R::Poll { .. }
            | R::Wait { .. }
            | R::EndSession
            | R::ReadDir { .. }
            | R::SectionWrite { .. }
            | R::SectionRead { .. }
            | R::SectionCommit { .. }
            | R::SectionAbort { .. }
            | R::LeaseWrite { .. }
            | R::LeaseLocate { .. }
            | R::LeaseKeep { .. }
            | R::LeaseReturn { .. }
            | R::CancelLock { .. }
            | R::HoldMany { .. }
            | R::StatFs
            | R::SyncAll
            | R::Checkpoint
            | R::Trim { .. }
            | R::Status => Names::nothing(),
        }
    }};
}

impl Request {
    /// What it names. The handles of directories and the numbers of sections, leases and tickets
    /// mean something in the session alone, so they are not here; nor is what paths lead to.
    pub fn names(&self) -> Names<&Target, &InodeNr> {
        names!(self, &)
    }

    /// The same, to be changed.
    pub fn names_mut(&mut self) -> Names<&mut Target, &mut InodeNr> {
        names!(self, &mut)
    }

    /// Every inode that it names by its number, to be changed.
    pub fn inodes_mut(&mut self) -> impl Iterator<Item = &mut InodeNr> {
        let Names { file, inodes } = self.names_mut();
        let file = file.and_then(|file| match file {
            Target::Inode(ino) => Some(ino),
            Target::Open(_) => None,
        });
        file.into_iter().chain(inodes.into_iter().flatten())
    }
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;
