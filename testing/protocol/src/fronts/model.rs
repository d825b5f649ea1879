//! The model that the checker explores: which steps are possible, and what each does.

use super::action::Action;
use super::config::{Call, Config, Mutation};
use super::judge;
use super::state::{
    At, Broken, Client, EMBEDDED, Ghost, KERNELS, Kernel, Known, Lease, Notice, PAGES, Page,
    SESSIONS, Scene, Stage, Thing, Truth,
};
use crate::explored::{Explored, Watch, explored_by_config};
use stateright::{Model, Property};

/// Front ends under one configuration.
pub struct Fronts {
    config: Config,
    watch: Watch,
}

impl Fronts {
    /// The model with all properties.
    pub fn new(config: Config) -> Self {
        Self::of(config, Watch::default())
    }

    /// What is explored.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Is there a step that is no fault?
    pub(crate) fn can_move(&self, s: &Scene) -> bool {
        let mut all = Vec::new();
        self.moves(s, &mut all);
        self.time(s, &mut all);
        !all.is_empty()
    }

    /// Steps that are neither faults nor time.
    fn moves(&self, s: &Scene, out: &mut Vec<Action>) {
        let config = &self.config;
        for c in 0..s.clients.len() {
            out.extend(s.may_begin(config, c).then_some(Action::Begin(c)));
            out.extend(s.may_apply(config, c).then_some(Action::Apply(c)));
            out.extend(s.may_answer(config, c).then_some(Action::Answer(c)));
            let silent = s.silent[EMBEDDED] && config.session_of(c) == EMBEDDED;
            out.extend(match s.clients[c].at {
                At::Offset => Some(Action::Send(c)),
                At::Read => Some(Action::Remember(c)),
                At::Answered => Some(Action::Arrive(c)),
                At::Published if !silent => Some(Action::Look(c)),
                _ => None,
            });
        }
        for k in 0..KERNELS {
            for (p, page) in s.kernels[k].pages.iter().enumerate() {
                out.extend(match page {
                    Page::Dirty(_) => Some(Action::Flush(k, p)),
                    Page::Sent(_) => Some(Action::Take(k, p)),
                    _ => s.may_release(k, p).then_some(Action::Release(k, p)),
                });
            }
            out.extend(s.drops_next(k).map(|_| Action::Drop(k)));
        }
        for (n, notice) in s.notices.iter().enumerate() {
            let same =
                |o: &Notice| (o.to, o.thing, o.done) == (notice.to, notice.thing, notice.done);
            if s.notices[..n].iter().any(same) {
                continue;
            }
            out.extend(s.may_forget(config, n).then_some(Action::Forget(n)));
            out.extend(notice.done.then_some(Action::Acknowledge(n)));
        }
        out.extend(s.may_drain(config).then_some(Action::Drain));
        out.extend(s.may_grant(config).then_some(Action::Grant));
        out.extend(s.may_comply().then_some(Action::Comply));
        out.extend((s.lease.stage == Stage::Returning).then_some(Action::Ingest));
        out.extend(s.may_expire().then_some(Action::Expire));
    }

    /// A term passes, if that makes a difference: at any time, or if nothing else can happen. Where
    /// nothing can happen even so, a kernel that has not done what it was asked for is aborted.
    fn time(&self, s: &Scene, out: &mut Vec<Action>) {
        let stuck = out.is_empty();
        let passes = (stuck || self.config.clock) && self.may_tick(s);
        out.extend(passes.then_some(Action::Tick));
        if stuck && !passes {
            let late = (0..KERNELS).filter(|k| s.is_late(&self.config, *k));
            out.extend(late.map(Action::Abort));
        }
    }

    /// A term is longer than an answer with a name is on its way to its kernel.
    fn may_tick(&self, s: &Scene) -> bool {
        let name = |(c, client): (usize, &Client)| {
            let kernels = self.config.session_of(c) != EMBEDDED && !client.stale;
            let call = s.call(&self.config, c);
            let named = matches!(call, Some(Call::Lookup | Call::Create));
            kernels && named && client.at == At::Answered
        };
        let on_its_way = s.clients.iter().enumerate().any(name);
        let mut after = s.clone();
        after.tick(&self.config);
        after != *s && (!on_its_way || self.config.has(Mutation::NoMargin))
    }

    fn faults(&self, s: &Scene, out: &mut Vec<Action>) {
        let limits = self.config.faults;
        let [death, silence, daemon, sleep, stray] = s.ghost.faults;
        if s.ghost.faults.iter().sum::<u8>() >= limits.total {
            return;
        }
        for session in (0..SESSIONS).filter(|session| s.alive[*session]) {
            out.extend((death < limits.death).then_some(Action::Dies(session)));
            let speaks = silence < limits.silence && !s.silent[session];
            out.extend(speaks.then_some(Action::Silence(session)));
        }
        out.extend((daemon < limits.daemon).then_some(Action::DaemonDies));
        out.extend((sleep < limits.sleep).then_some(Action::Sleep));
        if stray < limits.stray {
            let held = |c: &usize| s.clients[*c].at == At::Held && s.clients[*c].owed > 0;
            out.extend((0..s.clients.len()).filter(held).map(Action::Again));
            let open = |n: &usize| !s.notices[*n].done;
            out.extend((0..s.notices.len()).filter(open).map(Action::Foreign));
        }
    }

