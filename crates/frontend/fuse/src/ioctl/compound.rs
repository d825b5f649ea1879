//! The ioctl that carries out a compound: the caller's descriptors in its argument, what the kernel
//! holds of the files before it, and what it must forget before the answer.

use crate::ioctl::descriptors::{Descriptors, Opened};
use crate::ioctl::view::{Purpose, View};
use crate::mount::mountinfo::MountEntry;
use crate::pages::invalidator::Then;
use crate::pages::names::Last;
use crate::pages::opener::Want;
use crate::pages::own_mount::{NewTime, Reset, Size};
use crate::serve::caller;
use crate::serve::kernel_times::{Turn, Untold};
use crate::serve::open_files::Owed;
use crate::serve::server::Server;
use siftfs_base::{Error, InodeNr, Result, errno};
use siftfs_proto::compound::{
    Access, Compound, Compounded, FileArg, Step, StepNr, Value, Wanted, WrittenFile,
};
use siftfs_proto::ioctl::compound::{self as asked, ANSWER_HEAD, Answer, File};
use siftfs_proto::{
    Attr, Completion, Credentials, FileKind, Handle, Level, Reply, Request, SetAttr, SetTime,
};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const O_ACCMODE: u32 = libc::O_ACCMODE.cast_unsigned();
const O_APPEND: u32 = libc::O_APPEND.cast_unsigned();
/// Bytes that say how long a result is.
const RESULT_LEN: usize = size_of::<u32>();

/// How often a program is looked at that may have ended, and the pause after each look.
const LOOKS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(1);

/// A compound before the kernel's pages of its files are written.
struct Prepared {
    compound: Compound,
    /// The steps whose results are part of the answer.
    wanted: Vec<StepNr>,
    /// Files of which the kernel may hold dirty pages.
    files: BTreeSet<InodeNr>,
    /// What was opened for the caller's descriptors.
    opened: BTreeMap<u32, Descriptor>,
}

/// What a descriptor of the caller's stands for.
struct Descriptor {
    handle: Handle,
    flags: u32,
    view: View,
}

/// What the caller has open, and the mount through which it calls.
type Caller<'a> = (&'a Descriptors<'a>, &'a View);

/// Why a compound is not carried out.
enum NotPrepared {
    /// A step is refused with this errno: the call succeeds, and says so.
    Step(StepNr, i32),
    /// The call fails.
    Call(Error),
}

impl From<Error> for NotPrepared {
    fn from(error: Error) -> Self {
        Self::Call(error)
    }
}

/// What the kernel has to hear of a compound that was carried out.
struct Changed {
    names: Vec<(InodeNr, Vec<u8>)>,
    files: Vec<InodeNr>,
    written: Vec<WrittenFile>,
    /// Files whose size the kernel is to take, and with the writeback cache their times.
    stale: Vec<Stale>,
}

/// A file that the kernel knows as it was before a compound.
pub(crate) enum Stale {
    /// Its size is another one.
    Size(InodeNr),
    /// Its times are others, and perhaps its size is.
    Times(Untold),
    /// Its ctime is another one, and nothing else. The kernel may have a younger mtime and size.
    Ctime(Untold),
}

