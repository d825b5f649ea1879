//! Situations that a configuration must get into.

use super::config::Config;
use super::state::{Grant, Message, Place, Stage, Traffic, bit};

/// Their names.
pub mod names {
    /// Groups.
    pub const OVERTAKES: &str = "a request of a later group comes before one of an earlier group";
    /// Groups.
    pub const TOGETHER: &str = "two requests of one group run at once";
    /// Windows.
    pub const FULL: &str = "a call waits for the window";
    /// Lives.
    pub const DRAINS: &str = "a new life waits for a request of an old one that runs";
    /// Lives.
    pub const OLD: &str =
        "a request of an old life is on its way to a target that serves a new one";
    /// Lives.
    pub const TOLD: &str = "a new life finds a write that was carried out and not answered";
    /// Lives.
    pub const HALF: &str = "a call is repeated of which a part is there";
    /// Lives.
    pub const KEPT: &str = "the target has the order of a life before the last one";
    /// Terms.
    pub const ENDS: &str = "the target has ended a life";
    /// Terms.
    pub const STANDS: &str = "a call waits for the window, and nothing is parked or moves";
    /// R29.
    pub const REVOKES: &str = "a grant is to end while a request runs";
    /// R29.
    pub const LATE: &str = "a request is on its way to a target whose grant is over";
    /// Tables.
    pub const DENIED: &str = "a request is parked behind one that the table refuses";
    /// Isolation.
    pub const ALL_PARKED: &str = "a window of requests is parked";
}

/// Is this state such a situation?
pub(crate) fn is_at(config: &Config, s: &Traffic, landmark: &str) -> bool {
    use names::*;
    let (target, parked) = (&s.target, |m: &Message| m.place == Place::Parked);
    let way = |m: &Message| m.place == Place::Way;
    let runs = |m: &Message| matches!(m.place, Place::Running(..));
    match landmark {
        OVERTAKES => s
            .messages
            .iter()
            .filter(|m| parked(m))
            .any(|late| s.count(|m| way(m) && m.life == late.life && m.number < late.first) > 0),
        TOGETHER => s.messages.iter().filter(|m| runs(m)).any(|one| {
            let same = |m: &Message| m.life == one.life && m.first == one.first;
            s.count(|m| runs(m) && same(m)) > 1
        }),
        FULL => (0..config.calls.len())
            .any(|call| s.program.attached && s.wants(config, call) && !s.has_room(config, call)),
        DRAINS => target.attaching && s.runs(|m| m.life < target.life),
        OLD => s.count(|m| way(m) && m.life < target.life) > 0,
        TOLD => s.program.calls.iter().zip(&config.calls).any(|(thread, what)| {
            let Stage::Open(life, number) = thread.stage else { return false };
            let done = life == target.order && target.done & bit(number) != 0;
            target.attaching && life < target.life && what.writes && what.parts == 1 && done
        }),
        HALF => s.program.calls.iter().any(|t| t.half && matches!(t.stage, Stage::Again(..))),
        KEPT => target.attaching && target.order + 1 < target.life,
        ENDS => target.ended,
        STANDS => s.may_pass_in_window(config),
        REVOKES => target.grant == Grant::Closing && s.runs(|_| true),
        LATE => target.grant == Grant::Gone && s.count(way) > 0,
        DENIED => {
            let denied = |m: &Message| m.call.is_some_and(|call| config.calls[call].denied);
            s.messages.iter().filter(|m| m.place == Place::Ready && denied(m)).any(|early| {
                s.count(|m| parked(m) && m.life == early.life && m.first > early.number) > 0
            })
        }
        ALL_PARKED => s.count(parked) as u64 == config.window - 1 && !s.runs(|_| true),
        other => unreachable!("no landmark has this name: {other}"),
    }
}
