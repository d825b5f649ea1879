//! The model that the checker explores: which steps are possible, and what each does.

use super::action::Action;
use super::config::{Config, Mutation};
use super::judge;
use super::landmarks::is_at;
use super::state::{OBJECTS, SLOTS, Volume};
use crate::explored::{Explored, Watch, explored_by_config};
use stateright::{Model, Property};

/// The servers of a volume under one configuration.
pub struct Takeover {
    config: Config,
    watch: Watch,
}

impl Takeover {
    /// The model with all properties.
    pub fn new(config: Config) -> Self {
        Self::of(config, Watch::default())
    }

    /// What is explored.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Is there a step that is no fault?
    pub(crate) fn can_move(&self, s: &Volume) -> bool {
        let mut all = Vec::new();
        self.moves(s, &mut all);
        !all.is_empty()
    }

    fn moves(&self, s: &Volume, out: &mut Vec<Action>) {
        let config = &self.config;
        for server in 0..config.servers {
            let possible = [
                (s.may_look(config, server), Action::Look(server)),
                (s.may_go_on(config, server), Action::Next(server)),
                (s.may_read_log(server), Action::ReadLog(server)),
                (s.may_read_area(server), Action::ReadArea(server)),
                (s.may_fsync(config, server), Action::Fsync(server)),
                (s.may_checkpoint(server), Action::Checkpoint(server)),
                (s.may_read(config, server), Action::ReadBegins(server)),
                (s.may_expire(server), Action::Expire(server)),
                (s.is_unheard(server), Action::WatchEnds(server)),
            ];
            out.extend(possible.into_iter().filter(|(is, _)| *is).map(|(_, action)| action));
            for slot in SLOTS {
                out.extend(s.is_away(server, slot).then_some(Action::Land(server, slot)));
                out.extend(s.may_take(server, slot).then_some(Action::Take(server, slot)));
            }
        }
        out.extend((0..OBJECTS).filter(|object| s.may_learn(*object)).map(Action::Learn));
    }

    fn faults(&self, s: &Volume, out: &mut Vec<Action>) {
        let limits = self.config.faults;
        let [watch, dies, operator, by_hand, ends] = s.ghost.faults;
        if s.ghost.faults.iter().sum::<u8>() >= limits.total {
            return;
        }
        for (server, state) in s.servers.iter().enumerate() {
            let unheard = state.up && s.cluster.watches(server) && !s.is_unheard(server);
            let dead = dies < limits.dies && state.up;
            let told = operator < limits.operator && state.up && !state.told;
            let end = ends < limits.ends && s.may_end(&self.config, server);
            out.extend((watch < limits.watch && unheard).then_some(Action::WatchEnds(server)));
            out.extend(dead.then_some(Action::Dies(server)));
            out.extend((told && state.turn == 0).then_some(Action::OperatorSays(server)));
            out.extend(end.then_some(Action::End(server)));
        }
        let breaks = by_hand < limits.by_hand && s.may_be_broken_by_hand();
        out.extend(breaks.then_some(Action::BrokenByHand));
    }

    fn apply(&self, s: &mut Volume, action: Action) {
        let config = &self.config;
        match action {
            Action::Look(server) => s.look(config, server),
            Action::Next(server) => s.go_on(config, server),
            Action::ReadLog(server) => s.read_log(config, server),
            Action::ReadArea(server) => s.read_area(config, server),
            Action::Fsync(server) => s.fsync(config, server),
            Action::Checkpoint(server) => s.checkpoint(server),
            Action::ReadBegins(server) => s.read(config, server),
            Action::Land(server, slot) => s.land(config, server, slot),
            Action::Take(server, slot) => s.take(config, server, slot),
            Action::Learn(object) => s.cluster.known[object] += 1,
            Action::Expire(server) => s.cluster.remove(server),
            Action::WatchEnds(server) if s.is_unheard(server) => s.watch_ends(server),
            fault => Self::apply_fault(s, fault),
        }
    }

    /// What dies, ends or is decided.
    fn apply_fault(s: &mut Volume, fault: Action) {
        let kind = match fault {
            Action::WatchEnds(server) => {
                s.watch_ends(server);
                0
            }
            Action::Dies(server) => {
                s.servers[server].up = false;
                1
            }
            Action::OperatorSays(server) => {
                s.servers[server].told = true;
                2
            }
            Action::BrokenByHand => {
                s.broken_by_hand();
                3
            }
            Action::End(server) => {
                s.end(server);
                4
            }
            other => unreachable!("no fault: {other:?}"),
        };
        s.ghost.faults[kind] += 1;
    }
}

explored_by_config!(Takeover);

impl Model for Takeover {
    type State = Volume;
    type Action = Action;

    fn init_states(&self) -> Vec<Volume> {
        vec![Volume::first(self.config.servers, self.config.names)]
    }

    fn actions(&self, s: &Volume, out: &mut Vec<Action>) {
        self.watch.look(|landmark| is_at(s, landmark));
        self.moves(s, out);
        self.faults(s, out);
    }

    fn next_state(&self, last: &Volume, action: Action) -> Option<Volume> {
        let mut next = last.clone();
        self.apply(&mut next, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        self.watch.wanted(judge::properties())
    }
}