impl Server {
    /// Carries out a compound on the directory `base`. Other callers see what it changed, and the
    /// kernel has forgotten what it knew of it, before `answer` is called.
    pub(crate) fn compound(
        self: &Arc<Self>,
        cred: &Credentials,
        mount: &MountEntry,
        base: InodeNr,
        buffer: &[u8],
        answer: Completion,
    ) {
        let answer = match self.calls.enter(cred.uid) {
            Ok(place) => place.until(answer),
            Err(e) => return answer(Err(e)),
        };
        let caller = match self.agreed.decided_here(cred) {
            Ok(caller) => Credentials { umask: caller::umask(cred.pid), ..caller },
            Err(e) => return answer(Err(e)),
        };
        let prepared = match self.prepare_compound(&caller, (mount, base), buffer) {
            Ok(prepared) => prepared,
            Err(NotPrepared::Step(step, errno)) => {
                let refused = Compounded::Refused { step, errno };
                return answer(Ok(Reply::Data(Answer::of(&refused, &[]).encode())));
            }
            Err(NotPrepared::Call(e)) => return answer(Err(e)),
        };
        let files = prepared.files.iter().copied().collect();
        let server = self.clone();
        let last = move |written: bool| {
            if !written {
                server.close_all(&prepared.opened);
                return answer(Err(errno(libc::EBUSY)));
            }
            match server.carry_out_compound(&caller, prepared) {
                Err(e) => answer(Err(e)),
                Ok((bytes, changed)) => {
                    server.tell_kernel(changed, Box::new(move || answer(Ok(Reply::Data(bytes)))));
                }
            }
        };
        self.when_all_written(files, Want::Write, Box::new(last));
    }

    /// Reads the argument, and opens what it names by descriptors. A descriptor that is not open,
    /// or not of this mount, refuses the first step that names it.
    fn prepare_compound(
        &self,
        cred: &Credentials,
        (mount, base): (&MountEntry, InodeNr),
        buffer: &[u8],
    ) -> std::result::Result<Prepared, NotPrepared> {
        let directory = self.entry(cred, Request::GetAttr { file: base.into() })?;
        if directory.kind != FileKind::Directory {
            return Err(errno(libc::ENOTDIR).into());
        }
        let open = Descriptors::of(cred, mount)?;
        let view = open.view(base)?;
        let asked::Compound { steps, level } = asked::Compound::decode(buffer)?;
        let numbered = (0..).map(StepNr).zip(&steps);
        let wanted: Vec<_> = numbered.filter(|(_, s)| s.1).map(|(step, _)| step).collect();
        let heads = wanted.len() * RESULT_LEN + ANSWER_HEAD;
        let most = buffer.len().checked_sub(heads).ok_or(errno(libc::EMSGSIZE))?;
        let most = u32::try_from(most).map_err(|_| errno(libc::EINVAL))?;
        let rights = caller::rights(cred);
        let results = Wanted::Some { steps: wanted.clone(), most };
        let compound = Compound { base, steps: Vec::new(), level, rights, wanted: results };
        let (files, opened) = (BTreeSet::new(), BTreeMap::new());
        let mut prepared = Prepared { compound, wanted, files, opened };
        for (step, (asked, _)) in (0..).map(StepNr).zip(steps) {
            match self.prepare_step((&open, &view), asked, &mut prepared) {
                Ok(step) => prepared.compound.steps.push(step),
                Err(e) => {
                    self.close_all(&prepared.opened);
                    return Err(NotPrepared::Step(step, e.errno()));
                }
            }
        }
        if self.owes(&prepared.opened) {
            prepared.compound.level = Level::Durable;
        }
        Ok(prepared)
    }

    /// Must what is written through one of these descriptors be durable with the call?
    fn owes(&self, opened: &BTreeMap<u32, Descriptor>) -> bool {
        let owed = |flags: u32| self.owed(flags) != Owed::Nothing;
        let writes = |d: &Descriptor| crate::serve::open_files::writes(d.flags) && owed(d.flags);
        owed(0) || opened.values().any(writes)
    }

    fn prepare_step(
        &self,
        caller: Caller<'_>,
        step: asked::Step,
        prepared: &mut Prepared,
    ) -> Result<Step> {
        use asked::Step as A;
        caller.1.may_step(&step)?;
        if let A::Lookup { path } | A::Open { path, .. } | A::Rename { from: path, .. } = &step {
            // Whether the caller may follow the path the Runtime decides.
            prepared.files.extend(self.file_at(prepared.compound.base, path));
        }
        let purpose = Purpose::of(&step);
        step.with_files(|file, placed| self.file_of(caller, (file, purpose), prepared, placed))
    }

