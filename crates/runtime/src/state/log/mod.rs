//! What the logs are owed, and what they hold.

pub mod hold;
pub mod lane;
pub mod ledger;
pub mod names;
pub mod overlay_debt;
pub mod permissions;
pub mod pushed;
pub mod questions;
pub mod recovery;
pub mod replies;
pub mod reserves;
pub mod running;
pub mod staging;
pub mod time;

use self::hold::Hold;
pub use self::ledger::{Ledger, TxnInfo};
use self::names::NameLog;
pub use self::recovery::Recovery;
use self::replies::Replies;
use self::reserves::Reserves;
pub use self::running::Running;
pub use self::staging::Staging;
pub use self::time::Time;
use crate::config::Config;
use crate::state::changes::Changes;
use siftfs_base::{InodeNr, Timestamp};

/// What the logs are owed, and what they hold, with the settings that say when it is written.
pub struct Log {
    /// Settings.
    pub config: Config,
    /// What the running transaction owes: changes that no transaction has journaled.
    pub running: Running,
    /// Pending name operations.
    pub names: NameLog,
    /// Transactions from their cut to their reclamation, the room in the journal, and what the
    /// Service was asked.
    pub ledger: Ledger,
    /// The lanes, and the order of what is staged in them.
    pub staging: Staging,
    /// The clock, and the latest time it gave.
    pub time: Time,
    /// What the operation under way has changed.
    pub changes: Changes,
    /// Whose calls made name operations (rule R53).
    pub replies: Replies,
    /// What sessions have set aside of the free space.
    pub reserves: Reserves,
    /// Who may change the volume, unless it is read-only.
    pub hold: Hold,
    /// `None` on a volume that was clean: rule R18 comes before the mount.
    pub recovery: Option<Recovery>,
}

impl Log {
    /// Are staged transactions being applied that are durable already?
    pub fn is_replaying(&self) -> bool {
        self.recovery.is_some()
    }

    /// The present time; never before an earlier one.
    pub fn now(&mut self) -> Timestamp {
        self.time.now()
    }

    /// Notes that something unjournaled exists, for the commit timer.
    pub fn touch(&mut self) {
        self.running.touch(&self.time);
    }

    /// The inode's attributes changed; the running transaction will write them.
    pub fn mark_inode(&mut self, ino: InodeNr) {
        self.running.inode_changed(ino, &self.time);
        self.changes.attributes(ino);
    }

    /// Notes a permission change that is pending on the inode (rule R17).
    pub fn mark_perms(&mut self, ino: InodeNr) {
        if !self.is_replaying() {
            self.running.permissions.changed(ino);
        }
    }

    /// Share of staging or journal in use, whichever is more, in percent.
    pub fn log_fill_percent(&self) -> u64 {
        let journal = self.ledger.journal_used() * 100 / self.ledger.journal_len();
        journal.max(self.staging.fill_percent())
    }
}
