//! What a session may ask for at all: by its rights, by the inodes that it knows, and by how much
//! it has already.

use super::Call;
use crate::locks::sync::RwLockReadGuard;
use crate::operations::compound::need;
use crate::session::InFlight;
use siftfs_base::{InodeNr, Result, errno};
use siftfs_proto::{Identity, Limits, Names, ROOT_INO, Request, Target};

/// A request that may be carried out, until it is.
pub(super) struct Admitted<'a> {
    /// No inode that the request names is forgotten meanwhile.
    _naming: Option<RwLockReadGuard<'a, ()>>,
    _in_flight: Option<InFlight<'a>>,
}

/// What a request adds to that a session's limits bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Wants {
    handle: bool,
    inode: bool,
    section: bool,
}

impl Call<'_> {
    /// May the session make this request? What is returned is kept until it is carried out.
    ///
    /// # Errors
    /// `EPERM`: only an administrator's session may, or the session changes nothing but what is
    /// leased to it. `ESTALE`: it names an inode that the session
    /// has not looked up (rule R31). `ENFILE`, `EAGAIN`: the session has as much as it may have.
    pub(super) fn admit(&self, req: &Request) -> Result<Admitted<'_>> {
        let opening = &self.session.opening;
        if !opening.administrator && is_administration(req) {
            return Err(errno(libc::EPERM));
        }
        if self.session.lends && !is_lending(req) {
            return Err(errno(libc::EPERM));
        }
        let limited = opening.limits != Limits::NONE;
        let in_flight = match limited {
            true => Some(self.session.in_flight(bytes(req))?),
            false => None,
        };
        if limited {
            self.has_room(wants(req))?;
        }
        let naming = match opening.identity {
            Identity::Kernel => None,
            Identity::Machine | Identity::Program | Identity::User { .. } => self.name(req)?,
        };
        Ok(Admitted { _naming: naming, _in_flight: in_flight })
    }

    fn has_room(&self, wants: Wants) -> Result<()> {
        if wants == Wants::default() {
            return Ok(());
        }
        let limits = &self.session.opening.limits;
        let st = self.runtime.lock();
        let held = st.metadata.tree.inodes.references.held(self.session.id);
        let held = held.ok_or_else(|| errno(libc::ESTALE))?;
        if wants.handle && held.handles >= limits.handles
            || wants.inode && held.inodes >= limits.inodes
        {
            return Err(errno(libc::ENFILE));
        }
        if wants.section && st.sections.count(self.session.id) >= limits.sections {
            return Err(errno(libc::EAGAIN));
        }
        Ok(())
    }

    /// Every inode that the request names is one that the session has looked up, and is not
    /// forgotten until the answer. A bare number in place of an open file is a kernel's, or that of
    /// a program that comes back; but for the local kernel, they have looked that up, too.
    fn name(&self, req: &Request) -> Result<Option<RwLockReadGuard<'_, ()>>> {
        let stale = || errno(libc::ESTALE);
        let Names { file, inodes: [one, other] } = named(req);
        let file = file.and_then(|file| match file {
            Target::Inode(ino) => Some(ino),
            Target::Open(_) => None,
        });
        // A kernel alone closes descriptors.
        let kernels = matches!(req, Request::CloseLocks { .. });
        if kernels && !self.session.has_pages() || file.is_some() && !self.session.names_files() {
            return Err(stale());
        }
        let inodes = [file.or(one), other];
        if inodes == [None, None] {
            return Ok(None);
        }
        let naming = self.session.life.name();
        let st = self.runtime.lock();
        let references = &st.metadata.tree.inodes.references;
        let known =
            |ino: &InodeNr| *ino == ROOT_INO || references.has_looked_up(self.session.id, *ino);
        match inodes.into_iter().flatten().all(known) {
            true => Ok(Some(naming)),
            false => Err(stale()),
        }
    }
}

/// What only an administrator's session may ask for.
fn is_administration(req: &Request) -> bool {
    matches!(req, Request::Status | Request::Checkpoint | Request::SyncAll | Request::Trim { .. })
}

/// What a session may ask for that changes nothing but what is leased to it.
fn is_lending(req: &Request) -> bool {
    use Request as R;
    match req {
        R::Lease { .. }
        | R::LeaseWrite { .. }
        | R::LeaseLocate { .. }
        | R::LeaseKeep { .. }
        | R::LeaseReturn { .. }
        | R::LeaseDirect { .. }
        | R::LeaseExtend { .. }
        | R::Hold { .. }
        | R::Release { .. }
        | R::Forget { .. }
        | R::GetAttr { .. }
        | R::Read { .. }
        | R::Fsync { .. }
        | R::EndSession => true,
        R::Open { truncate, .. } => !truncate,
        _ => false,
    }
}

/// What a request names. A session can forget only what it has looked up, so FORGET names nothing
/// here. The attributes of an inode are told of one that is only looked up, too.
fn named(req: &Request) -> Names<&Target, &InodeNr> {
    match req {
        Request::Forget { .. } => Names::nothing(),
        Request::GetAttr { file: Target::Inode(ino) } => {
            Names { inodes: [Some(ino), None], ..Names::nothing() }
        }
        _ => req.names(),
    }
}

/// Bytes of data that a request carries or asks for.
fn bytes(req: &Request) -> u64 {
    use Request as R;
    match req {
        R::Write { data, .. }
        | R::Append { data, .. }
        | R::WriteBack { data, .. }
        | R::SectionWrite { data, .. }
        | R::LeaseWrite { data, .. } => data.len() as u64,
        R::Read { len, .. } | R::SectionRead { len, .. } => u64::from(*len),
        R::ReadDir { max_bytes, .. } => u64::from(*max_bytes),
        R::SetXattr { value, .. } => value.len() as u64,
        R::Compound(compound) => need::of(compound),
        _ => 0,
    }
}

fn wants(req: &Request) -> Wants {
    use Request as R;
    let none = Wants::default();
    match req {
        R::Open { .. } | R::OpenDir { .. } | R::Hold { .. } => Wants { handle: true, ..none },
        R::Create { .. } | R::TmpFile { .. } | R::Compound(_) => {
            Wants { handle: true, inode: true, ..none }
        }
        R::Lookup { .. }
        | R::MakeNode { .. }
        | R::MakeDir { .. }
        | R::Symlink { .. }
        | R::Link { .. }
        | R::ReadDir { plus: true, .. } => Wants { inode: true, ..none },
        R::SectionStart { .. } => Wants { section: true, ..none },
        _ => none,
    }
}