    /// The file of a step, opened as the caller's descriptor is. Nothing is written at a place
    /// through one that appends: write(2) would put the bytes where the step does not say.
    fn file_of(
        &self,
        (open, view): Caller<'_>,
        (file, purpose): (File, Purpose),
        prepared: &mut Prepared,
        placed: bool,
    ) -> Result<FileArg> {
        let number = match file {
            File::Step(step) => return Ok(FileArg::Step(step)),
            File::Descriptor(number) => number,
        };
        if let Entry::Vacant(place) = prepared.opened.entry(number) {
            let known = |flags| access_of(flags).is_some();
            let Opened { ino, flags, view } = open.opened(number, known)?;
            let access = access_of(flags).ok_or(errno(libc::EBADF))?;
            let open = Request::open(ino, access);
            let handle = self.opened(&Credentials::default(), open)?;
            place.insert(Descriptor { handle, flags, view });
            prepared.files.insert(ino);
        }
        let found = prepared.opened.get(&number);
        found.map_or(Ok(()), |d| view.may_use(&d.view, purpose))?;
        match found {
            Some(d) if !placed || d.flags & O_APPEND == 0 => Ok(FileArg::Open(d.handle)),
            _ => Err(errno(libc::EBADF)),
        }
    }

    fn close_all(&self, opened: &BTreeMap<u32, Descriptor>) {
        let handles: Vec<_> = opened.values().map(|d| d.handle).collect();
        self.give_back(&handles);
    }

    fn carry_out_compound(
        &self,
        cred: &Credentials,
        prepared: Prepared,
    ) -> Result<(Vec<u8>, Changed)> {
        let Prepared { mut compound, wanted, files, opened } = prepared;
        compound.rights.running = self.running_of(&files);
        let sets = compound.steps.iter().any(|step| matches!(step, Step::SetAttributes { .. }));
        let turn = self.kernel_times.turn(files.into_iter().filter(|_| self.agreed.writeback));
        let result = self.call(cred, Request::Compound(Box::new(compound)));
        self.close_all(&opened);
        let compounded = result?.compounded()?;
        let bytes = Answer::of(&compounded, &wanted).encode();
        let (values, names, files, written) = match compounded {
            Compounded::Refused { .. } => Default::default(),
            Compounded::Done { values, names, files, written } => (values, names, files, written),
        };
        // The answer has a file's number; a program opens it by its name.
        self.give_back(&values.iter().filter_map(Value::handle).collect::<Vec<_>>());
        let stale = self.stale(&turn, &written, sets.then_some(&files));
        Ok((bytes, Changed { names, files, written, stale }))
    }

    /// The files that the kernel knows as they were, of those that were written, or whose
    /// attributes were perhaps set.
    fn stale(
        &self,
        turn: &Turn,
        written: &[WrittenFile],
        set: Option<&Vec<InodeNr>>,
    ) -> Vec<Stale> {
        if self.agreed.writeback {
            let all = written.iter().map(|w| w.ino).chain(set.into_iter().flatten().copied());
            let all: BTreeSet<_> = all.collect();
            return all.into_iter().map(|ino| Stale::Times(turn.changed(ino))).collect();
        }
        let sized = written.iter().filter(|w| w.resized || w.grown);
        sized.map(|w| Stale::Size(w.ino)).collect()
    }

    /// Those of the files from which a program runs. One that has just ended is told of a moment
    /// later.
    fn running_of(&self, files: &BTreeSet<InodeNr>) -> Vec<InodeNr> {
        for _ in 0..LOOKS {
            if self.open_files.running(files).is_empty() {
                return Vec::new();
            }
            std::thread::sleep(PAUSE);
        }
        self.open_files.running(files)
    }

