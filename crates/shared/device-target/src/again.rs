//! Reaching a target again after its connection was lost (`docs/design/target.md`, "A lost
//! target").
//!
//! The steps, in this order: connect; see that the header still names this host's epoch; take the
//! roles, for which the target waits until the I/O of the lost connection has ended; see it again,
//! because another host may have come in between; write what was not flushed. Only then does any
//! call go on.

use crate::calls::Calls;
use crate::device::Glance;
use crate::target::{Keeper, Target, greet};
use crate::waits::Waits;
use siftfs_base::{Error, Result};
use siftfs_device::Device;
use siftfs_wire::{Access, StorageAnswer, StorageCall};
use std::sync::{Arc, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Pauses between two tries: the first, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];
/// How long the target may wait for the roles, at each try.
const PATIENCE_MS: u32 = 2000;
/// How often a wait is written to the log.
const SAY: Duration = Duration::from_secs(60);

/// What was lost.
pub(crate) struct Lost<'a> {
    /// As the connection said it.
    pub why: String,
    /// As long as these are on.
    pub waits: &'a Waits,
}

/// A connection that takes the place of the lost one. Waits until there is one.
///
/// # Errors
/// Another host has had the volume since, it is another storage, it was closed meanwhile, or nobody
/// waits any more.
pub(crate) fn restore(target: &Target, keeper: &Keeper, lost: &Lost<'_>) -> Result<Arc<Calls>> {
    tracing::warn!(target = %target.place, why = lost.why, "the storage is lost: waiting for it");
    let (begun, mut said, mut pause) = (Instant::now(), Instant::now(), PAUSES[0]);
    loop {
        if let Some(closed) = target.over() {
            return Err(closed);
        }
        if !lost.waits.are_on() {
            return Err(Error::Link(lost.why.clone()));
        }
        match reach(target, keeper) {
            Ok(calls) => {
                let after = begun.elapsed().as_millis();
                tracing::info!(target = %target.place, after, "the storage is there again");
                return Ok(calls);
            }
            Err(Try::Over(error)) => {
                tracing::error!(target = %target.place, %error, "the storage is given up");
                return Err(error);
            }
            Err(Try::Again(error)) => {
                if said.elapsed() >= SAY {
                    said = Instant::now();
                    tracing::warn!(target = %target.place, %error, "still waiting for the storage");
                }
            }
        }
        sleep(pause);
        pause = (pause * 2).min(PAUSES[1]);
    }
}

/// What came of one try.
enum Try {
    Again(Error),
    Over(Error),
}

fn reach(target: &Target, keeper: &Keeper) -> std::result::Result<Arc<Calls>, Try> {
    let (calls, parts) = greet(&target.place, Access::Shared).map_err(Try::Again)?;
    if parts != target.parts {
        let what = format!("{}: its devices are others than before", target.place);
        return Err(Try::Over(Error::Refused(what)));
    }
    let calls = Arc::new(calls);
    ask(target, keeper, &calls)?;
    let roles = target.roles().clone();
    for (device, role) in roles {
        let claim = StorageCall::Claim { device, role, patience: PATIENCE_MS };
        done(&calls, claim).map_err(Try::Again)?;
    }
    ask(target, keeper, &calls)?;
    for (device, unflushed) in (0..).zip(&target.unflushed) {
        let all = unflushed.lock().unwrap_or_else(PoisonError::into_inner).all();
        for written in all {
            let (offset, len) = (written.offset, written.len);
            let blocks = written.blocks;
            let call = StorageCall::Write { device, offset, len, durable: false, blocks };
            done(&calls, call).map_err(|error| match error {
                link @ Error::Link(_) => Try::Again(link),
                // The storage fails: so will every flush.
                other => Try::Over(other),
            })?;
        }
    }
    Ok(calls)
}

/// Is it still this host's?
fn ask(target: &Target, keeper: &Keeper, calls: &Arc<Calls>) -> std::result::Result<(), Try> {
    let glance = |at, part| -> Arc<dyn Device> { Arc::new(Glance::new(calls, at, part)) };
    keeper(&target.parts.opened(glance)).map_err(|error| match error {
        link @ Error::Link(_) => Try::Again(link),
        other => Try::Over(other),
    })
}

fn done(calls: &Calls, call: StorageCall) -> Result<()> {
    match calls.call(call)? {
        StorageAnswer::Done => Ok(()),
        StorageAnswer::Failed { error } => Err(error),
        _ => Err(Error::Link("an answer to something else".into())),
    }
}
