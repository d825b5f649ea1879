//! What the kernel's cache has that the server does not, and the other way round: pages dirtied
//! through mappings, and pages that are older than a write past the cache.

use crate::kernel::convert::node;
use crate::kernel::owing::carried;
use crate::pages::dirty::Part;
use crate::pages::invalidator::{Name, Then};
use crate::pages::names::Names;
use crate::pages::opener::{Target, Want};
use crate::serve::open_files::Owed;
use crate::serve::server::Server;
use siftfs_base::{Error, InodeNr, Result, errno};
use siftfs_proto::{Attr, Completion, Credentials, Handle, Reply, Request, Seek};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A write past the kernel's cache that was carried out.
pub(crate) struct DirectWrite {
    pub(crate) ino: InodeNr,
    pub(crate) handle: Handle,
    pub(crate) offset: u64,
    pub(crate) len: u32,
    /// Of the open file and of the call together.
    pub(crate) flags: u32,
}

impl Server {
    /// After a write past the kernel's cache, before it is answered. After an asynchronous write
    /// the kernel neither sends FSYNC nor drops what was read into its cache meanwhile. After
    /// others it does both, and then finds nothing to do. The kernel does not tell us which of the
    /// two a write is.
    pub(crate) fn finish_direct(
        self: &Arc<Self>,
        cred: &Credentials,
        write: DirectWrite,
        answer: Completion,
    ) {
        let owed = self.owed(write.flags);
        let server = self.clone();
        let ino = write.ino;
        let finish: Completion = Box::new(move |result| server.drop_stale(&write, result, answer));
        match owed {
            Owed::Nothing => finish(Ok(Reply::Done)),
            owed => self.fsync(cred, ino, owed == Owed::Data, finish),
        }
    }

    fn drop_stale(self: Arc<Self>, write: &DirectWrite, result: Result<Reply>, answer: Completion) {
        let DirectWrite { ino, handle, offset, len, .. } = *write;
        if !self.open_files.written_past(ino, handle, offset, u64::from(len)) {
            return answer(result);
        }
        let server = self.clone();
        if self.invalidator.hold_back() {
            let then = Box::new(move || {
                server.open_files.dropped(ino);
                server.invalidator.answered();
                answer(result);
            });
            self.pages(ino, Want::Drop, then);
        } else {
            answer(result);
            self.pages(ino, Want::Drop, Box::new(move || server.open_files.dropped(ino)));
        }
    }

    /// Has the kernel ask for the attributes of `files`, and look `names` up again before it uses
    /// them; then calls `then`.
    pub(crate) fn forget_names(&self, names: Vec<Name>, files: Vec<InodeNr>, then: Then) {
        let mut dirs: BTreeMap<InodeNr, BTreeSet<Vec<u8>>> = BTreeMap::new();
        for (dir, name) in names {
            dirs.entry(dir).or_default().insert(name);
        }
        let known = |(dir, names): (InodeNr, _)| {
            // Of a directory that is gone no name is looked up.
            let attr =
                self.entry(&Credentials::default(), Request::GetAttr { file: dir.into() }).ok()?;
            Some(Names { node: node(dir), generation: attr.generation, names })
        };
        self.invalidator.forget_names(dirs.into_iter().filter_map(known).collect(), files, then);
    }

    /// Has the kernel do what is wanted of its pages of `ino`, and then calls `then`.
    pub(crate) fn pages(&self, ino: InodeNr, want: Want, then: Then) {
        match self.entry(&Credentials::default(), Request::GetAttr { file: ino.into() }) {
            Ok(Attr { generation, .. }) => {
                self.invalidator.pages(Target { node: node(ino), generation, want }, then);
            }
            // It is gone.
            Err(_) => then(),
        }
    }

    /// As [`Server::seek`], with what the kernel has and has not sent. If that may be something, it
    /// writes its pages of the file first.
    pub(crate) fn seek_written(
        self: &Arc<Self>,
        cred: &Credentials,
        (ino, offset): (InodeNr, u64),
        whence: Seek,
        answer: Completion,
    ) {
        let found = match self.open_files.may_be_dirty(ino) {
            true => self.seek_sent(cred, (ino, offset), whence),
            false => Some(self.seek(cred, ino, offset, whence)),
        };
        if let Some(found) = found {
            return answer(found.map(Reply::Offset));
        }
        let (server, caller) = (self.clone(), cred.clone());
        let seek = move |written: bool| {
            // Another program may have closed it meanwhile.
            if written && !server.open_files.keep(ino) {
                server.invalidator.let_go(ino);
            }
            let found = server.seek(&caller, ino, offset, whence);
            let size = || {
                server.entry(&caller, Request::GetAttr { file: ino.into() }).map(|attr| attr.size)
            };
            answer(match (written, whence) {
                (true, _) => found.map(Reply::Offset),
                // All of it may be data: that is always an answer, if not the best.
                (false, Seek::Hole) => found.and(size().map(Reply::Offset)),
                (false, Seek::Data) => match size() {
                    Ok(size) if offset < size => Ok(Reply::Offset(offset)),
                    Ok(_) => Err(errno(libc::ENXIO)),
                    Err(e) => Err(e),
                },
            });
        };
        self.when_written_again(ino, Box::new(seek));
    }

