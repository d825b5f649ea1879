//! One request of a program, from its coming to its answer.

use crate::device::calls::{self, Carried, Refusals};
use crate::device::programs::grant::{Grant, Within};
use crate::device::programs::queue::Waits;
use crate::device::programs::table::Table;
use crate::device::workers::{Mailbox, Told};
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, Error, Result};
use siftfs_device::{AlignedBuf, Device, IoKind};
use siftfs_transport::Sender;
use siftfs_wire::{FromService, Place, StorageAnswer, StorageCall};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of all requests that wait for their turn, of all programs.
pub(super) const MOST_WAITING: usize = 256 << 20;

/// A connection, as its requests have it.
pub(crate) struct Line {
    pub sender: Arc<dyn Sender<FromService>>,
    pub refused: Refusals,
    /// The worker's that has the connection.
    pub mailbox: Arc<Mailbox>,
    /// What the worker calls it.
    pub number: u64,
}

impl Line {
    /// Answers a call; a refusal is told, too. What cannot be sent at once, or not at all, is said
    /// to the worker.
    pub fn answer(&self, id: u64, answer: Result<StorageAnswer>) {
        let answer = calls::told(answer, &self.refused);
        match self.sender.post(FromService::Storage { id, answer }) {
            Ok(0) => {}
            Ok(kept) => self.mailbox.tell(self.number, Told::Kept(kept)),
            Err(error) => self.mailbox.tell(self.number, Told::Broke(error)),
        }
    }
}

/// A grant, as one connection has it.
#[derive(Clone)]
pub(crate) struct Open {
    pub grant: Arc<Grant>,
    pub life: u64,
}

/// A request that waits for its turn, or has got it.
pub(crate) struct Request {
    pub id: u64,
    pub place: Place,
    pub call: StorageCall,
    pub open: Open,
    pub line: Arc<Line>,
    /// It is to be answered, and not done.
    pub over: bool,
    /// Given back when the request has ended.
    pub _space: Space,
}

impl Waits for Request {
    fn place(&self) -> Place {
        self.place
    }
}

/// What a request takes of the room for those that wait.
pub(crate) struct Space {
    room: Arc<AtomicUsize>,
    bytes: usize,
}

