//! The host: clients, staging, assembly, the link, credits, fallback, unmounting.

use crate::config::{Config, Mutation, Step};
use crate::state::{
    AREA, Block, Client, Copy, DIRECT, FILES, File, Host, Inode, NONE, Phase, Published, Record,
    Source, State, ToService, Txn, value,
};

/// What a host starts on.
pub struct Start {
    /// The key of the host's epoch.
    pub key: u8,
    /// The Service's record.
    pub record: crate::state::ServiceRecord,
    /// The metadata in the area.
    pub image: crate::state::Image,
    /// Data blocks in the area.
    pub blocks: usize,
}

impl Host {
    /// A host that runs on an empty log.
    pub(crate) fn start(start: &Start) -> Self {
        let record = &start.record;
        let file = |i: Inode| File {
            op: i.op,
            live: i.live,
            home: i.block,
            cut_home: i.block,
            ready: i,
            source: Source::Metadata,
            journaled: i.op,
            named: i.op,
            newest: 0,
            staged: i.op,
        };
        let mut host = Self {
            phase: Phase::Running,
            key: start.key,
            lsn: record.cut,
            files: start.image.map(file),
            heads: record.tails,
            tails: record.tails,
            cut_heads: record.tails,
            seq: record.seq,
            journaled: record.seq,
            reclaimed: record.seq,
            ..Self::down()
        };
        let used = crate::storage::mapped(&start.image);
        for (bit, block) in host.blocks.iter_mut().enumerate().take(start.blocks) {
            *block = if used & 1 << bit == 0 { Block::Free } else { Block::Used };
        }
        host
    }

    /// A host that does not run.
    pub(crate) fn down() -> Self {
        let file = File {
            op: 0,
            live: false,
            home: NONE,
            cut_home: NONE,
            ready: Inode::NEVER,
            source: Source::Metadata,
            journaled: 0,
            named: 0,
            newest: 0,
            staged: 0,
        };
        Self {
            phase: Phase::Down,
            key: 0,
            lsn: 0,
            last_record: [0; 2],
            last_ordered: 0,
            files: [file; FILES],
            records: Vec::new(),
            heads: [0; 2],
            tails: [0; 2],
            cut_heads: [0; 2],
            blocks: [Block::Used; 3],
            held: [0; FILES],
            pushed: Vec::new(),
            names_pending: false,
            seq: 0,
            kept: Vec::new(),
            journaled: 0,
            reclaimed: 0,
            link: None,
            greeted: false,
            sent: 0,
            asked: [false; 2],
            found_tails: [0; 2],
        }
    }

    pub(crate) fn free_block(&self) -> Option<usize> {
        self.blocks.iter().position(|b| *b == Block::Free)
    }

    /// Blocks that may be allocated and that no data waits for (rule R5).
    pub(crate) fn spendable(&self) -> usize {
        let free = self.blocks.iter().filter(|b| **b == Block::Free).count();
        let reserved = self.files.iter().filter(|f| f.live && f.home == NONE).count();
        let held = self.held.iter().filter(|seq| **seq != 0).count();
        free.saturating_sub(reserved + held)
    }

    /// The record that carries this file's present state, if there is one.
    pub(crate) fn record_of(&self, file: usize) -> Option<&Published> {
        let op = self.files[file].op;
        self.records.iter().find(|p| usize::from(p.record.file) == file && p.record.op == op)
    }

    /// Will a commit and a checkpoint free a block? If not, the file system is full.
    pub(crate) fn frees_soon(&self) -> bool {
        self.blocks.iter().any(|b| matches!(b, Block::Freed | Block::Quarantined(_)))
            || !self.has_discarded()
            || self.held != [0; FILES]
    }

    pub(crate) fn lane_full(&self, config: &Config, file: usize) -> bool {
        self.is_full(config, config.lane_of(file))
    }

    pub(crate) fn is_full(&self, config: &Config, lane: usize) -> bool {
        self.heads[lane] - self.tails[lane] >= config.lane_slots
    }

    pub(crate) fn is_durable(&self, lsn: u8) -> bool {
        self.records.iter().all(|p| p.record.lsn != lsn || p.durable)
    }

    /// Is everything that a transaction up to these positions contains flushed (rule R4)?
    pub(crate) fn flushed(&self, txn: &Txn) -> bool {
        self.records.iter().all(|p| p.durable || p.record.pos >= txn.upto[usize::from(p.lane)])
    }

    /// Messages about what is kept, in order.
    pub(crate) fn outgoing(&self) -> Vec<ToService> {
        let direct = |seq: u8, (block, value): (u8, u8)| ToService::Direct { seq, block, value };
        let mut messages = Vec::new();
        for txn in &self.kept {
            messages.extend(txn.direct.iter().flatten().map(|d| direct(txn.seq, *d)));
            messages.push(ToService::Submit(*txn));
        }
        messages.extend(self.pushed.iter().map(|d| direct(self.seq + 1, *d)));
        messages
    }

