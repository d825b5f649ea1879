//! Situations that a configuration must get into.

use super::config::{Call, Config};
use super::server::{Known, REPEATS};
use super::state::{Back, Kept, Numbers, Phase, Sent, Snapshot, Told, Up};

/// Their names.
pub mod names {
    /// R32: the reply is given again.
    pub const ANSWERED_AGAIN: &str = "a call comes again that this server has carried out";
    /// R53: the reply has survived.
    pub const SURVIVED: &str = "a call comes again whose effect and reply have survived";
    /// It has not.
    pub const GONE: &str = "a call comes again that left nothing";
    /// By order, or by mark.
    pub const THERE_BY_BOOK: &str = "a kept write is there by the book";
    /// By a mark.
    pub const THERE_BY_MARK: &str = "a kept write is there because another client has synced it";
    /// By LSN.
    pub const THERE_BY_LSN: &str = "a kept change of names is there by its LSN";
    /// Repeated.
    pub const REPEATED: &str = "a kept change is repeated";
    /// Repeated in another client's turn.
    pub const IN_TURN: &str = "a kept change waits for an older one of another client";
    /// A second death.
    pub const TRIED: &str = "a kept change comes that was repeated at a server that died";
    /// ... and has survived it.
    pub const TRIED_SURVIVED: &str = "what was repeated at a server that died has survived";
    /// Of two servers.
    pub const OF_TWO: &str = "clients keep changes of two servers that died";
    /// While it came back.
    pub const LOST_RETURNING: &str = "a client is expected that had come back already";
    /// Notices.
    pub const WAITS: &str = "a change waits for another kernel";
    /// A kernel without a connection.
    pub const WAITS_AWAY: &str = "a change waits for a kernel without a connection";
    /// Unknown to the same server.
    pub const ENDED: &str = "a client comes back whose session was ended";
    /// Unknown to a later one.
    pub const UNKNOWN: &str = "a client comes back of which nothing is known";
    /// Clean.
    pub const CLEAN: &str = "a client comes back after an orderly end";
    /// Nobody can say.
    pub const NOBODY_KNOWS: &str = "nobody can say whether a call was carried out";
    /// A compound is carried out and its client does not know it.
    pub const COMPOUND_UNANSWERED: &str = "a compound is durable whose answer is lost";
    /// Lock.
    pub const RECLAIMED: &str = "a lock is taken again after a death";
    /// Lock.
    pub const PASSED: &str = "a lock is another client's since";
    /// Lock.
    pub const LOCK_WAITS: &str = "a client waits for a lock whose owner is dead";
    /// Recovered and killed.
    pub const NO_BOOK: &str = "a server has no book of those before";
    /// L3.
    pub const FSYNC_AFTER: &str = "a fsync is answered by another server than its file's writes";
}

/// Is this state such a situation?
pub(crate) fn is_at(config: &Config, s: &Snapshot, landmark: &str) -> bool {
    let calls = is_of_calls(config, s, landmark);
    let kept = || is_of_kept(config, s, landmark);
    let rest = || is_of_the_rest(config, s, landmark);
    let is = calls.or_else(kept).or_else(rest);
    is.unwrap_or_else(|| unreachable!("no landmark has this name: {landmark}"))
}

/// Calls that come again.
fn is_of_calls(config: &Config, s: &Snapshot, landmark: &str) -> Option<bool> {
    use names::*;
    let all = || 0..s.clients.len();
    let known = |c: usize| s.known(config, (c, 0), s.number(c), 1 << s.number(c));
    let comes = |c: usize| s.to[c] == Some(Sent::Call) && s.may_receive(config, c);
    let comes_again = |wanted: Known| {
        all().any(|c| {
            let changes = matches!(s.call(config, c), Some(Call::Name(_) | Call::Write(_)));
            changes && s.clients[c].sent > 0 && comes(c) && known(c) == wanted
        })
    };
    Some(match landmark {
        ANSWERED_AGAIN => all()
            .any(|c| s.clients[c].sent > 1 && comes(c) && matches!(known(c), Known::Answered(_))),
        SURVIVED => comes_again(Known::There),
        GONE => !s.past().is_empty() && comes_again(Known::New),
        NOBODY_KNOWS => all().any(|c| {
            let change = matches!(s.call(config, c), Some(Call::Name(_) | Call::Compound(_)));
            let lost = matches!(s.clients[c].phase, Phase::Returning(Back::Unknown | Back::Clean));
            change && s.clients[c].waits && lost && !s.clients[c].had_answers
        }),
        COMPOUND_UNANSWERED => all().any(|c| {
            let Some(Call::Compound(file)) = s.call(config, c) else { return false };
            let id = Config::id(c, s.clients[c].call);
            let returns = matches!(s.clients[c].phase, Phase::Returning(_));
            returns && s.disk.files.data[file].contains(&id)
        }),
        FSYNC_AFTER => all().any(|c| {
            let fsync = matches!(s.call(config, c), Some(Call::Fsync(_)));
            let answered = s.from[c].first() == Some(&Told::Yes) && s.clients[c].needs != 0;
            fsync && answered && s.past().iter().any(|part| !part.ended)
        }),
        _ => return None,
    })
}

