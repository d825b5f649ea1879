//! What a compound would do: its steps are carried out on a view of the volume, beside it.
//!
//! The view has the names that the steps bound and took away, and of each file what they wrote and
//! set. A step sees what the steps before it did; the volume, and its other callers, see nothing
//! of it. [`super::apply`] makes it so.

use crate::namespace::access::{Caller, Guard, READ, WRITE};
use crate::operations::compound::compute::{Budget, Computed, Job, Memo, NotComputed, Task};
use crate::operations::compound::file::{File, FileNr};
use crate::state::State;
use crate::state::leases::{Does, Touch};
use crate::state::step::Stop;
use crate::state::tree::references::SessionId;
use siftfs_base::{Error, InodeNr, errno};
use siftfs_proto::compound::{
    Access, BytesArg, Compound, FileArg, MOST_RESULTS, NumberArg, Step, StepNr, Wanted, Width,
};
use siftfs_proto::{Credentials, Handle};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A name in a directory.
pub type Name = (InodeNr, Vec<u8>);

/// A change of names, in order.
pub enum Change {
    /// A file that the view made gets its first name.
    Create(FileNr, Name),
    /// A file gets one more name.
    Link(FileNr, Name),
    /// A name is taken away, of this file.
    Unlink(Name),
    /// A name is moved; the file that loses its name by that.
    Rename { file: FileNr, from: Name, to: Name, displaced: Option<FileNr> },
}

/// The result of a step.
pub enum Outcome {
    None,
    File(FileNr, Use),
    Number(u64, Width),
    Bytes(Arc<Vec<u8>>),
}

/// How a step found a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// It was looked up.
    Found,
    /// It was opened.
    Open(Access),
    /// It was opened, and closed again.
    Closed,
}

/// Bytes that a step works on, and that nobody else can change (rule R28): what the request
/// brought, or what an earlier step had as its result.
pub enum Data<'a> {
    Given(&'a [u8]),
    Kept(Arc<Vec<u8>>),
}

impl std::ops::Deref for Data<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Given(bytes) => bytes,
            Self::Kept(bytes) => bytes,
        }
    }
}

impl Data<'_> {
    /// The bytes, for work that outlives the try.
    pub fn shared(self) -> Arc<Vec<u8>> {
        match self {
            Self::Given(bytes) => Arc::new(bytes.to_vec()),
            Self::Kept(bytes) => bytes,
        }
    }
}

/// Why a step was not carried out.
pub enum Halt {
    /// As any operation.
    Stop(Stop),
    /// This is to be computed without the lock first.
    Compute(Job),
    /// The step is refused with this errno.
    Refused(StepNr, i32),
}

impl<T: Into<Stop>> From<T> for Halt {
    fn from(stop: T) -> Self {
        Self::Stop(stop.into())
    }
}

pub type Tried<T> = Result<T, Halt>;

/// `errno`, as a step's refusal.
pub fn refused<T>(number: i32) -> Tried<T> {
    Err(errno(number).into())
}

/// The view.
pub struct Plan<'a> {
    pub caller: Caller<'a>,
    pub session: SessionId,
    pub base: InodeNr,
    memo: &'a Memo,
    budget: Budget,
    pub files: Vec<File>,
    by_inode: BTreeMap<InodeNr, FileNr>,
    /// Names that the steps bound or took away.
    pub names: BTreeMap<Name, Option<FileNr>>,
    pub changes: Vec<Change>,
    /// Files that lost a name that no other got.
    pub unlinked: Vec<FileNr>,
    /// Steps that change something.
    pub changing: usize,
    pub outcomes: Vec<Outcome>,
    /// Handles of the session's that the steps closed.
    pub closed: BTreeSet<u64>,
    /// Bytes that results may still take.
    room: usize,
    /// Bytes that may still be written.
    pub writable: u64,
}

