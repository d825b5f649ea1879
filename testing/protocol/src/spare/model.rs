//! The model that the checker explores: which steps are possible, and what each does.

use super::action::Action;
use super::config::{Config, Mutation};
use super::judge;
use super::landmarks::is_at;
use super::state::{Logs, Mode};
use crate::explored::{Explored, Watch, explored_by_config};
use stateright::{Model, Property};

/// A process and its two logs under one configuration.
pub struct Spare {
    config: Config,
    watch: Watch,
}

impl Spare {
    /// The model with all properties.
    pub fn new(config: Config) -> Self {
        Self::of(config, Watch::default())
    }

    /// What is explored.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Is there a step that is no fault?
    pub(crate) fn can_move(&self, s: &Logs) -> bool {
        let mut all = Vec::new();
        self.moves(s, &mut all);
        !all.is_empty()
    }

    fn moves(&self, s: &Logs, out: &mut Vec<Action>) {
        let config = &self.config;
        let possible = [
            (s.may_fsync(config), Action::Fsync),
            (s.may_go_home(config), Action::Home),
            (s.may_reclaim(config), Action::Reclaim),
            (s.may_fail_over(config), Action::FailOver),
            (s.may_go_back(config), Action::GoBack),
            (s.may_be_alone(config), Action::IsAlone),
        ];
        out.extend(possible.into_iter().filter(|(is, _)| *is).map(|(_, action)| action));
        for (log, state) in s.logs.iter().enumerate() {
            for away in &state.away {
                let lsn = away.record.lsn;
                let answered = away.landed && !state.failed;
                out.extend((!away.landed).then_some(Action::Land(log, lsn)));
                out.extend(answered.then_some(Action::Answer(log, lsn)));
            }
        }
        let due = (s.acked + 1..=s.newest()).filter(|upto| s.may_acknowledge(config, *upto));
        out.extend(due.map(Action::Acknowledge));
    }

    fn apply(&self, s: &mut Logs, action: Action) {
        let config = &self.config;
        match action {
            Action::Fsync => s.fsync(config),
            Action::Land(log, lsn) => s.land(config, log, lsn),
            Action::Answer(log, lsn) => s.answer(log, lsn),
            Action::Acknowledge(upto) => s.acknowledge(upto),
            Action::Home => s.go_home(config),
            Action::Reclaim => s.reclaim(config),
            Action::FailOver => s.fail_over(config),
            Action::GoBack => s.go_back(config),
            Action::IsAlone => s.be_alone(),
            Action::Fails(log) => s.fails(config, log),
        }
    }
}

explored_by_config!(Spare);

impl Model for Spare {
    type State = Logs;
    type Action = Action;

    fn init_states(&self) -> Vec<Logs> {
        vec![Logs::first()]
    }

    fn actions(&self, s: &Logs, out: &mut Vec<Action>) {
        self.watch.look(|landmark| is_at(s, landmark));
        self.moves(s, out);
        if s.faults[0] < self.config.fails && s.mode != Mode::Latched {
            let works = (0..s.logs.len()).filter(|log| !s.logs[*log].failed);
            out.extend(works.map(Action::Fails));
        }
    }

    fn next_state(&self, last: &Logs, action: Action) -> Option<Logs> {
        let mut next = last.clone();
        self.apply(&mut next, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        self.watch.wanted(judge::properties())
    }
}
