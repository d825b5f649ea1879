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
    Request, WaitUntil,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long the RELEASE of a file that may have been closed is waited for.
const CLOSING: Duration = Duration::from_millis(100);

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
            match server.call(&request.cred, request.ask(None)) {
                Err(Error::Posix(libc::EAGAIN)) if wait => wait_for(server, &request, answer),
                Err(Error::Posix(libc::EAGAIN)) => wait_for_close(server, &request, answer),
                other => answer(other),
            }
        }
        _ => token.send(Err(errno(libc::EPROTO))),
    }
}

/// close(2) of a descriptor: whatever `owner` has of the bytes of `ino` ends.
pub(crate) fn closed(server: &Server, ino: InodeNr, handle: Handle, owner: u64) -> Result<()> {
    match server.agreed.shared {
        true => server.done(&Credentials::default(), Request::CloseLocks { ino, handle, owner }),
        false => Ok(()),
    }
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

/// Refuses a lock that somebody is in the way of, unless that may be the lock of a file that was
/// just closed. The kernel sends RELEASE after the last close(2) of a file, and does not wait for
/// it: the next program would find the lock of one that has ended.
fn wait_for_close(server: &Arc<Server>, wanted: &Wanted, answer: Completion) {
    let (number, waits) = (wanted.unique, server.lock_waits.clone());
    if !waits.begin(number) {
        return answer(Err(errno(libc::EAGAIN)));
    }
    let known = waits.clone();
    let done = Box::new(move |result| {
        known.end(number);
        answer(match result {
            Err(Error::Posix(libc::EINTR)) => Err(errno(libc::EAGAIN)),
            other => other,
        });
    });
    let wait = LockWait { number, until: WaitUntil::Closed };
    server.submit(&wanted.cred, wanted.ask(Some(wait)), done);
    if !waits.goes_on(number) {
        return;
    }
    let timed = server.clone();
    let alarm = Box::new(move |result: Result<Reply>| {
        if result.is_err() {
            interrupt(&timed, number);
        }
    });
    if let Some(in_time) = server.timers.limit(CLOSING, alarm) {
        waits.end_in_time(number, in_time);
    }
    if waits.is_interrupted(number) {
        cancel(server, number);
    }
}

/// Waits for a lock, without a thread.
fn wait_for(server: &Arc<Server>, wanted: &Wanted, answer: Completion) {
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
    let wait = LockWait { number, until: caller.until };
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
    /// As a process, by F_SETLKW, or for an open file.
    until: WaitUntil,
    /// It got a signal before its request came by a ring. For such a one there is no INTERRUPT.
    had_signal: bool,
}

impl Caller {
    fn of(pid: u32, place: LockPlace) -> Self {
        let thread = Path::new("/proc").join(pid.to_string());
        // This returns when the thread waits. A caller that is not to be seen counts as a process:
        // rather an error too many than a wait without an end.
        let command = argument(&thread, 1).ok();
        let of_file = command == u32::try_from(libc::F_OFD_SETLKW).ok();
        // For an answer the kernel waits so that any signal wakes it. Once one has, it waits so
        // that no signal does.
        let state = status(pid, "State:");
        let had_signal = state.is_some_and(|state| state.trim_start().starts_with('D'));
        let process = place != LockPlace::Whole && !of_file;
        Self { until: if process { WaitUntil::Process } else { WaitUntil::File }, had_signal }
    }
}

#[cfg(test)]
#[path = "locks_tests.rs"]
mod tests;
