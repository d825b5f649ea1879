//! The model that the checker explores: which steps are possible, and what each does.

use crate::action::{Action, Flush};
use crate::config::{Config, Mutation};
use crate::explored::{Explored, Watch, explored_by_config};
use crate::host::Start;
use crate::judge;
use crate::state::{
    BLOCKS, Client, FILES, Ghost, Host, Inode, LOCAL, NONE, Phase, Process, ServiceRecord, Stalled,
    State, ToService,
};
use crate::storage::{Failure, Regions, Storage};
use stateright::{Model, Property};

/// The protocol under one configuration.
pub struct Protocol {
    config: Config,
    watch: Watch,
}

impl Protocol {
    /// The model with all properties.
    pub fn new(config: Config) -> Self {
        Self::of(config, Watch::default())
    }

    /// What is explored.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Has everything that was to be done been done?
    pub fn is_done(&self, s: &State) -> bool {
        let end = if self.config.unmount { Phase::Unmounted } else { Phase::Running };
        s.programs_done(&self.config) && s.host.phase == end
    }

    /// Is any step but a fault possible?
    pub fn can_move(&self, s: &State) -> bool {
        let mut actions = Vec::new();
        for p in 0..s.processes.len() {
            self.process(s, p, &mut actions);
        }
        if actions.is_empty() {
            self.host(s, &mut actions);
        }
        !actions.is_empty()
    }

    /// Steps that are no faults.
    pub fn moves(&self, s: &State, out: &mut Vec<Action>) {
        self.host(s, out);
        for p in 0..s.processes.len() {
            self.process(s, p, out);
        }
    }

    fn host(&self, s: &State, out: &mut Vec<Action>) {
        match s.host.phase {
            Phase::Running => self.running(s, out),
            Phase::Down => {
                out.extend(s.may_mount(&self.config).then_some(Action::Mount));
                out.extend(s.finds_host_lock().then_some(Action::Wake));
            }
            Phase::Latched => out.push(Action::GiveUp),
            Phase::Recover(_) => out.extend(s.may_recover().then_some(Action::Recover)),
            Phase::Leaving | Phase::CleanWrite | Phase::CleanFlush => {
                out.extend(self.can_receive(s).then_some(Action::Receive));
                out.extend(s.may_finish_leaving().then_some(Action::Leave));
            }
            Phase::Unmounted => {}
        }
    }

    fn running(&self, s: &State, out: &mut Vec<Action>) {
        let config = &self.config;
        for (c, name) in (0..).zip(0..s.clients.len()) {
            let step = s.step_of(config, name);
            out.extend(step.filter(|x| s.host.has_room(config, *x)).map(|_| Action::Client(c)));
            out.extend(s.may_compact(config, name).then_some(Action::Compact(c)));
            out.extend(s.may_return(config, name).then_some(Action::Return(c)));
        }
        for (f, file) in (0..).zip(0..FILES) {
            out.extend(s.host.may_push(config, file).then_some(Action::Push(f)));
            let unsettled = s.unsettled(config).any(|u| u == file);
            out.extend((unsettled && s.host.may_settle(config, file)).then_some(Action::Settle(f)));
        }
        for p in &s.host.records {
            let lane = usize::from(p.lane);
            let room = s.host.heads[lane] - s.host.tails[lane] < config.lane_slots;
            match p.record.pos {
                NONE => out.extend(room.then_some(Action::Place(p.record.lsn))),
                _ => out.extend((!p.written).then_some(Action::WriteRecord(p.record.lsn))),
            }
            out.extend(s.may_persist(config, p).then_some(Action::Persist(p.record.lsn)));
        }
        out.extend(s.host.unflushed(config).then_some(Action::FlushLanes));
        out.extend(s.host.may_cut(config).then_some(Action::Cut));
        out.extend(s.next_message(config).map(|_| Action::Send));
        for emergency in [false, true] {
            out.extend(s.may_ask(config, emergency).then_some(Action::Ask { emergency }));
        }
        for (b, block) in (0..).zip(0..config.blocks) {
            out.extend(s.may_discard(config, block).then_some(Action::Discard(b)));
        }
        out.extend(self.can_receive(s).then_some(Action::Receive));
        for (p, device) in (0..).zip(0..s.processes.len()).skip(1) {
            out.extend(s.may_connect(device).then_some(Action::Connect(p)));
        }
        let fall = s.ghost.fallbacks < config.fallbacks && s.lock.is_none();
        out.extend((fall && s.may_connect(LOCAL)).then_some(Action::Fallback));
        out.extend(s.may_give_back().then_some(Action::GiveBack));
        let room = s.host.link.map(|l| s.processes[usize::from(l)].inbox.len() < config.queue);
        let leave = room == Some(true) && s.may_leave(config);
        out.extend(leave.then_some(Action::Goodbye));
    }

