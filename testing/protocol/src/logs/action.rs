//! What may happen next.

use super::state::Kind;

/// One atomic step. Numbers name a client by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A client's next call begins.
    Begin(usize),
    /// The holder moves the ring's head behind its record.
    Head(usize),
    /// The holder shows others the size that its record makes.
    Show(usize),
    /// The holder looks at the grantor's words, after it has published, read, or made a batch
    /// persistent.
    Look(usize),
    /// The holder has seen that its lease ended, and learns what became of its record.
    Settle(usize),
    /// The batch that is on its way becomes persistent.
    Persist,
    /// What a client asked of its daemon is never answered: that daemon is dead.
    Abandon(usize),
    /// The Runtime carries a request of the mount out, or recalls the lease for it.
    Apply(usize),
    /// The Runtime answers it.
    Answer(usize),
    /// The grantor begins to do something, for this client if there is one.
    Start(Kind, Option<usize>),
    /// The grantor takes its next step.
    Step,
    /// The grantor's next step is an ingestion, and the Runtime cannot write this file.
    Fail(usize),
    /// The batch that is on its way cannot be written. It lies there all the same, or not.
    LogFails(bool),
    /// The registry's row cannot be written. It lies there all the same, or not.
    RowFails(bool),
    /// The Runtime makes durable by age what it has.
    Commit,
    /// The word of orders is counted up late (planted fault only).
    Advance,
    /// A daemon that starts takes its next step.
    Recover,
    /// The Runtime ends the lease of this file by the clock (planted fault only).
    Term(usize),
    /// What a dead daemon vouched for runs out.
    Expire,
    /// The program with the private log is killed.
    Dies,
    /// It is stopped.
    Stop,
    /// The daemon is killed.
    Kill,
    /// Power fails.
    Power,
}
