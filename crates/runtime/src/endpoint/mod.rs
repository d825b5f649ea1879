//! The Runtime's endpoint of the file protocol: each request becomes calls on the state. The
//! requests of a kind have a file.

mod admission;
mod attributes;
mod data;
mod direct;
mod hold_many;
mod known;
mod leases;
mod locks;
mod names;
mod operations;

use crate::locks::relock;
use crate::namespace::unchecked::Unchecked;
use crate::runtime::Runtime;
use crate::session::direct::settle;
use crate::session::{Doing, Session, readers, recall};
use crate::staging::capture::Asked;
use crate::staging::proof::Durable;
use crate::state::State;
use crate::state::Tree;
use crate::state::leases::readers::Whose;
use crate::state::step::{Need, Step, Stop};
use crate::state::tree::pools;
use crate::state::tree::references::SessionId;
use siftfs_base::{Error, InodeNr, Result, errno};
use siftfs_proto::compound::Access;
use siftfs_proto::{
    Attr, Cache, Completion, Credentials, FileService, Handle, Holder, Identity, Notice, Opening,
    Owed, Reply, Request, Target,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A kernel that was alone may take that long to forget what it knows: a program may keep the lock
/// of a directory.
const PATIENCE: Duration = Duration::from_secs(10);

/// One session's end of the file protocol. The session ends with it.
pub struct Endpoint {
    runtime: Arc<Runtime>,
    session: Arc<Session>,
}

/// One request of a session, while it is carried out for a caller.
pub(crate) struct Call<'a> {
    /// What carries it out.
    pub(crate) runtime: &'a Runtime,
    /// Whose handles, sections and tickets it may name.
    pub(crate) session: &'a Session,
    /// With which ids it acts.
    pub(crate) cred: &'a Credentials,
    /// What it changes.
    pub(crate) doing: Doing,
}

impl Endpoint {
    /// Opens a session.
    ///
    /// # Errors
    /// `ENFILE` if there are too many, `EBUSY` if a kernel that was the only front end until now
    /// does not forget what it knows, because a program keeps the lock of a directory.
    pub fn open(runtime: &Arc<Runtime>, opening: Opening) -> Result<Arc<Self>> {
        let changes = opening.identity != Identity::Kernel;
        let endpoint = Self::begin(runtime, opening, false)?;
        if changes {
            endpoint.join(None)?;
        }
        Ok(endpoint)
    }

    fn begin(runtime: &Arc<Runtime>, opening: Opening, lends: bool) -> Result<Arc<Self>> {
        let session = runtime.sessions.begin(opening, lends)?;
        let Opening { limits, client, .. } = &session.opening;
        runtime.file_locks.begin(session.id, limits.locks, *client);
        let mut st = runtime.lock();
        let references = &mut st.metadata.tree.inodes.references;
        match session.opening.identity {
            _ if lends => references.begin_lending(session.id),
            Identity::Machine | Identity::Program => references.begin_machine(session.id),
            Identity::Kernel | Identity::User { .. } => references.begin(session.id),
        }
        drop(st);
        Ok(Arc::new(Self { runtime: runtime.clone(), session }))
    }

    /// Opens a session that caches: it is told of what other sessions change.
    ///
    /// # Errors
    /// As [`Endpoint::open`].
    pub fn open_caching(
        runtime: &Arc<Runtime>,
        opening: Opening,
        cache: Arc<dyn Cache>,
    ) -> Result<Arc<Self>> {
        let endpoint = Self::begin(runtime, opening, false)?;
        endpoint.join(Some(cache))?;
        Ok(endpoint)
    }

    /// The session may change files, and caches what it is told if there is a `cache`. Kernels that
    /// were alone until now forget what they were told.
    fn join(&self, cache: Option<Arc<dyn Cache>>) -> Result<()> {
        let _joining = relock(self.runtime.sessions.joining.lock());
        let alone = self.runtime.lock().sharing.begin(self.session.id, cache);
        let forgotten = alone.into_iter().try_for_each(|kernel| self.forget_all(kernel));
        if forgotten.is_err() {
            // The next one that joins finds the kernel alone again.
            self.runtime.lock().sharing.end(self.session.id);
        }
        forgotten
    }

    fn forget_all(&self, (session, cache): (SessionId, Arc<dyn Cache>)) -> Result<()> {
        let mut owed = Owed::default();
        let mut notice = Notice::new(&mut owed);
        (notice.attributes, notice.names) = self.runtime.known_to(session)?;
        cache.forget_all(notice);
        if owed.wait_for(PATIENCE) { Ok(()) } else { Err(errno(libc::EBUSY)) }
    }

