//! What a session may reach whose channel is a key: the ids and the directory of the key's line in
//! `authorized` (rule R52; "What a line bounds" in `docs/design/keys.md`). This stands between the
//! wire and the session, so everything that the client asks for, and all that it is told, passes
//! here. For whom the session speaks is decided before.

mod callers;
mod concern;
mod ids;
mod subtree;

use callers::Callers;
pub(super) use callers::{Caller, believed};
use concern::Concern;
use ids::{Owners, Valued};
use siftfs_base::{Error, InodeNr, Result, errno};
use siftfs_keys::AuthorizedLine;
use siftfs_proto::compound::{Compound, Compounded, StepNr};
use siftfs_proto::{
    Cache, Completion, Credentials, FileService, Handle, Owed, Reply, Request, Rights,
};
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use subtree::{Below, Part};

/// Opens a session by `open`, and bounds it by the line of its key. A line without maps and with
/// the subtree `/` bounds nothing here: what `open` returns is returned. `open` gets the cache that
/// the session is to have in the place of `cache`. The session must not be a kernel's: it would
/// name inodes by bare numbers, and its callers need [`bounded_machine`].
///
/// # Errors
/// What `open` says; `Refused` with a message if there is no such directory as the line names.
pub fn bounded(
    line: &AuthorizedLine,
    cache: Option<Arc<dyn Cache>>,
    open: impl FnOnce(Option<Arc<dyn Cache>>) -> Result<Arc<dyn FileService>>,
) -> Result<Arc<dyn FileService>> {
    let Within { inner, owners, part } = within(line, cache, open)?;
    Ok(match (&owners, part.is_all()) {
        (None, true) => inner,
        _ => Arc::new(Bounded { inner, owners, callers: None, part, holds: false, whole: false }),
    })
}

/// As [`bounded`], of a session of another machine's kernel: the line bounds the caller of each
/// call, too.
///
/// # Errors
/// As [`bounded`].
pub fn bounded_machine(
    line: &AuthorizedLine,
    cache: Option<Arc<dyn Cache>>,
    open: impl FnOnce(Option<Arc<dyn Cache>>) -> Result<Arc<dyn FileService>>,
) -> Result<Arc<dyn FileService>> {
    machine(line, cache, open).map(|(service, _)| service)
}

/// The session of another machine's kernel, and the same without bounds for its callers. By that
/// the server itself may refer to inodes that the client has shown to be its own.
///
/// # Errors
/// As [`bounded`].
pub(super) fn machine(
    line: &AuthorizedLine,
    cache: Option<Arc<dyn Cache>>,
    open: impl FnOnce(Option<Arc<dyn Cache>>) -> Result<Arc<dyn FileService>>,
) -> Result<(Arc<dyn FileService>, Arc<dyn FileService>)> {
    Ok(within(line, cache, open)?.with(Callers::of(line), false))
}

/// The session of a program that comes back, all of whose calls are carried out for `caller`, and
/// the same without bounds for the caller, as of [`machine`]. Over a key, the session has its
/// line's bounds.
///
/// # Errors
/// As [`bounded`].
pub(super) fn program(
    line: Option<&AuthorizedLine>,
    caller: Caller,
    cache: Option<Arc<dyn Cache>>,
    open: impl FnOnce(Option<Arc<dyn Cache>>) -> Result<Arc<dyn FileService>>,
) -> Result<(Arc<dyn FileService>, Arc<dyn FileService>)> {
    let within = match line {
        Some(line) => within(line, cache, open)?,
        None => Within { inner: open(cache)?, owners: None, part: Part::default() },
    };
    // What is about the whole volume the session judges itself, if nothing bounds it.
    let whole = within.owners.is_none() && within.part.is_all();
    Ok(within.with(Callers::One(Arc::new(caller)), whole))
}

/// A session, and what of its line bounds what it shows.
struct Within {
    inner: Arc<dyn FileService>,
    owners: Option<Owners>,
    part: Part,
}

