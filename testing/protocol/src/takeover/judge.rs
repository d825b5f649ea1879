//! The properties. Those of states read the state alone; those of steps are noted by the step.

use super::config::Config;
use super::model::Takeover;
use super::state::{Broken, Phase, Volume};
use stateright::Property;

/// Names of properties.
pub mod names {
    /// R9.
    pub const ONE_WRITER: &str = "R9: no write lands in an object that a successor has read";
    /// S1.
    pub const KEPT: &str = "nothing acknowledged is lost";
    /// What a fenced server answers.
    pub const TRUE: &str = "an answer was true at a moment after the question";
    /// Who decides.
    pub const BY_WORD: &str = "an owner is fenced by the cluster's word or an operator's";
    /// Liveness.
    pub const DONE: &str = "every call comes to an end while a server is left";
}

/// All properties.
pub fn properties() -> Vec<Property<Takeover>> {
    use names::*;
    vec![
        Property::always(ONE_WRITER, |_, s: &Volume| s.ghost.holds(Broken::Writer)),
        Property::always(KEPT, |_, s: &Volume| s.ghost.holds(Broken::Lost)),
        Property::always(TRUE, |_, s: &Volume| s.ghost.holds(Broken::Stale)),
        Property::always(BY_WORD, |_, s: &Volume| s.ghost.holds(Broken::View)),
        Property::always(DONE, |m: &Takeover, s: &Volume| s.is_done(m.config()) || m.can_move(s)),
    ]
}

impl Volume {
    /// Are clients content, or is no server left?
    fn is_done(&self, config: &Config) -> bool {
        let over = |phase| matches!(phase, Phase::Latched | Phase::Ended);
        let left = self.servers.iter().any(|s| s.up && !over(s.phase));
        // What a server has recovered needs no answer: its client finds it there.
        let has_all = |phase, durable| phase == Phase::Serves && durable == config.fsyncs;
        let found = self.servers.iter().any(|s| s.up && has_all(s.phase, s.durable));
        let asked = self.servers.iter().any(|s| s.up && !over(s.phase) && s.asked.is_some());
        let synced = found || self.ghost.acked == config.fsyncs;
        !left || (synced && self.ghost.reads == config.reads && !asked)
    }
}
