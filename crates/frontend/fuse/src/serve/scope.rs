//! What one mount may see and change of its volume: a part of the tree, and nothing if it is
//! read-only. This stands between a mount's server and its session, so everything that comes
//! through the mount passes here, calls of the kernel's and ioctls of ours alike.
//!
//! **A part of the tree.** The server, and the kernel above it, call a mount's root by the number
//! of the volume's root ([`ROOT_INO`], the kernel's node 1). Here it becomes the number of the
//! directory that the mount shows, and that directory's number becomes [`ROOT_INO`] on the way
//! back. The directory's own number, and the volume's root where it would come out, are stale. So
//! nothing above the mount's root has a name there, and `..` of it leads nowhere. The directory is
//! held as long as the session lives: its number stays its own, also when it is removed.

use crate::mount::switch::Switch;
use siftfs_base::{Error, InodeNr, Result, errno};
use siftfs_proto::compound::{Compound, Compounded, Step, Value};
use siftfs_proto::{
    Attr, Completion, Credentials, DirEntry, FileKind, FileService, Notice, Owed, ROOT_INO, Reply,
    Request,
};
use std::io;
use std::sync::Arc;

/// A mount's session, as the mount may use it.
pub(crate) struct Scope {
    inner: Arc<dyn FileService>,
    part: Part,
    read_only: Switch,
}

/// The part of the volume's tree below this directory.
#[derive(Clone, Copy)]
pub(crate) struct Part(pub(crate) InodeNr);

impl Default for Part {
    fn default() -> Self {
        Self(ROOT_INO)
    }
}

/// The error of a mount that could not be made.
pub(crate) fn told(e: Error) -> io::Error {
    match e {
        Error::Posix(number) => io::Error::from_raw_os_error(number),
        other => io::Error::other(other.to_string()),
    }
}

impl Scope {
    /// The session `inner` for a mount whose root is the directory `root`.
    ///
    /// # Errors
    /// `ENOENT` if the directory was removed, `ENOTDIR` if it is no directory; what the session
    /// says.
    pub(crate) fn before(
        inner: Arc<dyn FileService>,
        root: InodeNr,
        read_only: Switch,
    ) -> Result<Arc<dyn FileService>> {
        if root != ROOT_INO {
            // Looked up, as the kernel's root is by the kernel, until the session ends.
            let lookup = Request::Lookup { parent: root, name: b".".to_vec() };
            let attr = inner.call(&Credentials::default(), lookup)?.attr()?;
            match attr.kind {
                FileKind::Directory if attr.nlink > 0 => {}
                FileKind::Directory => return Err(errno(libc::ENOENT)),
                _ => return Err(errno(libc::ENOTDIR)),
            }
        }
        Ok(Arc::new(Self { inner, part: Part(root), read_only }))
    }

    /// The request as the session takes it.
    fn admit(&self, mut req: Request) -> Result<Request> {
        if self.read_only.is_on() && changes(&req) {
            return Err(errno(libc::EROFS));
        }
        if !self.part.is_all() {
            req.inodes_mut().try_for_each(|ino| self.part.enter(ino))?;
        }
        Ok(req)
    }

    /// The reply as the mount takes it. What it counted is given back if the mount may not see it.
    fn show(&self, cred: &Credentials, mut reply: Reply) -> Result<Reply> {
        let Err(e) = self.part.leave(&mut reply) else { return Ok(reply) };
        if let Reply::Entry(Attr { ino, .. }) = reply {
            self.inner.call(cred, Request::Forget { ino, count: 1 })?;
        }
        Err(e)
    }
}

impl FileService for Scope {
    fn call(&self, cred: &Credentials, req: Request) -> Result<Reply> {
        let reply = self.inner.call(cred, self.admit(req)?)?;
        self.show(cred, reply)
    }

    fn call_owing(&self, cred: &Credentials, req: Request) -> (Result<Reply>, Owed) {
        match self.admit(req) {
            Err(e) => (Err(e), Owed::default()),
            Ok(req) => {
                let (result, owed) = self.inner.call_owing(cred, req);
                (result.and_then(|reply| self.show(cred, reply)), owed)
            }
        }
    }

