//! Which thread carries out which step.

use crate::copy::Copier;
use crate::counters::{Counters, Step};
use crate::fetch::Fetch;
use crate::locate::{IndexCache, Located, Locator};
use crate::merge::{Merged, Merger, Newest};
use crate::patch::Patcher;
use crate::{Files, How, Index};
use siftfs_base::Result;
use siftfs_lease::{Fetched, Held, Ingestion, Own, Reader, Words};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, Scope, scope};

/// Ingestions that have threads of their own, at most. The paper's back end has four sets, too.
const SETS: usize = 4;

/// The sets of threads of a mount.
#[derive(Debug)]
pub struct Pipelines(AtomicUsize);

impl Default for Pipelines {
    fn default() -> Self {
        Self(AtomicUsize::new(SETS))
    }
}

/// One of them.
struct Set<'a>(&'a AtomicUsize);

impl Pipelines {
    fn take(&self) -> Option<Set<'_>> {
        let less = |free: usize| free.checked_sub(1);
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        taken.is_ok().then_some(Set(&self.0))
    }
}

impl Drop for Set<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// What a session's back end keeps from one ingestion to the next.
#[derive(Default)]
pub struct BackEnd {
    cache: IndexCache,
    newest: Newest,
}

impl BackEnd {
    /// The lease has ended: what the index said of its file does not count any more.
    pub fn forget(&mut self, held: Held) {
        self.cache.forget(held);
    }
}

/// What an ingestion works with.
#[derive(Clone, Copy)]
pub struct Means<'a> {
    /// What is known of the files' blocks.
    pub index: &'a dyn Index,
    /// Who writes to them.
    pub files: &'a dyn Files,
    /// What is counted.
    pub counters: &'a Counters,
    /// The threads that there may be.
    pub pipelines: &'a Pipelines,
    /// How it is done.
    pub how: How,
}

/// Batches on their way from one step to the next.
type Batches<'s, T> = Box<dyn Iterator<Item = T> + Send + 's>;

/// Takes in what is published when it begins. What of it is no lease's any more is passed over.
/// Waits for storage, and for no program.
///
/// # Errors
/// Corrupt: the holder broke a rule, and the session is to be ended. What stood before that in the
/// ring was taken in.
pub fn ingest<G: Own + Sync, H: Words + Sync>(
    reader: &mut Reader<G, H>,
    back: &mut BackEnd,
    means: Means<'_>,
) -> Result<()> {
    let Means { index, files, counters, pipelines, how } = means;
    let Ingestion { headers, data, taken } = reader.begin()?;
    let _timed = headers.has_more().then(|| counters.time(Step::All));
    let mut fault = Ok(());
    let mut fetch = Fetch::new(headers, how.batch, (counters, &mut fault));
    let Some(first) = fetch.step() else { return fault };
    let BackEnd { cache, newest } = back;
    let mut locate = Locator { cache, index, counters, how: how.locate };
    let mut merge = Merger { newest, index, counters, merges: how.merge };
    let engine = &Copier { data, counters };
    let mut patch = Patcher { files, engine, taken, counters };
    let several = fetch.has_more() && how.threads > 1;
    let set = several.then(|| pipelines.take()).flatten();
    let batches = std::iter::once(first).chain(std::iter::from_fn(move || fetch.step()));
    if set.is_none() {
        for fetched in batches {
            patch.step(engine.step(merge.step(locate.step(fetched))));
        }
        return fault;
    }
    counters.pipelined();
    let [after_fetch, after_locate, after_merge, after_copy] = boundaries(how);
    scope(|scope| {
        let batches: Batches<'_, Fetched> = apart(scope, Box::new(batches), after_fetch);
        let batches: Batches<'_, Located> = Box::new(batches.map(|batch| locate.step(batch)));
        let batches = apart(scope, batches, after_locate);
        let batches: Batches<'_, Merged> = Box::new(batches.map(|batch| merge.step(batch)));
        let batches = apart(scope, batches, after_merge);
        let batches = Box::new(batches.map(|batch| engine.step(batch)));
        for copied in apart(scope, batches, after_copy) {
            patch.step(copied);
        }
    });
    fault
}

/// Behind which of the first four steps does another thread go on?
fn boundaries(how: How) -> [bool; 4] {
    match (how.threads, how.fold_fetch) {
        (0 | 1, _) => [false; 4],
        (2, _) => [false, false, false, true],
        (3, _) => [false, false, true, true],
        (_, true) => [false, true, true, true],
        (_, false) => [true, true, true, false],
    }
}

/// Has another thread do the steps so far, if it is to be: one batch waits at most. Without one,
/// where it cannot be started.
fn apart<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    batches: Batches<'s, T>,
    apart: bool,
) -> Batches<'s, T> {
    if !apart {
        return batches;
    }
    let (done, next) = sync_channel(1);
    let work = Arc::new(Mutex::new(Some(batches)));
    let theirs = work.clone();
    let take = |work: &Mutex<Option<Batches<'s, T>>>| {
        work.lock().unwrap_or_else(PoisonError::into_inner).take().expect("one thread takes it")
    };
    let started = Builder::new().name("siftfs-ingest".into()).spawn_scoped(scope, move || {
        for batch in take(&theirs) {
            if done.send(batch).is_err() {
                return;
            }
        }
    });
    match started {
        Ok(_) => Box::new(next.into_iter()),
        Err(_) => take(&work),
    }
}
