//! A program's connection: its queues, and their requests, each under its grant.

use crate::device::calls::{self, Answers, Carried, Line, Taken, lock};
use crate::device::programs::entrance::Entering;
use crate::device::programs::grant::Grant;
use crate::device::programs::grants::{Found, TERM, Tokens};
use crate::device::programs::queue::{Turn, Waits};
use crate::device::programs::table::Table;
use siftfs_base::{BLOCK_SIZE, Error, Result};
use siftfs_wire::{CONNECTION_MAX_QUEUES, Place, StorageAnswer, StorageCall, ToService, Token};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// How long a connection without a grant may be there.
const IDLE: Duration = Duration::from_secs(5);
/// Bytes of all requests that wait for their turn, of all programs.
const MOST_WAITING: usize = 256 << 20;

/// A grant, as one connection has it.
#[derive(Clone)]
struct Open {
    grant: Arc<Grant>,
    life: u64,
}

/// A request that waits for its turn, or has got it.
pub(crate) struct Request {
    id: u64,
    place: Place,
    call: StorageCall,
    open: Open,
    line: Arc<Line<Request>>,
    /// It is to be answered, and not done.
    over: bool,
    _space: Space,
}

impl Waits for Request {
    fn place(&self) -> Place {
        self.place
    }
}

impl Request {
    /// It has begun, and ends now. Those that may begin then.
    fn ended(&self, carried: bool) -> Vec<Request> {
        self.open.grant.queue.ended(self.open.life, self.place.number, carried)
    }

    /// Its grant has ended before it was carried out: nothing begins behind it.
    pub(super) fn has_ended(&self) {
        dismiss(self.ended(false));
    }
}

/// What a request takes of the room for those that wait.
struct Space {
    room: Arc<AtomicUsize>,
    bytes: usize,
}

