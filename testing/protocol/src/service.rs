//! A process that may run the Service: opening, journaling, checkpoints, letting go.

use crate::config::{Config, Mutation, Replay};
use crate::judge::Broken;
use crate::state::Host;
use crate::state::{
    AREA, BLOCKS, Copy, FromService, HostState, Image, Journaling, LOCAL, Phase, Process,
    Replaying, Service, ServiceRecord, State, Task, ToService, Txn, Value,
};
use crate::storage::Storage;
use crate::storage::{View, mapped};

/// One write of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// A staged record's data, by transaction `seq`.
    Copy { seq: u8, copy: Copy },
    /// The metadata block.
    Meta(Image),
}

impl Process {
    /// Stands ready for a connection.
    pub(crate) fn is_ready(&self) -> bool {
        self.service.is_none() && !self.connected && self.inbox.is_empty()
    }

    /// Has a Service that does nothing.
    pub(crate) fn is_idle(&self) -> bool {
        self.service.as_ref().is_some_and(|s| s.task == Task::Idle)
    }

    pub(crate) fn may_notice(&self) -> bool {
        let open = self.service.as_ref().is_some_and(|s| !s.finishing);
        !self.connected && (open || !self.inbox.is_empty())
    }

    /// The host has gone: nothing more is taken, what is committed is finished.
    pub(crate) fn notice(&mut self) {
        self.inbox.clear();
        if let Some(service) = &mut self.service {
            service.finishing = true;
            service.asked = [0; 2];
        }
    }

    pub(crate) fn may_let_go(&self) -> bool {
        let service = self.service.as_ref();
        let done = |s: &Service| s.finishing && s.task == Task::Idle && s.head == s.tail;
        service.is_some_and(done)
    }

    fn service(&mut self) -> &mut Service {
        self.service.as_mut().expect("open")
    }

    pub(crate) fn say(&mut self, message: FromService) {
        if self.connected {
            self.outbox.push(message);
        }
    }
}

impl Service {
    /// A Service that has the lock and has read nothing.
    pub(crate) fn opening(key: u8, lane_key: u8, finishing: bool) -> Self {
        Self {
            key,
            lane_key,
            tail: 0,
            head: 0,
            direct: Vec::new(),
            task: Task::Open,
            discards: Vec::new(),
            asked: [0; 2],
            finishing,
        }
    }

    /// The batch of the most urgent checkpoint that was asked for: its last transaction.
    fn next_batch(&self) -> Option<u8> {
        if self.head == self.tail {
            return None;
        }
        match self.asked {
            _ if self.finishing => Some(self.head),
            [0, 0] => None,
            [upto, 0] => Some(upto),
            _ => Some(self.tail + 1),
        }
    }
}

impl State {
    /// A message can be taken: at rest, or before the Service is open and while the lock is free.
    pub(crate) fn may_serve(&self, config: &Config, p: usize) -> bool {
        let process = &self.processes[p];
        if process.inbox.is_empty() {
            return false;
        }
        match &process.service {
            Some(s) => s.task == Task::Idle && !s.finishing,
            None => self.lock.is_none() || config.has(Mutation::TakeoverWithoutLock),
        }
    }

    pub(crate) fn serve(&mut self, config: &Config, p: usize) {
        let message = self.processes[p].inbox.remove(0);
        if self.processes[p].service.is_none() {
            return self.hello(config, p, message);
        }
        match message {
            ToService::Hello { .. } => self.refuse(p),
            ToService::Direct { seq, block, value } => self.direct(p, seq, block, value),
            ToService::Submit(txn) => self.submit(config, p, txn),
            ToService::Checkpoint { emergency } => {
                let service = self.processes[p].service();
                if service.head == service.tail {
                    self.processes[p].say(FromService::Done { emergency });
                } else {
                    service.asked[usize::from(emergency)] = service.head;
                }
            }
            ToService::Discard { block } => self.processes[p].service().discards.push(block),
            ToService::Goodbye => {
                self.let_go(p);
                self.processes[p].say(FromService::Bye);
            }
        }
    }

    /// Takes the lock, and opens the volume if the host record names the epoch of the `Hello`.
    fn hello(&mut self, config: &Config, p: usize, message: ToService) {
        let record = *self.storage.host.visible();
        let ToService::Hello { key } = message else { return self.refuse(p) };
        let current = record.key == key && record.state == HostState::Mounted;
        if !current && !config.has(Mutation::AnyEpoch) {
            return self.refuse(p);
        }
        self.lock = Some(u8::try_from(p).expect("few processes"));
        self.ghost.forget_failure(p);
        self.processes[p].service = Some(Service::opening(key, key, false));
    }

