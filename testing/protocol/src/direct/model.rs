//! The model that the checker explores: which steps are possible, and what each does.

use super::action::Action;
use super::config::{Config, Mutation};
use super::judge;
use super::landmarks::is_at;
use super::state::Plane;
use crate::explored::{Explored, Watch, explored_by_config};
use stateright::{Model, Property};

/// A program, its target and its host under one configuration.
pub struct Direct {
    config: Config,
    watch: Watch,
}

impl Direct {
    /// The model with all properties.
    pub fn new(config: Config) -> Self {
        Self::of(config, Watch::default())
    }

    /// What is explored.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Is there a step that is no fault?
    pub(crate) fn can_move(&self, s: &Plane) -> bool {
        let mut all = Vec::new();
        self.moves(s, &mut all);
        !all.is_empty()
    }

    fn moves(&self, s: &Plane, out: &mut Vec<Action>) {
        let config = &self.config;
        let target = &s.target;
        let possible = [
            (s.may_open(config), Action::Open),
            (s.may_submit(config), Action::Submit),
            (s.may_give_up(), Action::GiveUp),
            (s.may_begin(config), Action::Begin),
            (target.up && target.running.is_some(), Action::Finish),
            (s.may_flush_lane(), Action::FlushLane),
            (s.may_replay(config), Action::Replay),
            (s.may_flush_area(), Action::FlushArea),
            (s.may_move_tail(), Action::Tail),
            (target.up && target.hears.is_some(), Action::Hear),
            (s.may_drain(config), Action::Drained),
            (s.may_act(config), Action::Host),
            (s.may_mark(), Action::MarkWritten),
            (!s.host.up && target.up, Action::HostComes),
            (!target.up, Action::TargetComes),
        ];
        let readers = (0..config.readers.len()).flat_map(|reader| {
            [
                (s.may_ask(reader), Action::ReaderAsks(reader)),
                (s.may_read(reader), Action::ReaderBegins(reader)),
                (s.reads_now(reader), Action::ReaderEnds(reader)),
            ]
        });
        let all = possible.into_iter().chain(readers);
        out.extend(all.filter(|(is, _)| *is).map(|(_, action)| action));
    }

    fn faults(&self, s: &Plane, out: &mut Vec<Action>) {
        let limits = self.config.faults;
        let [host, target, program, power] = s.ghost.faults;
        if s.ghost.faults.iter().sum::<u8>() >= limits.total {
            return;
        }
        out.extend((host < limits.host && s.host.up).then_some(Action::HostDies));
        out.extend((target < limits.target && s.target.up).then_some(Action::TargetDies));
        out.extend((program < limits.program && s.program.up).then_some(Action::ProgramDies));
        if power < limits.power {
            out.extend((0..s.ways_of_a_cut()).map(Action::PowerFails));
        }
    }

    fn apply(&self, s: &mut Plane, action: Action) {
        let config = &self.config;
        match action {
            Action::Open => s.open(),
            Action::Submit => s.submit(config),
            Action::GiveUp => s.fails(s.program.call),
            Action::Begin => s.begin(config),
            Action::Finish => s.finish(config),
            Action::FlushLane => s.flush_lane(config),
            Action::Replay => s.replay(),
            Action::FlushArea => s.flush_area(config),
            Action::Tail => s.move_tail(),
            Action::Hear => s.hear(config),
            Action::Drained => s.drained(config),
            Action::Host => s.act(config),
            Action::MarkWritten => s.mark(config),
            Action::HostComes => s.host_comes(config),
            Action::TargetComes => s.target_comes(!config.has(Mutation::IndexLater)),
            Action::ReaderAsks(reader) => s.ask(reader),
            Action::ReaderBegins(reader) => s.begin_to_read(config, reader),
            Action::ReaderEnds(reader) => s.end_of_read(config, reader),
            fault => Self::apply_fault(s, fault),
        }
    }

    /// What dies.
    fn apply_fault(s: &mut Plane, fault: Action) {
        let (kind, dies): (usize, &dyn Fn(&mut Plane)) = match fault {
            Action::HostDies => (0, &Plane::host_dies),
            Action::TargetDies => (1, &Plane::target_dies),
            Action::ProgramDies => (2, &Plane::program_dies),
            Action::PowerFails(way) => (3, &move |s: &mut Plane| s.power_fails(way)),
            other => unreachable!("no fault: {other:?}"),
        };
        s.ghost.faults[kind] += 1;
        dies(s);
    }
}

explored_by_config!(Direct);

impl Model for Direct {
    type State = Plane;
    type Action = Action;

    fn init_states(&self) -> Vec<Plane> {
        vec![Plane::first(self.config.readers.len())]
    }

    fn actions(&self, s: &Plane, out: &mut Vec<Action>) {
        self.watch.look(|landmark| is_at(&self.config, s, landmark));
        self.moves(s, out);
        self.faults(s, out);
    }

    fn next_state(&self, last: &Plane, action: Action) -> Option<Plane> {
        let mut next = last.clone();
        self.apply(&mut next, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        self.watch.wanted(judge::properties())
    }
}
