//! Locks on files of a mount that is shared: the kernel asks for each, and we say when it is
//! granted. `docs/design/front-ends.md`, "Locks across mounts".
//!
//! The kernel says INTERRUPT when the caller of a request has got a signal, and waits for the
//! answer all the same. `waits` knows the requests that wait, by which such a signal ends a wait.

pub(crate) mod waits;

use crate::kernel::reply::{Answer, Token};
use crate::kernel::request::{FileLock, Operation};
use crate::serve::caller::{UNKNOWN, status};
use crate::serve::server::Server;
use crate::serve::system_call::argument;
use siftfs_base::{Error, InodeNr, Result, errno};
use siftfs_proto::{
    Completion, Credentials, Handle, LockAsk, LockKind, LockPlace, LockRange, LockWait, Reply,
    Request,
};
use std::path::Path;
use std::sync::Arc;

/// Carries out a request about locks, which has this number.
pub(crate) fn serve(
    server: &Arc<Server>,
    (unique, cred): (u64, Credentials),
    op: Operation<'_>,
    token: Token,
) {
    if !server.agreed.shared {
        // The kernel keeps the locks, and need not tell us of signals again.
        return token.send(Err(errno(libc::ENOSYS)));
    }
    match op {
        Operation::Interrupt { unique } => {
            interrupt(server, unique);
            token.none();
        }
        Operation::GetLock { handle, owner, lock } => {
            token.send(get(server, &cred, Handle(handle), (owner, lock)));
        }
        Operation::SetLock { handle, owner, lock, whole, wait } => {
            let answer: Completion = Box::new(move |result: Result<Reply>| {
                token.send(result.and_then(Reply::done).map(|()| Answer::Done));
            });
            let request = match ask(owner, lock, whole) {
                Ok(ask) => Wanted { unique, cred, file: Handle(handle), ask },
                Err(e) => return answer(Err(e)),
            };
            match wait {
                true => set_waiting(server, request, answer),
                false => server.submit(&request.cred, request.ask(None), answer),
            }
        }
        _ => token.send(Err(errno(libc::EPROTO))),
    }
}

/// close(2) of a descriptor: whatever `owner` has of the bytes of `ino` ends.
pub(crate) fn closed(server: &Server, cred: &Credentials, ino: InodeNr, owner: u64) -> Result<()> {
    if !server.agreed.shared {
        return Ok(());
    }
    let place = LockPlace::Range(LockRange::ALL);
    let ask = LockAsk { owner, pid: cred.pid, place, kind: None, wait: None };
    server.done(cred, Request::SetLock { file: ino.into(), ask })
}

/// The mount is gone: no wait goes on.
pub(crate) fn over(server: &Server) {
    server.lock_waits.over().into_iter().for_each(|number| cancel(server, number));
}

/// A lock that a program wants.
struct Wanted {
    /// The request's number.
    unique: u64,
    cred: Credentials,
    file: Handle,
    ask: LockAsk,
}

impl Wanted {
    fn ask(&self, wait: Option<LockWait>) -> Request {
        Request::SetLock { file: self.file.into(), ask: LockAsk { wait, ..self.ask } }
    }
}

fn ask(owner: u64, lock: FileLock, whole: bool) -> Result<LockAsk> {
    let place = if whole { LockPlace::Whole } else { LockPlace::Range(range(lock)?) };
    Ok(LockAsk { owner, pid: lock.pid, place, kind: kind(lock)?, wait: None })
}

fn range(lock: FileLock) -> Result<LockRange> {
    LockRange::new(lock.first, lock.last).ok_or_else(|| errno(libc::EINVAL))
}

/// `None` gives up.
fn kind(lock: FileLock) -> Result<Option<LockKind>> {
    match i32::try_from(lock.kind) {
        Ok(libc::F_RDLCK) => Ok(Some(LockKind::Read)),
        Ok(libc::F_WRLCK) => Ok(Some(LockKind::Write)),
        Ok(libc::F_UNLCK) => Ok(None),
        _ => Err(errno(libc::EINVAL)),
    }
}

fn get(
    server: &Server,
    cred: &Credentials,
    file: Handle,
    (owner, lock): (u64, FileLock),
) -> Result<Answer> {
    let kind = kind(lock)?.ok_or_else(|| errno(libc::EINVAL))?;
    let get = Request::GetLock { file: file.into(), owner, range: range(lock)?, kind };
    server.call(cred, get).and_then(Reply::lock).map(Answer::Lock)
}

/// Takes a lock at once if nobody is in the way, and else waits for it.
fn set_waiting(server: &Arc<Server>, wanted: Wanted, answer: Completion) {
    match server.call(&wanted.cred, wanted.ask(None)) {
        Err(Error::Posix(libc::EAGAIN)) => wait(server, &wanted, answer),
        other => answer(other),
    }
}

/// Waits for a lock, without a thread.
fn wait(server: &Arc<Server>, wanted: &Wanted, answer: Completion) {
    let Wanted { unique, cred, ask, .. } = wanted;
    let waits = &server.lock_waits;
    let user = server.agreed.user(cred).unwrap_or(UNKNOWN);
    let Ok(place) = waits.places.enter(user) else { return answer(Err(errno(libc::ENOLCK))) };
    // From here on signals are noted.
    if !waits.begin(*unique) {
        return answer(Err(errno(libc::EINTR)));
    }
    let (known, number) = (waits.clone(), *unique);
    let answer = place.until(Box::new(move |result| {
        known.end(number);
        answer(result);
    }));
    let caller = Caller::of(cred.pid, ask.place);
    if caller.had_signal {
        return answer(Err(errno(libc::EINTR)));
    }
    let wait = LockWait { number, by_process: caller.by_process };
    server.submit(cred, wanted.ask(Some(wait)), answer);
    if waits.is_interrupted(number) {
        cancel(server, number);
    }
}

/// The caller of this request has got a signal.
fn interrupt(server: &Server, unique: u64) {
    if server.lock_waits.interrupt(unique) {
        cancel(server, unique);
    }
}

/// Ends a wait, if it has begun.
fn cancel(server: &Server, number: u64) {
    let cred = Credentials::default();
    if let Err(error) = server.done(&cred, Request::CancelLock { number }) {
        tracing::debug!(%error, number, "a wait for a lock could not be ended");
    }
}

/// What can be seen of a thread that waits for a lock.
struct Caller {
    /// It waits as a process, and not for an open file: by F_SETLKW.
    by_process: bool,
    /// It got a signal before its request came by a ring. For such a one there is no INTERRUPT.
    had_signal: bool,
}

impl Caller {
    fn of(pid: u32, place: LockPlace) -> Self {
        let thread = Path::new("/proc").join(pid.to_string());
        // This returns when the thread waits. Who is not to be seen counts as a process: rather an
        // error too many than a wait without an end.
        let command = argument(&thread, 1).ok();
        let of_file = command == u32::try_from(libc::F_OFD_SETLKW).ok();
        // For an answer the kernel waits so that any signal wakes it. Once one has, it waits so
        // that no signal does.
        let state = status(pid, "State:");
        let had_signal = state.is_some_and(|state| state.trim_start().starts_with('D'));
        Self { by_process: place != LockPlace::Whole && !of_file, had_signal }
    }
}

#[cfg(test)]
#[path = "locks_tests.rs"]
mod tests;