    /// Opens a session that may hold write leases: `holder` is told when one is recalled.
    ///
    /// # Errors
    /// As [`Endpoint::open`].
    pub fn open_holding(
        runtime: &Arc<Runtime>,
        opening: Opening,
        holder: Arc<dyn Holder>,
    ) -> Result<Arc<Self>> {
        let endpoint = Self::begin(runtime, opening, false)?;
        endpoint.join(None)?;
        runtime.lock().leases.hold(endpoint.session.id, holder, false);
        Ok(endpoint)
    }

    /// As [`Endpoint::open_holding`], of a session that changes nothing but the files that are
    /// leased to it: all that it may ask for is to open files, to read and sync them, and what is
    /// about leases; everything else is `EPERM`. So it is no front end: a kernel that is alone
    /// stays so.
    ///
    /// # Errors
    /// `ENFILE` if there are too many sessions.
    pub fn open_lending(
        runtime: &Arc<Runtime>,
        opening: Opening,
        holder: Arc<dyn Holder>,
    ) -> Result<Arc<Self>> {
        let endpoint = Self::begin(runtime, opening, true)?;
        let mut st = runtime.lock();
        st.sharing.order.begin(endpoint.session.id, holder.clone());
        st.leases.hold(endpoint.session.id, holder, true);
        drop(st);
        Ok(endpoint)
    }

    /// All that the session has goes with it. Returns whether a removed file is to be freed now;
    /// the next change of the volume does so, too.
    fn end(&self) -> bool {
        let id = self.session.id;
        // Others get the locks before anything of this waits.
        let first = || self.runtime.file_locks.end(id);
        let ended = self.session.life.end(first, || {
            self.runtime.sessions.end(id);
            let mut st = self.runtime.lock();
            st.sharing.end(id);
            st.sections.end_all(id);
            st.metadata.tree.inodes.end_session(id);
            let leased = st.leases.end_session(id);
            st.metadata.log.reserves.give_back(id);
            pools::end(&mut st.metadata.tree, id);
            let _owed = recall::end(&self.runtime, st, &leased);
            readers::end(&self.runtime, Whose::Session(id));
            self.runtime.lock().metadata.tree.inodes.has_to_free()
        });
        ended.unwrap_or(false)
    }

    fn end_session(&self) -> Result<Reply> {
        if self.end() { self.runtime.run_evictions() } else { Ok(Reply::Done) }
    }

    /// Carries `act` out for a caller, if the session may ask for `req`.
    fn carry_out<T>(
        &self,
        cred: &Credentials,
        req: Request,
        act: impl FnOnce(&Call<'_>, Request) -> Result<T>,
    ) -> (Result<T>, Owed) {
        if self.session.life.is_over() {
            return (Err(errno(libc::ESTALE)), Owed::default());
        }
        let cred = &*self.session.acting(cred);
        let doing = Doing::of(self.session.id, leases::touched(&req, &self.session));
        let doing = doing.from(cred.origin.as_ref());
        let call = Call { runtime: &self.runtime, session: &self.session, cred, doing };
        let result = call.admit(&req).and_then(|_admitted| act(&call, req));
        (result, call.doing.owed())
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.end();
    }
}

impl FileService for Endpoint {
    fn call(&self, cred: &Credentials, req: Request) -> Result<Reply> {
        let (result, owed) = self.call_owing(cred, req);
        owed.wait();
        result
    }

    fn call_owing(&self, cred: &Credentials, req: Request) -> (Result<Reply>, Owed) {
        match req {
            Request::EndSession => (self.end_session(), Owed::default()),
            Request::SetLock { file, ask } => (self.set_lock_now(cred, file, ask), Owed::default()),
            req => self.carry_out(cred, req, |call, req| call.carry_out(req)),
        }
    }

    fn has_looked_up(&self, ino: InodeNr) -> bool {
        let st = self.runtime.lock();
        st.metadata.tree.inodes.references.has_looked_up(self.session.id, ino)
    }

    fn enter(&self, path: &[u8]) -> Result<InodeNr> {
        if self.session.life.is_over() {
            return Err(errno(libc::ESTALE));
        }
        let (cred, doing) = (&Credentials::default(), Doing::of(self.session.id, None));
        Call { runtime: &self.runtime, session: &self.session, cred, doing }.enter(path)
    }

