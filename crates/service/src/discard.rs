//! Giving freed blocks back to the storage, in bounded pieces between what is urgent.
//!
//! The Runtime names blocks that nothing durable refers to, and gives them to no file before it is
//! told that their discard has ended (`docs/design/discard.md`). A discard that fails leaves free
//! blocks with undefined contents, which is what free blocks have: it is counted and stops nothing.

use crate::discards::Request;
use crate::service::Service;
use siftfs_base::{BLOCK_BYTES, BlockRun, Error, Result, corrupt};
use siftfs_wire::{DISCARD_MAX_RUNS, FromService};

/// Bytes that one step gives back at most, and so how long what comes meanwhile waits for it.
const STEP_BYTES: u64 = 4 << 20;
/// Runs that one step gives back at most: each is a call that takes some microseconds.
const STEP_RUNS: usize = 32;
impl Service {
    /// Takes a request to give blocks back.
    ///
    /// # Errors
    /// Corrupt if it names blocks outside the area, or that data was just written to.
    pub(crate) fn discard(&mut self, id: u64, runs: Vec<BlockRun>) -> Result<()> {
        self.greeted_keys()?;
        let bad = |why: &str| Err(corrupt(format!("discard {id}"), why));
        let blocks = self.parts.area.len() / BLOCK_BYTES;
        if runs.len() > DISCARD_MAX_RUNS {
            return bad("it has more runs than one message may carry");
        }
        if runs.iter().any(|run| run.len == 0 || run.end() > blocks) {
            return bad("a run is empty or outside the area");
        }
        let meets = |a: &BlockRun, b: &BlockRun| a.start < b.end() && b.start < a.end();
        if runs.iter().any(|run| self.direct.iter().any(|written| meets(run, written))) {
            return bad("it names blocks of the transaction that is being made");
        }
        let (blocks, failed, unsupported) = (0, 0, false);
        let request = Request { id, runs: runs.into(), blocks, failed, unsupported };
        self.discards.waiting.push_back(request);
        Ok(())
    }

    /// Gives some blocks of the oldest request back, and answers it after its last.
    pub(crate) fn discard_step(&mut self) {
        self.count_as(false);
        let Some(mut request) = self.discards.waiting.pop_front() else { return };
        let (mut bytes, mut calls) = (0, 0);
        while bytes < STEP_BYTES && calls < STEP_RUNS && !request.unsupported {
            let Some(run) = request.runs.pop_front() else { break };
            let some = BlockRun { len: run.len.min(STEP_BYTES / BLOCK_BYTES), ..run };
            let rest = BlockRun { start: some.end(), len: run.len - some.len };
            if rest.len > 0 {
                request.runs.push_front(rest);
            }
            (bytes, calls) = (bytes + some.len * BLOCK_BYTES, calls + 1);
            let (offset, len) = (some.start * BLOCK_BYTES, some.len * BLOCK_BYTES);
            match self.parts.area.discard(self.origin, offset, len) {
                Ok(()) => request.blocks += some.len,
                Err(Error::Io { errno: libc::EOPNOTSUPP, .. }) => request.unsupported = true,
                Err(error) => {
                    request.failed += 1;
                    if !std::mem::replace(&mut self.discards.told, true) {
                        tracing::warn!(%error, "freed blocks could not be given back; going on");
                    }
                }
            }
        }
        if !request.runs.is_empty() && !request.unsupported {
            return self.discards.waiting.push_front(request);
        }
        let Request { id, blocks, failed, unsupported, .. } = request;
        self.out.push_back(FromService::Discarded { id, blocks, failed, unsupported });
    }
}

#[cfg(test)]
#[path = "discard_tests.rs"]
mod tests;