    /// The root is never forgotten.
    fn has_looked_up(&self, mut ino: InodeNr) -> bool {
        ino == ROOT_INO || self.part.enter(&mut ino).is_ok() && self.inner.has_looked_up(ino)
    }

    fn give_up(&self) {
        self.inner.give_up();
    }

    fn submit(&self, cred: &Credentials, req: Request, done: Completion) {
        let req = match self.admit(req) {
            Ok(req) => req,
            Err(e) => return done(Err(e)),
        };
        if self.part.is_all() {
            return self.inner.submit(cred, req, done);
        }
        // No entry comes this way: nothing has been counted that would have to be given back.
        let part = self.part;
        let done = Box::new(move |result: Result<Reply>| {
            done(result.and_then(|mut reply| part.leave(&mut reply).map(|()| reply)));
        });
        self.inner.submit(cred, req, done);
    }
}

impl Part {
    fn is_all(self) -> bool {
        self.0 == ROOT_INO
    }

    /// A number of the mount's becomes the volume's.
    fn enter(self, ino: &mut InodeNr) -> Result<()> {
        match *ino {
            ROOT_INO => *ino = self.0,
            own if own == self.0 => return Err(errno(libc::ESTALE)),
            _ => {}
        }
        Ok(())
    }

    /// A number of the volume's becomes the mount's.
    fn show(self, ino: &mut InodeNr) -> Result<()> {
        match *ino {
            own if own == self.0 => *ino = ROOT_INO,
            ROOT_INO => return Err(errno(libc::ESTALE)),
            _ => {}
        }
        Ok(())
    }

    fn show_attr(self, attr: &mut Attr) -> Result<()> {
        self.show(&mut attr.ino)?;
        if attr.ino == ROOT_INO {
            // That of a root, as the kernel has it.
            attr.generation = 0;
        }
        Ok(())
    }

    /// Numbers of a reply.
    fn leave(self, reply: &mut Reply) -> Result<()> {
        if self.is_all() {
            return Ok(());
        }
        match reply {
            Reply::Entry(attr) | Reply::Attr(attr) | Reply::Created { attr, .. } => {
                self.show_attr(attr)
            }
            Reply::Dir(entries) => self.show_entries(entries),
            Reply::Published { names, files } => self.show_changed(names, files),
            Reply::Compounded(Compounded::Done { values, names, files, written }) => {
                for value in values {
                    if let Value::File { ino, .. } = value {
                        self.show(ino)?;
                    }
                }
                written.iter_mut().try_for_each(|file| self.show(&mut file.ino))?;
                self.show_changed(names, files)
            }
            Reply::Done
            | Reply::Opened { .. }
            | Reply::Data(_)
            | Reply::Blocks(_)
            | Reply::Written { .. }
            | Reply::WrittenLast { .. }
            | Reply::Located { .. }
            | Reply::Offset(_)
            | Reply::Names(_)
            | Reply::Statfs(_)
            | Reply::Flags(_)
            | Reply::Ticket(_)
            | Reply::Durable(_)
            | Reply::Section(_)
            | Reply::Gone(_)
            | Reply::Lock(_)
            | Reply::Compounded(Compounded::Refused { .. })
            | Reply::Checkpoint(_)
            | Reply::Trimmed(_)
            | Reply::Leased { .. }
            | Reply::Direct(_)
            | Reply::Extended(_)
            | Reply::Status(_) => Ok(()),
        }
    }

    /// The root's `..` is the root itself, as of every root.
    fn show_entries(self, entries: &mut [DirEntry]) -> Result<()> {
        let of_root = entries.iter().any(|e| e.name == b"." && e.ino == self.0);
        for entry in entries {
            if entry.name == b".." && (of_root || entry.ino == ROOT_INO) {
                entry.ino = self.0;
            }
            self.show(&mut entry.ino)?;
            if let Some(attr) = &mut entry.attr {
                self.show_attr(attr)?;
            }
        }
        Ok(())
    }