    /// An fsync, or a wait for a ticket, whose flush another thread runs is answered by that one.
    /// After a read has been answered, its thread reads ahead of a sequential reader.
    fn submit(&self, cred: &Credentials, req: Request, done: Completion) {
        match req {
            Request::Fsync { file, datasync } => {
                let req = Request::Fsync { file, datasync };
                let settle = |call: &Call<'_>, _| call.settled_target(file);
                match self.carry_out(cred, req, settle).0 {
                    Ok(ino) => {
                        let asked = Asked { datasync, in_order: self.session.lends };
                        self.runtime.fsync_then(ino, asked, |result| {
                            done(result.map(acknowledged));
                        });
                    }
                    Err(e) => done(Err(e)),
                }
            }
            Request::Wait { ticket, timeout: None } if self.draws_tickets() => {
                self.runtime.wait_then(&self.session, ticket, |result| {
                    done(result.map(acknowledged));
                });
            }
            Request::SetLock { file, ask } => self.set_lock(cred, (file, ask), done),
            Request::Read { file, .. } => {
                let read = self.call(cred, req);
                let answered = read.is_ok();
                done(read);
                if answered {
                    self.read_ahead(file);
                }
            }
            req => done(self.call(cred, req)),
        }
    }
}

/// A client is gone for good: what is kept of its calls ([`siftfs_proto::Origin`]) is forgotten.
pub fn forget_client(runtime: &Runtime, client: u64) {
    runtime.lock().metadata.log.forget_client(client);
}

/// The volume is about to be closed: no call with an origin changes anything any more. Will what is
/// kept of such calls be forgotten, so that a recovery must not tell of them from now on?
pub fn end_calls(runtime: &Runtime) -> bool {
    runtime.lock().metadata.log.end_calls()
}

impl Endpoint {
    fn draws_tickets(&self) -> bool {
        !self.session.life.is_over() && !self.session.lends
    }

    fn read_ahead(&self, file: Target) {
        let runtime = &self.runtime;
        // Not reported: a read that asks for these pages fails again and reports it.
        let plan = runtime.query_step(|st| {
            let ino = st.metadata.tree.target((self.session.id, file), Access::Read)?;
            st.ahead(ino)
        });
        let _ = plan.and_then(|plan| plan.map_or(Ok(false), |plan| runtime.fill_ahead(&plan)));
    }
}

impl Call<'_> {
    /// Carries out a request that the session may make.
    fn carry_out(&self, req: Request) -> Result<Reply> {
        use Request as R;
        let runtime = self.runtime;
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
            | R::TmpFile { .. } => self.names(req),
            R::GetAttr { .. }
            | R::SetAttr { .. }
            | R::GetXattr { .. }
            | R::ListXattr { .. }
            | R::SetXattr { .. }
            | R::RemoveXattr { .. }
            | R::GetFlags { .. }
            | R::SetFlags { .. } => self.attributes(req),
            R::Open { .. }
            | R::Hold { .. }
            | R::Release { .. }
            | R::Read { .. }
            | R::Write { .. }
            | R::Append { .. }
            | R::WriteBack { .. }
            | R::Allocate { .. }
            | R::Seek { .. }
            | R::OpenDir { .. }
            | R::ReadDir { .. } => self.data(req),
            R::Publish { .. }
            | R::SectionStart { .. }
            | R::SectionWrite { .. }
            | R::SectionRead { .. }
            | R::SectionCommit { .. }
            | R::SectionAbort { .. }
            | R::Compound(_) => self.operations(req),
            R::Lease { .. }
            | R::LeaseWrite { .. }
            | R::LeaseLocate { .. }
            | R::LeaseKeep { .. }
            | R::LeaseReturn { .. }
            | R::LeaseDirect { .. }
            | R::LeaseExtend { .. }
            | R::ReadDirect { .. } => self.leases(req),
            R::Fsync { .. }
            | R::Stage { .. }
            | R::Barrier
            | R::Poll { .. }
            | R::Wait { .. }
            | R::SyncAll => self.durability(req),
            R::EndSession | R::SetLock { .. } => unreachable!("it has a way of its own"),
            R::GetLock { file, owner, range, kind } => self.get_lock(file, owner, (range, kind)),
            R::CloseLocks { ino, handle, owner } => Ok(self.close_locks(ino, handle, owner)),
            R::CancelLock { number } => Ok(self.cancel_lock(number)),
            R::HoldMany { inodes } => self.hold_many(&inodes),
            R::StatFs => self.query(|st| Ok(Reply::Statfs(st.metadata.stat_fs()))),
            R::Checkpoint => {
                runtime.checkpoint_all().map(|report| Reply::Checkpoint(report.into()))
            }
            R::Trim { start, len, least } => runtime.trim(start, len, least).map(Reply::Trimmed),
            R::Status => runtime.status().map(|status| Reply::Status(Box::new(status))),
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
    /// One try of a request that changes nothing durable.
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
        let free = || match self.mutate_once(&Doing::background(), false, &mut |_| Ok(())) {
            // The assembly does it after the hold. A kernel's FORGET waits for nothing.
            Err(Stop::Needs(Need::Thaw)) => Ok(()),
            other => other,
        };
        match self.drive(libc::ENOSPC, free) {
            Err(Error::Posix(libc::EROFS)) | Ok(()) => Ok(Reply::Done),
            Err(e) => Err(e),
        }
    }
}

