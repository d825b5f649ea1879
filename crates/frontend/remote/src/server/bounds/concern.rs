//! What in a request a bound concerns. The list is whole, so a new request has to be judged before
//! it builds.

use super::ids::Given;
use siftfs_proto::compound::Compound;
use siftfs_proto::{Handle, Request, Rights};

/// What in a request a bound concerns, besides the inodes that it names by their numbers
/// ([`Request::inodes_mut`]).
pub(super) enum Concern<'a> {
    /// It is about the whole volume: an administrator's, and no bounded client's.
    Volume,
    /// It leads to the parent of a directory.
    Upwards,
    /// Ids that a file is to get.
    Owner(Given<'a>),
    /// The name of an extended attribute that is read, or set to a value.
    Value(&'a [u8], Option<&'a mut Vec<u8>>),
    /// Entries of an open directory are shown.
    Entries(Handle),
    /// Rights of the caller.
    Rights(&'a mut Rights),
    /// Rights of the caller, and steps, each with ids of its own.
    Compound(&'a mut Compound),
    /// Nothing.
    NumbersAlone,
}

/// What of `req` a bound concerns.
pub(super) fn of(req: &mut Request) -> Concern<'_> {
    use Request as R;
    match req {
        R::Status | R::Checkpoint | R::SyncAll | R::Trim { .. } | R::HoldMany { .. } => {
            Concern::Volume
        }
        R::Lookup { name, .. } if name == b".." => Concern::Upwards,
        R::SetAttr { set, .. } => Concern::Owner((&mut set.uid, &mut set.gid)),
        R::SetXattr { name, value, .. } => Concern::Value(name, Some(value)),
        R::GetXattr { name, .. } => Concern::Value(name, None),
        R::ReadDir { handle, .. } => Concern::Entries(*handle),
        R::Compound(compound) => Concern::Compound(compound),
        R::Publish { rights, .. } => Concern::Rights(rights),
        R::Lookup { .. }
        | R::Forget { .. }
        | R::GetAttr { .. }
        | R::ReadLink { .. }
        | R::MakeNode { .. }
        | R::MakeDir { .. }
        | R::Symlink { .. }
        | R::Link { .. }
        | R::Unlink { .. }
        | R::RemoveDir { .. }
        | R::Rename { .. }
        | R::Create { .. }
        | R::TmpFile { .. }
        | R::Open { .. }
        | R::Hold { .. }
        | R::Release { .. }
        | R::Read { .. }
        | R::Write { .. }
        | R::Append { .. }
        | R::WriteBack { .. }
        | R::Fsync { .. }
        | R::Stage { .. }
        | R::Barrier
        | R::Poll { .. }
        | R::Wait { .. }
        | R::EndSession
        | R::Allocate { .. }
        | R::Seek { .. }
        | R::OpenDir { .. }
        | R::ListXattr { .. }
        | R::RemoveXattr { .. }
        | R::GetFlags { .. }
        | R::SetFlags { .. }
        | R::SectionStart { .. }
        | R::SectionWrite { .. }
        | R::SectionRead { .. }
        | R::SectionCommit { .. }
        | R::SectionAbort { .. }
        | R::GetLock { .. }
        | R::SetLock { .. }
        | R::CloseLocks { .. }
        | R::CancelLock { .. }
        | R::Lease { .. }
        | R::LeaseWrite { .. }
        | R::LeaseLocate { .. }
        | R::LeaseKeep { .. }
        | R::LeaseReturn { .. }
        | R::LeaseDirect { .. }
        | R::LeaseExtend { .. }
        | R::ReadDirect { .. }
        | R::StatFs => Concern::NumbersAlone,
    }
}