impl<'a> Plan<'a> {
    pub fn new(
        st: &State,
        (session, cred): (SessionId, &'a Credentials),
        compound: &'a Compound,
        memo: &'a Memo,
    ) -> Self {
        // What is read stays in the cache until all steps are carried out.
        let cache = st.pages.limit() / 4 * siftfs_base::BLOCK_SIZE;
        Self {
            caller: Caller { cred, rights: &compound.rights },
            session,
            base: compound.base,
            memo,
            budget: Budget::default(),
            files: Vec::new(),
            by_inode: BTreeMap::new(),
            names: BTreeMap::new(),
            changes: Vec::new(),
            unlinked: Vec::new(),
            changing: 0,
            outcomes: Vec::with_capacity(compound.steps.len()),
            closed: BTreeSet::new(),
            room: MOST_RESULTS.min(cache),
            writable: st.metadata.log.staging.max_record().min(st.metadata.log.most_staged()),
        }
    }

    /// Carries out all steps on the view; or tells which of them is refused, and why.
    pub fn run(&mut self, st: &mut State, compound: &'a Compound) -> Tried<()> {
        for (number, step) in (0..).zip(&compound.steps) {
            match self.step(st, step) {
                Ok(outcome) => self.outcomes.push(outcome),
                Err(Halt::Stop(Stop::Failed(Error::Posix(errno)))) => {
                    return Err(Halt::Refused(StepNr(number), errno));
                }
                Err(other) => return Err(other),
            }
        }
        self.keep_wanted(&compound.wanted)
    }

    /// Forgets the results that the caller does not want, and closes what it could not.
    fn keep_wanted(&mut self, wanted: &Wanted) -> Tried<()> {
        let Wanted::Some { steps, most } = wanted else { return Ok(()) };
        let mut bytes = 0;
        for (number, outcome) in (0..).zip(&mut self.outcomes) {
            if steps.binary_search(&StepNr(number)).is_err() {
                *outcome = Outcome::None;
            }
            bytes += match outcome {
                Outcome::None => 0,
                Outcome::Number(..) | Outcome::File(..) => 8,
                Outcome::Bytes(bytes) => bytes.len(),
            };
        }
        if bytes > *most as usize { refused(libc::EMSGSIZE) } else { Ok(()) }
    }

    fn step(&mut self, st: &mut State, step: &'a Step) -> Tried<Outcome> {
        match step {
            Step::Lookup { path } => self.look_up(st, path),
            Step::Open { path, access, truncate } => self.open(st, path, *access, *truncate),
            Step::Create { path, perm } => self.create(st, path, *perm),
            Step::Read { file, offset, len } => {
                let file = self.file(st, file, READ)?;
                let offset = self.number(offset)?;
                self.read(st, file, offset, u64::from(*len)).map(Outcome::Bytes)
            }
            Step::Write { file, offset, data } => {
                let file = self.file(st, file, WRITE)?;
                let offset = self.number(offset)?;
                let data = self.bytes(data)?;
                self.write(st, file, offset, &data)?;
                Ok(Outcome::Number(data.len() as u64, Width::U64))
            }
            Step::Append { file, data } => {
                let file = self.file(st, file, WRITE)?;
                let (end, data) = (self.files[file].size, self.bytes(data)?);
                self.write(st, file, end, &data)?;
                Ok(Outcome::Number(end, Width::U64))
            }
            Step::Checksum { kind, data } => self.compute(Task::Sum(*kind), data),
            Step::Compress { codec, data } => self.compute(Task::Compress(*codec), data),
            Step::Decompress { codec, data, most } => {
                let most = u32::try_from(self.room).map_or(*most, |room| room.min(*most));
                self.compute(Task::Decompress(*codec, most), data)
            }
            Step::Join { first, second } => self.join(first, second),
            Step::Patch { .. } | Step::Add { .. } | Step::CompareAndSet { .. } => {
                self.modify(st, step)
            }
            Step::Rename { from, to, replace } => self.rename(st, from, to, *replace),
            Step::Link { file, to } => {
                let file = self.file(st, file, 0)?;
                self.link(st, file, to)
            }
            Step::Unlink { path } => self.unlink(st, path),
            Step::SetSize { file, size } => {
                let file = self.file(st, file, WRITE)?;
                let size = self.number(size)?;
                self.set_size(st, file, size)
            }
            Step::SetAttributes { file, set } => {
                let file = self.file(st, file, 0)?;
                self.set_attributes(st, file, set)
            }
            Step::Close { file } => self.close(st, file),
        }
    }

    fn compute(&mut self, task: Task, data: &'a BytesArg) -> Tried<Outcome> {
        let (step, input) = (self.outcomes.len(), self.bytes(data)?);
        match self.memo.compute(&mut self.budget, step, task, input) {
            Err(NotComputed::Job(job)) => Err(Halt::Compute(job)),
            Err(NotComputed::Failed(error)) => Err(error.into()),
            Ok(Computed::Number(value, width)) => Ok(Outcome::Number(value, width)),
            Ok(Computed::Bytes(bytes)) => self.keep(bytes).map(Outcome::Bytes),
        }
    }

    /// There is room for the result before it is made: steps may join what they joined, and
    /// double it each time.
    fn join(&mut self, first: &'a BytesArg, second: &'a BytesArg) -> Tried<Outcome> {
        let (first, second) = (self.bytes(first)?, self.bytes(second)?);
        if first.len().saturating_add(second.len()) > self.room {
            return refused(libc::E2BIG);
        }
        let joined = [&*first, &*second].concat();
        self.keep(Arc::new(joined)).map(Outcome::Bytes)
    }

    /// A result in bytes, if there is room for it.
    fn keep(&mut self, bytes: Arc<Vec<u8>>) -> Tried<Arc<Vec<u8>>> {
        let Some(room) = self.room.checked_sub(bytes.len()) else { return refused(libc::E2BIG) };
        self.room = room;
        Ok(bytes)
    }

    /// Reads what the file is for the steps.
    pub fn read(
        &mut self,
        st: &mut State,
        file: FileNr,
        offset: u64,
        len: u64,
    ) -> Tried<Arc<Vec<u8>>> {
        if !self.files[file].is_regular() {
            return refused(libc::EINVAL);
        }
        let end = self.files[file].size.min(offset.saturating_add(len));
        if end.saturating_sub(offset) > self.room as u64 {
            return refused(libc::E2BIG);
        }
        let bytes = self.files[file].read(st, offset, end)?;
        self.keep(Arc::new(bytes))
    }

    /// The number of a file of the volume, which is loaded.
    pub fn of_inode(&mut self, st: &mut State, ino: InodeNr) -> Tried<FileNr> {
        if let Some(file) = self.by_inode.get(&ino) {
            return Ok(*file);
        }
        st.metadata.tree.load(ino)?;
        if st.metadata.tree.node(ino).inode.is_dir() {
            return refused(libc::EISDIR);
        }
        st.leases.touch(Touch { session: self.session, does: Does::Anything }, ino)?;
        // No list decides anything for a caller that may do everything.
        let guard: Guard = match self.caller.rights.overrides_access {
            true => st.metadata.tree.guard_without_list(ino),
            false => st.metadata.tree.guard(ino)?,
        };
        self.files.push(File::of(st.metadata.tree.node(ino), ino, guard));
        self.by_inode.insert(ino, self.files.len() - 1);
        Ok(self.files.len() - 1)
    }

    /// The file of an argument, which the caller may use so: READ, WRITE, both or neither.
    pub fn file(&mut self, st: &mut State, arg: &FileArg, wanted: u16) -> Tried<FileNr> {
        let (file, access) = match arg {
            FileArg::Open(handle) => {
                let opened = st.metadata.tree.inodes.references.opened(self.session, handle.0);
                let opened = opened.filter(|_| !self.closed.contains(&handle.0));
                let Some(opened) = opened else { return refused(libc::EBADF) };
                let how = opened.access.map_or(Use::Found, Use::Open);
                (self.of_inode(st, opened.ino)?, how)
            }
            FileArg::Step(step) => match self.outcome(*step)? {
                Outcome::File(file, access) => (*file, *access),
                _ => return refused(libc::EINVAL),
            },
        };
        match access {
            Use::Found => {
                self.caller.may(&self.files[file].guard, wanted)?;
                if wanted & WRITE != 0 {
                    self.may_begin_to_write(file)?;
                }
            }
            Use::Closed => return refused(libc::EBADF),
            Use::Open(access) => {
                if wanted & READ != 0 && !access.reads() || wanted & WRITE != 0 && !access.writes()
                {
                    return refused(libc::EBADF);
                }
            }
        }
        Ok(file)
    }

    /// May anybody begin to write the file? Not while a program runs from it.
    pub fn may_begin_to_write(&self, file: FileNr) -> Tried<()> {
        let running = |ino: InodeNr| self.caller.rights.running.contains(&ino);
        if self.files[file].ino.is_some_and(running) { refused(libc::ETXTBSY) } else { Ok(()) }
    }

    fn close(&mut self, st: &State, arg: &FileArg) -> Tried<Outcome> {
        match arg {
            FileArg::Open(Handle(handle)) => {
                let is_open =
                    st.metadata.tree.inodes.references.opened(self.session, *handle).is_some();
                if !is_open || !self.closed.insert(*handle) {
                    return refused(libc::EBADF);
                }
            }
            FileArg::Step(step) => {
                self.outcome(*step)?;
                match &mut self.outcomes[step.0 as usize] {
                    Outcome::File(_, how @ Use::Open(_)) => *how = Use::Closed,
                    Outcome::File(..) => return refused(libc::EBADF),
                    _ => return refused(libc::EINVAL),
                }
            }
        }
        Ok(Outcome::None)
    }

    /// The result of an earlier step.
    fn outcome(&self, step: StepNr) -> Tried<&Outcome> {
        self.outcomes.get(step.0 as usize).ok_or_else(|| errno(libc::EINVAL).into())
    }

    pub fn number(&self, arg: &NumberArg) -> Tried<u64> {
        match arg {
            NumberArg::Given(number) => Ok(*number),
            NumberArg::Step(step) => match self.outcome(*step)? {
                Outcome::Number(value, _) => Ok(*value),
                Outcome::Bytes(bytes) => Ok(bytes.len() as u64),
                _ => refused(libc::EINVAL),
            },
        }
    }

    pub fn bytes(&self, arg: &'a BytesArg) -> Tried<Data<'a>> {
        match arg {
            BytesArg::Given(bytes) => Ok(Data::Given(bytes)),
            BytesArg::Step(step) => self.result(*step).map(Data::Kept),
            BytesArg::Part { step, start, len } => {
                let whole = self.result(*step)?;
                let (start, len) = (*start as usize, *len as usize);
                let part = whole.get(start..).and_then(|rest| rest.get(..len));
                let part = part.ok_or_else(|| errno(libc::EINVAL))?;
                Ok(Data::Kept(Arc::new(part.to_vec())))
            }
        }
    }

    /// An earlier step's result as bytes.
    fn result(&self, step: StepNr) -> Tried<Arc<Vec<u8>>> {
        match self.outcome(step)? {
            Outcome::Bytes(bytes) => Ok(bytes.clone()),
            Outcome::Number(value, width) => {
                Ok(Arc::new(value.to_le_bytes()[..width.bytes()].to_vec()))
            }
            _ => refused(libc::EINVAL),
        }
    }
}
