//! Blocks of the area that this host grants to programs, which read and write them at the target by
//! themselves (`docs/design/target.md`, "The data plane").

use crate::place::TargetPlace;
use crate::target::Target;
use siftfs_base::{Error, Result};
use siftfs_transport::Address;
use siftfs_wire::{FileRun, GrantRun, StorageAnswer, StorageCall, Token};
use std::collections::HashMap;
use std::sync::{MutexGuard, PoisonError};

/// What was written under a grant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Something was, since this was asked last, or that is not known any more.
    pub written: bool,
    /// The target has died meanwhile, or could not make it durable: what was answered, and not
    /// durable, or not reported, may be lost.
    pub lost: bool,
    /// Fresh blocks that were written, in the order of their places in the file. They are durable,
    /// and reported once.
    pub fresh: Vec<FileRun>,
    /// The byte of the file behind the last one that was written to what was granted as fresh; 0 if
    /// that has not changed.
    pub end: u64,
    /// There is more to report: to be asked again for that.
    pub more: bool,
}

/// What admits a program, and where.
#[derive(Clone, Debug)]
pub struct Granted {
    /// What a program says there.
    pub token: Token,
    /// Where it connects; with keys of its own, over TCP.
    pub place: TargetPlace,
}

/// Where programs reach a target that says so. One that listens on every interface is where its
/// hosts reach it, at that port.
fn reached(text: &str, target: &Address) -> Result<Address> {
    let programs: Address = text.parse()?;
    let everywhere = ["0.0.0.0", "::", "[::]"];
    Ok(match (programs, target.network()) {
        (Address::Tcp { host, port }, Some((known, _))) if everywhere.contains(&&*host) => {
            Address::Tcp { host: known.into(), port }
        }
        (Address::Rdma { host, port }, Some((known, _))) if everywhere.contains(&&*host) => {
            Address::Rdma { host: known.into(), port }
        }
        (programs, _) => programs,
    })
}

#[cfg(test)]
#[path = "grants_tests.rs"]
mod tests;

impl Target {
    fn granted(&self) -> MutexGuard<'_, HashMap<u64, Token>> {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Grants a file's blocks of the area under a number that has no grant. A caller that has the
    /// token that is answered, and connects where that says, may read them, and `write` them if so
    /// said, until [`Target::revoke`], or until this host's connection is lost. Fresh blocks read
    /// as zeros until they are written, and are reported when they were.
    ///
    /// # Errors
    /// Refused: there are too many grants, or the runs are no blocks of the area. Any other error
    /// says that the storage is lost for good.
    pub fn grant(
        &self,
        (lease, file): (u64, u64),
        write: bool,
        runs: Vec<GrantRun>,
    ) -> Result<Granted> {
        match self.calls(&[StorageCall::Grant { lease, file, write, runs }])?.pop() {
            Some(StorageAnswer::Granted { token, programs }) => {
                self.granted().insert(lease, token);
                let place = self.place();
                let address = programs.map(|text| reached(&text, &place.address)).transpose()?;
                let address = address.unwrap_or_else(|| place.address.clone());
                Ok(Granted { token, place: TargetPlace { address, ..place.clone() } })
            }
            Some(StorageAnswer::Failed { error }) => Err(error),
            other => Err(self.unfit(other.as_ref())),
        }
    }

    /// Grants these blocks as well by a grant of this number: all of them, or none.
    ///
    /// # Errors
    /// `ESTALE`: it has ended, or ends with a connection that was lost. Refused: as of
    /// [`Target::grant`]. Any other error says that the storage is lost for good.
    pub fn extend(&self, lease: u64, runs: Vec<GrantRun>) -> Result<()> {
        let token = self.granted().get(&lease).copied();
        let token = token.ok_or_else(|| Error::Refused(format!("{lease} has no grant")))?;
        match self.calls(&[StorageCall::Extend { lease, token, runs }])?.pop() {
            Some(StorageAnswer::Done) => Ok(()),
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

    /// As [`Target::settle`], and the grant has ended: nothing runs under it any more. If there is
    /// more to report, it is asked again for that.
    ///
    /// # Errors
    /// As of [`Target::settle`].
    pub fn revoke(&self, lease: u64) -> Result<Settled> {
        let token = self.granted().get(&lease).copied();
        let settled = self.settled(token.map(|token| StorageCall::Revoke { lease, token }));
        if !settled.as_ref().is_ok_and(|settled| settled.more) {
            self.granted().remove(&lease);
        }
        settled
    }

    fn settled(&self, call: Option<StorageCall>) -> Result<Settled> {
        let Some(call) = call else { return Ok(Settled::default()) };
        match self.calls(&[call])?.pop() {
            Some(StorageAnswer::Settled { written, lost, fresh, end, more }) => {
                Ok(Settled { written, lost, fresh, end, more })
            }
            Some(StorageAnswer::Failed { error }) => Err(error),
            other => Err(self.unfit(other.as_ref())),
        }
    }
}
