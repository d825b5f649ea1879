//! What the kernel's cache has that the server does not, and the other way round: pages dirtied through
//! mappings, and pages that are older than a write past the cache.

use crate::convert::node;
use crate::open_files::Owed;
use crate::server::Server;
use siftfs_base::{InodeNr, Result, errno};
use siftfs_proto::{Completion, Credentials, Handle, Reply, Request, Seek};
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
    /// The kernel is about to write through its cache.
    pub(crate) fn note_cached(&self, ino: InodeNr, offset: u64, len: u64) {
        self.open_files.note_cached(ino, offset, len);
    }

    /// After a write past the kernel's cache, before it is answered. The kernel sends no FSYNC
    /// after an asynchronous one, nor does it drop what was read into its cache meanwhile; of
    /// others it does both, which then finds nothing to do. Which of the two it is nobody tells us.
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
        let Some(pages) = self.open_files.written_past(ino, handle, offset, u64::from(len)) else {
            return answer(result);
        };
        let invalidator = self.invalidator.clone();
        if invalidator.hold_back() {
            let then = Box::new(move || {
                self.open_files.dropped(ino, pages);
                self.invalidator.answered();
                answer(result);
            });
            invalidator.drop_pages(node(ino), pages, then);
        } else {
            answer(result);
            let then = Box::new(move || self.open_files.dropped(ino, pages));
            invalidator.drop_pages(node(ino), pages, then);
        }
    }

    /// As [`Server::seek`], with the kernel's dirty pages written before.
    pub(crate) fn seek_written(
        self: &Arc<Self>,
        cred: &Credentials,
        (ino, offset): (InodeNr, u64),
        whence: Seek,
        answer: Completion,
    ) {
        let (server, caller) = (self.clone(), cred.clone());
        let seek = move |written: bool| {
            let found = server.seek(&caller, ino, offset, whence);
            let size = || server.entry(&caller, Request::GetAttr { ino }).map(|attr| attr.size);
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
        self.when_written(ino, Box::new(seek));
    }

    /// Calls `then` when the kernel holds no dirty page of `ino`: at once if there can be none, else
    /// from another thread when it has written and dropped its pages of the file, for which it sends
    /// requests of its own. `then` is told false if there is no room to wait.
    pub(crate) fn when_written(self: &Arc<Self>, ino: InodeNr, then: Box<dyn FnOnce(bool) + Send>) {
        if !self.may_be_dirty(ino) {
            return then(true);
        }
        if !self.invalidator.hold_back() {
            return then(false);
        }
        let server = self.clone();
        let then = Box::new(move || {
            server.invalidator.answered();
            then(true);
        });
        self.invalidator.drop_pages(node(ino), (0, u64::MAX), then);
    }
}
