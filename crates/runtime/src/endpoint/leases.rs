//! Requests about write leases, and which file each other request touches (rule R48).

use super::Call;
use crate::data::fill;
use crate::session::{Session, recall};
use crate::staging::capture::Asked;
use crate::state::State;
use crate::state::leases::Does;
use crate::state::room::may_set_aside;
use crate::state::step::{Step, Stop};
use siftfs_base::{BLOCK_BYTES, InodeNr, Result, errno};
use siftfs_proto::compound::Access;
use siftfs_proto::{LeaseId, MAX_FILE_SIZE, Reply, Request, Target, flags};

/// How often the others are told before a session gets a lease: each time one of them may have
/// touched the file meanwhile.
const TRIES: u32 = 4;

/// Most blocks of a question where they are: a bit of the answer for each.
const LOCATED: u32 = 64;

/// Set-user-id and set-group-id.
const SET_ID: u16 = 0o6000;

/// Does a write take nothing away from the file but its bytes, and is it bound to no place?
///
/// # Errors
/// `EOPNOTSUPP` if not.
pub(super) fn takes_bytes_alone(st: &mut State, ino: InodeNr) -> Result<()> {
    let tree = &mut st.metadata.tree;
    let inode = &tree.node(ino).inode;
    let fixed = inode.flags & (flags::IMMUTABLE | flags::APPEND) != 0;
    match fixed || inode.mode & SET_ID != 0 || tree.has_capabilities(ino)? {
        true => Err(errno(libc::EOPNOTSUPP)),
        false => Ok(()),
    }
}

/// What draining a file came to.
enum Drained {
    Granted {
        size: u64,
    },
    /// Another session touched the file meanwhile.
    Touched,
}

/// The file that a request of `session` names and touches, so that a write lease of it is recalled
/// first; and what it does with it. What a request finds by a name it tells where it finds it, and
/// so it does with attributes that it is to tell. To open a file to be read touches nothing: what
/// is read then does.
pub(super) fn touched(req: &Request, session: &Session) -> Option<(Target, Does)> {
    use Request as R;
    let does = match *req {
        R::Open { access: Access::Read, truncate: false, .. } => return None,
        R::Open { truncate: false, beside_lease: true, .. } if session.is_kernel() => return None,
        R::Open { ino, .. } | R::Link { ino, .. } => {
            return Some((Target::Inode(ino), Does::Anything));
        }
        // Locks are no concern of a lease, and leases have ways of their own.
        R::GetAttr { .. }
        | R::GetLock { .. }
        | R::SetLock { .. }
        | R::Lease { .. }
        | R::LeaseDirect { .. }
        | R::LeaseExtend { .. } => return None,
        R::Read { .. } | R::ReadDirect { .. } => Does::Reads,
        R::Write { .. } | R::Append { .. } | R::WriteBack { .. } => Does::Pages,
        R::GetXattr { .. } | R::ListXattr { .. } | R::GetFlags { .. } => Does::Asides,
        R::Fsync { .. } => Does::Durable,
        _ => Does::Anything,
    };
    req.names().file.map(|file| (*file, does))
}

impl Call<'_> {
    /// Carries out a request about leases.
    pub(super) fn leases(&self, req: Request) -> Result<Reply> {
        match req {
            Request::Lease { file, writers, direct } => self.lease(file, writers, direct),
            Request::LeaseWrite { lease, offset, data, time, durable } => {
                let (ino, written) = self.write_leased(lease, offset, data, time)?;
                if durable {
                    let asked = Asked { datasync: true, in_order: self.session.lends };
                    let _durable = self.runtime.fsync(ino, asked)?;
                }
                Ok(written)
            }
            Request::LeaseLocate { lease, first, count, bring } => {
                self.locate(lease, (first, count), bring)
            }
            Request::LeaseKeep { lease } => {
                self.query(|st| self.use_lease(st, lease)).map(|_| Reply::Done)
            }
            Request::LeaseReturn { lease } => self.return_lease(lease),
            Request::LeaseDirect { lease, file, room } => self.lease_direct(lease, file, room),
            Request::LeaseExtend { lease, file, first, end } => {
                self.lease_extend(lease, file, (first, end))
            }
            Request::ReadDirect { file } => self.read_direct(file),
            other => unreachable!("a request of another kind: {other:?}"),
        }
    }

    fn lease(&self, file: Target, writers: Option<u64>, direct: Option<u64>) -> Result<Reply> {
        let runtime = self.runtime;
        runtime.seq.check()?;
        let begin = || {
            let mut st = runtime.lock();
            let begun = self.begin_lease(&mut st, file, writers);
            st.shrink_caches(runtime.seq.oldest_unwritten());
            begun
        };
        let (ino, lease) = runtime.drive(libc::EAGAIN, begin)?;
        match self.drain((ino, lease), writers) {
            Ok(size) => {
                let term = runtime.lock().leases.term();
                let granted = direct.and_then(|room| self.grant_with(lease, file, room));
                Ok(Reply::Leased { lease, term, size, granted })
            }
            Err(e) => {
                let mut st = runtime.lock();
                if st.leases.left(ino, lease, 0).is_some() {
                    let State { leases, metadata, .. } = &mut *st;
                    let never_granted = leases.end(ino, &mut metadata.tree.inodes);
                    debug_assert!(never_granted.is_none());
                    recall::give_space_back(&mut st, self.session.id);
                }
                Err(e)
            }
        }
    }

    /// Makes what is pending of the file durable, and has the other sessions lose what they cache
    /// of it, until none of them touches it meanwhile.
    /// The file's size.
    fn drain(&self, lease: (InodeNr, LeaseId), writers: Option<u64>) -> Result<u64> {
        for _ in 0..TRIES {
            if let Drained::Granted { size } = self.try_drain(lease, writers)? {
                return Ok(size);
            }
        }
        Err(errno(libc::EAGAIN))
    }

    fn try_drain(&self, (ino, lease): (InodeNr, LeaseId), writers: Option<u64>) -> Result<Drained> {
        let Self { runtime, session, .. } = *self;
        let _durable = runtime.fsync(ino, Asked::default())?;
        // Taking pages back may make a session ask for something. Taking attributes back does not,
        // so what comes after the second notice comes by itself.
        for pages in [true, false] {
            let mut st = runtime.lock();
            match pages {
                true => st.leases.take_all(lease)?,
                false => st.leases.take_attributes(lease)?,
            }
            let State { sharing, metadata, .. } = &mut *st;
            let inodes = &mut metadata.tree.inodes;
            let notices = sharing.before_lease(session.id, (ino, pages), inodes);
            drop(st);
            notices.send().wait();
        }
        let mut st = runtime.lock();
        if st.sections.has(ino) {
            return Err(errno(libc::EBUSY));
        }
        let node = st.metadata.tree.node(ino);
        if node.is_dead() {
            return Err(errno(libc::ENOENT));
        }
        let size = node.size;
        self.may_be_alone(&mut st, ino, writers)?;
        let now = st.metadata.log.time.boot_ns();
        match st.leases.grant(lease, size, now)? {
            true => Ok(Drained::Granted { size }),
            false => Ok(Drained::Touched),
        }
    }

    fn return_lease(&self, lease: LeaseId) -> Result<Reply> {
        let runtime = self.runtime;
        let mut st = runtime.lock();
        let ino = self.use_lease(&mut st, lease)?;
        let owed = recall::end(runtime, st, &[ino]);
        let orphan = runtime.lock().metadata.tree.inodes.has_to_free();
        self.doing.owe(owed);
        if orphan { runtime.run_evictions() } else { Ok(Reply::Done) }
    }
}