    /// What a Service must never have to say to the host that it serves.
    fn refuse(&mut self, p: usize) {
        if self.processes[p].connected {
            self.ghost.note(Broken::Refused);
        }
        self.processes[p].inbox.clear();
    }

    fn direct(&mut self, p: usize, seq: u8, block: u8, value: Value) {
        let service = self.processes[p].service();
        if seq != service.head + 1 {
            return self.refuse(p);
        }
        service.direct.push((block, value));
        if self.storage.in_use(block) {
            self.ghost.note(Broken::Early);
        }
        self.ghost.direct[usize::from(block)] = seq;
        self.storage.blocks[usize::from(block)].write(value);
    }

    fn submit(&mut self, config: &Config, p: usize, txn: Txn) {
        let service = self.processes[p].service();
        let listed: Vec<_> = txn.direct.iter().flatten().copied().collect();
        let room = txn.seq.saturating_sub(service.tail) <= config.journal_slots;
        if txn.seq != service.head + 1 || listed != service.direct || !room {
            return self.refuse(p);
        }
        let step = match listed.is_empty() {
            true => Journaling::Write,
            false => Journaling::AreaFlush,
        };
        service.task = Task::Journal { txn, step };
    }

    pub(crate) fn work(&mut self, config: &Config, p: usize) {
        match self.processes[p].service().task {
            Task::Idle => {}
            Task::Open => self.open(config, p),
            Task::Journal { txn, step } => self.journal(config, p, txn, step),
            Task::Replay { upto, step } => self.replay(config, p, upto, step),
        }
    }

    /// One path for a mount, a takeover and a fallback: flush what a dead writer may have left
    /// unflushed, read, answer.
    fn open(&mut self, config: &Config, p: usize) {
        self.flush_found(config, p);
        let record = *self.storage.service.visible();
        let key = self.processes[p].service().key;
        let recovering = self.host.recovers(p);
        if recovering {
            self.host.found_tails = record.tails;
            self.note_owed();
        }
        let committed = self.storage.committed(View::Visible, key);
        let service = self.processes[p].service();
        service.tail = record.seq;
        service.head = committed.last().map_or(record.seq, |t| t.seq);
        service.task = Task::Idle;
        let journaled = service.head;
        let process = &mut self.processes[p];
        process.say(FromService::Welcome { journaled });
        for txn in committed {
            process.say(FromService::Journaled { seq: txn.seq });
        }
        if record.seq > 0 {
            process.say(FromService::Reclaimed { seq: record.seq, tails: record.tails });
        }
    }

    /// What was read may be a dead writer's and lost at the next power cut: nothing is told,
    /// replayed or written on the strength of it before it is durable. A recovery flushes the
    /// lanes, too, and the host record that it reads.
    fn flush_found(&mut self, config: &Config, p: usize) {
        let key = self.processes[p].service().key;
        let recovering = self.host.recovers(p);
        let skipped = match config.mutation {
            Some(Mutation::RecoverWithoutFlush) => recovering,
            Some(Mutation::TakeoverWithoutFlush) => !recovering,
            Some(Mutation::TakeoverTrustsTails) => {
                !recovering && self.storage.committed(View::Visible, key).is_empty()
            }
            _ => false,
        };
        if skipped {
            return;
        }
        if recovering {
            self.storage.flush_lanes();
            if !config.has(Mutation::RecoverWithoutPersist) {
                self.storage.persist_area();
            }
            self.storage.host.flush();
        }
        self.storage.flush_journal();
        self.storage.service.flush();
    }

    fn journal(&mut self, config: &Config, p: usize, mut txn: Txn, step: Journaling) {
        match step {
            Journaling::AreaFlush => {
                self.storage.flush_area();
                self.processes[p].service().task = Task::Journal { txn, step: Journaling::Write };
            }
            Journaling::Write => {
                txn.key = self.processes[p].service().key;
                self.storage.journal_mut(txn.seq).write(Some(txn));
                self.processes[p].service().task = Task::Journal { txn, step: Journaling::Flush };
                if config.has(Mutation::ReplayBeforeCommit) {
                    self.committed(p, txn.seq);
                }
            }
            Journaling::Flush => {
                self.storage.flush_journal();
                self.committed(p, txn.seq);
            }
        }
    }

    fn committed(&mut self, p: usize, seq: u8) {
        let service = self.processes[p].service();
        service.head = seq;
        service.direct.clear();
        service.task = Task::Idle;
        self.ghost.service_promises(p);
        self.processes[p].say(FromService::Journaled { seq });
    }

