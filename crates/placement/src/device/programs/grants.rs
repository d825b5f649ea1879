//! Blocks of the area that hosts have granted to programs, and the programs' connections
//! (`docs/design/target.md`, "The data plane").

use crate::device::calls::lock;
use crate::device::permissions::{Memory, Owner, Permissions};
use crate::device::programs::atomic::Redo;
use crate::device::programs::counts::Counts;
use crate::device::programs::fresh::{Fresh, Report};
use crate::device::programs::grant::{Ended, Grant};
use crate::device::programs::request::dismiss;
use crate::device::programs::table::Table;
use siftfs_base::{BLOCK_BYTES, BlockRun, Error, Result};
use siftfs_device::Device;
use siftfs_service::RedoLane;
use siftfs_wire::{Carried, GRANT_ALL_RUNS, GRANT_MAX_RUNS, GrantRun, ProgramStatistics, Token};
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

/// How long a request waits for one of a lower number that has not come, while nothing moves, and a
/// new life of a queue for what runs of the last one.
pub(super) const TERM: Duration = Duration::from_secs(10);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Bytes of half a token.
const HALF: usize = 16;
/// Grants that have ended and are remembered.
const MOST_ENDED: usize = 4096;
/// Grants of one host.
const MOST_GRANTS: usize = 64 << 10;
/// Memory for the table of one host's grants.
const MEMORY: Memory = Memory { leaves: 64 << 20, index: 64 << 20 };
/// Fresh blocks of all grants of one host: two bits each.
const MOST_FRESH: u64 = 1 << 26;

/// All grants of this process, by their tokens.
pub(crate) struct Tokens {
    /// Drawn at random: the first half of every token of this process.
    process: OnceLock<[u8; HALF]>,
    grants: Mutex<HashMap<Token, Arc<Grant>>>,
    ended: Mutex<EndedGrants>,
    /// What was written under a grant that has ended could not be made durable.
    broken: AtomicBool,
    /// Grants that ended with their host's connection, of which there was something to report:
    /// [`MOST_GRANTS`] at most.
    unreported: Mutex<HashSet<Token>>,
    /// Where programs reach this process, if that is not where hosts do.
    programs: Option<String>,
    /// The folder of what does not fit into memory.
    scratch: PathBuf,
    /// Grants with a request that waits.
    pub(super) watched: Mutex<Vec<Weak<Grant>>>,
    looked: Mutex<Option<Instant>>,
    /// Bytes of all requests that wait.
    pub(crate) waiting: Arc<AtomicUsize>,
    pub(super) counts: Counts,
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
        if self.carried.insert(token, carried).is_none() {
            self.order.push_back(token);
        }
        if self.order.len() > MOST_ENDED
            && let Some(oldest) = self.order.pop_front()
        {
            self.carried.remove(&oldest);
        }
    }
}

impl Tokens {
    /// None yet. Programs reach this process at `programs`, or where hosts do. What does not fit
    /// into memory lies in files without names in `scratch`.
    pub fn new(programs: Option<String>, scratch: PathBuf) -> Self {
        let (process, grants, ended, broken) = Default::default();
        let (unreported, watched, looked) = Default::default();
        let (waiting, counts) = Default::default();
        Self {
            process,
            grants,
            ended,
            broken,
            unreported,
            programs,
            scratch,
            watched,
            looked,
            waiting,
            counts,
        }
    }

