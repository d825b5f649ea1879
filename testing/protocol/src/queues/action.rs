//! What may happen next.

use super::state::Message;

/// One atomic step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A thread decides its call's group, and takes numbers, under the queue's lock.
    Take(usize),
    /// A thread decides the group alone: only a planted fault does so.
    Decide(usize),
    /// A request comes to the target, which refuses it, parks it, or has it ready.
    Arrive(Message),
    /// The target begins a request that is ready: it checks the table.
    Begin(Message),
    /// The next block of a running request is read or written.
    Effect(Message),
    /// A running request is finished, and its answer is sent.
    Finish(Message),
    /// The program takes an answer.
    Answer(Message),
    /// The target takes the program's wish for this life.
    Hear(u8),
    /// The target answers it.
    Attached,
    /// The term of what is parked has passed: the target ends the queue's life.
    Term,
    /// The term of a call that waits for the window has passed: the program takes a new life.
    WindowTerm,
    /// The target answers the host that nothing runs under the grant any more.
    Revoked,
    /// A request of another file's queue comes to the target.
    NeighbourBegins,
    /// That request is answered.
    NeighbourEnds,
    /// The program's connections break, and it takes a new life.
    Break,
    /// The thread of a call stops before it has sent this part of it, or a later one.
    Stop(usize, usize),
    /// The term passes although what is missing is on its way.
    EarlyTerm,
    /// The host has the target end the grant.
    Revoke,
}
