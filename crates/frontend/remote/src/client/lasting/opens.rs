//! What a client has open, by numbers of its own: they outlive the server that opened it.

use siftfs_base::{InodeNr, Result, errno};
use siftfs_calls::{Grant, Proof, Proven};
use siftfs_proto::compound::Access;
use siftfs_proto::{Handle, LockAsk, LockPlace, LockRange, Request, Target};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How a file was opened, and is opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    File(Access),
    Directory,
    Held,
}

impl How {
    /// The request that opens it again.
    pub fn request(self, ino: InodeNr) -> Request {
        match self {
            Self::File(access) => Request::open(ino, access),
            Self::Directory => Request::OpenDir { ino },
            Self::Held => Request::Hold { ino },
        }
    }

    /// What a server grants that opens so.
    pub fn grant(self) -> Grant {
        match self {
            Self::File(access) => Grant::Open(access),
            Self::Directory => Grant::Directory,
            Self::Held => Grant::Held,
        }
    }

    /// How a request opens.
    pub fn of(request: &Request) -> Option<(InodeNr, Self)> {
        match request {
            Request::Open { ino, access, .. } => Some((*ino, Self::File(*access))),
            Request::OpenDir { ino } => Some((*ino, Self::Directory)),
            Request::Hold { ino } => Some((*ino, Self::Held)),
            _ => None,
        }
    }
}

struct Open {
    ino: InodeNr,
    how: How,
    /// The handle at the present server, or the errno for which the server has not opened the file.
    server: std::result::Result<Handle, i32>,
    /// Changes were lost that the next sync does not make durable.
    failed: bool,
    locks: Vec<LockAsk>,
    /// The generation of a file to which the client does not refer, and which may be another one
    /// when it is opened again.
    generation: Option<u32>,
    /// What a server that checks callers said that it has granted.
    proven: Option<Proven>,
}

/// Something that is open.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Opened {
    pub own: Handle,
    pub ino: InodeNr,
    pub how: How,
    pub generation: Option<u32>,
    pub proven: Option<Proven>,
}

#[derive(Default)]
struct State {
    next: u64,
    open: HashMap<Handle, Open>,
    /// Inodes that are gone, or are others by now, and the generations that they had, as long as
    /// the kernel refers to them.
    stale: HashMap<InodeNr, u32>,
    /// Numbers of such inodes under which the kernel has been told of another file since: until it
    /// has forgotten both, it may mean either.
    shared: HashSet<InodeNr>,
    /// Files that are open nowhere and have lost changes.
    failed: HashSet<InodeNr>,
    /// Changes were lost since somebody was told so who syncs everything.
    any_lost: bool,
}

/// What a client has open.
#[derive(Default)]
pub(super) struct Opens(Mutex<State>);

impl Opens {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A server has opened something.
    pub fn opened(
        &self,
        (ino, how): (InodeNr, How),
        server: Handle,
        proven: Option<Proven>,
    ) -> Handle {
        self.add((ino, how, None), server, proven)
    }

    /// A server has opened a file to which the client does not refer.
    pub fn opened_only(
        &self,
        (ino, generation, access): (InodeNr, u32, Access),
        server: Handle,
        proof: Option<Proof>,
    ) -> Handle {
        let grant = Grant::Open(access);
        let proven = proof.map(|proof| Proven { ino, generation, grant, proof });
        self.add((ino, How::File(access), Some(generation)), server, proven)
    }

    fn add(
        &self,
        (ino, how, generation): (InodeNr, How, Option<u32>),
        server: Handle,
        proven: Option<Proven>,
    ) -> Handle {
        let mut state = self.lock();
        state.next += 1;
        let own = Handle(state.next);
        let failed = state.failed.remove(&ino);
        let (server, locks) = (Ok(server), Vec::new());
        let open = Open { ino, how, server, failed, locks, generation, proven };
        state.open.insert(own, open);
        own
    }