impl Call<'_> {
    /// The caller, if nobody has checked yet what it may do.
    pub(super) fn who(&self) -> Unchecked<'_> {
        Unchecked(self.session.checked(self.cred))
    }

    /// Do the times of a file move with a change of its data? They stay only for a kernel that owns
    /// them.
    pub(super) fn moves(&self, times: bool) -> bool {
        times || !self.session.is_kernel()
    }

    /// The inode of a file, which the session may have open for anything.
    pub(super) fn any_target(&self, file: Target) -> Result<InodeNr> {
        match file {
            Target::Inode(ino) => Ok(ino),
            Target::Open(_) => {
                self.query(|st| st.metadata.tree.target_for((self.session.id, file), |_| true))
            }
        }
    }

    /// The inode of a file that is to be made durable. It is looked for under the state lock, where
    /// another session's lease of it is recalled (rule R48). A kernel names it by its number, and
    /// while no file is leased nothing is to be looked at.
    pub(super) fn durable_target(&self, file: Target) -> Result<InodeNr> {
        match file {
            Target::Inode(ino) if self.runtime.leases.load(Ordering::SeqCst) == 0 => Ok(ino),
            _ => self.query(|st| st.metadata.tree.target_for((self.session.id, file), |_| true)),
        }
    }

    /// As [`Call::durable_target`]; what a program has written of the file at the storage's target
    /// is durable.
    pub(super) fn settled_target(&self, file: Target) -> Result<InodeNr> {
        let ino = self.durable_target(file)?;
        settle(self.runtime, ino)?;
        Ok(ino)
    }

    /// Carries out a request that changes nothing durable, as often as it takes.
    pub(super) fn query<T>(&self, mut op: impl FnMut(&mut State) -> Result<T>) -> Result<T> {
        self.query_step(|st| Ok(op(st)?))
    }

    /// As [`Call::query`], with the operation's own stops.
    pub(super) fn query_step<T>(&self, mut op: impl FnMut(&mut State) -> Step<T>) -> Result<T> {
        self.runtime.drive(libc::EIO, || {
            self.runtime.query_step(|st| {
                self.doing.touch(st)?;
                op(st)
            })
        })
    }
}

impl Tree {
    /// An `Entry` reply counts one reference for `Forget`.
    pub(crate) fn entry(&mut self, session: SessionId, ino: InodeNr) -> Result<Reply> {
        self.counted(session, ino).map(Reply::Entry)
    }

    /// The attributes of an inode, for an answer that counts one reference.
    pub(crate) fn counted(&mut self, session: SessionId, ino: InodeNr) -> Result<Attr> {
        let attr = self.attr(ino)?;
        self.inodes.references.looked_up(session, ino);
        Ok(attr)
    }

    /// May this caller use the blocks that are held back for root?
    pub(crate) fn privileged(&self, cred: &Credentials) -> bool {
        let (uid, gid) = self.fs.superblock.reserved_ids();
        cred.uid == 0 || cred.uid == uid || gid != 0 && cred.gid == gid
    }

    /// The inode of a session's request for data that reads or writes it.
    pub(crate) fn target(
        &self,
        session_and_file: (SessionId, Target),
        wanted: Access,
    ) -> Result<InodeNr> {
        self.target_for(session_and_file, |access| {
            let may = |access: Access| {
                (access.reads() || !wanted.reads()) && (access.writes() || !wanted.writes())
            };
            access.is_some_and(may)
        })
    }

    fn target_for(
        &self,
        (session, file): (SessionId, Target),
        may: impl FnOnce(Option<Access>) -> bool,
    ) -> Result<InodeNr> {
        let references = &self.inodes.references;
        let handle = match file {
            Target::Inode(ino) => {
                let access = references.granted(session, ino);
                return match access.is_none_or(may) {
                    true => Ok(ino),
                    false => Err(errno(libc::EBADF)),
                };
            }
            Target::Open(handle) => handle,
        };
        let opened = references.opened(session, handle.0);
        let opened = opened.filter(|opened| may(opened.access));
        opened.map(|opened| opened.ino).ok_or_else(|| errno(libc::EBADF))
    }

    /// Opens the inode for a session; without `access` it is only named by the handle.
    pub(crate) fn open(
        &mut self,
        ino: InodeNr,
        session: SessionId,
        access: impl Into<Option<Access>>,
    ) -> Handle {
        Handle(self.inodes.open(ino, session, access.into()))
    }
}
