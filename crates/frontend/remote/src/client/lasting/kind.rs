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
            | R::LeaseReturn { .. }
            | R::LeaseDirect { .. }
            | R::LeaseExtend { .. } => Self::Bound,
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
    if let Some(Target::Open(handle)) = request.names_mut().file {
        *handle = other(*handle)?;
    }
    match request {
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

/// Does a request name such an inode by its number?
pub(super) fn names_one(request: &Request, is_such: impl Fn(InodeNr) -> bool) -> bool {
    let names = request.names();
    let file = names.file.and_then(|file| match file {
        Target::Inode(ino) => Some(ino),
        Target::Open(_) => None,
    });
    file.into_iter().chain(names.inodes.into_iter().flatten()).any(|ino| is_such(*ino))
}