    /// The handle at the server.
    ///
    /// # Errors
    /// `EBADF` for one that is not open, `ESTALE` for one that could not be opened again, `EIO` for
    /// one whose locks were not to be had again.
    pub fn server(&self, own: Handle) -> Result<Handle> {
        let state = self.lock();
        let open = state.open.get(&own).ok_or(errno(libc::EBADF))?;
        open.server.map_err(errno)
    }

    /// It is closed.
    pub fn closed(&self, own: Handle) {
        let mut state = self.lock();
        if let Some(open) = state.open.remove(&own)
            && open.failed
            && !state.open.values().any(|other| other.ino == open.ino)
            && !state.stale.contains_key(&open.ino)
        {
            state.failed.insert(open.ino);
        }
    }

    /// The inode of a file.
    pub fn ino(&self, file: Target) -> Option<InodeNr> {
        match file {
            Target::Inode(ino) => Some(ino),
            Target::Open(own) => self.lock().open.get(&own).map(|open| open.ino),
        }
    }

    /// All that is open. What a server before has not opened again stays so: another file may have
    /// its number.
    pub fn all(&self) -> Vec<Opened> {
        let of = |(own, open): (&Handle, &Open)| {
            let (own, Open { ino, how, generation, proven, .. }) = (*own, open);
            let (ino, how, generation, proven) = (*ino, *how, *generation, *proven);
            Opened { own, ino, how, generation, proven }
        };
        self.lock().open.iter().filter(|(_, open)| open.server.is_ok()).map(of).collect()
    }

    /// By what a server knows that the file may be named, and its bytes changed by its number if it
    /// is open for that.
    pub fn proves(&self, ino: InodeNr) -> Option<Proven> {
        let writes = |open: &&Open| matches!(open.how, How::File(access) if access.writes());
        let state = self.lock();
        let own = || state.open.values().filter(|open| open.ino == ino && open.server.is_ok());
        own().find(writes).or_else(|| own().next()).and_then(|open| open.proven)
    }

    /// It was opened again, or was not.
    pub fn reopened(&self, own: Handle, server: std::result::Result<Handle, i32>) {
        if let Some(open) = self.lock().open.get_mut(&own) {
            open.server = server;
        }
    }

    /// Changes of a file were lost: its next sync is an error.
    pub fn lose(&self, ino: InodeNr) {
        let mut state = self.lock();
        state.any_lost = true;
        let mut any = false;
        for open in state.open.values_mut().filter(|open| open.ino == ino) {
            (open.failed, any) = (true, true);
        }
        if !any {
            state.failed.insert(ino);
        }
    }

    /// Were changes of the file lost that nobody was told of by this handle? A kernel's sync names
    /// the inode: it is told once for all handles.
    pub fn take_failed(&self, file: Target) -> bool {
        let mut state = self.lock();
        match file {
            Target::Inode(ino) => {
                let mut failed = state.failed.remove(&ino);
                for open in state.open.values_mut().filter(|open| open.ino == ino) {
                    failed |= std::mem::take(&mut open.failed);
                }
                failed
            }
            Target::Open(own) => match state.open.get_mut(&own) {
                Some(open) => std::mem::take(&mut open.failed),
                None => false,
            },
        }
    }

    /// Were changes of any file lost since this was asked last?
    pub fn take_any_lost(&self) -> bool {
        std::mem::take(&mut self.lock().any_lost)
    }

    /// These inodes, of these generations, are gone.
    pub fn gone(&self, inodes: impl IntoIterator<Item = (InodeNr, u32)>) {
        let mut state = self.lock();
        for (ino, generation) in inodes {
            state.stale.insert(ino, generation);
            state.failed.remove(&ino);
        }
    }

    /// Is the inode gone, and no other has its number as far as the kernel knows?
    pub fn is_gone(&self, ino: InodeNr) -> bool {
        let state = self.lock();
        !state.stale.is_empty() && state.stale.contains_key(&ino)
    }

