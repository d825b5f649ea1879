//! The Runtime's endpoint of the file protocol: each request becomes calls on the state. The
//! requests of a kind have a file.

mod attributes;
mod data;
mod names;
mod operations;

use crate::runtime::Runtime;
use crate::staging::proof::Durable;
use crate::state::State;
use crate::state::Tree;
use siftfs_base::{Error, InodeNr, Result, errno};
use siftfs_proto::compound::Access;
use siftfs_proto::{
    Completion, Credentials, FileService, Handle, Reply, Request, SessionId, Target,
};

/// One request of a session, while it is carried out for a caller.
pub(crate) struct Call<'a> {
    /// What carries it out.
    pub(crate) runtime: &'a Runtime,
    /// Whose handles, sections and tickets it may name.
    pub(crate) session: SessionId,
    /// The caller.
    pub(crate) cred: &'a Credentials,
}

impl FileService for Runtime {
    fn call(&self, session: SessionId, cred: &Credentials, req: Request) -> Result<Reply> {
        use Request as R;
        let call = Call { runtime: self, session, cred };
        match req {
            R::Lookup { .. }
            | R::Forget { .. }
            | R::ReadLink { .. }
            | R::MakeNode { .. }
            | R::MakeDir { .. }
            | R::Symlink { .. }
            | R::Link { .. }
            | R::Unlink { .. }
            | R::RemoveDir { .. }
            | R::Rename { .. }
            | R::Create { .. }
            | R::TmpFile { .. } => call.names(req),
            R::GetAttr { .. }
            | R::SetAttr { .. }
            | R::GetXattr { .. }
            | R::ListXattr { .. }
            | R::SetXattr { .. }
            | R::RemoveXattr { .. }
            | R::GetFlags { .. }
            | R::SetFlags { .. } => call.attributes(req),
            R::Open { .. }
            | R::Release { .. }
            | R::Read { .. }
            | R::Write { .. }
            | R::WriteBack { .. }
            | R::Allocate { .. }
            | R::Seek { .. }
            | R::OpenDir { .. }
            | R::ReadDir { .. } => call.data(req),
            R::Publish { .. }
            | R::SectionStart { .. }
            | R::SectionWrite { .. }
            | R::SectionRead { .. }
            | R::SectionCommit { .. }
            | R::SectionAbort { .. }
            | R::Compound(_) => call.operations(req),
            R::Fsync { .. }
            | R::Stage { .. }
            | R::Barrier
            | R::Poll { .. }
            | R::Wait { .. }
            | R::SyncAll => call.durability(req),
            R::EndSession => call.end_session(),
            R::StatFs => self.query(|st| Ok(Reply::Statfs(st.metadata.stat_fs()))),
            R::Checkpoint => self.checkpoint_all().map(|report| Reply::Checkpoint(report.into())),
            R::Trim { start, len, least } => self.trim(start, len, least).map(Reply::Trimmed),
            R::Status => self.status().map(|status| Reply::Status(Box::new(status))),
        }
    }

    /// An fsync, or a wait for a ticket, whose flush another thread runs is answered by that one.
    /// After a read has been answered, its thread reads ahead of a sequential reader.
    fn submit(&self, session: SessionId, cred: &Credentials, req: Request, done: Completion) {
        if let Request::Fsync { ino, datasync } = req {
            return self.fsync_then(ino, datasync, |result| done(result.map(acknowledged)));
        }
        if let Request::Wait { ticket, timeout: None } = req {
            return self.wait_then(session, ticket, |result| done(result.map(acknowledged)));
        }
        let read = if let Request::Read { file, .. } = req { Some(file) } else { None };
        done(self.call(session, cred, req));
        if let Some(file) = read {
            // Not reported: a read that asks for these pages fails again and reports it.
            let plan = self.query(|st| {
                let ino = st.metadata.tree.target((session, file), Access::Read)?;
                st.ahead(ino)
            });
            let _ = plan.and_then(|plan| plan.map_or(Ok(false), |plan| self.fill_ahead(&plan)));
        }
    }
}

/// The answer to a caller that asked for durability.
fn acknowledged(_proof: Durable) -> Reply {
    Reply::Done
}

/// The answer to a caller that asked whether something is durable.
fn durable(_proof: Durable) -> Reply {
    Reply::Durable(true)
}

impl Runtime {
    /// A request that changes nothing durable.
    fn query<T>(&self, op: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        self.query_step(op)
    }

    /// As [`Runtime::query`], one try.
    fn query_step<T, E>(
        &self,
        op: impl FnOnce(&mut State) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let mut st = self.lock();
        let result = op(&mut st);
        st.shrink_caches(self.seq.oldest_unwritten());
        result
    }

    pub(crate) fn run_evictions(&self) -> Result<Reply> {
        match self.mutate(|_| Ok(())) {
            Err(Error::Posix(libc::EROFS)) | Ok(()) => Ok(Reply::Done),
            Err(e) => Err(e),
        }
    }
}

impl Call<'_> {
    /// What belongs to the session goes with it: its tickets mean nothing any more, its sections
    /// are aborted, its handles closed.
    fn end_session(&self) -> Result<Reply> {
        let Self { runtime, session, .. } = *self;
        runtime.sessions.end(session);
        let orphan = {
            let mut st = runtime.lock();
            st.sections.end_all(session);
            st.metadata.tree.inodes.close_all(session);
            st.metadata.tree.inodes.has_to_free()
        };
        if orphan { runtime.run_evictions() } else { Ok(Reply::Done) }
    }
}

impl Tree {
    /// An `Entry` reply counts one reference for `Forget`.
    pub(crate) fn entry(&mut self, ino: InodeNr) -> Result<Reply> {
        let attr = self.attr(ino)?;
        self.inodes.looked_up(ino);
        Ok(Reply::Entry(attr))
    }

    /// May this caller use the blocks that are held back for root?
    pub(crate) fn privileged(&self, cred: &Credentials) -> bool {
        let (uid, gid) = self.fs.superblock.reserved_ids();
        cred.uid == 0 || cred.uid == uid || gid != 0 && cred.gid == gid
    }

    /// The inode of a session's request for data that reads or writes it.
    pub(crate) fn target(
        &self,
        (session, file): (SessionId, Target),
        wanted: Access,
    ) -> Result<InodeNr> {
        let handle = match file {
            Target::Inode(ino) => return Ok(ino),
            Target::Open(handle) => handle,
        };
        let opened = self.inodes.opened(handle.0, session);
        let may = |access: Access| {
            (access.reads() || !wanted.reads()) && (access.writes() || !wanted.writes())
        };
        let opened = opened.filter(|opened| may(opened.access));
        opened.map(|opened| opened.ino).ok_or_else(|| errno(libc::EBADF))
    }

    pub(crate) fn open(&mut self, ino: InodeNr, session: SessionId, access: Access) -> Handle {
        Handle(self.inodes.open(ino, session, access))
    }
}
