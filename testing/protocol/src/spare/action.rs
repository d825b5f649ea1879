//! What may happen next.

use super::state::Lsn;

/// One atomic step. A log that stalls is one whose turn does not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A client has the next value made durable: its record is placed, and its write begins.
    Fsync,
    /// A write of this log, with this record, reaches the medium, durably.
    Land(usize, Lsn),
    /// The process learns of it.
    Answer(usize, Lsn),
    /// All up to this record is acknowledged.
    Acknowledge(Lsn),
    /// The oldest record that is not home goes there, by journal and checkpoint.
    Home,
    /// Places are given back whose records went home before their writes were answered.
    Reclaim,
    /// A write of the first log took too long: records go to the spare one.
    FailOver,
    /// The first log has answered everything: records go there again.
    GoBack,
    /// The log that is left says durably that it is the only one.
    IsAlone,
    /// A write or a flush of this log fails.
    Fails(usize),
}