impl Space {
    pub fn of(call: &StorageCall, room: &Arc<AtomicUsize>) -> Result<Self> {
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

impl Request {
    /// It has begun, and ends now. Those that may begin then.
    fn ended(&self, carried: bool) -> Vec<Request> {
        self.open.grant.queue.ended(self.open.life, self.place.number, carried)
    }

    /// Its grant has ended before it was carried out: nothing begins behind it.
    pub fn has_ended(&self) {
        dismiss(self.ended(false));
    }

    /// It was carried out, or has failed. It counts before the grant can end: what its end tells of
    /// requests is what was done. Then it is answered, and what waited for it goes to the workers
    /// of its connections.
    pub fn finish(self, within: Option<Within>, answer: Result<StorageAnswer>) {
        let begins = self.ended(answer.is_ok());
        drop(within);
        self.line.answer(self.id, answer);
        begins.into_iter().for_each(send);
    }

    /// It has begun, and is not done: its connection is not there any more. Its end has ended the
    /// life of its queue, so nothing begins behind it.
    pub fn abandon(self) {
        if !self.over {
            dismiss(self.open.grant.queue.end_life(self.open.life));
            self.has_ended();
        }
    }

    /// Carries it out, by calls that wait.
    pub fn carry_out(self, within: Within) {
        let answer = by_grant(&self.open.grant, &within, &self.call);
        self.finish(Some(within), answer);
    }
}

/// To the worker of its connection. One that has ended carries nothing out.
pub(super) fn send(request: Request) {
    let mailbox = request.line.mailbox.clone();
    if let Some(request) = mailbox.bring(request) {
        request.abandon();
    }
}

/// These are over: their programs are told, and nothing is done.
pub(super) fn dismiss(over: Vec<Request>) {
    for mut request in over {
        request.over = true;
        send(request);
    }
}

/// How a request is carried out.
pub(crate) enum Plan {
    /// By one access that is begun.
    Access(Access),
    /// By calls that wait.
    Slow,
    /// Not at all.
    Answer(Result<StorageAnswer>),
}

/// The one access of a request.
pub(crate) struct Access {
    pub kind: IoKind,
    /// On the device.
    pub offset: u64,
    pub buf: AlignedBuf,
    /// In the area.
    pub bytes: Range<u64>,
    pub device: Arc<dyn Device>,
}

/// How a request is carried out whose grant is entered. Never waits.
pub(crate) fn plan(grant: &Grant, table: &Table, call: &StorageCall) -> Plan {
    let planned = match call {
        _ if table.redo.is_some() => Ok(None),
        StorageCall::Read { device: 0, offset, len } => plan_read(grant, table, (*offset, *len)),
        StorageCall::Write { device: 0, offset, len, durable, blocks } => {
            let kind = IoKind::Write { durable: *durable };
            Carried::of(*len, blocks)
                .and_then(|carried| plan_write(grant, table, (*offset, *len), (kind, carried)))
        }
        _ => Ok(None),
    };
    match planned {
        Ok(Some(access)) => Plan::Access(access),
        Ok(None) => Plan::Slow,
        Err(error) => Plan::Answer(Err(error)),
    }
}

fn plan_read(grant: &Grant, table: &Table, (offset, len): (u64, u32)) -> Result<Option<Access>> {
    let size = calls::sensible(len)?;
    let Some(place) = table.place_at_once(offset, len.into(), grant.fresh.blocks() > 0)? else {
        return Ok(None);
    };
    let (buf, bytes) = (AlignedBuf::zeroed(size), offset..offset + u64::from(len));
    Ok(Some(Access { kind: IoKind::Read, offset: place, buf, bytes, device: table.device.clone() }))
}

fn plan_write(
    grant: &Grant,
    table: &Table,
    (offset, len): (u64, u32),
    (kind, carried): (IoKind, Carried),
) -> Result<Option<Access>> {
    let whole = [offset, len.into()].iter().all(|n| n.is_multiple_of(BLOCK_BYTES));
    if !whole || !table.write {
        return Ok(None);
    }
    let Some(place) = table.place_at_once(offset, len.into(), grant.fresh.blocks() > 0)? else {
        return Ok(None);
    };
    let (buf, bytes) = (carried.into_bytes(), offset..offset + u64::from(len));
    Ok(Some(Access { kind, offset: place, buf, bytes, device: table.device.clone() }))
}

/// One request, as long as the grant lasts, which is entered.
pub(super) fn by_grant(grant: &Grant, table: &Table, call: &StorageCall) -> Result<StorageAnswer> {
    match call {
        StorageCall::Read { device: 0, offset, len } => {
            let place = table.place(*offset, (*len).into())?;
            grant.read(table, place, *len)
        }
        StorageCall::Write { device: 0, offset, len, durable, blocks } => {
            let carried = Carried::of(*len, blocks)?;
            let place = table.place(*offset, (*len).into())?;
            if !table.write {
                let what = format!("a write at byte {offset} of the area");
                return Err(Error::Refused(format!("{what}, which is only to be read")));
            }
            let written = grant.write(table, place, carried.data()?, *durable);
            grant.wrote(*durable, written.is_ok());
            written.map(|()| StorageAnswer::Done)
        }
        StorageCall::Flush { device: 0 } => {
            if !table.write {
                return Err(Error::Refused("a flush by one who may only read".into()));
            }
            grant.unflushed.flush(&*table.device).map(|()| StorageAnswer::Done)
        }
        StorageCall::AtomicWrite { transaction, commit, runs, blocks } => {
            if !table.write {
                let what = "an atomic write by one who may only read";
                return Err(Error::Refused(what.into()));
            }
            // What fails may be there after the next opening.
            grant.written.fetch_or(*commit, Ordering::AcqRel);
            let written = table.write_atomic((*transaction, *commit), (runs, blocks), &grant.fresh);
            written.map(|()| StorageAnswer::Done)
        }
        StorageCall::AtomicAbort { transaction } => {
            table.redo.iter().for_each(|redo| redo.abort(*transaction));
            Ok(StorageAnswer::Done)
        }
        _ => Err(Error::Refused("a call that is no program's".into())),
    }
}
