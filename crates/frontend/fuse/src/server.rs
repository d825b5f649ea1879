//! Decisions between the kernel's requests and the file protocol's.

use crate::convert::unexpected;
use crate::pool::Pool;
use siftfs_base::{InodeNr, Result, errno};
use siftfs_proto::{
    Attr, Completion, Credentials, DirEntry, FileKind, FileService, Handle, Reply, Request,
    SessionId, SetAttr,
};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Threads beside the readers that may wait in an fsync.
const WAITERS: usize = 64;
/// Names asked for at a time: the kernel's buffer is at least a page, and each entry costs more
/// of it than its name. Entries that do not fit are asked for again.
const DIR_BYTES: u32 = 2048;
const DIR_PLUS_BYTES: u32 = 512;

/// One mount's requests.
pub(crate) struct Server {
    service: Arc<dyn FileService>,
    session: SessionId,
    readers: usize,
    /// Readers inside an fsync.
    waiting: AtomicUsize,
    pool: Pool,
    /// Handles opened for writing: only through them can a file be mapped and stored to.
    writers: Mutex<HashMap<Handle, InodeNr>>,
}

impl Server {
    pub(crate) fn new(service: Arc<dyn FileService>, session: SessionId, readers: usize) -> Self {
        assert!(readers >= 2, "one reader must stay free while another waits");
        let pool = Pool::new(WAITERS);
        let (waiting, writers) = (AtomicUsize::new(0), Mutex::default());
        Self { service, session, readers, waiting, pool, writers }
    }

    pub(crate) fn call(&self, cred: &Credentials, req: Request) -> Result<Reply> {
        self.service.call(self.session, cred, req)
    }

    pub(crate) fn done(&self, cred: &Credentials, req: Request) -> Result<()> {
        match self.call(cred, req)? {
            Reply::Done => Ok(()),
            _ => Err(unexpected("done")),
        }
    }

    pub(crate) fn entry(&self, cred: &Credentials, req: Request) -> Result<Attr> {
        match self.call(cred, req)? {
            Reply::Entry(a) | Reply::Attr(a) => Ok(a),
            _ => Err(unexpected("attributes")),
        }
    }

    pub(crate) fn opened(&self, cred: &Credentials, req: Request) -> Result<Handle> {
        match self.call(cred, req)? {
            Reply::Opened { handle } => Ok(handle),
            _ => Err(unexpected("opened")),
        }
    }

    fn writers(&self) -> MutexGuard<'_, HashMap<Handle, InodeNr>> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `handle` of `ino` was opened for writing.
    pub(crate) fn note_writer(&self, handle: Handle, ino: InodeNr) {
        self.writers().insert(handle, ino);
    }

    pub(crate) fn release(&self, cred: &Credentials, handle: Handle) -> Result<()> {
        self.writers().remove(&handle);
        self.done(cred, Request::Release { handle })
    }

    /// Attributes of every file that is open for writing, each once.
    pub(crate) fn open_for_writing(&self) -> Vec<Attr> {
        let mut inodes: Vec<InodeNr> = self.writers().values().copied().collect();
        inodes.sort_unstable();
        inodes.dedup();
        let cred = Credentials::default();
        let attr = |ino| self.entry(&cred, Request::GetAttr { ino }).ok();
        inodes.into_iter().filter_map(attr).collect()
    }

    pub(crate) fn data(&self, cred: &Credentials, req: Request) -> Result<Vec<u8>> {
        match self.call(cred, req)? {
            Reply::Data(d) => Ok(d),
            _ => Err(unexpected("data")),
        }
    }

