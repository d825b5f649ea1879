//! The model that the checker explores: which steps are possible, and what each does.

use super::action::Action;
use super::config::{Config, Mutation, Who};
use super::judge;
use super::landmarks::is_at;
use super::state::{
    At, Client, Daemon, Disk, FILES, Ghost, Kept, Leased, Medium, Program, Ring, Row, Slot, Words,
    World,
};
use crate::explored::{Explored, Watch, explored_by_config};
use stateright::{Model, Property};

/// A private log under one configuration.
pub struct Logs {
    config: Config,
    watch: Watch,
}

impl Logs {
    /// The model with all properties.
    pub fn new(config: Config) -> Self {
        Self::of(config, Watch::default())
    }

    /// What is explored.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Is there a step that is no fault?
    pub(crate) fn can_move(&self, s: &World) -> bool {
        let mut all = Vec::new();
        self.moves(s, &mut all);
        !all.is_empty()
    }

    fn moves(&self, s: &World, out: &mut Vec<Action>) {
        let config = &self.config;
        let stopped = |c: &usize| config.who(*c) == Who::Holder && s.program.stopped;
        for c in (0..s.clients.len()).filter(|c| !stopped(c)) {
            out.extend(s.may_begin(config, c).then_some(Action::Begin(c)));
            out.extend(s.may_apply(config, c).then_some(Action::Apply(c)));
            out.extend(s.may_settle(config, c).then_some(Action::Settle(c)));
            out.extend(s.may_abandon(config, c).then_some(Action::Abandon(c)));
            let holder = config.who(c) == Who::Holder;
            out.extend(match s.clients[c].at {
                At::Filled => Some(Action::Head(c)),
                At::Headed => Some(Action::Show(c)),
                At::Published | At::Took | At::Persistent if holder => Some(Action::Look(c)),
                At::Applied if s.daemon == Daemon::Up => Some(Action::Answer(c)),
                _ => None,
            });
        }
        out.extend(s.may_persist().then_some(Action::Persist));
        let mut jobs = Vec::new();
        s.may_start(config, &mut jobs);
        out.extend(jobs.into_iter().map(|(kind, client)| Action::Start(kind, client)));
        out.extend(s.may_step(config).then_some(Action::Step));
        out.extend((s.late > 0).then_some(Action::Advance));
        out.extend(s.may_recover(config).then_some(Action::Recover));
        let over = |f: &usize| s.leases[*f] == Leased::Recalled;
        let term = (0..FILES).filter(|f| over(f) && config.has(Mutation::TermEndsRecalls));
        out.extend(term.map(Action::Term));
        out.extend(s.may_expire().then_some(Action::Expire));
        let pending = |kept: &Kept| kept.now != kept.durable;
        let pending = s.files.iter().any(pending) || pending(&s.orders);
        let commits = config.ages && s.daemon == Daemon::Up && pending;
        out.extend(commits.then_some(Action::Commit));
    }

    fn faults(&self, s: &World, out: &mut Vec<Action>) {
        let limits = self.config.faults;
        let [program, daemon, power, stop, io, log, row] = s.ghost.faults;
        if s.ghost.faults.iter().sum::<u8>() >= limits.total {
            return;
        }
        out.extend((program < limits.program && s.program.alive).then_some(Action::Dies));
        let running = s.daemon != Daemon::Down;
        out.extend((daemon < limits.daemon && running).then_some(Action::Kill));
        let on = running || s.program.alive;
        out.extend((power < limits.power && on).then_some(Action::Power));
        let runs = s.program.alive && !s.program.stopped;
        out.extend((stop < limits.stop && runs).then_some(Action::Stop));
        if log < limits.log && runs && s.may_persist() {
            out.extend([Action::LogFails(false), Action::LogFails(true)]);
        }
        if row < limits.row && s.writes_row(&self.config) {
            out.extend([Action::RowFails(false), Action::RowFails(true)]);
        }
        if io < limits.io {
            let fails = (0..FILES).filter(|file| s.may_fail(&self.config, *file));
            out.extend(fails.map(Action::Fail));
        }
    }

    fn apply(&self, s: &mut World, action: Action) {
        let config = &self.config;
        match action {
            Action::Begin(c) => s.begin(config, c),
            Action::Head(c) => s.head(config, c),
            Action::Show(c) => s.show(config, c),
            Action::Look(c) => s.look(config, c),
            Action::Settle(c) => s.settle(config, c),
            Action::Persist => s.persist(config),
            Action::Abandon(c) => s.ends(c),
            Action::Apply(c) => s.apply(config, c),
            Action::Answer(c) => s.answer(config, c),
            Action::Start(kind, client) => s.start(config, kind, client),
            Action::Step => s.step(config),
            Action::Commit => {
                let all: [usize; FILES] = std::array::from_fn(|file| file);
                s.sync(&all);
            }
            Action::Advance => {
                s.late -= 1;
                s.words.order += u8::from(!s.over);
            }
            Action::Recover => s.recover(config),
            Action::Term(file) => s.leases[file] = Leased::No,
            Action::Expire => s.words.vouched = false,
            fault => self.apply_fault(s, fault),
        }
    }

    /// What fails, or dies.
    fn apply_fault(&self, s: &mut World, fault: Action) {
        let config = &self.config;
        let kind = match fault {
            Action::Dies => 0,
            Action::Kill => 1,
            Action::Power => 2,
            Action::Stop => 3,
            Action::Fail(_) => 4,
            Action::LogFails(_) => 5,
            _ => 6,
        };
        s.ghost.faults[kind] += 1;
        match fault {
            Action::Dies => s.dies(config),
            Action::Kill => s.kill(config),
            Action::Power => s.power(config),
            Action::Stop => s.program.stopped = true,
            Action::Fail(file) => s.fail(config, file),
            Action::LogFails(written) => s.log_fails(written),
            Action::RowFails(written) => s.row_fails(config, written),
            other => unreachable!("no fault: {other:?}"),
        }
    }

    /// The first state, without leases.
    fn empty(&self) -> World {
        let made = !self.config.unmade;
        let medium = if made { Medium::File } else { Medium::Unknown };
        let slots = [Slot::default(); FILES];
        World {
            files: Default::default(),
            orders: Kept::default(),
            leases: [Leased::No; FILES],
            errors: [false; FILES],
            daemon: Daemon::Up,
            over: false,
            job: None,
            logged: [0; FILES],
            failed: false,
            drawn: 0,
            late: 0,
            words: Words { slots, order: 1, begin: 0, vouched: true },
            ring: Ring::default(),
            program: Program { alive: true, medium, ..Program::default() },
            disk: Disk {
                named: made,
                clean: false,
                row: made.then(Row::default),
                log: made.then(Default::default),
            },
            clients: vec![Client::default(); self.config.programs.len()],
            ghost: Ghost::default(),
        }
    }
}

explored_by_config!(Logs);

impl Model for Logs {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let mut scene = self.empty();
        for file in &self.config.leased {
            scene.leases[*file] = Leased::Yes;
            scene.begin_lease(*file);
        }
        for file in &self.config.logged {
            let slot = &mut scene.words.slots[*file];
            slot.covered = scene.words.order;
            scene.logged[*file] = slot.number;
            if let Some(row) = &mut scene.disk.row {
                row.leases[*file] = slot.number;
            }
        }
        vec![scene]
    }

    fn actions(&self, s: &World, out: &mut Vec<Action>) {
        self.watch.look(|landmark| is_at(&self.config, s, landmark));
        self.moves(s, out);
        self.faults(s, out);
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut next = last.clone();
        self.apply(&mut next, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        self.watch.wanted(judge::properties())
    }
}
