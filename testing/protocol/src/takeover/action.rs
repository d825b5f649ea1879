//! What may happen next.

use super::state::Slot;

/// One atomic step. A server that sleeps is one whose turn does not come: what it has sent lands
/// all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A server that waits finds the lock free, or the word that its owner is gone.
    Look(usize),
    /// It does the next thing of its takeover.
    Next(usize),
    /// It reads the log.
    ReadLog(usize),
    /// It reads the area.
    ReadArea(usize),
    /// A client has a server make its next value durable.
    Fsync(usize),
    /// A server writes to the area what its log has.
    Checkpoint(usize),
    /// A client asks a server for the value.
    ReadBegins(usize),
    /// A request of this server reaches the cluster, which carries it out or refuses it.
    Land(usize, Slot),
    /// This server takes the cluster's answer.
    Take(usize, Slot),
    /// The keeper of an object learns of the next map.
    Learn(usize),
    /// A short entry of the block list ends.
    Expire(usize),
    /// A server whose requests have all been answered ends in order: it takes its name away.
    End(usize),
    /// The cluster ends the watch of a server that it does not hear of.
    WatchEnds(usize),
    /// A server dies. What it has sent lands all the same.
    Dies(usize),
    /// An operator has this server take over, although the owner may watch.
    OperatorSays(usize),
    /// Somebody breaks the lock by hand, with an entry of a short term.
    BrokenByHand,
}
