//! What pages owe that the kernel sent by itself.
//!
//! Such a WRITE may be what another front end's notice waits for, so it waits for none itself. What
//! it changed is owed to the others all the same: fsync(2), msync(2) and close(2) of the file wait
//! until that is settled.

use siftfs_base::InodeNr;
use siftfs_proto::Owed;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What each file's pages owe.
#[derive(Default)]
pub(crate) struct PageDebts(Mutex<HashMap<InodeNr, Owed>>);

impl PageDebts {
    fn table(&self) -> MutexGuard<'_, HashMap<InodeNr, Owed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pages of the file that are written now owe this.
    pub(crate) fn add(&self, ino: InodeNr, owed: Owed) {
        if owed.is_settled() {
            return;
        }
        let mut table = self.table();
        let mut all = table.remove(&ino).unwrap_or_default().unsettled();
        all.add(owed);
        table.insert(ino, all);
        table.retain(|_, owed| !owed.is_settled());
    }

    /// What the file's pages owe that have come so far.
    pub(crate) fn of(&self, ino: InodeNr) -> Owed {
        let mut table = self.table();
        let owed = table.get(&ino).cloned().unwrap_or_default();
        if owed.is_settled() {
            table.remove(&ino);
        }
        owed
    }
}