/// Kept changes that are repeated.
fn is_of_kept(config: &Config, s: &Snapshot, landmark: &str) -> Option<bool> {
    use names::*;
    let all = || 0..s.clients.len();
    let kept = |is: &dyn Fn(usize, Kept, u8, Numbers) -> bool| {
        all().any(|c| match s.to[c] {
            Some(Sent::Kept(kept, number, tried)) if s.may_receive(config, c) => {
                is(c, kept, number, tried)
            }
            _ => false,
        })
    };
    let part = |kept: &Kept| s.past().iter().find(|part| part.instance == kept.instance);
    let there = |kept: &Kept| part(kept).is_some_and(|part| Snapshot::is_there(part, kept));
    let told = |kept: &Kept| part(kept).is_some_and(|part| kept.order <= part.durable);
    let ended = |kept: &Kept| part(kept).is_some_and(|part| part.ended);
    Some(match landmark {
        THERE_BY_BOOK => kept(&|_, kept, _, _| kept.lsn == 0 && told(&kept)),
        THERE_BY_MARK => {
            kept(&|_, kept, _, _| kept.lsn == 0 && there(&kept) && !told(&kept) && !ended(&kept))
        }
        THERE_BY_LSN => kept(&|_, kept, _, _| kept.lsn != 0 && there(&kept) && !told(&kept)),
        REPEATED => kept(&|c, kept, number, tried| {
            let known = s.known(config, (c, REPEATS), number, tried);
            !there(&kept) && known == Known::New
        }),
        IN_TURN => all().any(|c| {
            let asks = matches!(s.to[c], Some(Sent::Kept(..))) && s.arrives(config, c).is_none();
            let serving = s.server.up == Up::Serving && s.server.expected == 0;
            serving && asks && !s.may_receive(config, c)
        }),
        TRIED => kept(&|_, _, _, tried| tried != 0),
        TRIED_SURVIVED => kept(&|c, kept, number, tried| {
            let known = s.known(config, (c, REPEATS), number, tried);
            tried & !(1 << number) != 0 && !there(&kept) && known == Known::There
        }),
        OF_TWO => {
            let kept = s.clients.iter().flat_map(|client| &client.kept);
            let mut others = kept.filter(|kept| kept.instance != s.server.instance);
            let first = others.next().map(|kept| kept.instance);
            let two = first.is_some() && others.any(|kept| Some(kept.instance) != first);
            s.server.up == Up::Serving && two
        }
        _ => return None,
    })
}

/// Kernels, sessions and locks.
fn is_of_the_rest(config: &Config, s: &Snapshot, landmark: &str) -> Option<bool> {
    use names::*;
    let all = || 0..s.clients.len();
    let serving = s.server.up == Up::Serving;
    let comes = |c: usize, back: Back| s.clients[c].phase == Phase::Returning(back);
    let same = |c: usize| s.clients[c].instance == s.server.instance;
    Some(match landmark {
        LOST_RETURNING => all()
            .any(|c| serving && s.server.expected & 1 << c != 0 && s.server.sessions[c].is_some()),
        WAITS => all().any(|c| s.server.jobs[c].is_some_and(|job| job.waits != 0)),
        WAITS_AWAY => all().any(|c| {
            let away = |other: usize| s.server.sessions[other].is_some_and(|it| !it.here);
            let waits = s.server.jobs[c].map_or(0, |job| job.waits);
            all().any(|other| waits & 1 << other != 0 && away(other))
        }),
        ENDED => all().any(|c| comes(c, Back::Unknown) && same(c)),
        UNKNOWN => all().any(|c| comes(c, Back::Unknown) && !same(c)),
        CLEAN => all().any(|c| comes(c, Back::Clean)),
        RECLAIMED => all().any(|c| {
            s.to[c] == Some(Sent::Reclaim) && s.may_receive(config, c) && s.server.lock.is_none()
        }),
        PASSED => s.ghost.passed != 0,
        LOCK_WAITS => {
            let asks = |c: usize| s.to[c] == Some(Sent::Call);
            let waits = |c: usize| s.call(config, c) == Some(Call::Lock) && asks(c);
            let dead = s.server.lock.is_some_and(|of| s.clients[of].phase == Phase::Dead);
            dead && all().any(waits)
        }
        NO_BOOK => serving && s.server.knows_nobody,
        _ => return None,
    })
}