    pub(crate) fn checkpoint(&mut self, config: &Config, p: usize) {
        let service = self.processes[p].service();
        let upto = service.next_batch().expect("asked before");
        service.task = Task::Replay { upto, step: Replaying::Writes(0) };
        self.compare_modes(config, p, upto);
    }

    fn batch(&self, p: usize, upto: u8) -> Vec<Txn> {
        let service = self.processes[p].service.as_ref().expect("open");
        let read = |seq| *self.storage.journal(seq).visible();
        (service.tail + 1..=upto).filter_map(read).collect()
    }

    /// What a replay of the batch writes, in order.
    pub(crate) fn plan(&self, config: &Config, p: usize, upto: u8) -> Vec<Write> {
        let batch = self.digested(config, p, upto);
        match config.replay {
            Replay::Ordered => ordered(config, &batch),
            Replay::Coalesce => coalesced(config, &batch),
        }
    }

    /// The batch, each transaction with what it digests.
    fn digested(&self, config: &Config, p: usize, upto: u8) -> Vec<(Txn, Vec<Copy>)> {
        let batch = self.batch(p, upto);
        let lane_key = self.processes[p].service.as_ref().expect("open").lane_key;
        let skipped = config.has(Mutation::ReplayWithoutDigest) && self.host.recovers(p);
        let digest = |txn: Txn| {
            let (mut from, mut to) = (txn.from, txn.upto[AREA]);
            match config.mutation {
                Some(Mutation::DigestLate) => from = from.saturating_sub(1),
                Some(Mutation::DigestBeyondCut) => to = from + config.lane_slots,
                _ => {}
            }
            let found = match config.physical && !skipped {
                true => self.storage.digest(View::Visible, lane_key, from, to),
                false => Vec::new(),
            };
            (txn, found)
        };
        batch.into_iter().map(digest).collect()
    }

    /// Rule R22: both modes leave every block that the final metadata maps the same.
    fn compare_modes(&mut self, config: &Config, p: usize, upto: u8) {
        let batch = self.digested(config, p, upto);
        let end = |plan: Vec<Write>| {
            let mut blocks = [None; BLOCKS];
            let mut meta = None;
            for write in plan {
                match write {
                    Write::Copy { copy, .. } => blocks[usize::from(copy.dst)] = Some(copy.value),
                    Write::Meta(image) => meta = Some(image),
                }
            }
            let kept = meta.map_or(0, |image| mapped(&image));
            for (bit, block) in blocks.iter_mut().enumerate() {
                *block = block.filter(|_| kept & 1 << bit != 0);
            }
            (blocks, meta)
        };
        if end(ordered(config, &batch)) != end(coalesced(config, &batch)) {
            self.ghost.note(Broken::Modes);
        }
    }

    fn replay(&mut self, config: &Config, p: usize, upto: u8, step: Replaying) {
        match step {
            Replaying::Writes(done) => {
                let batch = self.batch(p, upto);
                let plan = self.plan(config, p, upto);
                self.processes[p].service().task = match plan.get(usize::from(done)) {
                    Some(write) => {
                        self.check_committed(&batch);
                        self.apply(p, *write);
                        Task::Replay { upto, step: Replaying::Writes(done + 1) }
                    }
                    None => {
                        if !config.has(Mutation::NoAreaFlush) {
                            self.storage.flush_area();
                        }
                        Task::Replay { upto, step: Replaying::Tail }
                    }
                };
            }
            Replaying::Tail => {
                let last = self.batch(p, upto).pop().expect("a batch is not empty");
                let (seq, cut, tails, image) = (last.seq, last.cut, last.upto, last.image);
                self.storage.service.write(ServiceRecord { seq, cut, tails, image });
                self.processes[p].service().task =
                    Task::Replay { upto, step: Replaying::TailFlush };
                if config.has(Mutation::CreditsBeforeTail) {
                    self.processes[p].say(FromService::Reclaimed { seq, tails });
                }
            }
            Replaying::TailFlush => {
                self.storage.service.flush();
                self.reclaim(p, upto);
            }
        }
    }

    /// Only now is the space given back (rule R11).
    fn reclaim(&mut self, p: usize, upto: u8) {
        let tails = self.storage.service.durable.tails;
        self.ghost.service_promises(p);
        let service = self.processes[p].service();
        service.tail = upto;
        service.task = Task::Idle;
        let mut done = [false; 2];
        for (kind, asked) in service.asked.iter_mut().enumerate() {
            done[kind] = *asked != 0 && (*asked <= upto || kind == 1);
            if done[kind] {
                *asked = 0;
            }
        }
        let process = &mut self.processes[p];
        process.say(FromService::Reclaimed { seq: upto, tails });
        for (kind, done) in done.into_iter().enumerate() {
            if done {
                process.say(FromService::Done { emergency: kind == 1 });
            }
        }
    }

