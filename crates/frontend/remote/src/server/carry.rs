//! How one call of a session is carried out: when it may be, when it has an executor, and what is
//! noted of it before its answer leaves.

use super::answers::{Answer, Answers, Data, request_of_handles};
use super::count;
use super::returning::{
    Clients, Connection, Promise, Verdict, answer_again, comes_after_all, file_of, is_of_file,
    make_durable, promise,
};
use super::session::{Call, Session};
use crate::executors::Entry;
use siftfs_base::{InodeNr, Result, errno};
use siftfs_calls::{Change, Done, Kept, check, check_kernels, data_of};
use siftfs_proto::{NO_SLOT, Origin, Owed, Reply, Request};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Session<'_> {
    /// Finds out whether a call is to be carried out, and when.
    pub(super) fn admit(&self, call: Call) {
        let own = (call.slot, call.number);
        let clients = &self.server.clients;
        let file = file_of(&call.request, |handle| self.answers.opened(handle))
            .or_else(|| self.answers.leased(&call.request));
        let over = || self.over.load(Ordering::Acquire);
        if call.entry.is_none() {
            // It may wait for clients that come back.
            self.desk.call();
        }
        match clients.admit(self.opened.returned, (call.change.as_ref(), file), over) {
            Verdict::Run => self.run(call, file),
            Verdict::Answered(result, done, owed) => {
                let result = result.and_then(|it| self.opened.power.in_this_session(it));
                let answer = self.answers.answer(&call.request, result, Some(done));
                // Other kernels may still show what was before.
                self.answers.give_owing(own, answer, owed);
            }
            Verdict::There(ino) => {
                let by = (&*self.opened.service, &self.opened.power);
                let result = match call.change {
                    Some(Change::Kept(_)) => Ok(Reply::Done),
                    _ => answer_again(by, &call.credentials, &call.request, ino),
                };
                let answer = self.answers.answer(&call.request, result, Some(Done::default()));
                self.answers.give(own, answer, true);
            }
            Verdict::Refused(error) => self.answers.give(own, error, true),
            Verdict::Over => self.not_begun(own),
        }
    }

    /// Carries a call out which nothing has to come before any more.
    fn run(&self, mut call: Call, file: Option<InodeNr>) {
        let own = (call.slot, call.number);
        let prover = self.opened.prover.as_ref();
        let reclaims = call.change == Some(Change::Reclaim);
        if let (true, Request::SetLock { .. }, Some(returned)) =
            (reclaims, &call.request, self.opened.returned)
            && !self.server.clients.may_lock_again(returned)
        {
            return self.answers.give(own, errno(libc::EAGAIN), true);
        }
        if let (Some(prover), Some(Change::Reclaim)) = (prover, &call.change)
            && let Some(result) = prover.reclaim(&call.request, &call.proofs)
        {
            let answer = self.answers.answer(&call.request, result, None);
            return self.answers.give(own, answer, true);
        }
        let kept = match &mut call.change {
            Some(Change::Kept(kept)) => Some(kept),
            _ => None,
        };
        // What the client names it may name for as long as the change is repeated.
        let proofs = std::mem::take(&mut call.proofs);
        let _lent = prover.filter(|_| kept.is_some()).map(|prover| prover.lend(&proofs));
        if let Some(kept) = kept {
            if !is_of_file(&*self.opened.service, file, kept) {
                let clients = &self.server.clients;
                clients.not_carried_out(self.opened.returned, call.change.as_ref());
                return self.answers.give(own, errno(libc::ESTALE), true);
            }
            // Nobody gets a file of a number and a generation that it was not told of.
            let is_known =
                |it: &(InodeNr, u32)| prover.is_none_or(|prover| prover.knows(&proofs, *it));
            kept.inode = kept.inode.filter(is_known);
        }
        let entry = call.entry.take();
        let entry = entry.unwrap_or_else(|| self.commands.arrive(&call.request));
        self.carry_out(call, file, entry);
    }

    /// The session is over before a call was begun. A client that comes back asks again.
    fn not_begun(&self, (slot, number): (u32, u64)) {
        match self.opened.returned {
            Some(_) => self.answers.slots.end(slot),
            None => self.answers.give((slot, number), errno(libc::ESTALE), true),
        }
    }

    /// Carries a call out when it has an executor, and gives that back before the answer leaves.
    fn carry_out(&self, call: Call, file: Option<InodeNr>, entry: Entry) {
        count(&self.server.counters.calls);
        let Call { slot, number, mut credentials, request, change, .. } = call;
        let own = (slot, number);
        let check = if self.opened.kernel { check_kernels } else { check };
        let data = check(&request).and_then(|()| Data::take(&self.answers, data_of(&request)));
        let not_carried_out =
            || self.server.clients.not_carried_out(self.opened.returned, change.as_ref());
        let data = match data {
            Ok(data) => data,
            Err(error) => {
                drop(entry);
                not_carried_out();
                return self.answers.give(own, error, true);
            }
        };
        let Some(turn) = entry.begin(|| self.desk.call()) else {
            not_carried_out();
            return self.not_begun(own);
        };
        let noting = self.noting(&request, change, file);
        credentials.origin.clone_from(&noting.origin);
        let service = &*self.opened.service;
        if noting.promise == Promise::More && noting.others_keep() {
            let durable = || make_durable(&self.server.clients, || self.server.sync());
            // What others keep by now is older. It would be repeated over the change if this server
            // died between making the change durable and writing that down.
            let before = if comes_after_all(&request) { durable() } else { Ok(()) };
            let result = before.and_then(|()| service.call(&credentials, request));
            turn.finish();
            let answer = noting.note(result.and_then(|reply| durable().map(|()| reply)));
            self.answers.give(own, answer, true);
            return drop(data);
        }
        // What is repeated other kernels have seen already, and each of them asks for everything
        // again when it has come back. Until then it may wait for this one.
        let repeated = self.is_late(change, &request) || matches!(change, Some(Change::Kept(_)));
        let owes = self.opened.caches && !has_its_way(&request) && self.answers.may_owe();
        if repeated || owes {
            let (result, owed) = service.call_owing(&credentials, request);
            let owed = if repeated { Owed::default() } else { owed };
            let said = noting.note_owing(result, owed.clone());
            turn.finish();
            self.answers.give_owing(own, said, owed);
            return drop(data);
        }
        let (answers, here) = (self.answers.clone(), std::thread::current().id());
        let theirs = turn.clone();
        let done = move |result| {
            let answer = noting.note(result);
            // A thread that flushes for all sessions does not wait for this one's client, and has
            // not this one's turn.
            let own_thread = std::thread::current().id() == here;
            if own_thread {
                theirs.release();
            }
            answers.give(own, answer, own_thread);
            drop(data);
        };
        service.submit(&credentials, request, Box::new(done));
        turn.finish();
    }

    /// What is to be noted of a call before its answer leaves. What is written by a lease the
    /// mount's session keeps.
    fn noting(&self, request: &Request, change: Option<Change>, file: Option<InodeNr>) -> Noting {
        let (returned, change) = match (self.opened.beside, request) {
            (Some(client), Request::LeaseWrite { .. }) => (Some(client), Some(Change::Loose)),
            (Some(client), _) => (Some(client), change),
            (None, _) => (self.opened.returned, change),
        };
        Noting {
            answers: self.answers.clone(),
            clients: self.server.clients.clone(),
            returned,
            before: self.server.clients.newest(),
            promise: promise(request),
            handles: request_of_handles(request),
            change,
            file,
            origin: origin(returned, change.as_ref()),
        }
    }

    /// Is it what lay in a private log when the server before died? Nobody else could have seen
    /// what was there before, and a believed kernel alone says so.
    fn is_late(&self, change: Option<Change>, request: &Request) -> bool {
        let reclaims = change == Some(Change::Reclaim) && matches!(request, Request::Write { .. });
        let believed = self.opened.kernel && self.opened.prover.is_none();
        let returns = |it| self.server.clients.is_returning(it);
        reclaims && believed && self.opened.returned.is_some_and(returns)
    }
}