    /// The kernel drops its pages of the files that were written, takes their sizes, and forgets
    /// attributes and names; then follows `then`.
    fn tell_kernel(self: &Arc<Self>, changed: Changed, then: Then) {
        let Changed { names, files, written, stale } = changed;
        written.iter().filter(|w| w.resized).for_each(|w| self.sections.resized(w.ino));
        if names.is_empty() && files.is_empty() {
            return then();
        }
        let teller = self.clone();
        let forget: Then = Box::new(move || teller.forget_names(names, files, then));
        let server = self.clone();
        let refresh: Then = match stale.is_empty() {
            true => forget,
            false => Box::new(move || server.refresh(stale, forget)),
        };
        let drop_pages = |then: Then, file: WrittenFile| -> Then {
            let server = self.clone();
            Box::new(move || server.pages(file.ino, Want::Drop, then))
        };
        written.into_iter().fold(refresh, drop_pages)();
    }

    /// Has the kernel take the sizes of files from us, and their times if those are its own: it
    /// asks for neither by itself. On a thread of its own, because it may wait for a file's lock,
    /// whose holder may wait for pages.
    pub(crate) fn refresh(self: &Arc<Self>, stale: Vec<Stale>, then: Then) {
        let server = self.clone();
        let last = Last::new(then);
        let body = move || {
            for file in stale {
                let (ino, told) = match file {
                    Stale::Size(ino) => (ino, server.tell_size(ino)),
                    Stale::Times(untold) => (untold.ino, server.tell_times(untold, true)),
                    Stale::Ctime(untold) => (untold.ino, server.tell_times(untold, false)),
                };
                if let Err(error) = told {
                    tracing::error!(%error, ino, "the kernel may show a file's size as it was");
                }
            }
            drop(last);
        };
        if let Err(error) = std::thread::Builder::new().name("siftfs-sizes".into()).spawn(body) {
            tracing::error!(%error, "no thread: the kernel may show files' sizes as they were");
        }
    }
}

impl Server {
    /// The attributes of a file that the kernel is to have; `None` if it is gone.
    fn shown(&self, ino: InodeNr) -> Option<Attr> {
        let mut attr =
            self.entry(&Credentials::default(), Request::GetAttr { file: ino.into() }).ok()?;
        self.sections.show_attr(&mut attr);
        Some(attr)
    }

    fn tell_size(&self, ino: InodeNr) -> Result<()> {
        let Some(attr) = self.shown(ino) else { return Ok(()) };
        self.sections.refresh(&attr, Size::Asked, None).map(drop)
    }

    /// Size and times, which are the kernel's own; or the ctime alone, if the daemon changed none
    /// of the others: the kernel may have younger ones.
    fn tell_times(&self, untold: Untold, all: bool) -> Result<()> {
        let ino = untold.ino;
        let telling = untold.tell();
        let Some(attr) = self.shown(ino) else { return Ok(()) };
        let size = if all { Size::Ours(attr.size) } else { Size::Own };
        let (mtime, ctime) = (all.then_some(attr.mtime), attr.ctime);
        let time = NewTime { mtime, ctime, taken: telling.taken() };
        let reset = self.sections.refresh(&attr, size, Some(time))?;
        if let Reset::Times { mtime, ctime } = reset
            && let Some(_turn) = telling.answered()
        {
            // Of the ctime alone, no mtime that the kernel sent was left out, and ours may be
            // younger.
            let ours =
                self.entry(&Credentials::default(), Request::GetAttr { file: ino.into() })?;
            if !all && ctime <= ours.ctime {
                return Ok(());
            }
            let mtime = all.then_some(SetTime::At(mtime));
            let set = SetAttr { mtime, ctime: Some(ctime), ..SetAttr::default() };
            self.entry(
                &Credentials::default(),
                Request::SetAttr { file: ino.into(), set, times: true },
            )?;
        }
        Ok(())
    }
}

/// What a descriptor with these flags may be used for.
fn access_of(flags: u32) -> Option<Access> {
    match (flags & O_ACCMODE).cast_signed() {
        libc::O_RDONLY => Some(Access::Read),
        libc::O_WRONLY => Some(Access::Write),
        libc::O_RDWR => Some(Access::Both),
        _ => None,
    }
}