    /// What other sessions changed, of what the mount may see.
    pub(crate) fn show_notice(self, notice: &mut Notice) {
        if self.is_all() {
            return;
        }
        notice.attributes.retain_mut(|ino| self.show(ino).is_ok());
        notice.sizes.retain_mut(|ino| self.show(ino).is_ok());
        notice.data.retain_mut(|(ino, _, _)| self.show(ino).is_ok());
        notice.names.retain_mut(|(dir, _)| self.show(dir).is_ok());
    }

    /// Puts the mount's number in the place of the volume's. False if the mount does not show it.
    pub(crate) fn shows(self, ino: &mut InodeNr) -> bool {
        self.is_all() || self.show(ino).is_ok()
    }

    fn show_changed(self, names: &mut [(InodeNr, Vec<u8>)], files: &mut [InodeNr]) -> Result<()> {
        names.iter_mut().try_for_each(|(dir, _)| self.show(dir))?;
        files.iter_mut().try_for_each(|file| self.show(file))
    }
}

/// Would the request change a file, a name or an attribute?
fn changes(req: &Request) -> bool {
    use Request as R;
    match req {
        R::SetAttr { .. }
        | R::MakeNode { .. }
        | R::MakeDir { .. }
        | R::Symlink { .. }
        | R::Link { .. }
        | R::Unlink { .. }
        | R::RemoveDir { .. }
        | R::Rename { .. }
        | R::Create { .. }
        | R::TmpFile { .. }
        | R::Write { .. }
        | R::Append { .. }
        | R::WriteBack { .. }
        | R::Allocate { .. }
        | R::SetXattr { .. }
        | R::RemoveXattr { .. }
        | R::SetFlags { .. }
        | R::Publish { .. }
        | R::SectionStart { .. }
        | R::SectionWrite { .. }
        | R::SectionCommit { .. }
        | R::Lease { .. }
        | R::LeaseWrite { .. }
        | R::LeaseDirect { .. }
        | R::LeaseExtend { .. } => true,
        R::Open { access, truncate, .. } => access.writes() || *truncate,
        R::Compound(compound) => compound_changes(compound),
        R::Lookup { .. }
        | R::Forget { .. }
        | R::ReadDirect { .. }
        | R::GetAttr { .. }
        | R::ReadLink { .. }
        | R::Hold { .. }
        | R::Release { .. }
        | R::Read { .. }
        | R::Fsync { .. }
        | R::Stage { .. }
        | R::Barrier
        | R::Poll { .. }
        | R::Wait { .. }
        | R::EndSession
        | R::Seek { .. }
        | R::OpenDir { .. }
        | R::ReadDir { .. }
        | R::GetXattr { .. }
        | R::ListXattr { .. }
        | R::GetFlags { .. }
        | R::GetLock { .. }
        | R::SetLock { .. }
        | R::CloseLocks { .. }
        | R::CancelLock { .. }
        | R::SectionRead { .. }
        | R::SectionAbort { .. }
        | R::LeaseLocate { .. }
        | R::LeaseKeep { .. }
        | R::LeaseReturn { .. }
        | R::HoldMany { .. }
        | R::StatFs
        | R::SyncAll
        | R::Checkpoint
        | R::Trim { .. }
        | R::Status => false,
    }
}

fn compound_changes(compound: &Compound) -> bool {
    compound.steps.iter().any(|step| match step {
        Step::Open { access, truncate, .. } => access.writes() || *truncate,
        Step::Lookup { .. }
        | Step::Read { .. }
        | Step::Checksum { .. }
        | Step::Compress { .. }
        | Step::Decompress { .. }
        | Step::Join { .. }
        | Step::Close { .. } => false,
        Step::Create { .. }
        | Step::Write { .. }
        | Step::Append { .. }
        | Step::Patch { .. }
        | Step::Add { .. }
        | Step::CompareAndSet { .. }
        | Step::Rename { .. }
        | Step::Link { .. }
        | Step::Unlink { .. }
        | Step::SetSize { .. }
        | Step::SetAttributes { .. } => true,
    })
}

#[cfg(test)]
#[path = "scope_tests.rs"]
mod tests;
