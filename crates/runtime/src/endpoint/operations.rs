//! Requests for publish, atomic sections and compounds, and for durability.

use super::{Call, acknowledged, durable};
use crate::namespace::unchecked::take_privileges;
use crate::operations::sections::Commit;
use crate::staging::capture::Asked;
use siftfs_base::Result;
use siftfs_proto::{Reply, Request, SectionId};

impl Call<'_> {
    /// Carries out one of SiftFS's own operations.
    pub(super) fn operations(&self, req: Request) -> Result<Reply> {
        use Request as R;
        match req {
            R::Publish { base, entries, level, rights } => {
                self.publish(self.session.rights(&rights), base, &entries, level)
            }
            R::SectionStart { file } => self.start_section(file).map(Reply::Section),
            R::SectionWrite { section, offset, data } => self.write_section(section, offset, &data),
            R::SectionRead { section, offset, len } => self.read_section(section, offset, len),
            R::SectionCommit { sections, durable, times } => {
                self.commit_together(&sections, durable, self.moves(times))
            }
            R::SectionAbort { section } => self.abort_section(section).map(|()| Reply::Done),
            R::Compound(mut compound) => {
                if !self.session.is_kernel() {
                    compound.rights = self.session.rights(&compound.rights).clone();
                }
                self.compound(&compound).map(Reply::Compounded)
            }
            other => unreachable!("a request of another kind: {other:?}"),
        }
    }

    /// Makes something durable, or says whether it is.
    pub(super) fn durability(&self, req: Request) -> Result<Reply> {
        use Request as R;
        let Self { runtime, session, .. } = *self;
        match req {
            R::Fsync { file, datasync } => {
                let asked = Asked { datasync, in_order: session.lends };
                runtime.fsync(self.settled_target(file)?, asked).map(acknowledged)
            }
            R::Stage { file, datasync } => {
                let ino = self.durable_target(file)?;
                runtime.draw_staged(session, ino, datasync).map(Reply::Ticket)
            }
            R::Barrier => runtime.draw_barrier(session).map(Reply::Ticket),
            R::Poll { ticket } => match runtime.poll(session, ticket)? {
                Some(proof) => Ok(durable(proof)),
                None => Ok(Reply::Durable(false)),
            },
            R::Wait { ticket, timeout } => runtime.wait(session, ticket, timeout).map(acknowledged),
            R::SyncAll => runtime.sync_all().map(acknowledged),
            other => unreachable!("a request of another kind: {other:?}"),
        }
    }

    fn commit_together(&self, sections: &[SectionId], durable: bool, times: bool) -> Result<Reply> {
        let Self { runtime, session, cred, ref doing } = *self;
        if let Some(caller) = self.who().0 {
            for section in sections {
                runtime.mutate(doing, |st| {
                    let ino = st.sections.get(session.id, *section)?.ino();
                    take_privileges(&mut st.metadata, caller, ino)
                })?;
            }
        }
        let privileged = runtime.lock().metadata.tree.privileged(cred);
        let commit = Commit { session: session.id, sections, durable, times, privileged };
        self.commit_sections(&commit).map(|()| Reply::Done)
    }
}
