//! The model that the checker explores: which steps are possible, and what each does.

use super::action::Action;
use super::config::{Config, Mutation};
use super::judge;
use super::landmarks::is_at;
use super::lives::fault;
use super::state::{Grant, Message, Neighbour, Place, Stage, Traffic};
use crate::explored::{Explored, Watch, explored_by_config};
use stateright::{Model, Property};

/// A program's queue and the target under one configuration.
pub struct Queues {
    config: Config,
    watch: Watch,
}

impl Queues {
    /// The model with all properties.
    pub fn new(config: Config) -> Self {
        Self::of(config, Watch::default())
    }

    /// What is explored.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Is there a step that is no fault?
    pub(crate) fn can_move(&self, s: &Traffic) -> bool {
        let mut all = Vec::new();
        self.moves(s, &mut all);
        !all.is_empty()
    }

    fn moves(&self, s: &Traffic, out: &mut Vec<Action>) {
        let config = &self.config;
        for call in 0..config.calls.len() {
            out.extend(s.may_take(config, call).then_some(Action::Take(call)));
            out.extend(s.may_decide(config, call).then_some(Action::Decide(call)));
        }
        let steps = s.messages.iter().filter_map(|message| self.step(s, *message));
        out.extend(steps);
        let lives = (0..=s.program.life).filter(|life| s.attaches & 1 << life != 0);
        out.extend(lives.map(Action::Hear));
        let free = s.has_thread(config);
        let possible = [
            (s.may_attach(config), Action::Attached),
            (s.may_pass(config), Action::Term),
            (s.may_pass_in_window(config), Action::WindowTerm),
            (s.may_say_revoked(config), Action::Revoked),
            (s.neighbour == Neighbour::Waits && free, Action::NeighbourBegins),
            (s.neighbour == Neighbour::Runs, Action::NeighbourEnds),
        ];
        out.extend(possible.into_iter().filter(|(is, _)| *is).map(|(_, action)| action));
    }

    /// What may happen next to a request.
    fn step(&self, s: &Traffic, message: Message) -> Option<Action> {
        let config = &self.config;
        match message.place {
            Place::Way => s.has_thread(config).then_some(Action::Arrive(message)),
            Place::Ready => s.may_begin(config).then_some(Action::Begin(message)),
            Place::Running(at, _) if Traffic::is_whole(config, &message, at) => {
                Some(Action::Finish(message))
            }
            Place::Running(..) => Some(Action::Effect(message)),
            Place::Answered(_) => Some(Action::Answer(message)),
            Place::Parked => None,
        }
    }

    fn faults(&self, s: &Traffic, out: &mut Vec<Action>) {
        let limits = self.config.limits;
        let [breaks, stops, early, revokes] = s.ghost.faults;
        let waits = |stage| matches!(stage, Stage::Open(..) | Stage::Again(..));
        let under_way = s.program.calls.iter().any(|thread| waits(thread.stage));
        out.extend((breaks < limits.breaks && under_way).then_some(Action::Break));
        if stops < limits.stops {
            let parts = self.config.calls.iter().enumerate();
            let parts = parts.flat_map(|(call, what)| (0..what.parts).map(move |p| (call, p)));
            let may = parts.filter(|(call, part)| s.may_stop(*call, *part));
            out.extend(may.map(|(call, part)| Action::Stop(call, part)));
        }
        let passes = early < limits.early && s.has_parked() && !s.target.ended;
        out.extend(passes.then_some(Action::EarlyTerm));
        let ends = revokes < limits.revokes && s.target.grant == Grant::Open;
        out.extend(ends.then_some(Action::Revoke));
    }

    fn apply(&self, s: &mut Traffic, action: Action) {
        let config = &self.config;
        match action {
            Action::Take(call) => s.take(config, call),
            Action::Decide(call) => s.decide(config, call),
            Action::Hear(life) => s.hear(life),
            Action::Attached => s.attached(config),
            Action::Term => s.term(config, false),
            Action::WindowTerm => s.window_term(config),
            Action::Revoked => s.target.grant = Grant::Gone,
            Action::NeighbourBegins => s.neighbour = Neighbour::Runs,
            Action::NeighbourEnds => s.neighbour = Neighbour::Nothing,
            Action::Arrive(message) => s.arrive(config, message),
            Action::Begin(message) => s.begin(config, message),
            Action::Effect(message) | Action::Finish(message) | Action::Answer(message) => {
                self.go_on(s, action, message);
            }
            fault => self.apply_fault(s, fault),
        }
        s.messages.sort_unstable();
    }

    /// What a request does that has begun.
    fn go_on(&self, s: &mut Traffic, action: Action, message: Message) {
        let config = &self.config;
        match (action, message.place) {
            (Action::Effect(_), Place::Running(at, seen)) => s.effect(config, message, at, seen),
            (Action::Finish(_), Place::Running(_, seen)) => s.finish(config, message, seen),
            (Action::Answer(_), Place::Answered(answer)) => s.answer(config, message, answer),
            other => unreachable!("no step: {other:?}"),
        }
    }

    fn apply_fault(&self, s: &mut Traffic, action: Action) {
        let kind = match action {
            Action::Break => {
                s.new_life();
                fault::BREAK
            }
            Action::Stop(call, part) => {
                s.stop(call, part);
                fault::STOP
            }
            Action::EarlyTerm => {
                s.term(&self.config, true);
                fault::EARLY
            }
            Action::Revoke => {
                s.revoke();
                fault::REVOKE
            }
            other => unreachable!("no fault: {other:?}"),
        };
        s.ghost.faults[kind] += 1;
    }
}

explored_by_config!(Queues);

impl Model for Queues {
    type State = Traffic;
    type Action = Action;

    fn init_states(&self) -> Vec<Traffic> {
        vec![Traffic::first(&self.config)]
    }

    fn actions(&self, s: &Traffic, out: &mut Vec<Action>) {
        self.watch.look(|landmark| is_at(&self.config, s, landmark));
        self.moves(s, out);
        self.faults(s, out);
    }

    fn next_state(&self, last: &Traffic, action: Action) -> Option<Traffic> {
        let mut next = last.clone();
        self.apply(&mut next, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        self.watch.wanted(judge::properties())
    }
}
