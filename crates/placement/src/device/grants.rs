//! Blocks of the area that hosts have granted to programs, and the programs' connections
//! (`docs/design/target.md`, "The data plane").
//!
//! A call's blocks are checked at its execution, under the lock of the grant's table, which is held
//! until the I/O has ended. The end of a grant takes that lock to write: so nothing runs under a
//! grant that has ended (rule R29).

use crate::device::calls::{self, Answers, Carried, lock};
use siftfs_base::{BLOCK_BYTES, BlockRun, Error, Result};
use siftfs_device::{AlignedBuf, Device};
use siftfs_wire::{GRANT_MAX_RUNS, StorageAnswer, StorageCall, Token};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};

/// Bytes of half a token.
const HALF: usize = 16;
/// Grants of one host.
const MOST_GRANTS: usize = 64 << 10;
/// Runs of all grants of one host.
const MOST_RUNS: usize = 1 << 20;

/// All grants of this process, by their tokens.
#[derive(Default)]
pub(crate) struct Tokens {
    /// Drawn at random: the first half of every token of this process.
    process: OnceLock<[u8; HALF]>,
    grants: Mutex<HashMap<Token, Arc<Grant>>>,
    /// What was written under a grant that has ended could not be made durable.
    broken: AtomicBool,
    /// Where programs reach this process, if that is not where hosts do.
    programs: Option<String>,
}

impl Tokens {
    /// None yet. Programs reach this process at `programs`, or where hosts do.
    pub fn new(programs: Option<String>) -> Self {
        Self { programs, ..Self::default() }
    }

    /// Where programs reach this process, if that is not where hosts do.
    pub fn programs(&self) -> Option<String> {
        self.programs.clone()
    }

    /// A connection of a program that has this token.
    ///
    /// # Errors
    /// `ESTALE` if the grant has ended, and what was written under it is durable. Refused: there is
    /// no such grant.
    pub fn attach(&self, token: &Token) -> Result<Attached> {
        let grant = lock(&self.grants).get(token).cloned();
        let grant = grant.ok_or_else(|| match self.of_ended(token).lost {
            true => Error::Refused("nothing is granted so".into()),
            // Its end has made durable what was written.
            false => Error::Posix(libc::ESTALE),
        })?;
        let connection = grant.connections.fetch_add(1, Ordering::AcqRel) + 1;
        Ok(Attached { grant, connection })
    }

    fn draw(&self) -> Result<Token> {
        let random = || -> Result<[u8; HALF]> {
            let mut bytes = [0; HALF];
            getrandom::fill(&mut bytes)
                .map_err(|e| Error::Refused(format!("no random numbers: {e}")))?;
            Ok(bytes)
        };
        let (first, drawn, second) = (self.process.get(), random()?, random()?);
        let first = first.unwrap_or_else(|| self.process.get_or_init(|| drawn));
        let mut token = Token::default();
        let bytes = first.iter().chain(&second);
        token.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Ok(token)
    }

    /// What is to be said of a grant that is not there: its end has flushed it, if it was in this
    /// process.
    fn of_ended(&self, token: &Token) -> Settled {
        let own = self.process.get().is_some_and(|own| token.starts_with(own));
        Settled { written: true, lost: !own || self.broken.load(Ordering::Acquire) }
    }
}

/// What was written under a grant, and is durable.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    /// Something was since a host was told, or that is not known.
    pub written: bool,
    /// Something may be lost.
    pub lost: bool,
}

/// The grants of one host.
pub(crate) struct HostGrants {
    tokens: Arc<Tokens>,
    own: Mutex<Own>,
}

#[derive(Default)]
struct Own {
    by_lease: HashMap<u64, Arc<Grant>>,
    runs: usize,
}

/// Blocks that one program may read, and perhaps write.
struct Grant {
    token: Token,
    /// Nothing, when the grant has ended.
    table: RwLock<Option<Table>>,
    /// How many connections there have been; the newest is served.
    connections: AtomicU64,
    /// Taken to read by writes of whole blocks, and to write by those that keep a part of one: what
    /// they keep must not be older than a write beside them.
    patching: RwLock<()>,
    /// Something was written since a host was told.
    written: AtomicBool,
    /// Something was written, not durably, since the last flush began.
    unflushed: AtomicBool,
}

struct Table {
    device: Arc<dyn Device>,
    /// Where the area lies on the device.
    area: Range<u64>,
    /// In the order of their blocks; none meets another.
    runs: Vec<BlockRun>,
    /// They may be written, too.
    write: bool,
}

impl HostGrants {
    /// None yet.
    pub fn new(tokens: &Arc<Tokens>) -> Self {
        Self { tokens: tokens.clone(), own: Mutex::default() }
    }