    /// Forgets the link; what was asked for or sent over it was not.
    pub(crate) fn unlink(&mut self, config: &Config) {
        if config.has(Mutation::ForgetDirect) && self.sent > 0 {
            self.pushed.clear();
            self.kept.iter_mut().for_each(|t| t.direct = [None; DIRECT]);
        }
        self.forget_discards();
        self.link = None;
        self.greeted = false;
        self.sent = 0;
        if !config.has(Mutation::AskOnce) {
            self.asked = [false; 2];
        }
    }
}

/// Does a planted fault acknowledge what is written only: in the area, or on the disk?
pub(crate) fn early_in(config: &Config) -> Option<bool> {
    match config.mutation {
        Some(Mutation::AckBeforeFlush) => Some(false),
        Some(Mutation::AckBeforePersist) => Some(true),
        _ => None,
    }
}

/// Messages that a transaction takes.
pub(crate) fn messages(txn: &Txn) -> usize {
    1 + txn.direct.iter().flatten().count()
}

impl State {
    /// A client's next step, unless it waits.
    pub(crate) fn step_of(&self, config: &Config, client: usize) -> Option<Step> {
        let Client { pc, waits, .. } = self.clients[client];
        if waits != 0 || self.host.phase != Phase::Running {
            return None;
        }
        config.programs[client].get(usize::from(pc)).copied()
    }

    /// Have all programs come to their ends?
    pub(crate) fn programs_done(&self, config: &Config) -> bool {
        let ended = |(c, p): (&Client, &Vec<Step>)| c.waits == 0 && usize::from(c.pc) == p.len();
        self.clients.iter().zip(&config.programs).all(ended)
    }

    /// Is a client about to be told that the file system is full?
    pub(crate) fn finds_full(&self, config: &Config) -> bool {
        (0..self.clients.len()).any(|c| match self.step_of(config, c) {
            Some(Step::Write(f)) => {
                let host = &self.host;
                !host.files[usize::from(f)].live && host.spendable() == 0 && !host.frees_soon()
            }
            _ => false,
        })
    }

    /// Does a client, or the host itself, wait for credits?
    pub(crate) fn starved(&self, config: &Config) -> bool {
        let waits = |c| self.step_of(config, c).is_some_and(|s| !self.host.has_room(config, s));
        (0..self.clients.len()).any(waits)
            || self.unsettled(config).any(|f| self.host.lane_full(config, f))
            || self.host.wants_cut() && !self.host.journal_room(config)
    }

    pub(crate) fn client(&mut self, config: &Config, client: usize) {
        let Some(step) = self.step_of(config, client) else { return };
        self.clients[client].pc += 1;
        match step {
            Step::Write(f) => self.write(usize::from(f)),
            Step::Unlink(f) => self.remove(config, usize::from(f)),
            Step::Fsync(f) => self.fsync(config, client, usize::from(f)),
        }
    }

    pub(crate) fn wait_for(&mut self, client: usize, f: usize, lsn: u8) {
        let waiter = &mut self.clients[client];
        (waiter.waits, waiter.op, waiter.at) = (lsn, self.host.files[f].op, self.turn);
    }

    /// Fails where the file system is full.
    fn write(&mut self, f: usize) {
        if !self.host.files[f].live && self.host.spendable() == 0 {
            return;
        }
        self.ghost.op += 1;
        let file = &mut self.host.files[f];
        if !file.live {
            self.host.lsn += 1;
        }
        if !file.live {
            file.named = self.ghost.op;
        }
        file.op = self.ghost.op;
        file.live = true;
    }

    fn remove(&mut self, config: &Config, f: usize) {
        let file = &mut self.host.files[f];
        if !file.live {
            return;
        }
        let staged = |p: &Published| usize::from(p.record.file) == f && p.record.live;
        let homeless = file.home == NONE && self.host.records.iter().any(staged);
        if homeless && !config.has(Mutation::FreeWhatIsStaged) {
            self.host.held[f] = self.host.seq + 1;
        }
        self.ghost.op += 1;
        self.host.lsn += 1;
        file.op = self.ghost.op;
        file.named = file.op;
        file.live = false;
        if file.home != NONE {
            self.host.blocks[usize::from(file.home)] = Block::Freed;
        }
        file.home = NONE;
        file.ready = Inode { op: file.op, live: false, block: NONE };
        file.source = Source::Metadata;
        self.host.names_pending = true;
    }