    fn apply(&self, s: &mut Scene, action: Action) {
        let config = &self.config;
        match action {
            Action::Begin(c) => s.begin(config, c),
            Action::Send(c) => s.clients[c].at = At::Sent,
            Action::Apply(c) => s.apply(config, c),
            Action::Remember(c) => s.remember_late(config, c),
            Action::Answer(c) => s.answer(config, c),
            Action::Arrive(c) => s.arrive(config, c),
            Action::Look(c) => s.look(config, c),
            Action::Flush(k, p) => s.flush(k, p),
            Action::Take(k, p) => s.take(config, k, p),
            Action::Release(k, p) => s.release(k, p),
            Action::Forget(n) => s.forget(config, n),
            Action::Drop(k) => s.drop_next(k),
            Action::Acknowledge(n) => s.acknowledge(config, n),
            Action::Drain => s.drain(config),
            Action::Grant => s.grant(config),
            Action::Comply => s.lease.stage = Stage::Returning,
            Action::Ingest | Action::Expire => s.end_lease(config, false),
            Action::Tick => s.tick(config),
            Action::Abort(k) => {
                if !s.silent[k] {
                    s.ghost.note(Broken::Aborted);
                }
                s.session_ends(config, k);
            }
            fault => self.apply_fault(s, fault),
        }
    }

    /// What breaks, or dies.
    fn apply_fault(&self, s: &mut Scene, fault: Action) {
        let config = &self.config;
        let kind = match fault {
            Action::Dies(_) => 0,
            Action::Silence(_) => 1,
            Action::DaemonDies => 2,
            Action::Sleep => 3,
            _ => 4,
        };
        s.ghost.faults[kind] += 1;
        match fault {
            Action::Dies(session) => s.session_ends(config, session),
            Action::Silence(session) => s.silent[session] = true,
            Action::DaemonDies => s.daemon_dies(config),
            Action::Sleep => s.sleep(config),
            // An acknowledgement is of one notice, which is there once.
            Action::Again(c) if self.counts_again(s) => s.clients[c].owed -= 1,
            Action::Foreign(n) if config.has(Mutation::CountForeign) => {
                s.count_foreign(config, n);
            }
            Action::Again(_) | Action::Foreign(_) => {}
            other => unreachable!("no fault: {other:?}"),
        }
    }

    /// Does an acknowledgement count whose notice is not there (planted faults only)?
    fn counts_again(&self, s: &Scene) -> bool {
        let ended = s.alive.contains(&false);
        self.config.has(Mutation::CountTwice) || ended && self.config.has(Mutation::CountAfterEnd)
    }

    fn kernel(&self, kernel: usize) -> Kernel {
        let knows = |thing: Thing| self.config.knows.contains(&(kernel, thing)).then_some(0);
        let page = |page: usize| match knows(Thing::Page(page)) {
            Some(content) if self.config.maps.contains(&(kernel, page)) => Page::Mapped(content),
            Some(content) if !self.config.drops.contains(&(kernel, page)) => Page::Clean(content),
            _ => Page::Gone,
        };
        Kernel {
            has_inode: self.config.stranger != Some(kernel),
            attributes: knows(Thing::Attributes),
            pages: std::array::from_fn::<_, PAGES, _>(page),
            name: knows(Thing::Name),
            ..Kernel::default()
        }
    }
}

explored_by_config!(Fronts);

impl Model for Fronts {
    type State = Scene;
    type Action = Action;

    fn init_states(&self) -> Vec<Scene> {
        let truth = Truth { things: Default::default(), end: 0, linked: true };
        let mut known = <[[Known; 2 + PAGES]; KERNELS]>::default();
        for (kernel, thing) in &self.config.knows {
            known[*kernel][thing.place()] = Known::Told;
        }
        vec![Scene {
            truth,
            durable: truth,
            known,
            ends: Default::default(),
            taken: Default::default(),
            reread: Default::default(),
            notices: Vec::new(),
            lease: Lease::default(),
            section: None,
            open: true,
            alive: [true; SESSIONS],
            silent: [false; SESSIONS],
            kernels: std::array::from_fn(|kernel| self.kernel(kernel)),
            clients: vec![Client::default(); self.config.programs.len()],
            ghost: Ghost::default(),
        }]
    }

    fn actions(&self, s: &Scene, out: &mut Vec<Action>) {
        self.watch.look(|landmark| judge::is_at(&self.config, s, landmark));
        self.moves(s, out);
        self.time(s, out);
        self.faults(s, out);
    }

    fn next_state(&self, last: &Scene, action: Action) -> Option<Scene> {
        let mut next = last.clone();
        self.apply(&mut next, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        self.watch.wanted(judge::properties())
    }
}