    /// May the kernel mean one that is gone by this number, and another one as well?
    pub fn is_shared(&self, ino: InodeNr) -> bool {
        let state = self.lock();
        !state.shared.is_empty() && state.shared.contains(&ino)
    }

    /// The kernel is about to be told of an inode with this number and generation.
    pub fn is_there(&self, ino: InodeNr, generation: u32) {
        let mut state = self.lock();
        if !state.stale.is_empty()
            && let Some(before) = state.stale.remove(&ino)
            && before != generation
        {
            state.shared.insert(ino);
        }
    }

    /// The kernel refers to nothing under this number any more.
    pub fn is_forgotten(&self, ino: InodeNr) {
        let mut state = self.lock();
        let State { stale, shared, .. } = &mut *state;
        if !stale.is_empty() || !shared.is_empty() {
            stale.remove(&ino);
            shared.remove(&ino);
        }
    }

    /// A lock was granted or given up through a handle.
    pub fn locked(&self, own: Handle, ask: LockAsk) {
        let mut state = self.lock();
        let Some(ino) = state.open.get(&own).map(|open| open.ino) else { return };
        // An owner's locks of one file are its own, whatever handle they were taken through.
        for open in state.open.values_mut().filter(|open| open.ino == ino) {
            let locks = std::mem::take(&mut open.locks);
            open.locks = locks.into_iter().flat_map(|held| without(held, &ask)).collect();
        }
        if let Some(open) = state.open.get_mut(&own)
            && ask.kind.is_some()
        {
            open.locks.push(LockAsk { wait: None, ..ask });
        }
    }

    /// An owner has closed a descriptor: its locks of bytes of the file have ended. False if nobody
    /// had any lock of the file here, of bytes or of the whole: then the server has none either.
    pub fn close_locks(&self, ino: InodeNr, owner: u64) -> bool {
        let mut state = self.lock();
        let mut any = false;
        for open in state.open.values_mut().filter(|open| open.ino == ino) {
            any |= !open.locks.is_empty();
            let range = |held: &LockAsk| matches!(held.place, LockPlace::Range(_));
            open.locks.retain(|held| held.owner != owner || !range(held));
        }
        any
    }

    /// All locks, with the handles through which they were taken.
    pub fn locks(&self) -> Vec<(Handle, LockAsk)> {
        let state = self.lock();
        let of = |(own, open): (&Handle, &Open)| {
            let own = *own;
            open.locks.iter().map(move |ask| (own, *ask)).collect::<Vec<_>>()
        };
        state.open.iter().flat_map(of).collect()
    }

    /// A lock was not to be had again: nothing is to be read or written under the belief in it.
    pub fn lock_lost(&self, own: Handle) {
        let mut state = self.lock();
        let Some(ino) = state.open.get(&own).map(|open| open.ino) else { return };
        for open in state.open.values_mut().filter(|open| open.ino == ino) {
            open.server = Err(libc::EIO);
            open.locks.clear();
        }
    }
}

/// What is left of a lock when its owner locks, or gives up, something else of the file.
fn without(held: LockAsk, ask: &LockAsk) -> Vec<LockAsk> {
    let (LockPlace::Range(has), LockPlace::Range(takes)) = (held.place, ask.place) else {
        // A lock of the whole file and one of bytes are independent of each other.
        let same = held.place == ask.place && held.owner == ask.owner;
        return if same { Vec::new() } else { vec![held] };
    };
    if held.owner != ask.owner || !has.overlaps(takes) {
        return vec![held];
    }
    let before = takes.first().checked_sub(1).and_then(|last| LockRange::new(has.first(), last));
    let after = takes.last().checked_add(1).and_then(|first| LockRange::new(first, has.last()));
    let left = [before, after].into_iter().flatten();
    left.map(|range| LockAsk { place: LockPlace::Range(range), ..held }).collect()
}

#[cfg(test)]
#[path = "opens_tests.rs"]
mod tests;