/// By what the Runtime knows a change again after a death.
fn origin(returned: Option<Connection>, change: Option<&Change>) -> Option<Arc<Origin>> {
    let client = returned?.client;
    let origin = match change? {
        Change::Once { place, number } => Origin::new(client, *place, *number),
        Change::Kept(Kept { place, number, inode, .. }) => {
            let origin = Origin::new(client, *place, *number);
            match inode {
                Some((ino, generation)) => origin.again(*ino, *generation),
                None => origin,
            }
        }
        Change::Absolute { .. } | Change::Loose => Origin::new(client, NO_SLOT, 0),
        Change::Reclaim => return None,
    };
    Some(Arc::new(origin))
}

/// What is to be noted of a call before its answer leaves.
struct Noting {
    answers: Arc<Answers>,
    clients: Arc<Clients>,
    returned: Option<Connection>,
    /// The newest change before the call began.
    before: u64,
    promise: Promise,
    handles: Request,
    change: Option<Change>,
    file: Option<InodeNr>,
    origin: Option<Arc<Origin>>,
}

impl Noting {
    /// Do clients keep what the call may promise to be durable?
    fn others_keep(&self) -> bool {
        self.clients.keeps(self.returned.map(|it| it.client))
    }

    /// What the call's client is to be told.
    fn note(self, result: Result<Reply>) -> Answer {
        self.note_owing(result, Owed::default())
    }

    /// The same, and again if it asks again: not before `owed` is settled.
    fn note_owing(self, mut result: Result<Reply>, owed: Owed) -> Answer {
        if let (Promise::File, Some(file), Ok(_)) = (self.promise, self.file, &result)
            && let Err(error) =
                self.clients.synced(self.returned.map(|it| it.client), file, self.before)
        {
            tracing::error!(%error, file, "a sync is not answered as durable");
            result = Err(errno(libc::EIO));
        }
        let done = self.returned.zip(self.change).map(|(connection, change)| {
            let done = self.origin.as_ref().map_or_else(Done::default, |origin| Done {
                order: origin.order(),
                lsn: origin.lsn().0,
                at: origin.at(),
            });
            self.clients.done(connection, &change, (self.file, done), (&result, owed));
            done
        });
        self.answers.answer(&self.handles, result, done)
    }
}

/// Is it answered by another thread than its own, or does its thread go on after the answer?
fn has_its_way(request: &Request) -> bool {
    use Request as R;
    matches!(request, R::Fsync { .. } | R::Wait { .. } | R::SetLock { .. } | R::Read { .. })
}