impl Within {
    /// The session for these callers, and for the server itself.
    fn with(self, callers: Callers, whole: bool) -> (Arc<dyn FileService>, Arc<dyn FileService>) {
        let Self { inner, owners, part } = self;
        let (theirs, callers) = ((inner.clone(), owners.clone()), Some(callers));
        let power = Bounded { inner, owners, callers: None, part, holds: true, whole };
        let (inner, owners) = theirs;
        let service = Bounded { inner, owners, callers, part, holds: false, whole };
        (Arc::new(service), Arc::new(power))
    }
}

fn within(
    line: &AuthorizedLine,
    cache: Option<Arc<dyn Cache>>,
    open: impl FnOnce(Option<Arc<dyn Cache>>) -> Result<Arc<dyn FileService>>,
) -> Result<Within> {
    let owners = Owners::of(&line.ids);
    if line.subtree == "/" {
        return Ok(Within { inner: open(cache)?, owners, part: Part::default() });
    }
    // What others change before the directory is found is nothing that the client was told of.
    let root = Arc::new(OnceLock::new());
    let inner = open(cache.map(|cache| Below::before(cache, root.clone())))?;
    let found = inner.enter(line.subtree.as_bytes());
    let part = Part(found.map_err(|error| no_directory(&line.subtree, error))?);
    let _ = root.set(part);
    Ok(Within { inner, owners, part })
}

fn no_directory(path: &str, error: Error) -> Error {
    let why = match error {
        Error::Posix(libc::ENOENT) => "is not there",
        Error::Posix(libc::ENOTDIR) => "is no directory",
        Error::Posix(libc::ELOOP) => "has a symbolic link in it, which is not followed",
        other => return other,
    };
    Error::Refused(format!("the directory {path}, to which the client's key is bounded, {why}"))
}

/// A session that is bounded.
struct Bounded {
    inner: Arc<dyn FileService>,
    /// The client's ids, unless every id is itself.
    owners: Option<Owners>,
    /// What becomes of each call's caller, if the session is a machine's or a program's.
    callers: Option<Callers>,
    part: Part,
    /// It may refer to inodes by their numbers alone.
    holds: bool,
    /// What is about the whole volume is the session's to judge.
    whole: bool,
}

/// What has to be known of a request to show its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// The value of an extended attribute that has ids in it.
    Value(Valued),
    /// Entries of an open directory.
    Entries(Handle),
    /// Anything else.
    Other,
}

/// The answer to a request that the session is not asked.
struct Answered(Box<Result<Reply>>);

impl From<Error> for Answered {
    fn from(error: Error) -> Self {
        Self(Box::new(Err(error)))
    }
}

impl From<Reply> for Answered {
    fn from(reply: Reply) -> Self {
        Self(Box::new(Ok(reply)))
    }
}

impl Bounded {
    /// The request as the session takes it.
    fn admit(
        &self,
        cred: &Credentials,
        mut req: Request,
    ) -> std::result::Result<(Request, Asked), Answered> {
        let mut asked = Asked::Other;
        if let Request::HoldMany { inodes } = &mut req
            && self.holds
        {
            inodes.iter_mut().try_for_each(|held| self.part.enter(&mut held.ino))?;
            return Ok((req, asked));
        }
        let is_judged = self.whole && !matches!(req, Request::HoldMany { .. });
        match concern::of(&mut req) {
            Concern::Volume if is_judged => {}
            Concern::Volume => return Err(errno(libc::EPERM).into()),
            Concern::Upwards if !self.part.is_all() => return Err(errno(libc::EINVAL).into()),
            Concern::Owner(ids) => self.give(ids)?,
            Concern::Value(name, Some(value)) => {
                if let (Some(owners), Some(kind)) = (&self.owners, Valued::of(name)) {
                    owners.take(kind, value)?;
                }
            }
            Concern::Value(name, None) => {
                asked = Valued::of(name).map_or(Asked::Other, Asked::Value);
            }
            Concern::Entries(handle) => asked = Asked::Entries(handle),
            Concern::Compound(compound) => {
                self.take_rights(cred, &mut compound.rights);
                self.admit_steps(compound)?;
            }
            Concern::Rights(rights) => self.take_rights(cred, rights),
            Concern::Upwards | Concern::NumbersAlone => {}
        }
        req.inodes_mut().try_for_each(|ino| self.part.enter(ino))?;
        match req {
            // The root is never forgotten.
            Request::Forget { ino, .. } if ino == self.part.0 => Err(Reply::Done.into()),
            req => Ok((req, asked)),
        }
    }