    fn fsync(&mut self, config: &Config, client: usize, f: usize) {
        let file = self.host.files[f];
        if file.journaled >= file.op {
            self.ghost.floor[f] = self.ghost.floor[f].max(file.op);
            return;
        }
        let known = self.host.record_of(f).map(|p| p.record.lsn);
        let lsn = known.unwrap_or_else(|| self.stage(config, f));
        self.wait_for(client, f, lsn);
    }

    /// Captures a file's state into a record and publishes it; answers its number.
    pub(crate) fn stage(&mut self, config: &Config, f: usize) -> u8 {
        self.stage_in(config, f, config.lane_of(f))
    }

    pub(crate) fn stage_in(&mut self, config: &Config, f: usize, lane: usize) -> u8 {
        let mount = self.ghost.mount;
        let host = &mut self.host;
        let chain = usize::from(config.area && lane == AREA);
        host.lsn += 1;
        let pos = if config.has(Mutation::PublishBeforeFix) {
            NONE
        } else {
            host.heads[lane] += 1;
            host.heads[lane] - 1
        };
        let file = &mut host.files[f];
        let home = file.overwritten(config, chain == 1);
        let lane = u8::try_from(lane).expect("two lanes");
        let record = Record {
            key: host.key,
            mount,
            lane,
            pos,
            lsn: host.lsn,
            prev: host.last_record[0],
            prev_area: host.last_record[1],
            needs: [file.newest, host.last_ordered],
            file: u8::try_from(f).expect("two files"),
            op: file.op,
            live: file.live,
            home,
        };
        host.last_record[chain] = host.lsn;
        if file.named > file.staged {
            host.last_ordered = host.lsn;
        }
        (file.newest, file.staged) = (host.lsn, file.op);
        // What went ahead of its transaction is captured again, and keeps its block (rule R12).
        if file.live && file.ready.op != file.op {
            file.ready = Inode { op: file.op, live: true, block: file.home };
            file.source = match home {
                NONE => Source::Record { lane, lsn: host.lsn },
                _ => Source::Physical,
            };
        }
        let published = Published { record, lane, written: false, durable: false, indexed: true };
        host.records.push(published);
        host.lsn
    }

    /// Files whose unsynced overwrites an unmount must stage.
    pub(crate) fn unsettled(&self, config: &Config) -> impl Iterator<Item = usize> {
        let leaving = config.unmount && self.programs_done(config);
        let running = self.host.phase == Phase::Running;
        let files = self.host.files;
        (0..FILES).filter(move |f| {
            let file = &files[*f];
            leaving && running && file.live && file.ready.op != file.op
        })
    }

    pub(crate) fn write_record(&mut self, lsn: u8) {
        let published = self.host.records.iter_mut().find(|p| p.record.lsn == lsn);
        let published = published.expect("published");
        published.written = true;
        let (lane, record) = (usize::from(published.lane), published.record);
        self.storage.lane_mut(lane, record.pos).write(Some(record));
    }

    pub(crate) fn flush_lanes(&mut self, config: &Config) {
        self.storage.flush_lanes();
        let all = config.has(Mutation::FlushCoversUnwritten);
        for p in self.host.records.iter_mut().filter(|p| !p.is_compact(config)) {
            p.durable |= p.written || all;
        }
    }

    /// Rule R3: everything up to the number is durable; for a record of the area, in the area.
    pub(crate) fn may_return(&self, config: &Config, client: usize) -> bool {
        let Client { waits, at, .. } = self.clients[client];
        let alone = self.waits_alone(config, client) && !config.has(Mutation::WaitForBulk);
        let early = early_in(config) == Some(alone);
        let done = |p: &Published| {
            let other = alone && !p.is_compact(config);
            let own = p.record.lsn == waits;
            let hole = alone && !own && config.has(Mutation::AckOverAHole);
            other || hole || p.durable || early && p.written
        };
        waits != 0
            && at == self.turn
            && self.host.records.iter().all(|p| p.record.lsn > waits || done(p))
    }

    pub(crate) fn return_to(&mut self, config: &Config, client: usize) {
        let Client { pc, waits, op, .. } = self.clients[client];
        self.host_promises();
        let Step::Fsync(f) = config.programs[client][usize::from(pc) - 1] else {
            unreachable!("only fsync waits")
        };
        let floor = &mut self.ghost.floor[usize::from(f)];
        *floor = (*floor).max(op);
        let acked = match self.waits_alone(config, client) {
            true => &mut self.ghost.acked_alone,
            false => &mut self.ghost.acked,
        };
        *acked = (*acked).max(waits);
        self.clients[client] = Client { pc, waits: 0, op: 0, at: 0 };
    }