    /// As [`Server::seek`], if it is certain that no page matters that the kernel has not sent.
    /// Only one where the answer sees a hole does: what is data stays data. A store that was made
    /// before the call is in a page that is dirty, or on its way here, or has come: the answer is
    /// looked for once before the kernel's pages are looked at, to know where, and once after.
    fn seek_sent(
        &self,
        cred: &Credentials,
        (ino, offset): (InodeNr, u64),
        whence: Seek,
    ) -> Option<Result<u64>> {
        if !self.agreed.settled {
            return None;
        }
        let found = self.seek(cred, ino, offset, whence);
        let part = match (&found, whence) {
            (Ok(at), Seek::Data) if *at == offset => return Some(found),
            (Ok(at), Seek::Data) => Part { offset, len: at.checked_sub(offset)? },
            (Ok(at), Seek::Hole) => Part { offset: *at, len: 1 },
            (Err(Error::Posix(libc::ENXIO)), _) => Part { offset, len: 0 },
            (Err(_), _) => return Some(found),
        };
        let Attr { generation, .. } =
            self.entry(cred, Request::GetAttr { file: ino.into() }).ok()?;
        if !self.invalidator.is_sent((ino, generation), part) {
            return None;
        }
        let again = self.seek(cred, ino, offset, whence);
        (again == found).then_some(again)
    }

    /// Calls `then` when the kernel holds no dirty page of `ino`: at once if there can be none,
    /// else from another thread when it has written its pages of the file, for which it sends
    /// requests of its own. `then` is told false if there is no room to wait.
    pub(crate) fn when_written(self: &Arc<Self>, ino: InodeNr, then: Box<dyn FnOnce(bool) + Send>) {
        self.when(ino, Want::Write, then);
    }

    /// As [`Server::when_written`], before each of many short operations on `ino`.
    /// [`Invalidator::let_go`](crate::pages::invalidator::Invalidator::let_go) follows when they
    /// are over.
    pub(crate) fn when_written_again(
        self: &Arc<Self>,
        ino: InodeNr,
        then: Box<dyn FnOnce(bool) + Send>,
    ) {
        self.when(ino, Want::Keep, then);
    }

    /// As [`Server::when_written`], with the kernel asked as `want` says.
    pub(crate) fn when(
        self: &Arc<Self>,
        ino: InodeNr,
        want: Want,
        then: Box<dyn FnOnce(bool) + Send>,
    ) {
        if !self.open_files.may_be_dirty(ino) {
            return then(true);
        }
        let then = carried(then);
        if !self.invalidator.hold_back() {
            return then(false);
        }
        let server = self.clone();
        let then = Box::new(move || {
            server.invalidator.answered();
            then(true);
        });
        // Older kernels call a page written before we have it, unless they are to drop it.
        self.pages(ino, if self.agreed.settled { want } else { Want::Drop }, then);
    }

    /// Pages that the kernel sent could not be written. It tells fsync(2) and close(2), but
    /// write(2) only fills its cache: a program that writes until the disk is full would go on for
    /// ever. So the kernel is made to ask for the attributes that it checks before a write, and the
    /// answer is the error
    /// ([`OpenFiles::refuse_write`](crate::serve::open_files::OpenFiles::refuse_write)).
    pub(crate) fn lost_pages(&self, ino: InodeNr, error: &Error) {
        if self.open_files.failed(ino, error) && self.agreed.writeback {
            self.invalidator.forget_attributes(ino, Box::new(|| {}));
        }
    }

    /// `ino` has become immutable, or is not any more: then follows `answer`. A write(2) through a
    /// descriptor from before is to be refused, and with the writeback cache asks for nothing but
    /// attributes that the kernel does not know.
    pub(crate) fn seal(&self, ino: InodeNr, sealed: bool, answer: Then) {
        if self.agreed.writeback && self.open_files.seal(ino, sealed) {
            self.invalidator.forget_attributes(ino, answer);
        } else {
            answer();
        }
    }

    /// Calls `answer`, which tells the kernel attributes, so that those of sealed files stay
    /// unknown to it. A request that began before the kernel was told to forget may still bring
    /// them: they reach that request's caller, and no other.
    pub(crate) fn tell_attributes(&self, answer: Then) {
        let forget = |then: Then, ino| -> Then {
            let invalidator = self.invalidator.clone();
            Box::new(move || invalidator.forget_attributes(ino, then))
        };
        self.open_files.sealed().into_iter().fold(answer, forget)();
    }
}