impl Space {
    fn of(call: &StorageCall, room: &Arc<AtomicUsize>) -> Result<Self> {
        let blocks = match call {
            StorageCall::Write { blocks, .. } | StorageCall::AtomicWrite { blocks, .. } => {
                blocks.len()
            }
            _ => 0,
        };
        let bytes = blocks * BLOCK_SIZE;
        let before = room.fetch_add(bytes, Ordering::AcqRel);
        let space = Self { room: room.clone(), bytes };
        if before + bytes > MOST_WAITING { Err(Error::Posix(libc::EAGAIN)) } else { Ok(space) }
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        self.room.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// A program's connection.
pub(crate) struct Attached {
    tokens: Arc<Tokens>,
    queues: RwLock<HashMap<u32, Open>>,
    /// The number of queues at which those are forgotten whose grants have ended.
    clean_at: AtomicUsize,
    /// Since when it has no grant.
    idle: Mutex<Option<Instant>>,
}

impl Attached {
    /// A connection without a queue.
    pub fn new(tokens: &Arc<Tokens>) -> Self {
        let (queues, idle) = Default::default();
        Self { tokens: tokens.clone(), queues, clean_at: AtomicUsize::new(64), idle }
    }

    /// Opens a queue, or says that its grant has ended in order.
    ///
    /// # Errors
    /// `ESTALE`: the grant has ended so, and what was carried out under it is not known any more.
    /// `EAGAIN`: this life has ended, or there are too many queues. Refused: there is no such
    /// grant, or a newer life of its queue.
    pub fn attach(&self, token: &Token, queue: u32, life: u64) -> Result<StorageAnswer> {
        let grant = match self.tokens.find(token)? {
            Found::Grant(grant) => grant,
            Found::Ended(carried) => return Ok(StorageAnswer::Ended { carried }),
        };
        let (over, attached) = grant.queue.attach(life, TERM);
        dismiss(over);
        let carried = match attached {
            // The grant ends, and that it is durable is known when it has.
            Err(Error::Posix(libc::ESTALE)) => {
                return self.tokens.ended(&grant).map(|carried| StorageAnswer::Ended { carried });
            }
            attached => attached?,
        };
        let mut queues = self.queues.write().unwrap_or_else(PoisonError::into_inner);
        if queues.len() >= self.clean_at.load(Ordering::Relaxed) {
            queues.retain(|_, open| open.grant.lasts());
            self.clean_at.store((2 * queues.len()).max(64), Ordering::Relaxed);
        }
        if queues.len() >= CONNECTION_MAX_QUEUES {
            return Err(Error::Posix(libc::EAGAIN));
        }
        match grant.life.fetch_max(life, Ordering::AcqRel) {
            0 => self.tokens.counts.opened(),
            before if before < life => {
                // Nobody knows what of them has come. No call of this life is there yet.
                grant.abort_all();
                self.tokens.counts.further_life();
            }
            _ => {}
        }
        queues.insert(queue, Open { grant, life });
        Ok(StorageAnswer::Attached { carried })
    }

    /// The connection has ended, and with it the lives of its queues.
    pub fn end(&self) {
        let queues = self.queues.read().unwrap_or_else(PoisonError::into_inner);
        for Open { grant, life } in queues.values() {
            dismiss(grant.queue.end_life(*life));
        }
    }

    fn arrive(
        &self,
        (id, place, call): (u64, Place, StorageCall),
        line: &Arc<Line<Request>>,
    ) -> Taken {
        let open = {
            let queues = self.queues.read().unwrap_or_else(PoisonError::into_inner);
            queues.get(&place.queue).cloned()
        };
        let Some(open) = open else {
            return line.answer(id, Err(Error::Refused(format!("no queue {}", place.queue))));
        };
        let Open { grant, life } = open.clone();
        let request = Space::of(&call, &self.tokens.waiting).map(|_space| Request {
            id,
            place,
            call,
            open,
            line: line.clone(),
            over: false,
            _space,
        });
        match request.and_then(|request| grant.queue.arrive(life, request)) {
            Ok(Turn::Begins(request)) => {
                self.tokens.counts.came(place, false);
                run(request, line)
            }
            Ok(Turn::Waits { first }) => {
                self.tokens.counts.came(place, true);
                if first {
                    self.tokens.watch(&grant);
                }
                Ok(())
            }
            Err(error) => line.answer(id, Err(error)),
        }
    }
}

impl Answers for Attached {
    type Later = Request;
    const WORKERS: usize = 4;

    fn take(&self, message: ToService, line: &Arc<Line<Request>>) -> Taken {
        match message {
            ToService::Queued { id, place, call } => self.arrive((id, place, call), line),
            ToService::Storage { id, call: StorageCall::Attach { token, queue, life, .. } } => {
                line.answer(id, self.attach(&token, queue, life))
            }
            ToService::Storage { id, .. } => {
                line.answer(id, Err(Error::Refused("a call that is no program's".into())))
            }
            _ => Err(calls::out_of_place()),
        }
    }

    fn resume(&self, later: Request, line: &Arc<Line<Request>>) -> Taken {
        run(later, line)
    }

    fn give_up(&self, later: Request) {
        abandon(later);
    }

    fn look(&self) {
        self.tokens.look();
    }

    /// A connection on which nothing is granted takes a place from others.
    fn is_over(&self) -> bool {
        let queues = self.queues.read().unwrap_or_else(PoisonError::into_inner);
        let mut idle = lock(&self.idle);
        match queues.values().any(|open| open.grant.lasts()) {
            true => *idle = None,
            false => drop(idle.get_or_insert_with(Instant::now)),
        }
        idle.is_some_and(|since| since.elapsed() >= IDLE)
    }
}

/// Carries a request out, and what of this connection it was alone in the way of.
fn run(request: Request, line: &Arc<Line<Request>>) -> Taken {
    let mut next = Some(request);
    while let Some(request) = next.take() {
        let id = request.id;
        let answer = match request.over {
            true => Err(Error::Posix(libc::ESTALE)),
            false => {
                let Some((answer, begins)) = carry_out_in_order(request) else { return Ok(()) };
                next = hand_out(begins, line);
                answer
            }
        };
        if let Err(ends) = line.answer(id, answer) {
            next.into_iter().for_each(abandon);
            return Err(ends);
        }
    }
    Ok(())
}

/// Gives requests that may begin to the workers of their connections, but one of this connection
/// to the caller.
fn hand_out(begins: Vec<Request>, line: &Arc<Line<Request>>) -> Option<Request> {
    let mut own = None;
    for request in begins {
        if own.is_none() && Arc::ptr_eq(&request.line, line) {
            own = Some(request);
        } else {
            push(request);
        }
    }
    own
}

fn push(request: Request) {
    let line = request.line.clone();
    if let Err(request) = line.push(request) {
        abandon(request);
    }
}

/// Has begun, and is not done: its connection is not there any more. Its end has ended the life of
/// its queue, so nothing begins behind it.
fn abandon(request: Request) {
    if !request.over {
        let Open { grant, life } = &request.open;
        dismiss(grant.queue.end_life(*life));
        dismiss(grant.queue.ended(*life, request.place.number, false));
    }
}

/// These are over: their programs are told, and nothing is done.
pub(super) fn dismiss(over: Vec<Request>) {
    for mut request in over {
        request.over = true;
        push(request);
    }
}

/// One request, whose turn it is, and those that may begin then. It counts as carried out before
/// the grant can end: what its end tells of requests is what was done. `None`: the grant ends, and
/// its end has the request.
fn carry_out_in_order(request: Request) -> Option<(Result<StorageAnswer>, Vec<Request>)> {
    let grant = request.open.grant.clone();
    match grant.enter(request) {
        Entering::Late => None,
        Entering::Over(request) => Some((Err(Error::Posix(libc::ESTALE)), request.ended(false))),
        Entering::Inside(table, Request { place, call, open, .. }) => {
            let answer = by_grant(&grant, &table, call);
            let begins = grant.queue.ended(open.life, place.number, answer.is_ok());
            drop(table);
            Some((answer, begins))
        }
    }
}

/// One request, as long as the grant lasts, which is entered.
pub(super) fn by_grant(grant: &Grant, table: &Table, call: StorageCall) -> Result<StorageAnswer> {
    match call {
        StorageCall::Read { device: 0, offset, len } => {
            let place = table.place(offset, len.into())?;
            grant.read(table, place, len)
        }
        StorageCall::Write { device: 0, offset, len, durable, blocks } => {
            let carried = Carried::of(len, &blocks)?;
            let place = table.place(offset, len.into())?;
            if !table.write {
                let what = format!("a write at byte {offset} of the area");
                return Err(Error::Refused(format!("{what}, which is only to be read")));
            }
            let written = grant.write(table, place, carried.data()?, durable);
            // What failed may have been written in part.
            grant.written.store(true, Ordering::Release);
            if !durable || written.is_err() {
                grant.unflushed.store(true, Ordering::Release);
            }
            written.map(|()| StorageAnswer::Done)
        }
        StorageCall::Flush { device: 0 } => {
            if !table.write {
                return Err(Error::Refused("a flush by one who may only read".into()));
            }
            grant.unflushed.store(false, Ordering::Release);
            let flushed = table.device.flush();
            if flushed.is_err() {
                grant.unflushed.store(true, Ordering::Release);
            }
            flushed.map(|()| StorageAnswer::Done)
        }
        StorageCall::AtomicWrite { transaction, commit, runs, blocks } => {
            if !table.write {
                let what = "an atomic write by one who may only read";
                return Err(Error::Refused(what.into()));
            }
            // What fails may be there after the next opening.
            grant.written.fetch_or(commit, Ordering::AcqRel);
            let written = table.write_atomic((transaction, commit), (&runs, &blocks), &grant.fresh);
            written.map(|()| StorageAnswer::Done)
        }
        StorageCall::AtomicAbort { transaction } => {
            table.redo.iter().for_each(|redo| redo.abort(transaction));
            Ok(StorageAnswer::Done)
        }
        _ => Err(Error::Refused("a call that is no program's".into())),
    }
}

#[cfg(test)]
#[path = "attached_tests.rs"]
mod tests;