    /// What programs have done so far.
    pub fn statistics(&self) -> ProgramStatistics {
        self.counts.statistics()
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

    /// What was carried out of the last life of a grant that ends, when it has.
    ///
    /// # Errors
    /// Refused: what was written under it may not be durable, or no host has heard of it.
    pub(super) fn ended(&self, grant: &Grant) -> Result<Carried> {
        let carried = grant.has_ended()?;
        match lock(&self.unreported).contains(&grant.token) {
            true => Err(Error::Refused("nothing is granted so".into())),
            false => Ok(carried),
        }
    }

    fn note_end(&self, grant: &Grant) {
        // Not before: a token that is not there is one whose end has made everything durable.
        lock(&self.grants).remove(&grant.token);
        if let Ok(carried) = self.ended(grant) {
            lock(&self.ended).note(grant.token, carried);
        }
    }

    /// A request waits for others of this grant, which may never come.
    pub(super) fn watch(&self, grant: &Arc<Grant>) {
        if !grant.watched.swap(true, Ordering::AcqRel) {
            lock(&self.watched).push(Arc::downgrade(grant));
        }
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
                let Some(grant) = grant.upgrade() else { return false };
                let mut looks = || {
                    let waits = grant.queue.look(TERM);
                    waits.map(|requests| over.extend(requests)).is_some()
                };
                if looks() {
                    return true;
                }
                grant.watched.store(false, Ordering::Release);
                // One may have begun to wait just now, and have found that it is watched.
                looks() && !grant.watched.swap(true, Ordering::AcqRel)
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
    by_lease: HashMap<u64, Leased>,
    files: HashMap<u64, Granted>,
    /// Made with the first grant.
    permissions: Option<Arc<Permissions>>,
    fresh: u64,
    /// Of the volume, for what is granted from now on.
    redo: Option<Arc<RedoLane>>,
    /// Grants that have got it.
    redo_owners: u64,
}

/// A grant, and of which file it is.
struct Leased {
    grant: Arc<Grant>,
    file: u64,
    /// How many were granted.
    runs: usize,
}

/// What is granted of one file.
struct Granted {
    owner: Owner,
    /// The one grant may write.
    write: bool,
    grants: usize,
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

    /// What is granted to be written from now on has this redo lane, or none.
    pub fn set_redo(&self, redo: Option<Arc<RedoLane>>) {
        lock(&self.own).redo = redo;
    }

    /// Grants these blocks of the area, which lies on `device` at these bytes, to be read and, if
    /// that is said with them, to be written. They are a file's. Fresh ones read as zeros until
    /// they are written.
    ///
    /// # Errors
    /// Refused: the runs are no blocks of the area, some are another file's, the lease has a grant,
    /// the file has one to write, or there is no room for it.
    pub fn grant(
        &self,
        (lease, file): (u64, u64),
        (write, runs): (bool, Vec<GrantRun>),
        device: &Arc<dyn Device>,
        area: Range<u64>,
    ) -> Result<Token> {
        let blocks = (area.end - area.start) / BLOCK_BYTES;
        let fresh = Fresh::of(&runs)?;
        let runs = in_order(runs, blocks)?;
        let token = self.tokens.draw()?;
        let mut own = lock(&self.own);
        if own.by_lease.contains_key(&lease) {
            return Err(Error::Refused(format!("the lease {lease} has a grant already")));
        }
        let all_fresh = own.fresh + fresh.blocks();
        if own.by_lease.len() >= MOST_GRANTS || all_fresh > MOST_FRESH {
            return Err(Error::Refused("there are too many grants".into()));
        }
        let permissions = own.permissions(blocks, &self.tokens.scratch)?;
        let owner = own.give(&permissions, (file, write), &runs)?;
        own.redo_owners += 1;
        let redo = own.redo.clone().filter(|_| write);
        let redo = redo.map(|lane| Redo::new(lane, own.redo_owners));
        let device = device.clone();
        let table = Table { device, area, permissions, owner, write, redo };
        let grant = Arc::new(Grant::new(token, table, fresh));
        own.fresh = all_fresh;
        own.by_lease.insert(lease, Leased { grant: grant.clone(), file, runs: runs.len() });
        lock(&self.tokens.grants).insert(token, grant);
        Ok(token)
    }

    /// Grants these blocks as well by a grant that lasts: all of them, or none.
    ///
    /// # Errors
    /// `ESTALE`: it has ended. Refused: as of [`HostGrants::grant`].
    pub fn extend(
        &self,
        (lease, token): (u64, &Token),
        runs: Vec<GrantRun>,
        area: &Range<u64>,
    ) -> Result<()> {
        let runs = in_order(runs, (area.end - area.start) / BLOCK_BYTES)?;
        let mut own = lock(&self.own);
        let Own { by_lease, files, permissions, fresh, .. } = &mut *own;
        let leased = by_lease.get_mut(&lease);
        let leased = leased.filter(|leased| leased.grant.token == *token && leased.grant.lasts());
        let leased = leased.ok_or(Error::Posix(libc::ESTALE))?;
        let before = leased.grant.fresh.blocks();
        let more: u64 = runs.iter().filter(|run| run.fresh).map(|run| run.len).sum();
        if leased.runs + runs.len() > GRANT_ALL_RUNS || fresh.saturating_add(more) > MOST_FRESH {
            return Err(Error::Refused("there is too much in one grant, or in all".into()));
        }
        let owner = files.get(&leased.file).expect("a grant is of a file").owner;
        let permissions = permissions.as_ref().expect("something was granted");
        // Before the program can reach them: what it writes to them is to be reported.
        leased.grant.fresh.add(&runs)?;
        if let Err(error) = give(permissions, owner, &runs) {
            leased.grant.fresh.cut(before);
            return Err(error);
        }
        *fresh += more;
        leased.runs += runs.len();
        Ok(())
    }

    fn of(&self, lease: u64, token: &Token) -> Option<Arc<Grant>> {
        let own = lock(&self.own);
        let leased = own.by_lease.get(&lease).filter(|leased| leased.grant.token == *token);
        leased.map(|leased| leased.grant.clone())
    }

    /// Makes durable what was answered, and says whether anything was written since it was said
    /// last.
    pub fn settle(&self, lease: u64, token: &Token) -> Result<Settled> {
        match self.of(lease, token) {
            Some(grant) => grant.settle().map(settled),
            None => Ok(self.tokens.of_ended(token)),
        }
    }

    /// Ends a grant. When this returns nothing runs under it, and what was written is durable. If
    /// the report says that there is more, it is asked again for that.
    pub fn revoke(&self, lease: u64, token: &Token) -> Result<Settled> {
        let mut own = lock(&self.own);
        match own.by_lease.get(&lease).filter(|leased| leased.grant.token == *token) {
            Some(_) => self.end(&mut own, lease).map(settled),
            None => Ok(self.tokens.of_ended(token)),
        }
    }

    /// Ends a grant. The lock is held on, so that a grant of the same blocks comes behind what runs
    /// under this one.
    fn end(&self, own: &mut Own, lease: u64) -> Result<(bool, Report)> {
        let grant = own.by_lease.get(&lease).map(|leased| leased.grant.clone());
        let Some(grant) = grant else { return Ok(Default::default()) };
        let Ended { waited, settled } = grant.end();
        dismiss(waited);
        if settled.is_err() {
            self.tokens.broken.store(true, Ordering::Release);
        }
        if !matches!(&settled, Ok((_, report)) if report.more) {
            self.forget(own, lease);
        }
        settled
    }

    /// Nothing more is asked of a grant that has ended.
    fn forget(&self, own: &mut Own, lease: u64) {
        if let Some(Leased { grant, file, .. }) = own.by_lease.remove(&lease) {
            own.fresh -= grant.fresh.blocks();
            own.take_back(file);
            if grant.life.load(Ordering::Acquire) > 0 {
                self.tokens.counts.closed();
            }
            self.tokens.note_end(&grant);
        }
    }

    /// Ends all grants.
    pub fn revoke_all(&self) {
        let mut own = lock(&self.own);
        let of = |(lease, leased): (&u64, &Leased)| (*lease, leased.grant.clone());
        let all: Vec<(u64, Arc<Grant>)> = own.by_lease.iter().map(of).collect();
        for (lease, grant) in all {
            if grant.fresh.blocks() > 0 {
                // Before its program can find that it has ended.
                self.tokens.note_unreported(grant.token);
            }
            match self.end(&mut own, lease) {
                Ok((_, report)) if report.is_empty() => {
                    lock(&self.tokens.unreported).remove(&grant.token);
                    self.tokens.note_end(&grant);
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(%error, "what was written under a grant may not be durable");
                }
            }
            self.forget(&mut own, lease);
        }
    }
}

impl Drop for HostGrants {
    fn drop(&mut self) {
        self.revoke_all();
    }
}

impl Own {
    fn permissions(&mut self, blocks: u64, scratch: &Path) -> Result<Arc<Permissions>> {
        if let Some(permissions) = &self.permissions {
            return Ok(permissions.clone());
        }
        let made = Arc::new(Permissions::new(blocks, MEMORY, scratch)?);
        self.permissions = Some(made.clone());
        Ok(made)
    }

    /// Gives a file these blocks, by one grant more.
    fn give(
        &mut self,
        permissions: &Permissions,
        (file, write): (u64, bool),
        runs: &[GrantRun],
    ) -> Result<Owner> {
        let known = self.files.get(&file);
        if known.is_some_and(|granted| granted.write || write) {
            return Err(Error::Refused(format!("the file {file} has a grant already")));
        }
        let owner = known.map_or_else(|| permissions.owner(), |granted| Ok(granted.owner))?;
        if let Err(error) = give(permissions, owner, runs) {
            if known.is_none() {
                permissions.take_all(owner)?;
            }
            return Err(error);
        }
        self.files.entry(file).or_insert(Granted { owner, write, grants: 0 }).grants += 1;
        Ok(owner)
    }

    /// A grant of the file has ended.
    fn take_back(&mut self, file: u64) {
        let granted = self.files.get_mut(&file).expect("a grant is of a file");
        granted.grants -= 1;
        if granted.grants == 0 {
            let permissions = self.permissions.as_ref().expect("something was granted");
            let taken = permissions.take_all(granted.owner);
            taken.expect("the owner has been there since its first grant");
            self.files.remove(&file);
        }
    }
}

/// Gives an owner all of these blocks, or none.
fn give(permissions: &Permissions, owner: Owner, runs: &[GrantRun]) -> Result<()> {
    let own = |fresh: bool| -> Vec<BlockRun> {
        let own = runs.iter().filter(|run| run.fresh == fresh);
        own.map(|run| BlockRun { start: run.block, len: run.len }).collect()
    };
    // A scratch file that fails is no end of the host's storage.
    permissions
        .give_both(owner, &own(false), &own(true))
        .map_err(|error| Error::Refused(format!("the table of grants: {error}")))
}

/// The runs in order, none empty, none beyond the area's `blocks`, none meeting another.
fn in_order(mut runs: Vec<GrantRun>, blocks: u64) -> Result<Vec<GrantRun>> {
    let wrong = |what: String| Err(Error::Refused(what));
    if runs.len() > GRANT_MAX_RUNS {
        return wrong(format!("a grant of {} runs", runs.len()));
    }
    runs.sort_unstable_by_key(|run| run.block);
    let mut free_from = 0;
    for GrantRun { block, len, .. } in &runs {
        let end = block.checked_add(*len).filter(|end| *end <= blocks && *len > 0);
        match end {
            Some(end) if *block >= free_from => free_from = end,
            _ => return wrong(format!("a grant of {len} blocks from {block} on")),
        }
    }
    Ok(runs)
}

#[cfg(test)]
#[path = "grants_tests.rs"]
mod tests;