impl Call<'_> {
    /// The file of a lease that the session holds and uses now.
    ///
    /// # Errors
    /// `ESTALE` if it has ended, or is another session's.
    pub(super) fn use_lease(&self, st: &mut State, lease: LeaseId) -> Result<InodeNr> {
        let now = st.metadata.log.time.boot_ns();
        let (ino, generation) = st.leases.used(self.session.id, lease, now)?;
        // The lease keeps the inode, so nothing else has its number (rule R49).
        match st.metadata.tree.inodes.get(&ino) {
            Some(node) if node.inode.generation == generation => Ok(ino),
            _ => Err(errno(libc::ESTALE)),
        }
    }

    /// Which blocks are cold, and reads those in that are asked for.
    fn locate(&self, lease: LeaseId, (first, count): (u64, u32), bring: u64) -> Result<Reply> {
        if count > LOCATED || first > MAX_FILE_SIZE / BLOCK_BYTES {
            return Err(errno(libc::EINVAL));
        }
        let mut before = None;
        self.query_step(|st| {
            let ino = self.use_lease(st, lease)?;
            st.leases.direct.touch_blocks(ino, first, first + u64::from(count))?;
            st.metadata.tree.load_regular(ino)?;
            let cold = fill::cold(st, ino, first, count)?;
            before.get_or_insert(cold);
            match cold & bring {
                0 => Ok(()),
                some => {
                    // It stops here for the first run of them, and is tried again with the rest.
                    let begin = some.trailing_zeros();
                    let run = u64::from((some >> begin).trailing_ones());
                    let from = first + u64::from(begin);
                    st.missing(ino, from..from + run, 0)
                }
            }
        })?;
        Ok(Reply::Located { cold: before.unwrap_or(0) })
    }

    fn begin_lease(
        &self,
        st: &mut State,
        file: Target,
        writers: Option<u64>,
    ) -> Step<(InodeNr, LeaseId)> {
        if st.metadata.log.config.read_only {
            return Err(errno(libc::EROFS).into());
        }
        let session = self.session.id;
        let ino = st.metadata.tree.target((session, file), Access::Write)?;
        st.metadata.tree.load_regular(ino)?;
        if st.metadata.tree.node(ino).is_dead() {
            return Err(errno(libc::ENOENT).into());
        }
        if st.sections.has(ino) {
            return Err(errno(libc::EBUSY).into());
        }
        self.may_be_alone(st, ino, writers)?;
        let now = st.metadata.log.time.boot_ns();
        if st.leases.is_in_the_way(session, ino, now) {
            return Err(Stop::Recall(ino));
        }
        st.leases.direct.touch_readers(ino)?;
        if self.session.lends {
            let privileged = st.metadata.tree.privileged(self.cred);
            may_set_aside(&mut st.metadata, session, privileged)?;
        }
        let generation = st.metadata.tree.node(ino).inode.generation;
        let most = self.session.opening.limits.leases;
        let lease = st.leases.begin((session, most), (ino, generation), now)?;
        st.metadata.tree.inodes.keep(ino);
        if self.session.lends {
            st.metadata.log.reserves.set_aside(session);
        }
        Ok((ino, lease))
    }

    /// May a program that has opened the file through other sessions have it alone? It has, if no
    /// more and no fewer than `writers` handles there are open to write it; and if no write takes
    /// anything away from the file but its bytes, nor is bound to its end.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for the file, `EAGAIN` for other writers.
    fn may_be_alone(&self, st: &mut State, ino: InodeNr, writers: Option<u64>) -> Result<()> {
        let Some(writers) = writers else { return Ok(()) };
        takes_bytes_alone(st, ino)?;
        match st.metadata.tree.inodes.references.writers_beside(self.session.id, ino) == writers {
            true => Ok(()),
            false => Err(errno(libc::EAGAIN)),
        }
    }
}
