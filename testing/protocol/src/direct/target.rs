//! The target: it checks, orders, logs and carries out, and says when nothing can come of a lease
//! any more.

use super::config::{Call, Config, Mutation};
use super::state::{Flushed, Heard, Id, Lease, Plane, Queue, Record, Request, Syncing, by_program};

impl Plane {
    /// May a request be begun? A write waits for what was committed over it (R33).
    pub(crate) fn may_begin(&self, config: &Config) -> bool {
        let target = &self.target;
        let Some(request) = target.waiting.filter(|_| target.up && target.running.is_none()) else {
            return false;
        };
        let late = config.has(Mutation::CheckAtArrival);
        if target.queue != Queue::Open && !late {
            return false;
        }
        match config.program[request.call] {
            Call::Write(block) if !config.has(Mutation::RedoOverNewer) => {
                !self.disk.lane.iter().any(|record| record.blocks.contains(&block))
            }
            _ => true,
        }
    }

    pub(crate) fn begin(&mut self, config: &Config) {
        let request = self.target.waiting.take().expect("a request");
        let call = config.program[request.call];
        let allowed = match config.has(Mutation::CheckAtArrival) {
            true => request.allowed,
            false => self.is_allowed(call),
        };
        if !allowed {
            return self.fails(request.call);
        }
        self.may_be_there(config, request.call);
        if let Call::Atomic(one, other) = call {
            self.disk.lane.push(Record {
                id: by_program(request.call),
                blocks: [one, other],
                committed: false,
                flushed: Flushed::No,
            });
        }
        self.target.running = Some(request);
    }

    pub(crate) fn finish(&mut self, config: &Config) {
        let Request { call, .. } = self.target.running.take().expect("a request");
        let id = by_program(call);
        match config.program[call] {
            Call::Write(block) => {
                self.disk.blocks[block].later.push(id);
                if self.target.table[block] == Some(false) {
                    self.target.table[block] = Some(true);
                    self.target.wrote[0] |= 1 << block;
                    if config.has(Mutation::WrittenBeforeFlush) {
                        self.target.reports |= 1 << block;
                    }
                }
                self.answered(config, call);
            }
            Call::Read(block) => {
                let value = self.read(config, block);
                if self.program.up {
                    self.shows(block, value);
                }
                self.answered(config, call);
            }
            Call::Atomic(..) => {
                let begun = self.disk.lane.iter_mut().filter(|record| record.id == id);
                begun.for_each(|record| record.committed = true);
                match config.has(Mutation::CommitBeforeFlush) {
                    true => self.answered(config, call),
                    false => self.target.committing = Some(call),
                }
            }
            Call::Sync if config.has(Mutation::SyncBeforeFlush) => self.answered(config, call),
            Call::Sync => self.target.syncing = Some(Syncing { call, flushed: false }),
        }
    }

    /// What the target reads for the program.
    fn read(&self, config: &Config, block: usize) -> Id {
        let written = self.target.table[block] != Some(false);
        if !written && !config.has(Mutation::UnwrittenReadable) {
            return super::state::ZEROS;
        }
        let committed = |record: &&Record| record.committed && record.blocks.contains(&block);
        let redo = self.disk.lane.iter().rev().find(committed);
        match redo.filter(|_| self.target.index) {
            Some(record) => record.id,
            None => self.disk.blocks[block].now(),
        }
    }

    /// Is something of the lane not durable?
    pub(crate) fn may_flush_lane(&self) -> bool {
        let wanted = |record: &Record| match record.committed {
            true => Flushed::Commit,
            false => Flushed::Data,
        };
        self.target.up && self.disk.lane.iter().any(|record| record.flushed < wanted(record))
    }

    pub(crate) fn flush_lane(&mut self, config: &Config) {
        for record in &mut self.disk.lane {
            record.flushed = if record.committed { Flushed::Commit } else { Flushed::Data };
        }
        if let Some(call) = self.target.committing.take() {
            self.answered(config, call);
        }
    }

    /// Is there a record that may go to its blocks? Only one whose commit is durable may.
    pub(crate) fn may_replay(&self, config: &Config) -> bool {
        let next = self.disk.lane.get(self.target.replayed[0]);
        let all = config.has(Mutation::ReplayUncommitted);
        self.target.up && next.is_some_and(|record| record.flushed == Flushed::Commit || all)
    }