    /// fsync(2). Runs on the reader's own thread, which costs no hand-over, as long as another
    /// reader stays free; otherwise on a thread of the pool, so that requests are always read.
    pub(crate) fn fsync(
        self: &Arc<Self>,
        cred: Credentials,
        ino: InodeNr,
        datasync: bool,
        done: Completion,
    ) {
        let req = Request::Fsync { ino, datasync };
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed) + 1;
        if waiting < self.readers {
            self.service.submit(self.session, &cred, req, done);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        } else {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            let server = self.clone();
            self.pool.run(Box::new(move || {
                server.service.submit(server.session, &cred, req, done);
            }));
        }
    }

    /// SETATTR. The kernel leaves clearing setuid, setgid and file capabilities to us: on a size
    /// change by anybody but root, on chown, and on a request that changes nothing else (that
    /// is how it announces a write by somebody without CAP_FSETID). Directories keep their bits.
    pub(crate) fn set_attr(
        &self,
        cred: &Credentials,
        ino: InodeNr,
        mut set: SetAttr,
    ) -> Result<Attr> {
        let owner = (set.uid.is_some() || set.gid.is_some()) && set.perm.is_none();
        let nothing = set == SetAttr::default();
        set.kill_priv = set.size.is_some() && cred.uid != 0;
        if owner || nothing {
            let attr = self.entry(cred, Request::GetAttr { ino })?;
            set.kill_priv |= attr.kind != FileKind::Directory;
        }
        self.entry(cred, Request::SetAttr { ino, set })
    }

    /// Fills a directory buffer: `add` returns false, and takes nothing, when it is full.
    pub(crate) fn read_dir(
        &self,
        cred: &Credentials,
        dir: DirCursor,
        add: &mut dyn FnMut(&DirEntry) -> bool,
    ) -> Result<()> {
        let DirCursor { handle, mut cookie, plus } = dir;
        let max_bytes = if plus { DIR_PLUS_BYTES } else { DIR_BYTES };
        let mut any = false;
        loop {
            let req = Request::ReadDir { handle, cookie, max_bytes, plus };
            let entries = match self.call(cred, req) {
                Ok(Reply::Dir(entries)) => entries,
                Ok(_) => return Err(unexpected("directory entries")),
                // What was read counts; the kernel comes back for the error.
                Err(_) if any => return Ok(()),
                Err(e) => return Err(e),
            };
            if entries.is_empty() {
                return Ok(());
            }
            for (i, entry) in entries.iter().enumerate() {
                if !add(entry) {
                    self.forget_entries(cred, entries.get(i..).unwrap_or_default());
                    return Ok(());
                }
                any = true;
                cookie = entry.cookie;
            }
        }
    }

    /// Gives back the references of entries that the kernel never saw.
    fn forget_entries(&self, cred: &Credentials, entries: &[DirEntry]) {
        for e in entries {
            if e.attr.is_some() && e.name != b"." && e.name != b".." {
                self.forget(cred, e.ino, 1);
            }
        }
    }

    pub(crate) fn forget(&self, cred: &Credentials, ino: InodeNr, count: u64) {
        if let Err(error) = self.call(cred, Request::Forget { ino, count }) {
            tracing::warn!(ino, count, %error, "forget failed");
        }
    }

    /// The value of an extended attribute.
    pub(crate) fn get_xattr(
        &self,
        cred: &Credentials,
        ino: InodeNr,
        name: Vec<u8>,
    ) -> Result<Vec<u8>> {
        check_xattr_name(&name)?;
        self.data(cred, Request::GetXattr { ino, name })
    }

    /// Names as listxattr(2) returns them: each ended by NUL, `trusted.` for root only.
    pub(crate) fn list_xattr(&self, cred: &Credentials, ino: InodeNr) -> Result<Vec<u8>> {
        let Reply::Names(names) = self.call(cred, Request::ListXattr { ino })? else {
            return Err(unexpected("names"));
        };
        let mut out = Vec::new();
        for name in names {
            let hidden = name.starts_with(b"trusted.") && cred.uid != 0;
            if !hidden && check_xattr_name(&name).is_ok() {
                out.extend_from_slice(&name);
                out.push(0);
            }
        }
        Ok(out)
    }
}

/// Where a directory is being read.
pub(crate) struct DirCursor {
    pub(crate) handle: Handle,
    /// Cookie of the last entry seen; 0 at the start.
    pub(crate) cookie: u64,
    /// With attributes.
    pub(crate) plus: bool,
}

/// `system.` holds POSIX ACLs, which this mount does not offer: a program must hear so instead
/// of storing one that nobody enforces.
pub(crate) fn check_xattr_name(name: &[u8]) -> Result<()> {
    if name.starts_with(b"system.") { Err(errno(libc::EOPNOTSUPP)) } else { Ok(()) }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
