//! The properties. That of states reads the state alone; those of steps are noted by the step.

use super::config::{Config, Who};
use super::model::Logs;
use super::state::{At, Broken, World};
use stateright::Property;

/// Names of properties.
pub mod names {
    /// L1 and L2 of the design, rules R47 and R48.
    pub const OLDER: &str =
        "L1, L2: what was returned or seen survives the program, and all see it";
    /// L3, rules R36 and R37.
    pub const PROMISE: &str = "L3: what an fsync has promised is there after every crash";
    /// L3, rules R38 and R46.
    pub const ORDER: &str = "R38, R46: so is what others were answered before it";
    /// Rule R16.
    pub const MISSING: &str = "R16: recovery finds each log that counts";
    /// Rule R37: memory of a dead daemon.
    pub const DEAD: &str =
        "R37: a dead daemon's words count no longer than it has vouched for them";
    /// L4.
    pub const ANSWERED: &str = "L4: every call returns, or its program has ended";
}

/// All properties.
pub fn properties() -> Vec<Property<Logs>> {
    use names::*;
    vec![
        Property::always(OLDER, |_, s: &World| s.ghost.holds(Broken::Older)),
        Property::always(PROMISE, |_, s: &World| s.ghost.holds(Broken::Promise)),
        Property::always(ORDER, |_, s: &World| s.ghost.holds(Broken::Order)),
        Property::always(MISSING, |_, s: &World| s.ghost.holds(Broken::Missing)),
        Property::always(DEAD, |_, s: &World| s.ghost.holds(Broken::Dead)),
        Property::always(ANSWERED, |m: &Logs, s: &World| s.is_done(m.config()) || m.can_move(s)),
    ]
}

impl World {
    /// Has every thread ended?
    fn is_done(&self, config: &Config) -> bool {
        self.clients.iter().enumerate().all(|(c, client)| {
            let ended = client.at == At::Ready && self.call(config, c).is_none();
            let stopped = config.who(c) == Who::Holder && self.program.stopped;
            client.at == At::Ended || ended || stopped
        })
    }
}
