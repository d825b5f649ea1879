//! The properties. Those of states read the state alone; those of steps are noted by the step.

use super::config::Config;
use super::history::explains;
use super::model::Queues;
use super::state::{Broken, Grant, Message, Neighbour, Place, Traffic};
use stateright::Property;

/// Names of properties.
pub mod names {
    /// Linearizability.
    pub const ORDER: &str = "each call takes effect at one moment between its begin and its answer";
    /// Groups.
    pub const TURN: &str = "a request runs once, and when all before its group are finished";
    /// Windows.
    pub const HONEST: &str = "no number is refused that was taken as it should be";
    /// Terms.
    pub const NEEDLESS: &str = "a term passes only when a number is missing";
    /// What is told of a life whose grant has ended.
    pub const LEFT: &str = "what a grant's end leaves to be done was not carried out";
    /// R29.
    pub const REVOKED: &str = "R29: nothing runs after a grant's end was answered";
    /// Bounds.
    pub const BOUNDED: &str = "no more requests of a queue are parked than its window has numbers";
    /// Isolation.
    pub const OTHERS: &str = "what is parked of one queue keeps no thread from another";
    /// Liveness.
    pub const DONE: &str = "every call comes to an end";
}

/// All properties.
pub fn properties() -> Vec<Property<Queues>> {
    use names::*;
    vec![
        Property::always(ORDER, |m: &Queues, s: &Traffic| s.is_explained(m.config())),
        Property::always(TURN, |_, s: &Traffic| s.ghost.holds(Broken::Turn)),
        Property::always(HONEST, |_, s: &Traffic| s.ghost.holds(Broken::Honest)),
        Property::always(NEEDLESS, |_, s: &Traffic| s.ghost.holds(Broken::Needless)),
        Property::always(LEFT, |_, s: &Traffic| s.ghost.holds(Broken::Left)),
        Property::always(REVOKED, |_, s: &Traffic| {
            s.target.grant != Grant::Gone || !s.runs(|_| true)
        }),
        Property::always(BOUNDED, |m: &Queues, s: &Traffic| s.is_bounded(m.config())),
        Property::always(OTHERS, |m: &Queues, s: &Traffic| s.others_go_on(m.config())),
        Property::always(DONE, |m: &Queues, s: &Traffic| s.is_done() || m.can_move(s)),
    ]
}

impl Traffic {
    /// No read has shown what nothing explains, nor does the file when all is over. Of a hostile
    /// program's own file nothing is promised.
    fn is_explained(&self, config: &Config) -> bool {
        let over = self.is_over() && self.messages.is_empty();
        let file = || explains(config, self, Some(self.blocks));
        !config.is_honest() || (self.ghost.holds(Broken::Order) && (!over || file()))
    }

    fn is_bounded(&self, config: &Config) -> bool {
        let parked = |m: &Message| matches!(m.place, Place::Parked | Place::Ready);
        self.count(parked) as u64 <= config.window
    }

    /// Another queue's request waits only while each thread carries something out.
    fn others_go_on(&self, config: &Config) -> bool {
        let waits = self.neighbour == Neighbour::Waits && !self.has_thread(config);
        !waits || config.neighbour.is_none_or(|threads| self.running() >= threads)
    }

    /// Is nothing left to do?
    fn is_done(&self) -> bool {
        let said = self.attaches == 0 && !self.target.attaching;
        let revoked = self.target.grant != Grant::Closing;
        let all = self.is_over() && self.messages.is_empty();
        all && said && revoked && self.neighbour == Neighbour::Nothing
    }
}
