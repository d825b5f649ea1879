//! Situations that a configuration must get into.

use super::state::{Entry, LOG, Phase, SLOTS, Sent, Server, Slot, Volume};

/// Their names.
pub mod names {
    /// R9.
    pub const LATE: &str = "a write of the old owner is under way when its successor serves";
    /// R9.
    pub const REFUSED: &str = "a write of the old owner is refused";
    /// R9.
    pub const LANDED: &str = "a write of the old owner has landed in what its successor read";
    /// The operator's word.
    pub const TAKEN: &str = "a server is taken over that lives and watches";
    /// The short term.
    pub const SHORT: &str = "a successor waits for the end of a short entry";
    /// Recovery again.
    pub const AGAIN: &str = "a server takes over from one that died in its recovery";
    /// Two at a time.
    pub const TWO: &str = "two servers take over at once";
    /// Names.
    pub const NAMED: &str = "a server has the lock, and another one's name is written down";
    /// Reads.
    pub const ASKED: &str = "a fenced server is asked";
    /// The end in order.
    pub const NOBODY: &str = "the lock is free, and no name is written down";
}

/// Is this state such a situation?
pub(crate) fn is_at(s: &Volume, landmark: &str) -> bool {
    use names::*;
    let serves = |turn: u8| s.servers.iter().any(|b| b.phase == Phase::Serves && b.turn > turn);
    let old = || s.servers.iter().filter(|a| a.turn > 0 && serves(a.turn));
    let sent =
        |a: &Server, is: &dyn Fn(Sent) -> bool| a.sent.iter().flatten().any(|sent| is(*sent));
    let busy = |b: &&Server| b.up && b.phase > Phase::Waits && b.phase < Phase::Serves;
    match landmark {
        LATE => old().any(|a| sent(a, &|sent| matches!(sent, Sent::Away { .. }))),
        REFUSED => old().any(|a| sent(a, &|sent| matches!(sent, Sent::Refused(_)))),
        LANDED => old().any(|a| {
            let record = a.sent[Slot::Log as usize];
            matches!(record, Some(Sent::Done(value)) if s.servers.iter().any(|b| b.base == value))
        }),
        TAKEN => s.servers.iter().any(|b| {
            let from = |a: usize| s.cluster.watches(a) && s.cluster.entry(a) == Entry::Years;
            b.told && b.from.is_some_and(from)
        }),
        SHORT => {
            let short = |b: usize| s.cluster.entry(b) == Entry::Short;
            s.servers.iter().any(|b| b.phase == Phase::Checks)
                && (0..s.servers.len()).any(|b| short(b) && s.cluster.names & 1 << b != 0)
        }
        AGAIN => s.servers.iter().any(|c| {
            let died = |b: usize| !s.servers[b].up && s.servers[b].phase == Phase::Replays;
            c.phase == Phase::Reads && c.from.is_some_and(died)
        }),
        TWO => s.servers.iter().filter(busy).count() == 2,
        NAMED => s.servers.iter().enumerate().any(|(b, server)| {
            let lock = s.cluster.lock == Some(b) && server.phase == Phase::Checks;
            lock && s.cluster.names & !(1 << b) != 0
        }),
        ASKED => s.servers.iter().enumerate().any(|(a, server)| {
            let fenced = s.cluster.maps[s.cluster.known[LOG]][a] == Entry::Years;
            fenced && server.asked.is_some() && s.is_away(a, SLOTS[2])
        }),
        NOBODY => s.cluster.lock.is_none() && s.cluster.names == 0,
        other => unreachable!("no landmark has this name: {other}"),
    }
}