    fn can_receive(&self, s: &State) -> bool {
        s.host.link.is_some_and(|l| !s.processes[usize::from(l)].outbox.is_empty())
    }

    fn process(&self, s: &State, p: usize, out: &mut Vec<Action>) {
        let name = u8::try_from(p).expect("few processes");
        out.extend(s.may_serve(&self.config, p).then_some(Action::Serve(name)));
        out.extend(s.processes[p].may_work().then_some(Action::Work(name)));
        out.extend(s.processes[p].may_checkpoint().then_some(Action::Checkpoint(name)));
        out.extend(s.processes[p].may_empty().then_some(Action::Empty(name)));
        out.extend((p != LOCAL && s.processes[p].may_notice()).then_some(Action::Notice(name)));
        out.extend((p != LOCAL && s.processes[p].may_let_go()).then_some(Action::LetGo(name)));
    }

    fn faults(&self, s: &State, out: &mut Vec<Action>) {
        let limits = self.config.faults;
        let [host, device, link, power, flush] = s.ghost.faults;
        out.extend(s.may_stall(&self.config).then_some(Action::Stall));
        if s.ghost.faults.iter().sum::<u8>() >= limits.total {
            return;
        }
        let alive = !matches!(s.host.phase, Phase::Down | Phase::Unmounted);
        out.extend((alive && host < limits.host).then_some(Action::HostDies));
        for (p, process) in (0..).zip(&s.processes).skip(1) {
            let dies = device < limits.device && !process.is_ready();
            out.extend(dies.then_some(Action::DeviceDies(p)));
        }
        let linked = s.host.link.is_some_and(|l| usize::from(l) != LOCAL);
        out.extend((linked && link < limits.link).then_some(Action::LinkBreaks));
        if s.host.phase != Phase::Unmounted && power < limits.power {
            let cuts = few(s.storage.choices(Regions::ALL));
            out.extend((0..cuts).map(Action::PowerFails));
        }
        if flush < limits.flush {
            self.flush_failures(s, out);
        }
    }

    fn flush_failures(&self, s: &State, out: &mut Vec<Action>) {
        let services = (0..).zip(&s.processes).map(|(p, _)| Flush::Service(p));
        for flush in [Flush::Lanes, Flush::Compact, Flush::Header].into_iter().chain(services) {
            let Some(regions) = s.flushed_next(&self.config, flush) else { continue };
            let losses = few(s.storage.choices(regions));
            out.extend((0..losses).map(|choice| Action::FlushFails(flush, choice)));
        }
    }

    fn device_dies(&self, s: &mut State, p: usize) {
        if s.host.link.map(usize::from) == Some(p) {
            s.disconnect(&self.config);
        }
        s.stalled_loses(&self.config, p);
        s.processes[p] = Process::default();
        s.ghost.forget_failure(p);
        if s.lock.map(usize::from) == Some(p) {
            s.lock = None;
        }
    }

    fn power_fails(&self, s: &mut State, choice: u16) {
        s.hosts_end(&self.config);
        for p in 1..s.processes.len() {
            self.device_dies(s, p);
        }
        s.storage.fail(Regions::ALL, Failure::Power, usize::from(choice));
    }