    pub(crate) fn replay(&mut self) {
        let record = &self.disk.lane[self.target.replayed[0]];
        for block in record.blocks {
            self.disk.blocks[block].later.push(record.id);
        }
        self.target.replayed[0] += 1;
    }

    pub(crate) fn may_flush_area(&self) -> bool {
        let wanted = self.target.syncing.is_some_and(|syncing| !syncing.flushed);
        let later = self.disk.blocks.iter().any(|block| !block.later.is_empty());
        self.target.up && (wanted || later)
    }

    pub(crate) fn flush_area(&mut self, config: &Config) {
        self.disk.blocks.iter_mut().for_each(super::state::Stored::flush);
        let target = &mut self.target;
        target.replayed[1] = target.replayed[0];
        target.wrote[1] = target.wrote[0];
        target.reports |= target.wrote[1];
        if let Some(syncing) = &mut target.syncing {
            syncing.flushed = true;
        }
        self.synced(config);
    }

    /// A sync is answered when what it covers is flushed, and written down as written.
    pub(crate) fn synced(&mut self, config: &Config) {
        if let Some(syncing) = self.target.syncing
            && syncing.flushed
            && self.target.reports == 0
        {
            self.target.syncing = None;
            self.answered(config, syncing.call);
        }
    }

    pub(crate) fn may_move_tail(&self) -> bool {
        self.target.up && self.target.replayed[1] > 0
    }

    pub(crate) fn move_tail(&mut self) {
        let [replayed, flushed] = self.target.replayed;
        self.disk.lane.drain(..flushed);
        self.target.replayed = [replayed - flushed, 0];
    }

    /// The target takes what the host says.
    pub(crate) fn hear(&mut self, config: &Config) {
        match self.target.hears.take().expect("a message") {
            Heard::Grant(blocks) => {
                let table = &mut self.target.table;
                for (known, granted) in table.iter_mut().zip(blocks) {
                    *known = known.or(granted);
                }
                if self.host.lease == Lease::Asked {
                    self.target.queue = Queue::Open;
                    self.host.lease = Lease::Held;
                    self.program.queue = self.program.up;
                }
            }
            Heard::End(_) => self.target.queue = Queue::Closing,
            Heard::Reader(reader, blocks) => self.hear_reader(reader, blocks),
            Heard::EndReader(reader) => self.hear_its_end(config, reader),
        }
    }

    /// Can nothing come of the lease any more?
    pub(crate) fn may_drain(&self, config: &Config) -> bool {
        let target = &self.target;
        let has = |mutation| config.has(mutation);
        let runs = target.running.is_some() && !has(Mutation::AckRevokeBeforeDrain);
        let ends = target.committing.is_some() || target.syncing.is_some();
        let left = match () {
            () if has(Mutation::FreeBeforeReplay) => false,
            () if has(Mutation::TailLater) => target.replayed[1] < self.disk.lane.len(),
            () => !self.disk.lane.is_empty(),
        };
        let unflushed = self.disk.blocks.iter().any(|block| !block.later.is_empty());
        let unsaid = target.reports != 0 || target.wrote[0] != 0;
        let reads = target.readers.iter().flatten().any(|reading| reading.running);
        let asked = target.up && target.queue == Queue::Closing && self.host.up;
        asked && !(runs || reads || ends || left || unflushed || unsaid)
    }

    /// The lease is over, and so is all that an older host had granted: the table has nothing of
    /// it, and a request that waits is refused.
    pub(crate) fn drained(&mut self, config: &Config) {
        let target = &mut self.target;
        (target.queue, target.table) = (Queue::Gone, Default::default());
        target.epoch = self.host.epoch;
        target.readers = Default::default();
        if !config.has(Mutation::CheckAtArrival)
            && let Some(request) = target.waiting.take()
        {
            self.fails(request.call);
        }
        self.host.lease = Lease::None;
        if self.host.op >= config.host.len() {
            self.host.busy = false;
        }
        self.program.queue = false;
    }
}
