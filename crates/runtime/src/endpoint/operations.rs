//! Requests for publish, atomic sections and compounds, and for durability.

use super::{acknowledged, durable};
use crate::operations::sections::Commit;
use crate::runtime::Runtime;
use siftfs_base::Result;
use siftfs_proto::{Credentials, Reply, Request, SectionId, SessionId};

impl Runtime {
    /// Carries out one of SiftFS's own operations.
    pub(super) fn call_operations(
        &self,
        session: SessionId,
        cred: &Credentials,
        req: Request,
    ) -> Result<Reply> {
        use Request as R;
        match req {
            R::Publish { base, entries, level, rights } => {
                self.publish(session, (cred, &rights), base, &entries, level)
            }
            R::SectionStart { file } => self.start_section(session, cred, file).map(Reply::Section),
            R::SectionWrite { section, offset, data } => {
                self.write_section(session, section, offset, &data)
            }
            R::SectionRead { section, offset, len } => {
                self.read_section(session, section, offset, len)
            }
            R::SectionCommit { sections, durable } => {
                self.commit_together(session, cred, &sections, (durable, true))
            }
            R::SectionAbort { section } => {
                self.abort_section(session, section).map(|()| Reply::Done)
            }
            R::Compound(compound) => self.compound(session, cred, &compound).map(Reply::Compounded),
            other => unreachable!("a request of another kind: {other:?}"),
        }
    }

    /// Makes something durable, or says whether it is.
    pub(super) fn call_durability(&self, session: SessionId, req: Request) -> Result<Reply> {
        use Request as R;
        match req {
            R::Fsync { ino, datasync } => self.fsync(ino, datasync).map(acknowledged),
            R::Stage { ino, datasync } => {
                self.draw_staged(session, ino, datasync).map(Reply::Ticket)
            }
            R::Barrier => self.draw_barrier(session).map(Reply::Ticket),
            R::Poll { ticket } => match self.poll(session, ticket)? {
                Some(proof) => Ok(durable(proof)),
                None => Ok(Reply::Durable(false)),
            },
            R::Wait { ticket, timeout } => self.wait(session, ticket, timeout).map(acknowledged),
            R::SyncAll => self.sync_all().map(acknowledged),
            other => unreachable!("a request of another kind: {other:?}"),
        }
    }

    pub(super) fn commit_together(
        &self,
        session: SessionId,
        cred: &Credentials,
        sections: &[SectionId],
        (durable, times): (bool, bool),
    ) -> Result<Reply> {
        let privileged = self.lock().metadata.tree.privileged(cred);
        let commit = Commit { session, sections, durable, times, privileged };
        self.commit_sections(&commit).map(|()| Reply::Done)
    }
}