    /// Where programs reach this process, if that is not where hosts do.
    pub fn programs(&self) -> Option<String> {
        self.tokens.programs()
    }

    /// Grants these blocks of the area, which lies on `device` at these bytes, to be read and, if
    /// that is said with them, to be written.
    ///
    /// # Errors
    /// Refused: the runs are no blocks of the area, the lease has a grant, or there are too many.
    pub fn grant(
        &self,
        lease: u64,
        (write, runs): (bool, Vec<BlockRun>),
        device: &Arc<dyn Device>,
        area: Range<u64>,
    ) -> Result<Token> {
        let runs = in_order(runs, (area.end - area.start) / BLOCK_BYTES)?;
        let token = self.tokens.draw()?;
        let mut own = lock(&self.own);
        if own.by_lease.contains_key(&lease) {
            return Err(Error::Refused(format!("the lease {lease} has a grant already")));
        }
        let all = own.runs + runs.len();
        if own.by_lease.len() >= MOST_GRANTS || all > MOST_RUNS {
            return Err(Error::Refused("there are too many grants".into()));
        }
        let table = RwLock::new(Some(Table { device: device.clone(), area, runs, write }));
        let (connections, patching, written, unflushed) = Default::default();
        let grant = Grant { token, table, connections, patching, written, unflushed };
        let grant = Arc::new(grant);
        own.runs = all;
        own.by_lease.insert(lease, grant.clone());
        lock(&self.tokens.grants).insert(token, grant);
        Ok(token)
    }

    /// Makes durable what was answered, and says whether anything was written since it was said
    /// last.
    pub fn settle(&self, lease: u64, token: &Token) -> Result<Settled> {
        let grant = lock(&self.own).by_lease.get(&lease).cloned();
        match grant.filter(|grant| grant.token == *token) {
            Some(grant) => grant.settle().map(|written| Settled { written, lost: false }),
            None => Ok(self.tokens.of_ended(token)),
        }
    }

    /// Ends a grant. When this returns nothing runs under it, and what was written is durable.
    pub fn revoke(&self, lease: u64, token: &Token) -> Result<Settled> {
        let mut own = lock(&self.own);
        match own.by_lease.get(&lease).filter(|grant| grant.token == *token) {
            Some(_) => {
                let written = self.end(&mut own, lease)?;
                Ok(Settled { written, lost: false })
            }
            None => Ok(self.tokens.of_ended(token)),
        }
    }

    /// Ends a grant. The lock is held on, so that a grant of the same blocks comes behind what runs
    /// under this one.
    fn end(&self, own: &mut Own, lease: u64) -> Result<bool> {
        let Some(grant) = own.by_lease.remove(&lease) else { return Ok(false) };
        lock(&self.tokens.grants).remove(&grant.token);
        let (runs, settled) = grant.end();
        own.runs -= runs;
        if settled.is_err() {
            self.tokens.broken.store(true, Ordering::Release);
        }
        settled
    }

    /// Ends all grants.
    pub fn revoke_all(&self) {
        let mut own = lock(&self.own);
        let leases: Vec<u64> = own.by_lease.keys().copied().collect();
        for lease in leases {
            if let Err(error) = self.end(&mut own, lease) {
                tracing::error!(%error, "what was written under a grant may not be durable");
            }
        }
    }
}

impl Drop for HostGrants {
    fn drop(&mut self) {
        self.revoke_all();
    }
}

/// The runs in order, none empty, none beyond the area's `blocks`, none meeting another.
fn in_order(mut runs: Vec<BlockRun>, blocks: u64) -> Result<Vec<BlockRun>> {
    let wrong = |what: String| Err(Error::Refused(what));
    if runs.len() > GRANT_MAX_RUNS {
        return wrong(format!("a grant of {} runs", runs.len()));
    }
    runs.sort_unstable_by_key(|run| run.start);
    let mut free_from = 0;
    for BlockRun { start, len } in &runs {
        let end = start.checked_add(*len).filter(|end| *end <= blocks && *len > 0);
        match end {
            Some(end) if *start >= free_from => free_from = end,
            _ => return wrong(format!("a grant of {len} blocks from {start} on")),
        }
    }
    Ok(runs)
}