    /// The atomic cut (rule R1).
    pub(crate) fn cut(&mut self) {
        let mount = self.ghost.mount;
        let host = &mut self.host;
        host.seq += 1;
        let mut txn = Txn {
            key: 0,
            mount,
            seq: host.seq,
            cut: host.lsn,
            upto: host.heads,
            from: host.cut_heads[AREA],
            copies: [None; FILES],
            image: [Inode::NEVER; FILES],
            drops: 0,
            direct: [None; DIRECT],
        };
        for f in 0..FILES {
            txn.copies[f] = host.give_home(f);
            txn.image[f] = host.files[f].ready;
            host.files[f].cut_home = txn.image[f].block;
        }
        for (at, run) in std::mem::take(&mut host.pushed).into_iter().enumerate() {
            txn.direct[at] = Some(run);
        }
        for (bit, block) in host.blocks.iter_mut().enumerate() {
            if *block == Block::Freed {
                txn.drops |= 1 << bit;
                *block = Block::Quarantined(txn.seq);
            }
        }
        host.cut_heads = host.heads;
        host.names_pending = false;
        host.kept.push(txn);
    }
}

impl Host {
    /// Can this step run now? If not, it waits for credits.
    pub(crate) fn has_room(&self, config: &Config, step: Step) -> bool {
        let host = self;
        match step {
            Step::Write(f) => {
                host.files[usize::from(f)].live || host.spendable() > 0 || !host.frees_soon()
            }
            Step::Fsync(f) => {
                let file = usize::from(f);
                let entry = &host.files[file];
                entry.journaled >= entry.op
                    || host.record_of(file).is_some()
                    || !host.lane_full(config, file)
            }
            Step::Unlink(_) => true,
        }
    }

    pub(crate) fn may_settle(&self, config: &Config, f: usize) -> bool {
        !self.lane_full(config, f)
    }

    pub(crate) fn place(&mut self, lsn: u8) {
        let host = self;
        let at = host.records.iter_mut().find(|p| p.record.lsn == lsn).expect("published");
        let lane = usize::from(at.lane);
        at.record.pos = host.heads[lane];
        host.heads[lane] += 1;
    }

    /// Is something written to the disk's lanes, and not flushed?
    pub(crate) fn unflushed(&self, config: &Config) -> bool {
        let lanes = self.records.iter().filter(|p| !p.is_compact(config));
        lanes.into_iter().any(|p| p.written && !p.durable)
    }

    /// Data without a home that no record carries may go straight to a new block (rule R20).
    pub(crate) fn may_push(&self, config: &Config, f: usize) -> bool {
        let host = self;
        let file = &host.files[f];
        config.direct
            && file.live
            && file.home == NONE
            && file.ready.op != file.op
            && host.pushed.len() < DIRECT
            && host.kept.len() < config.pipeline
            && host.free_block().is_some()
    }

    pub(crate) fn push(&mut self, f: usize) {
        let host = self;
        let block = host.free_block().expect("asked before");
        host.blocks[block] = Block::Used;
        let file = &mut host.files[f];
        file.home = u8::try_from(block).expect("few blocks");
        file.ready = Inode { op: file.op, live: true, block: file.home };
        file.source = Source::Direct;
        host.pushed.push((file.home, value(f, file.op)));
    }

    pub(crate) fn wants_cut(&self) -> bool {
        let host = self;
        host.heads != host.cut_heads
            || host.names_pending
            || !host.pushed.is_empty()
            || host.records.iter().any(|p| p.record.pos == NONE)
    }

    fn journal_room(&self, config: &Config) -> bool {
        self.seq - self.reclaimed < config.journal_slots
    }

    pub(crate) fn may_cut(&self, config: &Config) -> bool {
        self.wants_cut() && self.journal_room(config) && self.kept.len() < config.pipeline
    }
}

impl File {
    /// The block that a record of the file overwrites, if it is physical: the newest cut maps it,
    /// and the running transaction maps no other.
    pub(crate) fn overwritten(&self, config: &Config, in_area: bool) -> u8 {
        let mapped = self.home == self.cut_home;
        if config.physical && in_area && self.live && mapped { self.home } else { NONE }
    }
}

impl Host {
    /// The running transaction's copy for a file whose newest state lies in a record; gives the
    /// file a block if it has none.
    pub(crate) fn give_home(&mut self, f: usize) -> Option<Copy> {
        let source = self.files[f].source;
        self.files[f].source = Source::Metadata;
        let Source::Record { lane, lsn } = source else { return None };
        if self.files[f].home == NONE {
            let block = self.free_block()?;
            self.blocks[block] = Block::Used;
            self.files[f].home = u8::try_from(block).expect("few blocks");
        }
        let file = &mut self.files[f];
        file.ready.block = file.home;
        let at = self.records.iter().find(|p| p.record.lsn == lsn);
        let pos = at.map_or(NONE, |p| p.record.pos);
        Some(Copy { lane, pos, lsn, value: value(f, file.ready.op), dst: file.home })
    }
}