    /// Replay eligibility: the commit is durable before anything of it is replayed.
    fn check_committed(&mut self, batch: &[Txn]) {
        let durable = |t: &Txn| self.storage.journal(t.seq).durable == Some(*t);
        if !batch.iter().all(durable) {
            self.ghost.note(Broken::NotEligible);
        }
    }

    fn apply(&mut self, p: usize, write: Write) {
        match write {
            Write::Meta(image) => self.storage.meta.write(image),
            Write::Copy { seq, copy } => {
                let lane_key = self.processes[p].service().lane_key;
                let source = self.storage.lane(usize::from(copy.lane), copy.pos).visible();
                let valid = |r: &&crate::state::Record| {
                    r.key == lane_key && r.pos == copy.pos && r.lsn == copy.lsn
                };
                if source.as_ref().filter(valid).is_none() {
                    self.ghost.note(Broken::NotEligible);
                }
                let block = usize::from(copy.dst);
                if self.ghost.direct[block] > seq {
                    self.ghost.note(Broken::Stale);
                }
                self.storage.blocks[block].write(copy.value);
            }
        }
    }

    pub(crate) fn let_go(&mut self, p: usize) {
        self.processes[p].service = None;
        if self.lock.map(usize::from) == Some(p) {
            self.lock = None;
        }
    }
}

impl Storage {
    /// Does anything that recovery or replay may need still name this block?
    pub(crate) fn in_use(&self, block: u8) -> bool {
        let storage = self;
        let bit = 1 << block;
        let key = storage.host.durable.key;
        let tail = storage.service.durable.seq;
        let replayed = mapped(&storage.service.durable.image) & bit != 0;
        let journal = storage.journal.iter().filter_map(|c| c.visible().as_ref());
        replayed
            || journal.filter(|t| t.key == key && t.seq > tail).any(|t| mapped(&t.image) & bit != 0)
    }
}

impl Process {
    pub(crate) fn may_work(&self) -> bool {
        self.service.as_ref().is_some_and(|s| s.task != Task::Idle)
    }

    pub(crate) fn may_checkpoint(&self) -> bool {
        let service = self.service.as_ref();
        service.is_some_and(|s| s.task == Task::Idle && s.next_batch().is_some())
    }
}

impl Host {
    /// Is this the host's own Service, opened by a recovery?
    pub(crate) fn recovers(&self, p: usize) -> bool {
        p == LOCAL && matches!(self.phase, Phase::Recover(_))
    }
}

/// What a transaction copies, in its order: what it digests lies under what it has tags for (rule
/// R42).
fn copies(config: &Config, (txn, digested): &(Txn, Vec<Copy>)) -> Vec<Write> {
    let tagged = txn.copies.iter().flatten();
    let all: Vec<Copy> = match config.has(Mutation::DigestLast) {
        true => tagged.chain(digested).copied().collect(),
        false => digested.iter().chain(tagged).copied().collect(),
    };
    all.into_iter().map(|copy| Write::Copy { seq: txn.seq, copy }).collect()
}

/// Every range of every transaction, in order; staged data before metadata.
fn ordered(config: &Config, batch: &[(Txn, Vec<Copy>)]) -> Vec<Write> {
    let mut plan = Vec::new();
    for part in batch {
        plan.extend(copies(config, part));
        plan.push(Write::Meta(part.0.image));
    }
    plan
}

/// The final state alone: the last write of each block wins, freed blocks vanish.
fn coalesced(config: &Config, batch: &[(Txn, Vec<Copy>)]) -> Vec<Write> {
    let mut last = [None; BLOCKS];
    for part in batch {
        let txn = &part.0;
        for write in copies(config, part) {
            let Write::Copy { copy, .. } = write else { continue };
            let slot = &mut last[usize::from(copy.dst)];
            if slot.is_none() || !config.has(Mutation::FirstWriteWins) {
                *slot = Some(write);
            }
        }
        for (bit, slot) in last.iter_mut().enumerate() {
            if txn.drops & 1 << bit != 0 {
                *slot = None;
            }
        }
    }
    let mut plan: Vec<_> = last.into_iter().flatten().collect();
    plan.extend(batch.last().map(|(txn, _)| Write::Meta(txn.image)));
    plan
}
