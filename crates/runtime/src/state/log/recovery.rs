//! Recovery, while it applies staged transactions.

use siftfs_base::{InodeNr, Lsn, Timestamp};
use siftfs_log::NameOp;

/// What transactions cut by recovery say, instead of the live numbers.
#[derive(Clone, Debug)]
pub struct RecoveryCut {
    /// Operations up to here were in the base before recovery began.
    pub ops_cut: Lsn,
    /// Staged transactions up to here are applied.
    pub staged_cut: Lsn,
    /// Lane positions up to which records are applied.
    pub lane_upto: Vec<u64>,
}

/// Directory, name and inode.
pub type Bound = (InodeNr, Vec<u8>, InodeNr);

/// A file that a name operation made, and what its directory was like before.
pub struct Made {
    /// The operation.
    op: Lsn,
    /// When.
    at: Timestamp,
    /// The name that it bound.
    bound: Bound,
    /// The directory's mtime and ctime before.
    times: (Timestamp, Timestamp),
}

impl Made {
    /// `op` made a file and bound the name; the directory's mtime and ctime were `times` before.
    pub fn new(op: &NameOp, bound: Bound, times: (Timestamp, Timestamp)) -> Self {
        Self { op: op.lsn, at: op.time, bound, times }
    }

    /// The directory's mtime and ctime before, if `op` took the name away at once: it is the next
    /// operation, at the same time.
    pub fn undone_by(self, op: &NameOp, bound: &Bound) -> Option<(Timestamp, Timestamp)> {
        let at_once = self.op.0 + 1 == op.lsn.0 && self.at == op.time && self.bound == *bound;
        at_once.then_some(self.times)
    }
}

/// Recovery, while it applies staged transactions: nothing is pending, times and LSNs are given.
pub struct Recovery {
    /// What its transactions say.
    cut: RecoveryCut,
    /// Unlinked inodes keep their blocks: a staged transaction still to be applied may name them.
    keeps_orphans: bool,
    /// What it made last, if that was a file.
    made_last: Option<Made>,
}

impl Recovery {
    /// Nothing is applied beyond `base`.
    pub fn new(base: RecoveryCut) -> Self {
        Self { cut: base, keeps_orphans: true, made_last: None }
    }

    /// What a transaction says that is cut now.
    pub fn cut(&self) -> &RecoveryCut {
        &self.cut
    }

    /// The staged transaction `lsn`, whose record ends at position `end` of the lane, is applied,
    /// or was in the base.
    ///
    /// # Panics
    /// If the base has no such lane.
    pub fn applied(&mut self, lsn: Lsn, lane: usize, end: u64) {
        self.cut.staged_cut = self.cut.staged_cut.max(lsn);
        self.cut.lane_upto[lane] = self.cut.lane_upto[lane].max(end);
    }

    /// Everything is applied: transactions from here on contain everything up to `upto`, and
    /// unlinked inodes can be freed.
    pub fn all_applied(&mut self, upto: Lsn) {
        self.keeps_orphans = false;
        (self.cut.ops_cut, self.cut.staged_cut) = (upto, upto);
    }

    /// Do unlinked inodes keep their blocks?
    pub fn keeps_orphans(&self) -> bool {
        self.keeps_orphans
    }

    /// The last name operation made a file.
    pub fn made(&mut self, made: Made) {
        self.made_last = Some(made);
    }

    /// What the last name operation made, if that was a file; another one follows now.
    pub fn take_made(&mut self) -> Option<Made> {
        self.made_last.take()
    }
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
