//! What all changes of the table are made under.

use super::owners::Owners;
use super::store::{Places, Store};
use siftfs_base::Error;

/// Who owns something, and where leaves lie.
#[derive(Default)]
pub(super) struct Books {
    pub owners: Owners,
    pub places: Places,
    /// Leaves of which nobody has anything, because they could not be read or kept.
    pub lost: u64,
}

impl Books {
    /// Nobody has anything of this leaf any more. It is the way out of a change that cannot be
    /// made and must be: nothing is granted by it.
    pub fn lose(&mut self, store: &Store, number: u64, error: &Error) {
        tracing::error!(%error, leaf = number, "what was granted in a leaf is granted no more");
        store.clear(&mut self.places, number);
        self.lost += 1;
    }
}
