//! Blocks of the area that hosts have granted to programs, and the programs' connections
//! (`docs/design/target.md`, "The data plane").

use crate::device::calls::lock;
use crate::device::programs::attached::Attached;
use crate::device::programs::fresh::{Fresh, Report};
use crate::device::programs::grant::Grant;
use crate::device::programs::table::Table;
use siftfs_base::{BLOCK_BYTES, BlockRun, Error, Result};
use siftfs_device::Device;
use siftfs_wire::{GRANT_MAX_RUNS, GrantRun, Token};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Bytes of half a token.
const HALF: usize = 16;
/// Grants of one host.
const MOST_GRANTS: usize = 64 << 10;
/// Runs of all grants of one host.
const MOST_RUNS: usize = 1 << 20;
/// Fresh blocks of all grants of one host: two bits each.
const MOST_FRESH: u64 = 1 << 26;

/// All grants of this process, by their tokens.
#[derive(Default)]
pub(crate) struct Tokens {
    /// Drawn at random: the first half of every token of this process.
    process: OnceLock<[u8; HALF]>,
    grants: Mutex<HashMap<Token, Arc<Grant>>>,
    /// What was written under a grant that has ended could not be made durable.
    broken: AtomicBool,
    /// Grants that ended with their host's connection, of which there was something to report:
    /// [`MOST_GRANTS`] at most.
    unreported: Mutex<HashSet<Token>>,
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
    /// process. What was to be reported of it then is not known any more.
    fn of_ended(&self, token: &Token) -> Settled {
        let own = self.process.get().is_some_and(|own| token.starts_with(own));
        let reported = !lock(&self.unreported).contains(token);
        let lost = !own || !reported || self.broken.load(Ordering::Acquire);
        Settled { written: true, lost, report: Report::default() }
    }

    /// A grant has ended, and no host hears what was to be reported of it.
    fn note_unreported(&self, token: Token) {
        let mut unreported = lock(&self.unreported);
        if unreported.len() < MOST_GRANTS {
            unreported.insert(token);
        } else {
            // It cannot be told apart from others any more.
            self.broken.store(true, Ordering::Release);
        }
    }
}

/// What was written under a grant, and is durable.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    /// Something was since a host was told, or that is not known.
    pub written: bool,
    /// Something may be lost.
    pub lost: bool,
    /// What was of fresh blocks.
    pub report: Report,
}

fn settled((written, report): (bool, Report)) -> Settled {
    Settled { written, lost: false, report }
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
    fresh: u64,
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
    /// that is said with them, to be written. Fresh ones read as zeros until they are.
    ///
    /// # Errors
    /// Refused: the runs are no blocks of the area, the lease has a grant, or there are too many.
    pub fn grant(
        &self,
        lease: u64,
        (write, runs): (bool, Vec<GrantRun>),
        device: &Arc<dyn Device>,
        area: Range<u64>,
    ) -> Result<Token> {
        let fresh = Fresh::of(&runs)?;
        let runs = in_order(runs, (area.end - area.start) / BLOCK_BYTES)?;
        let token = self.tokens.draw()?;
        let mut own = lock(&self.own);
        if own.by_lease.contains_key(&lease) {
            return Err(Error::Refused(format!("the lease {lease} has a grant already")));
        }
        let all = own.runs + runs.len();
        let all_fresh = own.fresh + fresh.blocks();
        if own.by_lease.len() >= MOST_GRANTS || all > MOST_RUNS || all_fresh > MOST_FRESH {
            return Err(Error::Refused("there are too many grants".into()));
        }
        let table = Table { device: device.clone(), area, runs, write };
        let grant = Arc::new(Grant::new(token, table, fresh));
        (own.runs, own.fresh) = (all, all_fresh);
        own.by_lease.insert(lease, grant.clone());
        lock(&self.tokens.grants).insert(token, grant);
        Ok(token)
    }

    /// Makes durable what was answered, and says whether anything was written since it was said
    /// last.
    pub fn settle(&self, lease: u64, token: &Token) -> Result<Settled> {
        let grant = lock(&self.own).by_lease.get(&lease).cloned();
        match grant.filter(|grant| grant.token == *token) {
            Some(grant) => grant.settle().map(settled),
            None => Ok(self.tokens.of_ended(token)),
        }
    }

    /// Ends a grant. When this returns nothing runs under it, and what was written is durable. If
    /// the report says that there is more, it is asked again for that.
    pub fn revoke(&self, lease: u64, token: &Token) -> Result<Settled> {
        let mut own = lock(&self.own);
        match own.by_lease.get(&lease).filter(|grant| grant.token == *token) {
            Some(_) => self.end(&mut own, lease).map(settled),
            None => Ok(self.tokens.of_ended(token)),
        }
    }

    /// Ends a grant. The lock is held on, so that a grant of the same blocks comes behind what runs
    /// under this one.
    fn end(&self, own: &mut Own, lease: u64) -> Result<(bool, Report)> {
        let Some(grant) = own.by_lease.remove(&lease) else { return Ok(Default::default()) };
        lock(&self.tokens.grants).remove(&grant.token);
        let ((runs, fresh), settled) = grant.end();
        own.runs -= runs;
        own.fresh -= fresh;
        match &settled {
            Ok((_, report)) if report.more => _ = own.by_lease.insert(lease, grant),
            Ok(_) => {}
            Err(_) => self.tokens.broken.store(true, Ordering::Release),
        }
        settled
    }

    /// Ends all grants.
    pub fn revoke_all(&self) {
        let mut own = lock(&self.own);
        let of = |(lease, grant): (&u64, &Arc<Grant>)| (*lease, grant.token, grant.fresh.blocks());
        let all: Vec<(u64, Token, u64)> = own.by_lease.iter().map(of).collect();
        for (lease, token, fresh) in all {
            if fresh > 0 {
                // Before its program can find that it has ended.
                self.tokens.note_unreported(token);
            }
            match self.end(&mut own, lease) {
                Ok((_, report)) if report.is_empty() => {
                    lock(&self.tokens.unreported).remove(&token);
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(%error, "what was written under a grant may not be durable");
                }
            }
            own.by_lease.remove(&lease);
        }
    }
}

impl Drop for HostGrants {
    fn drop(&mut self) {
        self.revoke_all();
    }
}

/// The runs in order, none empty, none beyond the area's `blocks`, none meeting another.
fn in_order(runs: Vec<GrantRun>, blocks: u64) -> Result<Vec<BlockRun>> {
    let wrong = |what: String| Err(Error::Refused(what));
    if runs.len() > GRANT_MAX_RUNS {
        return wrong(format!("a grant of {} runs", runs.len()));
    }
    let runs = runs.into_iter().map(|GrantRun { block, len, .. }| BlockRun { start: block, len });
    let mut runs: Vec<BlockRun> = runs.collect();
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
