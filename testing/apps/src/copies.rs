//! Trees that are made again and again, each in a directory of its own: what is synced is kept in
//! mind as acknowledged, what was under way at a crash may be there in part.

use crate::work::Site;
use siftfs_rig::place::{Failed, Result, failed};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Acknowledged trees that are kept, so that the volume does not fill up.
const KEPT: usize = 3;

/// The trees.
#[derive(Default)]
pub struct Copies {
    state: Mutex<State>,
}

#[derive(Clone, Default)]
struct State {
    next: usize,
    acknowledged: Vec<usize>,
    total: usize,
}

fn path(at: &Site, n: usize) -> PathBuf {
    at.dir.join(format!("copy-{n}"))
}

impl Copies {
    fn state<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes trees, one after the other, until work ends; each is synced, and old ones removed.
    pub fn work(&self, at: &Site, make: impl Fn(&Path) -> Result<()>) -> Result<()> {
        while !at.stopped() {
            if let Err(e) = self.work_once(at, &make) {
                return if at.stopped() { Ok(()) } else { Err(e) };
            }
        }
        Ok(())
    }

    /// Makes one tree and syncs it; removes an old one.
    pub fn work_once(&self, at: &Site, make: &impl Fn(&Path) -> Result<()>) -> Result<()> {
        let n = self.state(|s| {
            s.next += 1;
            s.next
        });
        make(&path(at, n))?;
        at.sync()?;
        let old = self.state(|s| {
            s.acknowledged.push(n);
            s.total += 1;
            (s.acknowledged.len() > KEPT).then(|| s.acknowledged.remove(0))
        });
        old.map_or(Ok(()), |old| remove(&path(at, old)))
    }

    /// Has every acknowledged tree checked. What was under way is removed, and made again to be
    /// checked in its turn.
    pub fn check(
        &self,
        at: &Site,
        make: impl Fn(&Path) -> Result<()>,
        check: impl Fn(&Path) -> Result<()>,
    ) -> Result<()> {
        let state = self.state(|s| s.clone());
        for n in &state.acknowledged {
            check(&path(at, *n))?;
        }
        for n in 1..=state.next {
            if !state.acknowledged.contains(&n) {
                remove(&path(at, n))?;
            }
        }
        let again = path(at, 0);
        remove(&again)?;
        make(&again)?;
        check(&again)
    }

    /// The one under way at a crash, if it is there.
    pub fn unfinished(&self, at: &Site) -> Option<PathBuf> {
        let state = self.state(|s| s.clone());
        let newest = path(at, state.next);
        (!state.acknowledged.contains(&state.next) && newest.exists()).then_some(newest)
    }

    /// Trees acknowledged so far.
    pub fn total(&self) -> usize {
        self.state(|s| s.total)
    }
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed(path.display())(e)),
        _ => Ok(()),
    }
}

/// Fails if a comparison printed anything.
pub fn no_difference(what: &str, printed: &str) -> Result<()> {
    if printed.trim().is_empty() {
        return Ok(());
    }
    Err(Failed(format!("{what} finds differences:\n{printed}")))
}
