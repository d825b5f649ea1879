//! Calls as a server that has clients who come back looks at them.

use crate::server::proofs::Power;
use siftfs_base::{InodeNr, Result, errno};
use siftfs_calls::Kept;
use siftfs_proto::compound::Access;
use siftfs_proto::{Credentials, FileService, Handle, Level, ROOT_INO, Reply, Request, Target};

/// What of a call's success is a promise that something is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Promise {
    /// Nothing.
    Nothing,
    /// One file.
    File,
    /// More than one file, or it is not known which.
    More,
}

/// What a call promises.
pub(in crate::server) fn promise(request: &Request) -> Promise {
    use Request as R;
    match request {
        R::Fsync { .. } => Promise::File,
        // Of these it is nothing that is durable, but that all of it will be there or nothing.
        R::Compound(compound) if compound.level == Level::Visible => Promise::Nothing,
        // What others keep of the file is older than what is written at the target from then on.
        R::Lease { direct: Some(_), .. }
        | R::LeaseDirect { .. }
        | R::LeaseWrite { durable: true, .. }
        | R::Poll { .. }
        | R::Wait { .. }
        | R::SetFlags { .. }
        | R::Publish { .. }
        | R::SectionCommit { .. }
        | R::Compound(_)
        | R::Checkpoint
        | R::SyncAll => Promise::More,
        _ => Promise::Nothing,
    }
}

/// Would what clients keep of the same files be older than this change, which is durable when it is
/// answered, and come over it, or be refused, where it is repeated?
pub(in crate::server) fn comes_after_all(request: &Request) -> bool {
    match request {
        Request::SectionCommit { .. } | Request::SetFlags { .. } => true,
        Request::Compound(_) => promise(request) == Promise::More,
        _ => false,
    }
}

/// The file whose bytes or attributes a call is about, if it is about one.
pub(in crate::server) fn file_of(
    request: &Request,
    opened: impl Fn(Handle) -> Option<InodeNr>,
) -> Option<InodeNr> {
    use Request as R;
    let target = match request {
        R::SetAttr { file, .. }
        | R::Write { file, .. }
        | R::Append { file, .. }
        | R::WriteBack { file, .. }
        | R::Fsync { file, .. }
        | R::Allocate { file, .. }
        | R::SetXattr { file, .. }
        | R::RemoveXattr { file, .. } => *file,
        R::Open { ino, .. } => Target::Inode(*ino),
        _ => return None,
    };
    match target {
        Target::Inode(ino) => Some(ino),
        Target::Open(handle) => opened(handle),
    }
}

/// Is the file of a change that is repeated the one that was changed? Its number may be another
/// file's by now, if both its end and the other's beginning are durable.
pub(in crate::server) fn is_of_file(
    service: &dyn FileService,
    file: Option<InodeNr>,
    kept: &Kept,
) -> bool {
    let (Some(file), 0) = (file, kept.lsn) else { return true };
    // Nobody looks up the root, and it is always the same.
    let Some((ino, generation)) = kept.inode else { return file == ROOT_INO };
    let asked = service.call(&Credentials::default(), Request::GetAttr { file: file.into() });
    let found = asked.and_then(Reply::attr).map(|attr| (attr.ino, attr.generation));
    found == Ok((ino, generation))
}

/// The answer of a change of names that a server has carried out which died, about this inode.
///
/// # Errors
/// `ESTALE` if the name is another file's by now, or the file went with the server.
pub(in crate::server) fn answer_again(
    (service, power): (&dyn FileService, &Power),
    credentials: &Credentials,
    request: &Request,
    ino: InodeNr,
) -> Result<Reply> {
    use Request as R;
    let lookup = |parent: InodeNr, name: &[u8]| {
        let attr = service.call(credentials, R::Lookup { parent, name: name.to_vec() })?.attr()?;
        if attr.ino == ino {
            return Ok(attr);
        }
        service.call(credentials, R::Forget { ino: attr.ino, count: 1 })?;
        Err(errno(libc::ESTALE))
    };
    match request {
        R::MakeNode { parent, name, .. }
        | R::MakeDir { parent, name, .. }
        | R::Symlink { parent, name, .. }
        | R::Link { parent, name, .. } => lookup(*parent, name).map(Reply::Entry),
        R::Create { parent, name, .. } => {
            let attr = lookup(*parent, name)?;
            let opened = power.call(R::open(ino, Access::Both))?.opened()?;
            Ok(Reply::Created { attr, handle: opened })
        }
        R::TmpFile { .. } => Err(errno(libc::ESTALE)),
        _ => Ok(Reply::Done),
    }
}
