//! The ioctl that publishes: the caller's open files in its argument, what the kernel holds of the
//! files, and what it must forget before the answer.

use crate::ioctl::descriptors::{Descriptors, Opened};
use crate::ioctl::view::View;
use crate::mount::mountinfo::MountEntry;
use crate::pages::invalidator::Name;
use crate::pages::opener::Want;
use crate::serve::caller;
use crate::serve::open_files;
use crate::serve::server::Server;
use siftfs_base::{InodeNr, Result, errno};
use siftfs_proto::compound::Access;
use siftfs_proto::ioctl::{Entry, Publish, Source};
use siftfs_proto::{
    Completion, Credentials, Handle, Level, PublishEntry, PublishSource, Reply, Request,
};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Server {
    /// Publishes on the directory `base`. Other callers see the names, and the kernel has forgotten
    /// what it knew of them, before `answer` is called.
    pub(crate) fn publish(
        self: &Arc<Self>,
        cred: &Credentials,
        mount: &MountEntry,
        base: InodeNr,
        argument: &[u8],
        answer: Completion,
    ) {
        let answer = match self.calls.enter(cred.uid) {
            Ok(place) => place.until(answer),
            Err(e) => return answer(Err(e)),
        };
        let prepared = self.agreed.decided_here(cred).and_then(|caller| {
            self.prepare(&caller, mount, base, argument).map(|request| (caller, request))
        });
        let (caller, request) = match prepared {
            Ok(prepared) => prepared,
            Err(e) => return answer(Err(e)),
        };
        let server = self.clone();
        let files = request.files.clone();
        let last = Box::new(move |written: bool| {
            let result = match written {
                true => server.carry_out_publish(&caller, request),
                false => {
                    server.give_back(&request.opened);
                    Err(errno(libc::EBUSY))
                }
            };
            match result {
                Err(e) => answer(Err(e)),
                Ok((names, files)) => {
                    let done = Box::new(move || answer(Ok(Reply::Data(Vec::new()))));
                    server.forget_names(names, files, done);
                }
            }
        });
        self.when_all_written(files.into_iter().collect(), Want::Write, last);
    }

    /// What the kernel holds of `files` is written first, one file after the other, as `want`.
    pub(crate) fn when_all_written(
        self: &Arc<Self>,
        mut files: Vec<InodeNr>,
        want: Want,
        then: Box<dyn FnOnce(bool) + Send>,
    ) {
        let Some(next) = files.pop() else { return then(true) };
        let server = self.clone();
        let rest = move |written: bool| match written {
            true => server.when_all_written(files, want, then),
            false => then(false),
        };
        self.when(next, want, Box::new(rest));
    }

    fn prepare(
        &self,
        cred: &Credentials,
        mount: &MountEntry,
        base: InodeNr,
        argument: &[u8],
    ) -> Result<Prepared> {
        let open = Descriptors::of(cred, mount)?;
        let view = open.view(base)?;
        let Publish { entries, level } = Publish::decode(argument)?;
        view.may_change()?;
        let mut prepared = Prepared {
            base,
            entries: Vec::new(),
            level,
            files: BTreeSet::new(),
            opened: Vec::new(),
        };
        for entry in entries {
            match self.prepare_entry((&open, &view), entry, &mut prepared) {
                Ok(entry) => prepared.entries.push(entry),
                Err(e) => {
                    self.give_back(&prepared.opened);
                    return Err(e);
                }
            }
        }
        Ok(prepared)
    }

    fn prepare_entry(
        &self,
        (open, view): (&Descriptors<'_>, &View),
        entry: Entry,
        prepared: &mut Prepared,
    ) -> Result<PublishEntry> {
        let Entry { source, to, replace } = entry;
        view.may_follow(&to)?;
        let source = match source {
            Source::Path(path) => {
                view.may_follow(&path)?;
                // Whether the caller may follow the path the Runtime decides.
                prepared.files.extend(self.file_at(prepared.base, &path));
                PublishSource::Path(path)
            }
            Source::Descriptor(number) => {
                let Opened { ino, view: other, .. } = open.opened(number, open_files::writes)?;
                view.may_link(&other)?;
                let access = Access::Read;
                let open = Request::open(ino, access);
                let handle = self.opened(&Credentials::default(), open)?;
                prepared.opened.push(handle);
                prepared.files.insert(ino);
                PublishSource::Open(handle)
            }
        };
        Ok(PublishEntry { source, to, replace })
    }

    /// The file that a path names, if it names one.
    pub(crate) fn file_at(&self, base: InodeNr, path: &[u8]) -> Option<InodeNr> {
        let root = Credentials::default();
        let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        names.into_iter().try_fold(base, |dir, name| self.number_of(&root, dir, name))
    }

    fn carry_out_publish(
        &self,
        cred: &Credentials,
        prepared: Prepared,
    ) -> Result<(Vec<Name>, Vec<InodeNr>)> {
        let Prepared { base, entries, level, opened, .. } = prepared;
        let rights = caller::rights(cred);
        let result = self.call(cred, Request::Publish { base, entries, level, rights });
        self.give_back(&opened);
        result?.published()
    }

    /// Closes what was opened for descriptors of a caller's.
    pub(crate) fn give_back(&self, opened: &[Handle]) {
        for handle in opened {
            if let Err(error) = self.release(&Credentials::default(), *handle) {
                tracing::warn!(%error, "a file that an ioctl named could not be given back");
            }
        }
    }
}

/// A publish before its sources are written back.
struct Prepared {
    base: InodeNr,
    entries: Vec<PublishEntry>,
    level: Level,
    /// Files of which the kernel may hold dirty pages.
    files: BTreeSet<InodeNr>,
    /// Handles that were opened for descriptors of the caller's.
    opened: Vec<Handle>,
}