impl Grant {
    fn table(&self) -> RwLockReadGuard<'_, Option<Table>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, table: &Table, place: u64, data: &[u8], durable: bool) -> Result<()> {
        let whole = |at: u64| (at - table.area.start).is_multiple_of(BLOCK_BYTES);
        let end = place + data.len() as u64;
        if whole(place) && whole(end) {
            let _beside = self.patching.read().unwrap_or_else(PoisonError::into_inner);
            return table.device.write(place, data, durable);
        }
        let start = place - (place - table.area.start) % BLOCK_BYTES;
        let behind = table.area.start + (end - table.area.start).next_multiple_of(BLOCK_BYTES);
        let len = usize::try_from(behind - start).map_err(|_| Error::Refused("too long".into()))?;
        let mut blocks = AlignedBuf::zeroed(len);
        let _alone = self.patching.write().unwrap_or_else(PoisonError::into_inner);
        table.device.read(start, &mut blocks)?;
        let skip = usize::try_from(place - start).unwrap_or(len);
        blocks.iter_mut().skip(skip).zip(data).for_each(|(to, from)| *to = *from);
        table.device.write(start, &blocks, durable)
    }

    fn settle(&self) -> Result<bool> {
        let table = self.table();
        match &*table {
            Some(table) => self.settle_on(&*table.device),
            None => Ok(false),
        }
    }

    fn settle_on(&self, device: &dyn Device) -> Result<bool> {
        let written = self.written.swap(false, Ordering::AcqRel);
        let settled = match self.unflushed.swap(false, Ordering::AcqRel) {
            true => device.flush(),
            false => Ok(()),
        };
        if settled.is_err() {
            self.unflushed.store(true, Ordering::Release);
        }
        settled.map(|()| written)
    }

    /// Ends it: how many runs it had, and whether anything was written.
    fn end(&self) -> (usize, Result<bool>) {
        let ended = self.table.write().unwrap_or_else(PoisonError::into_inner).take();
        match ended {
            Some(table) => (table.runs.len(), self.settle_on(&*table.device)),
            None => (0, Ok(false)),
        }
    }
}

impl Table {
    /// Where these bytes of the area lie on the device, if all of their blocks are granted.
    fn place(&self, offset: u64, len: u64) -> Result<u64> {
        let refuse = || Error::Refused(format!("{len} bytes at byte {offset} of the area"));
        let end = offset.checked_add(len).ok_or_else(refuse)?;
        let (mut block, last) = (offset / BLOCK_BYTES, end.div_ceil(BLOCK_BYTES));
        let at = self.runs.partition_point(|run| run.end() <= block);
        let mut runs = self.runs.iter().skip(at);
        while block < last {
            let run = runs.next().filter(|run| run.start <= block).ok_or_else(refuse)?;
            block = run.end();
        }
        self.area.start.checked_add(offset).ok_or_else(refuse)
    }
}

/// A program's connection.
pub(crate) struct Attached {
    grant: Arc<Grant>,
    connection: u64,
}

impl Answers for Attached {
    const WORKERS: usize = 4;

    fn is_over(&self) -> bool {
        let newest = self.grant.connections.load(Ordering::Acquire);
        newest != self.connection || self.grant.table().is_none()
    }

    fn carry_out(&self, call: StorageCall) -> Result<StorageAnswer> {
        match call {
            StorageCall::Read { device: 0, offset, len } => self.by_grant(|table| {
                let place = table.place(offset, len.into())?;
                calls::read(&*table.device, place, len)
            }),
            StorageCall::Write { device: 0, offset, len, durable, blocks } => {
                let carried = Carried::of(len, &blocks)?;
                let data = carried.data()?;
                self.by_grant(|table| {
                    let place = table.place(offset, len.into())?;
                    if !table.write {
                        let what = format!("a write at byte {offset} of the area");
                        return Err(Error::Refused(format!("{what}, which is only to be read")));
                    }
                    let written = self.grant.write(table, place, data, durable);
                    // What failed may have been written in part.
                    self.grant.written.store(true, Ordering::Release);
                    if !durable || written.is_err() {
                        self.grant.unflushed.store(true, Ordering::Release);
                    }
                    written.map(|()| StorageAnswer::Done)
                })
            }
            StorageCall::Flush { device: 0 } => self.by_grant(|table| {
                if !table.write {
                    return Err(Error::Refused("a flush by one who may only read".into()));
                }
                self.grant.unflushed.store(false, Ordering::Release);
                let flushed = table.device.flush();
                if flushed.is_err() {
                    self.grant.unflushed.store(true, Ordering::Release);
                }
                flushed.map(|()| StorageAnswer::Done)
            }),
            _ => Err(Error::Refused("a call that is no program's".into())),
        }
    }
}

impl Attached {
    /// What is done under the grant, as long as that lasts.
    fn by_grant(
        &self,
        work: impl FnOnce(&Table) -> Result<StorageAnswer>,
    ) -> Result<StorageAnswer> {
        match &*self.grant.table() {
            Some(table) => work(table),
            // Its end may come before the program has heard of it: that is no offence.
            None => Err(Error::Posix(libc::ESTALE)),
        }
    }
}

#[cfg(test)]
#[path = "grants_tests.rs"]
mod tests;
