//! Blocks of the area that hosts have granted to programs, and the programs' connections
//! (`docs/design/target.md`, "The data plane").

use crate::device::calls::lock;
use crate::device::programs::attached::dismiss;
use crate::device::programs::grant::{Ended, Grant};
use crate::device::programs::table::Table;
use siftfs_base::{BLOCK_BYTES, BlockRun, Error, Result};
use siftfs_device::Device;
use siftfs_wire::{Carried, GRANT_MAX_RUNS, Token};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

/// How long a request waits for one of a lower number that has not come, while nothing moves.
const TERM: Duration = Duration::from_secs(10);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Bytes of half a token.
const HALF: usize = 16;
/// Grants that have ended and are remembered.
const MOST_ENDED: usize = 4096;
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
    ended: Mutex<EndedGrants>,
    /// What was written under a grant that has ended could not be made durable.
    broken: AtomicBool,
    /// Where programs reach this process, if that is not where hosts do.
    programs: Option<String>,
    /// Grants with a request that waits.
    watched: Mutex<Vec<Weak<Grant>>>,
    looked: Mutex<Option<Instant>>,
    /// Bytes of all requests that wait.
    pub(super) waiting: Arc<AtomicUsize>,
}

/// What a token stands for.
pub(super) enum Found {
    Grant(Arc<Grant>),
    /// A grant that has ended, and what was carried out under it.
    Ended(Carried),
}

/// The grants that ended last.
#[derive(Default)]
struct EndedGrants {
    carried: HashMap<Token, Carried>,
    order: VecDeque<Token>,
}

impl EndedGrants {
    fn note(&mut self, token: Token, carried: Carried) {
        self.carried.insert(token, carried);
        self.order.push_back(token);
        if self.order.len() > MOST_ENDED
            && let Some(oldest) = self.order.pop_front()
        {
            self.carried.remove(&oldest);
        }
    }
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

    /// What is granted by this token, or was.
    ///
    /// # Errors
    /// `ESTALE`: the grant has ended long ago, and what was written under it is durable. Refused:
    /// there is no such grant.
    pub(super) fn find(&self, token: &Token) -> Result<Found> {
        if let Some(grant) = lock(&self.grants).get(token).cloned() {
            return Ok(Found::Grant(grant));
        }
        if let Some(carried) = lock(&self.ended).carried.get(token) {
            return Ok(Found::Ended(*carried));
        }
        match self.of_ended(token).lost {
            true => Err(Error::Refused("nothing is granted so".into())),
            // Its end has made durable what was written.
            false => Err(Error::Posix(libc::ESTALE)),
        }
    }

    fn note_end(&self, grant: &Grant) {
        // Not before: a token that is not there is one whose end has made everything durable.
        lock(&self.grants).remove(&grant.token);
        if let Ok(carried) = grant.has_ended() {
            lock(&self.ended).note(grant.token, carried);
        }
    }

    /// A request waits for others of this grant, which may never come.
    pub(super) fn watch(&self, grant: &Arc<Grant>) {
        lock(&self.watched).push(Arc::downgrade(grant));
    }

    /// Ends the lives of queues whose requests wait for what does not come. To be called again and
    /// again.
    pub fn look(&self) {
        let mut over = Vec::new();
        if let Ok(mut looked) = self.looked.try_lock() {
            if looked.is_some_and(|last| last.elapsed() < LOOK) {
                return;
            }
            *looked = Some(Instant::now());
            lock(&self.watched).retain(|grant| {
                let waits = grant.upgrade().and_then(|grant| grant.queue.look(TERM));
                waits.map(|requests| over.extend(requests)).is_some()
            });
        }
        if !over.is_empty() {
            let requests = over.len();
            tracing::warn!(requests, "a program's requests wait for one that does not come");
        }
        dismiss(over);
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
        let grant =
            Arc::new(Grant::new(token, Table { device: device.clone(), area, runs, write }));
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
        let Ended { runs, waited, settled } = grant.end();
        dismiss(waited);
        own.runs -= runs;
        if settled.is_err() {
            self.tokens.broken.store(true, Ordering::Release);
        }
        self.tokens.note_end(&grant);
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

#[cfg(test)]
#[path = "grants_tests.rs"]
mod tests;
