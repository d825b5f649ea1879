//! Blocks of the area that this host grants to programs, which read and write them at the target by
//! themselves (`docs/design/target.md`, "The data plane").

use crate::target::Target;
use siftfs_base::{BlockRun, Result};
use siftfs_wire::{StorageAnswer, StorageCall, Token};
use std::collections::HashMap;
use std::sync::{MutexGuard, PoisonError};

/// What was written under a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Something was, since this was asked last, or that is not known any more.
    pub written: bool,
    /// The target has died meanwhile, or could not make it durable: what was answered, and not
    /// durable, may be lost.
    pub lost: bool,
}

impl Target {
    fn granted(&self) -> MutexGuard<'_, HashMap<u64, Token>> {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Grants blocks of the area under a number that has no grant. A caller that has the token that
    /// is answered may read them, and `write` them if that is said, until [`Target::revoke`], or until this
    /// host's connection is lost.
    ///
    /// # Errors
    /// Refused: there are too many grants, or the runs are no blocks of the area. Any other error
    /// says that the storage is lost for good.
    pub fn grant(&self, lease: u64, write: bool, runs: Vec<BlockRun>) -> Result<Token> {
        match self.calls(&[StorageCall::Grant { lease, write, runs }])?.pop() {
            Some(StorageAnswer::Granted { token }) => {
                self.granted().insert(lease, token);
                Ok(token)
            }
            Some(StorageAnswer::Failed { error }) => Err(error),
            other => Err(self.unfit(other.as_ref())),
        }
    }

    /// Makes durable what was written under a grant, and answered.
    ///
    /// # Errors
    /// It is not durable.
    pub fn settle(&self, lease: u64) -> Result<Settled> {
        let token = self.granted().get(&lease).copied();
        self.settled(token.map(|token| StorageCall::Settle { lease, token }))
    }

    /// As [`Target::settle`], and the grant has ended: nothing runs under it any more.
    ///
    /// # Errors
    /// As of [`Target::settle`].
    pub fn revoke(&self, lease: u64) -> Result<Settled> {
        let token = self.granted().remove(&lease);
        self.settled(token.map(|token| StorageCall::Revoke { lease, token }))
    }

    fn settled(&self, call: Option<StorageCall>) -> Result<Settled> {
        let Some(call) = call else { return Ok(Settled { written: false, lost: false }) };
        match self.calls(&[call])?.pop() {
            Some(StorageAnswer::Settled { written, lost }) => Ok(Settled { written, lost }),
            Some(StorageAnswer::Failed { error }) => Err(error),
            other => Err(self.unfit(other.as_ref())),
        }
    }
}
