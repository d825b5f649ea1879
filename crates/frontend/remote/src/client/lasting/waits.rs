//! Calls that wait for other programs, and have no thread meanwhile: locks and tickets.

use super::{Shared, kind};
use siftfs_base::{Error, errno};
use siftfs_proto::{Completion, Credentials, FileService, Request, Target};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A call that is to be made again when the server is there.
struct Waiting {
    credentials: Credentials,
    request: Request,
    done: Completion,
}

#[derive(Default)]
struct State {
    waiting: Vec<Waiting>,
    over: bool,
}

/// Calls whose server was lost.
#[derive(Default)]
pub(super) struct Waits(Mutex<State>);

impl Waits {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session ends: none of them is made.
    pub fn end(&self) {
        self.lock().over = true;
        self.fail(&errno(libc::EIO));
    }

    /// The wait for a lock with this number ends.
    pub fn cancel(&self, number: u64) {
        let is_it = |call: &mut Waiting| {
            let Request::SetLock { ask, .. } = &call.request else { return false };
            ask.wait.is_some_and(|wait| wait.number == number)
        };
        let ended: Vec<Waiting> = self.lock().waiting.extract_if(.., is_it).collect();
        ended.into_iter().for_each(|call| (call.done)(Err(errno(libc::EINTR))));
    }

    /// None of them is made.
    pub fn fail(&self, why: &Error) {
        let waiting = std::mem::take(&mut self.lock().waiting);
        waiting.into_iter().for_each(|call| (call.done)(Err(why.clone())));
    }
}

/// Is it answered when another program has done something?
pub(super) fn waits(request: &Request) -> bool {
    match request {
        Request::SetLock { ask, .. } => ask.wait.is_some(),
        Request::Wait { timeout, .. } => timeout.is_none(),
        _ => false,
    }
}

/// Makes a call now, or when the server is there again. Never waits for it.
pub(super) fn submit(shared: &Arc<Shared>, cred: &Credentials, request: Request, done: Completion) {
    let (client, connection) = {
        let now = shared.lock();
        (now.client.clone(), now.connection)
    };
    let Some(client) = client else { return later(shared, cred, request, done) };
    let mut sent = request.clone();
    let ready = kind::exchange(&mut sent, |own| shared.opens.server(own))
        .and_then(|()| shared.own_numbers(&mut sent, connection));
    if let Err(error) = ready {
        return done(Err(error));
    }
    let (theirs, credentials) = (shared.clone(), cred.clone());
    let link = client.clone();
    client.submit(
        cred,
        sent,
        Box::new(move |result| match result {
            Err(Error::Link(_)) if link.lost().is_some() => {
                later(&theirs, &credentials, request, done);
            }
            result => {
                match (&result, &request) {
                    (Ok(_), Request::SetLock { file: Target::Open(own), ask }) => {
                        theirs.opens.locked(*own, *ask);
                    }
                    (Ok(_), Request::Wait { ticket, .. }) => theirs.is_durable(ticket.0),
                    _ => {}
                }
                done(result);
            }
        }),
    );
}

fn later(shared: &Arc<Shared>, cred: &Credentials, request: Request, done: Completion) {
    let leaving = {
        let now = shared.lock();
        now.leaving || now.unwanted
    };
    let mut state = shared.waits.lock();
    if state.over || leaving {
        drop(state);
        return done(Err(errno(libc::EIO)));
    }
    state.waiting.push(Waiting { credentials: cred.clone(), request, done });
    drop(state);
    // It may have come back just before.
    if shared.lock().client.is_some() {
        again(shared);
    }
}

/// The server is there again.
pub(super) fn again(shared: &Arc<Shared>) {
    let waiting = std::mem::take(&mut shared.waits.lock().waiting);
    for Waiting { credentials, request, done } in waiting {
        submit(shared, &credentials, request, done);
    }
}
