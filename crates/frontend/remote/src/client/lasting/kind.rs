//! What kind of call a request is, for a client that may have to make it again, and the handles and
//! inodes that a request names.

use siftfs_base::{InodeNr, Result};
use siftfs_proto::compound::{FileArg, Step};
use siftfs_proto::{Handle, PublishSource, Request, Target};

/// What may be done with a call whose answer did not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It changes nothing that lasts: it is made again.
    Reads,
    /// A change that may be made twice.
    Absolute,
    /// A change that may not.
    Once,
    /// Bytes at the end of a file.
    Appends,
    /// A change that is durable when it is answered. Nobody can say whether it was made.
    Final,
    /// It gives something back that is gone with the server.
    GivesBack,
    /// It is about something that is gone with the server.
    Bound,
}

impl Kind {
    pub fn of(request: &Request) -> Self {
        use Request as R;
        match request {
            R::SetAttr { .. }
            | R::Open { truncate: true, .. }
            | R::Write { append: false, .. }
            | R::WriteBack { .. }
            | R::Allocate { .. }
            | R::SetXattr { .. }
            | R::RemoveXattr { .. }
            | R::SetFlags { .. } => Self::Absolute,
            R::MakeNode { .. }
            | R::MakeDir { .. }
            | R::Symlink { .. }
            | R::Link { .. }
            | R::Unlink { .. }
            | R::RemoveDir { .. }
            | R::Rename { .. }
            | R::Create { .. }
            | R::TmpFile { .. } => Self::Once,
            R::Write { append: true, .. } | R::Append { .. } => Self::Appends,
            R::Publish { .. } | R::Compound(_) | R::SectionCommit { .. } => Self::Final,
            R::Forget { .. }
            | R::Release { .. }
            | R::EndSession
            | R::CloseLocks { .. }
            | R::CancelLock { .. }
            | R::SectionAbort { .. } => Self::GivesBack,
            R::SectionWrite { .. }
            | R::SectionRead { .. }
            | R::Poll { .. }
            | R::Wait { .. }
            | R::LeaseWrite { .. }
            | R::LeaseLocate { .. }
            | R::LeaseKeep { .. }
            | R::LeaseReturn { .. } => Self::Bound,
            _ => Self::Reads,
        }
    }
}

/// Puts other handles in place of those that a request names.
///
/// # Errors
/// The first one of `other`.
pub(super) fn exchange(
    request: &mut Request,
    mut other: impl FnMut(Handle) -> Result<Handle>,
) -> Result<()> {
    use Request as R;
    match request {
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
        | R::SectionStart { file }
        | R::GetLock { file, .. }
        | R::SetLock { file, .. }
        | R::Lease { file, .. } => {
            if let Target::Open(handle) = file {
                *handle = other(*handle)?;
            }
        }
        R::Release { handle } | R::ReadDir { handle, .. } | R::CloseLocks { handle, .. } => {
            *handle = other(*handle)?;
        }
        R::Publish { entries, .. } => {
            for entry in entries {
                if let PublishSource::Open(handle) = &mut entry.source {
                    *handle = other(*handle)?;
                }
            }
        }
        R::Compound(compound) => {
            for file in compound.steps.iter_mut().filter_map(file_of_step) {
                if let FileArg::Open(handle) = file {
                    *handle = other(*handle)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn file_of_step(step: &mut Step) -> Option<&mut FileArg> {
    match step {
        Step::Read { file, .. }
        | Step::Write { file, .. }
        | Step::Append { file, .. }
        | Step::Patch { file, .. }
        | Step::Add { file, .. }
        | Step::CompareAndSet { file, .. }
        | Step::Link { file, .. }
        | Step::SetSize { file, .. }
        | Step::SetAttributes { file, .. }
        | Step::Close { file } => Some(file),
        _ => None,
    }
}

/// The inodes that a request names by their numbers.
pub(super) fn inodes(request: &Request) -> [Option<InodeNr>; 2] {
    use Request as R;
    match request {
        R::Lookup { parent, .. }
        | R::MakeNode { parent, .. }
        | R::MakeDir { parent, .. }
        | R::Symlink { parent, .. }
        | R::Unlink { parent, .. }
        | R::RemoveDir { parent, .. }
        | R::Create { parent, .. }
        | R::TmpFile { parent, .. } => [Some(*parent), None],
        R::Link { ino, parent, .. } => [Some(*ino), Some(*parent)],
        R::Rename { parent, new_parent, .. } => [Some(*parent), Some(*new_parent)],
        R::ReadLink { ino }
        | R::Open { ino, .. }
        | R::Hold { ino }
        | R::OpenDir { ino }
        | R::Publish { base: ino, .. } => [Some(*ino), None],
        R::GetAttr { file: Target::Inode(ino) }
        | R::SetAttr { file: Target::Inode(ino), .. }
        | R::Read { file: Target::Inode(ino), .. }
        | R::Write { file: Target::Inode(ino), .. }
        | R::Append { file: Target::Inode(ino), .. }
        | R::WriteBack { file: Target::Inode(ino), .. }
        | R::Fsync { file: Target::Inode(ino), .. }
        | R::Stage { file: Target::Inode(ino), .. }
        | R::Allocate { file: Target::Inode(ino), .. }
        | R::Seek { file: Target::Inode(ino), .. }
        | R::GetXattr { file: Target::Inode(ino), .. }
        | R::ListXattr { file: Target::Inode(ino) }
        | R::SetXattr { file: Target::Inode(ino), .. }
        | R::RemoveXattr { file: Target::Inode(ino), .. }
        | R::GetFlags { file: Target::Inode(ino) }
        | R::SetFlags { file: Target::Inode(ino), .. } => [Some(*ino), None],
        _ => [None, None],
    }
}
