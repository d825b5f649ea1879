//! Which program holds the lease of which file.

use crate::serve::caller::thread_group;
use siftfs_base::InodeNr;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Processes by the files whose leases they hold.
#[derive(Default)]
pub(super) struct Programs {
    files: AtomicUsize,
    table: Mutex<HashMap<InodeNr, Vec<u32>>>,
}

impl Programs {
    fn table(&self) -> MutexGuard<'_, HashMap<InodeNr, Vec<u32>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process has one lease more of the file.
    pub(super) fn holds(&self, process: u32, ino: InodeNr) {
        let mut table = self.table();
        table.entry(ino).or_default().push(process);
        self.files.store(table.len(), Ordering::SeqCst);
    }

    /// It has one less.
    pub(super) fn returns(&self, process: u32, ino: InodeNr) {
        let mut table = self.table();
        if let Some(processes) = table.get_mut(&ino) {
            if let Some(at) = processes.iter().position(|own| *own == process) {
                processes.swap_remove(at);
            }
            if processes.is_empty() {
                table.remove(&ino);
            }
        }
        self.files.store(table.len(), Ordering::SeqCst);
    }

    /// Does the process of this thread hold the file's lease?
    pub(super) fn has(&self, thread: u32, ino: InodeNr) -> bool {
        if self.files.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let processes = self.table().get(&ino).cloned().unwrap_or_default();
        let own = || thread_group(thread);
        thread != 0 && !processes.is_empty() && own().is_some_and(|own| processes.contains(&own))
    }
}
