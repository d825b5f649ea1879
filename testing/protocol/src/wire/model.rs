//! The model that the checker explores: which steps are possible, and what each does.

use super::action::Action;
use super::config::{Config, Mutation};
use super::judge;
use super::landmarks::is_at;
use super::state::{Phase, Snapshot, Up};
use crate::explored::{Explored, Watch, explored_by_config};
use stateright::{Model, Property};

/// Clients and their server under one configuration.
pub struct Wire {
    config: Config,
    watch: Watch,
}

impl Wire {
    /// The model with all properties.
    pub fn new(config: Config) -> Self {
        Self::of(config, Watch::default())
    }

    /// What is explored.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Is there a step that is no fault?
    pub(crate) fn can_move(&self, s: &Snapshot) -> bool {
        let mut all = Vec::new();
        self.moves(s, &mut all);
        !all.is_empty()
    }

    fn moves(&self, s: &Snapshot, out: &mut Vec<Action>) {
        let config = &self.config;
        let dead = |c: usize| s.clients[c].phase == Phase::Dead;
        for c in 0..s.clients.len() {
            out.extend(s.may_begin(config, c).then_some(Action::Begin(c)));
            out.extend(s.arrives(config, c).map(|_| Action::Arrive(c)));
            out.extend(s.may_receive(config, c).then_some(Action::Receive(c)));
            out.extend(s.may_answer(c).then_some(Action::Answer(c)));
            out.extend((!s.from[c].is_empty()).then_some(Action::Deliver(c)));
            let lost = s.clients[c].phase == Phase::Lost;
            let connects = lost && s.server.up == Up::Serving;
            out.extend(connects.then_some(Action::Connect(c)));
            let shows = s.clients[c].cache.iter().any(Option::is_some);
            let away = lost || matches!(s.clients[c].phase, Phase::Returning(_));
            out.extend((shows && away).then_some(Action::RunsOut(c)));
            let late = dead(c) && s.may_strike_out(c) && !config.has(Mutation::NoGraceTime);
            out.extend(late.then_some(Action::StrikeOut(c)));
            let over = dead(c) && s.may_end_term(config, c);
            let over = over && !config.has(Mutation::WaitsForTheDead);
            out.extend(over.then_some(Action::TermEnds(c)));
        }
        let serving = s.server.up == Up::Serving;
        let keeps = config.keeps && serving && s.any_keeps();
        out.extend(keeps.then_some(Action::Keep));
        let commits = config.commits && serving && s.is_pending();
        out.extend(commits.then_some(Action::Commit));
        match s.server.up {
            Up::Down => out.push(Action::Note),
            Up::Noted => out.push(Action::Recover),
            Up::Recovered => {
                out.push(Action::Serve(false));
                out.extend(config.low.then_some(Action::Serve(true)));
            }
            Up::Ended => out.push(Action::Stop),
            Up::Serving => {}
        }
    }

    fn faults(&self, s: &Snapshot, out: &mut Vec<Action>) {
        let limits = self.config.faults;
        let [lose, kill, end, dies, late, book] = s.ghost.faults;
        if s.ghost.faults.iter().sum::<u8>() >= limits.total {
            return;
        }
        for c in 0..s.clients.len() {
            let phase = s.clients[c].phase;
            let up = matches!(phase, Phase::Up | Phase::Returning(_));
            let up = up && s.server.up == Up::Serving;
            out.extend((lose < limits.lose && up).then_some(Action::Lose(c)));
            out.extend((dies < limits.dies && phase != Phase::Dead).then_some(Action::Dies(c)));
            let over = s.may_strike_out(c) || s.may_end_term(&self.config, c);
            let away = phase == Phase::Lost && over;
            out.extend((late < limits.late && away).then_some(Action::Late(c)));
        }
        let running = matches!(s.server.up, Up::Serving | Up::Noted | Up::Recovered);
        out.extend((kill < limits.kill && running).then_some(Action::Kill));
        out.extend((end < limits.end && s.may_end()).then_some(Action::End));
        let lost = s.server.up == Up::Down && !s.disk.book.is_empty();
        out.extend((book < limits.book && lost).then_some(Action::LoseBook));
    }

    fn apply(&self, s: &mut Snapshot, action: Action) {
        let config = &self.config;
        match action {
            Action::Begin(c) => s.begin(config, c),
            Action::Arrive(c) => s.session(c).returning = s.arrives(config, c),
            Action::Receive(c) => s.receive(config, c),
            Action::Answer(c) => s.answer(config, c),
            Action::Deliver(c) => s.deliver(config, c),
            Action::Connect(c) => s.connect(config, c),
            Action::RunsOut(c) => s.clients[c].cache = Default::default(),
            Action::Keep => s.keep(config),
            Action::Commit => s.sync_all(config),
            Action::Note => s.note(config),
            Action::Recover => s.recover(),
            Action::Serve(low) => s.serve(config, low),
            Action::StrikeOut(c) => s.strike_out(c),
            Action::TermEnds(c) => s.end_term(c),
            Action::Stop => s.kill(),
            fault => self.apply_fault(s, fault),
        }
        s.opens(config);
    }

    /// What fails, or dies.
    fn apply_fault(&self, s: &mut Snapshot, fault: Action) {
        let config = &self.config;
        let kind = match fault {
            Action::Lose(_) => 0,
            Action::Kill => 1,
            Action::End => 2,
            Action::Dies(_) => 3,
            Action::LoseBook => 5,
            _ => 4,
        };
        s.ghost.faults[kind] += 1;
        match fault {
            Action::Lose(c) => s.lose(config, c),
            Action::Kill => s.kill(),
            Action::End => s.end(config),
            Action::Dies(c) => s.dies(config, c),
            Action::LoseBook => s.disk.book.clear(),
            Action::Late(c) if s.may_strike_out(c) => s.strike_out(c),
            Action::Late(c) => s.end_term(c),
            other => unreachable!("no fault: {other:?}"),
        }
    }
}

explored_by_config!(Wire);

impl Model for Wire {
    type State = Snapshot;
    type Action = Action;

    fn init_states(&self) -> Vec<Snapshot> {
        vec![Snapshot::first(self.config.programs.len())]
    }

    fn actions(&self, s: &Snapshot, out: &mut Vec<Action>) {
        self.watch.look(|landmark| is_at(&self.config, s, landmark));
        self.moves(s, out);
        self.faults(s, out);
    }

    fn next_state(&self, last: &Snapshot, action: Action) -> Option<Snapshot> {
        let mut next = last.clone();
        self.apply(&mut next, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        self.watch.wanted(judge::properties())
    }
}
