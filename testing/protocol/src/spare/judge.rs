//! The properties: each is one of states.

use super::config::Config;
use super::model::Spare;
use super::state::{Away, Logs, Lsn, Mode, SPARE};
use stateright::Property;

/// Names of properties.
pub mod names {
    /// S1.
    pub const KEPT: &str = "nothing acknowledged is lost, whatever is under way when power fails";
    /// What a death of the spare log loses.
    pub const BEFORE: &str = "what was answered before the spare log was used is there without it";
    /// R24.
    pub const ORDER: &str = "R24: what is applied follows all that was staged before it";
    /// R14.
    pub const TORN: &str = "R14: what was never durable in a log is not taken for rot";
    /// R4.
    pub const SOURCES: &str = "R4: what goes home is durable where the journal names it";
    /// The bound of an fsync's time.
    pub const PROMPT: &str = "an fsync waits for no write of the first log that was given up";
    /// Liveness.
    pub const DONE: &str = "every fsync comes to an end, or the mount is latched";
}

/// All properties.
pub fn properties() -> Vec<Property<Spare>> {
    use names::*;
    vec![
        Property::always(KEPT, |m: &Spare, s: &Logs| {
            s.recover(m.config(), [true; 2]).block >= s.acked
        }),
        Property::always(BEFORE, |m: &Spare, s: &Logs| s.has_what_was_before(m.config())),
        Property::always(ORDER, |m: &Spare, s: &Logs| s.recover(m.config(), [true; 2]).in_order),
        Property::always(TORN, |m: &Spare, s: &Logs| !s.looks_rotten(m.config())),
        Property::always(SOURCES, |_, s: &Logs| !s.unread),
        Property::always(PROMPT, |m: &Spare, s: &Logs| s.is_prompt(m.config())),
        Property::always(DONE, |m: &Spare, s: &Logs| s.is_done(m.config()) || m.can_move(s)),
    ]
}

impl Logs {
    fn has_what_was_before(&self, config: &Config) -> bool {
        let given_up = self.logs[SPARE].alone;
        given_up || self.recover(config, [true, false]).block >= self.safe
    }

    fn is_prompt(&self, config: &Config) -> bool {
        let newest: Lsn = self.newest();
        let [first, spare] = &self.logs;
        // What was given up once is waited for by nothing that came later.
        let given_up = |away: &&Away| self.of(away.record.lsn).durable[SPARE];
        let behind = |away: &Away| first.head > away.record.place + 1;
        match self.mode {
            Mode::To(SPARE) => !spare.away.is_empty() || self.may_acknowledge(config, newest),
            Mode::To(_) => !first.away.iter().filter(given_up).any(behind),
            _ => true,
        }
    }

    fn is_done(&self, config: &Config) -> bool {
        self.acked == config.fsyncs || self.mode == Mode::Latched
    }
}