    fn apply(&self, s: &mut State, action: Action) {
        let config = &self.config;
        match action {
            Action::Client(c) => s.client(config, usize::from(c)),
            Action::Compact(c) => s.compact(config, usize::from(c)),
            Action::Return(c) => s.return_to(config, usize::from(c)),
            Action::Settle(f) => {
                s.stage(config, usize::from(f));
            }
            Action::Place(lsn) => s.host.place(lsn),
            Action::WriteRecord(lsn) => s.write_record(lsn),
            Action::FlushLanes => s.flush_lanes(config),
            Action::Persist(lsn) => s.persist(lsn),
            Action::Push(f) => s.host.push(usize::from(f)),
            Action::Cut => s.cut(),
            Action::Send => {
                let message = s.next_message(config).expect("asked before");
                s.send(message);
                s.host.sent += 1;
            }
            Action::Ask { emergency } => {
                s.send(ToService::Checkpoint { emergency });
                s.host.asked[usize::from(emergency)] = true;
            }
            Action::Discard(block) => s.discard(config, block),
            Action::Receive => s.receive(config),
            Action::Connect(p) => s.connect(usize::from(p)),
            Action::Fallback => {
                s.ghost.fallbacks += 1;
                s.connect(LOCAL);
            }
            Action::GiveBack => s.give_back(config),
            Action::Goodbye => {
                s.send(ToService::Goodbye);
                s.host.phase = Phase::Leaving;
            }
            Action::Leave => s.finish_leaving(),
            Action::Mount => s.mount(),
            Action::Recover => s.recover(config),
            Action::Serve(p) => s.serve(config, usize::from(p)),
            Action::Work(p) => s.work(config, usize::from(p)),
            Action::Checkpoint(p) => s.checkpoint(config, usize::from(p)),
            Action::Empty(p) => s.empty(usize::from(p)),
            Action::Notice(p) => s.processes[usize::from(p)].notice(),
            Action::LetGo(p) => s.let_go(usize::from(p)),
            Action::Stall => {
                s.ghost.stalls += 1;
                s.pass_turn();
            }
            Action::Wake => s.pass_turn(),
            Action::GiveUp => s.host_ends(config),
            fault => self.apply_fault(s, fault),
        }
    }

    /// What breaks, or dies.
    fn apply_fault(&self, s: &mut State, fault: Action) {
        let config = &self.config;
        match fault {
            Action::HostDies => {
                s.ghost.faults[0] += 1;
                s.host_ends(config);
            }
            Action::DeviceDies(p) => {
                s.ghost.faults[1] += 1;
                self.device_dies(s, usize::from(p));
            }
            Action::LinkBreaks => {
                s.ghost.faults[2] += 1;
                s.disconnect(config);
            }
            Action::PowerFails(choice) => {
                s.ghost.faults[3] += 1;
                self.power_fails(s, choice);
            }
            Action::FlushFails(flush, choice) => {
                s.ghost.faults[4] += 1;
                s.flush_fails(config, flush, choice);
            }
            other => unreachable!("no fault: {other:?}"),
        }
    }
}

fn few(choices: usize) -> u16 {
    u16::try_from(choices).expect("few unflushed writes at a time")
}

explored_by_config!(Protocol);

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let c = &self.config;
        let storage = Storage::new(c.lanes, c.lane_slots, c.journal_slots, c.blocks, 1);
        let storage = storage.with_area(c.area);
        let image = [Inode::NEVER; FILES];
        let record: ServiceRecord = *storage.service.visible();
        let host = Host::start(&Start { key: 1, record, image, blocks: c.blocks });
        let stalled = Stalled { host: Host::down(), local: Process::default() };
        vec![State {
            storage,
            lock: None,
            host_lock: Some(0),
            processes: vec![Process::default(); 1 + c.devices],
            host,
            turn: 0,
            stalled: (c.stalls > 0).then(|| Box::new(stalled)),
            clients: vec![Client { pc: 0, waits: 0, op: 0, at: 0 }; c.programs.len()],
            next_key: 1,
            ghost: Ghost {
                op: 0,
                mount: 1,
                floor: [0; FILES],
                acked: 0,
                acked_alone: 0,
                owed: None,
                direct: [0; BLOCKS],
                broken: 0,
                faults: [0; 5],
                fallbacks: 0,
                stalls: 0,
                failed: 0,
            },
        }]
    }

    fn actions(&self, s: &State, out: &mut Vec<Action>) {
        self.watch.look(|landmark| judge::is_at(self, s, landmark));
        self.moves(s, out);
        self.faults(s, out);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        self.apply(&mut next, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        self.watch.wanted(judge::properties())
    }
}
