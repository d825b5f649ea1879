//! Changes that nobody can repeat are durable when they are answered, and are not kept. What is
//! kept of the files that they change is older: repeated after a death it would come over them. So
//! it is made durable before.

use super::call::MOMENT;
use super::{Shared, kind};
use siftfs_base::{Error, InodeNr, Result, errno};
use siftfs_calls::ToServer;
use siftfs_proto::compound::{FileArg, Step, StepNr};
use siftfs_proto::{Credentials, Owed, Request, Target};
use std::time::Duration;

/// How many moments a server has to make everything durable: half a minute while it is there.
const WAITS: u32 = 300;

/// Files whose bytes or attributes such a change is about.
#[derive(Debug, PartialEq, Eq)]
enum About {
    /// These.
    Files(Vec<Target>),
    /// Those that its steps find by their paths.
    Any,
}

/// The file whose bytes or attributes a step changes.
fn changes(step: &Step) -> Option<&FileArg> {
    match step {
        Step::Write { file, .. }
        | Step::Append { file, .. }
        | Step::Patch { file, .. }
        | Step::Add { file, .. }
        | Step::CompareAndSet { file, .. }
        | Step::SetSize { file, .. }
        | Step::SetAttributes { file, .. } => Some(file),
        _ => None,
    }
}

/// Does this step make its file? Nothing is kept of that.
fn makes(steps: &[Step], found: StepNr) -> bool {
    let step = usize::try_from(found.0).ok().and_then(|at| steps.get(at));
    matches!(step, Some(Step::Create { .. }))
}

fn about(request: &Request, file_of_section: impl Fn(u64) -> Option<Target>) -> About {
    match request {
        Request::SectionCommit { sections, .. } => {
            About::Files(sections.iter().filter_map(|it| file_of_section(it.0)).collect())
        }
        Request::Compound(compound) => {
            let mut files = Vec::new();
            for step in &compound.steps {
                match changes(step) {
                    Some(FileArg::Open(handle)) => files.push(Target::Open(*handle)),
                    Some(FileArg::Step(found)) if !makes(&compound.steps, *found) => {
                        return About::Any;
                    }
                    Some(FileArg::Step(_)) => {}
                    None => {}
                }
                if matches!(step, Step::Open { truncate: true, .. }) {
                    return About::Any;
                }
            }
            About::Files(files)
        }
        // What was written before may not be written behind it.
        Request::SetFlags { file, .. } => About::Files(vec![*file]),
        // Files get names, and stay as they are.
        _ => About::Files(Vec::new()),
    }
}

impl Shared {
    /// Makes durable what is kept of the files that this change is about, which nobody can repeat.
    /// So also one whose answer does not come is there as a whole, or not at all.
    ///
    /// # Errors
    /// Those of the sync: the change is not to be made.
    pub(super) fn before_final(&self, cred: &Credentials, req: &Request) -> Result<()> {
        let files = match about(req, |own| self.sections.about(own)) {
            About::Any => return self.all_before(),
            About::Files(files) => files,
        };
        for file in files {
            let kept = self.opens.ino(file).filter(|ino| self.kept.has_of(*ino));
            if let Some(ino) = kept {
                let sync = Request::Fsync { file, datasync: false };
                self.sync_before(cred, &sync, ino)?;
            }
        }
        Ok(())
    }

    /// Waits until nothing is kept that was answered before. The server is asked for that, since a
    /// sync of everything is an administrator's.
    ///
    /// # Errors
    /// `EIO` if the server does not make it durable, which its log says.
    fn all_before(&self) -> Result<()> {
        let (next, mut waits) = (self.kept.next(), 0);
        while self.kept.waits_for_files(next, Duration::ZERO) {
            self.using()?.client.say(ToServer::Full);
            waits += 1;
            if self.kept.waits_for_files(next, MOMENT) && waits == WAITS {
                tracing::error!("what is kept does not become durable: a compound is refused");
                return Err(errno(libc::EIO));
            }
        }
        Ok(())
    }

    /// The sync of a file. It leaves to the program's own fsync(2) what that is to be
    /// told.
    fn sync_before(&self, cred: &Credentials, sync: &Request, file: InodeNr) -> Result<()> {
        loop {
            let using = self.using()?;
            let mut sent = sync.clone();
            kind::exchange(&mut sent, |own| self.opens.server(own))?;
            let next = self.kept.next();
            let ((result, _), owed): (_, Owed) =
                using.client.call_change(cred, (sent, Vec::new()), None);
            owed.wait();
            match result {
                // What is kept has been repeated when the server is there again.
                Err(Error::Link(_)) if using.client.lost().is_some() => {
                    let lost = using.client.lost();
                    lost.iter().for_each(|why| self.lost(using.connection, why));
                }
                Err(error) => return Err(error),
                Ok(_) => {
                    self.kept.synced(file, next);
                    return Ok(());
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "finals_tests.rs"]
mod tests;