    /// The caller of a call as the session takes it.
    fn caller<'a>(&self, cred: &'a Credentials) -> Cow<'a, Credentials> {
        match &self.callers {
            None => Cow::Borrowed(cred),
            Some(callers) => Cow::Owned(callers.judge(cred)),
        }
    }

    /// Rights that a request carries itself. They count in the session of a machine, or of a
    /// program, alone.
    fn take_rights(&self, cred: &Credentials, rights: &mut Rights) {
        if let Some(callers) = &self.callers {
            callers.rights(cred, rights);
        }
    }

    fn admit_steps(&self, compound: &mut Compound) -> std::result::Result<(), Answered> {
        for (step, nr) in compound.steps.iter_mut().zip(0..) {
            if let Some(Err(error)) = ids::given(step).map(|ids| self.give(ids)) {
                let (step, errno) = (StepNr(nr), error.errno());
                return Err(Reply::Compounded(Compounded::Refused { step, errno }).into());
            }
        }
        Ok(())
    }

    /// Ids that a file is to get.
    ///
    /// # Errors
    /// `EINVAL` for one that the client may not name.
    fn give(&self, ids: ids::Given<'_>) -> Result<()> {
        self.owners.as_ref().map_or(Ok(()), |owners| owners.give(ids))
    }

    /// The reply as the client takes it.
    fn show(&self, cred: &Credentials, asked: Asked, mut reply: Reply) -> Result<Reply> {
        if let (Asked::Entries(handle), Reply::Dir(entries)) = (asked, &mut reply)
            && !self.part.is_all()
        {
            self.part.close_upwards((&*self.inner, cred), handle, entries)?;
        }
        shown(self.part, self.owners.as_ref(), asked, reply)
    }
}

/// A reply in the client's numbers and ids.
fn shown(part: Part, owners: Option<&Owners>, asked: Asked, mut reply: Reply) -> Result<Reply> {
    part.leave(&mut reply)?;
    if let Some(owners) = owners {
        owners.show(asked, &mut reply)?;
    }
    Ok(reply)
}

impl FileService for Bounded {
    fn call(&self, cred: &Credentials, req: Request) -> Result<Reply> {
        let (result, owed) = self.call_owing(cred, req);
        owed.wait();
        result
    }

    fn call_owing(&self, cred: &Credentials, req: Request) -> (Result<Reply>, Owed) {
        match self.admit(cred, req) {
            Err(answered) => (*answered.0, Owed::default()),
            Ok((req, asked)) => {
                let cred = &*self.caller(cred);
                let (result, owed) = self.inner.call_owing(cred, req);
                (result.and_then(|reply| self.show(cred, asked, reply)), owed)
            }
        }
    }

    fn has_looked_up(&self, mut ino: InodeNr) -> bool {
        self.part.enter(&mut ino).is_ok() && self.inner.has_looked_up(ino)
    }

    fn submit(&self, cred: &Credentials, req: Request, done: Completion) {
        // What is shown of entries is asked for on this thread.
        if matches!(req, Request::ReadDir { .. }) {
            return done(self.call(cred, req));
        }
        let (req, asked) = match self.admit(cred, req) {
            Ok(admitted) => admitted,
            Err(answered) => return done(*answered.0),
        };
        let (part, owners) = (self.part, self.owners.clone());
        let done = Box::new(move |result: Result<Reply>| {
            done(result.and_then(|reply| shown(part, owners.as_ref(), asked, reply)));
        });
        self.inner.submit(&self.caller(cred), req, done);
    }
}

#[cfg(test)]
#[path = "mod_tests.rs"]
mod tests;
