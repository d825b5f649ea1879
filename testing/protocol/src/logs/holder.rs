//! The program with the private log: it publishes, reads, writes batches, and looks afterwards.

use super::config::{Call, Config, Mutation, Who};
use super::state::{
    At, Batch, Broken, Client, Daemon, FILES, LOG, Medium, Record, Said, Slot, World,
};

impl World {
    /// A client's present call, if there is one left.
    pub(crate) fn call(&self, config: &Config, client: usize) -> Option<Call> {
        config.programs[client].1.get(self.clients[client].call).copied()
    }

    /// Is a client of the holder's in one of these places, with a call of this file?
    fn is_busy(&self, config: &Config, file: usize) -> bool {
        let busy = |(c, client): (usize, &Client)| {
            let about = self.call(config, c).and_then(Call::file) == Some(file);
            let idle = matches!(client.at, At::Ready | At::Ended);
            config.who(c) == Who::Holder && about && !idle
        };
        self.clients.iter().enumerate().any(busy)
    }

    /// Has another fsync of the program the medium?
    fn is_medium_taken(&self, config: &Config) -> bool {
        let has = |(c, client): (usize, &Client)| {
            let fsync = matches!(self.call(config, c), Some(Call::Fsync(_)));
            let in_it = matches!(client.at, At::Writing | At::Persistent | At::Asked);
            config.who(c) == Who::Holder && fsync && in_it
        };
        self.clients.iter().enumerate().any(has)
    }

    /// May a client's next call begin?
    pub(crate) fn may_begin(&self, config: &Config, client: usize) -> bool {
        let Some(call) = self.call(config, client) else { return false };
        if self.clients[client].at != At::Ready {
            return false;
        }
        let in_it = |client: &Client| matches!(client.at, At::Filled | At::Headed);
        let filled = || self.clients.iter().any(in_it);
        match (config.who(client), call) {
            // Without a daemon there is no mount.
            (Who::Mount, _) => self.daemon == Daemon::Up,
            (Who::Holder, Call::Lease(file) | Call::Return(file)) => !self.is_busy(config, file),
            (Who::Holder, Call::Fsync(_) | Call::Forget) => {
                !self.is_medium_taken(config) && !filled()
            }
            // The ring has one writer at a time, and what the library reads is in its order.
            (Who::Holder, Call::Write(_) | Call::Read(_)) => !filled(),
            _ => true,
        }
    }

    pub(crate) fn begin(&mut self, config: &Config, client: usize) {
        let call = self.call(config, client).expect("asked before");
        let (returned, ghost) = (self.ghost.returned, self.ghost);
        let floor = |f: usize| returned[f].max(ghost.promised[f]);
        self.clients[client].needs = std::array::from_fn::<_, FILES, _>(floor);
        self.clients[client].orders = self.ghost.ordered;
        self.clients[client].at = At::Sent;
        self.clients[client].late = !self.words.vouched;
        if config.who(client) == Who::Holder {
            self.begin_holder(config, client, call);
        }
    }

    fn begin_holder(&mut self, config: &Config, client: usize, call: Call) {
        let Some(file) = call.file() else {
            // It waits for nothing.
            self.program.forget = (!self.over).then_some(self.program.position);
            return self.returns(client);
        };
        let number = self.program.held[file];
        self.clients[client].number = number;
        let vouched = self.words.vouched || config.has(Mutation::DeadWordsCount);
        match call {
            Call::Lease(_) if number != 0 && self.is_granted(file, number) => self.returns(client),
            Call::Lease(_) => self.clients[client].at = At::Asked,
            Call::Return(_) if number == 0 => self.returns(client),
            Call::Return(_) => self.clients[client].at = At::Asked,
            Call::Write(_) if vouched && self.is_granted(file, number) => {
                self.publish(config, client, file);
            }
            Call::Read(_) if vouched && number != 0 => self.read_own(config, client, file),
            // A program's own change by the kernel is a request like any other's.
            Call::Kernel(_) => {}
            Call::Fsync(_) if number != 0 => self.begin_fsync(config, client, file),
            _ => {}
        }
    }

    /// Does the word say that this lease is granted?
    pub(crate) fn is_granted(&self, file: usize, number: u8) -> bool {
        let Slot { number: of, said, .. } = self.words.slots[file];
        number != 0 && of == number && said == Said::Granted
    }

    /// The lease lasts, and the holder fills its record.
    fn publish(&mut self, config: &Config, client: usize, file: usize) {
        let version = self.ghost.draw(file);
        self.clients[client].version = version;
        if config.has(Mutation::SizeBeforeHead) {
            self.ring.sizes[file] = version;
        }
        self.clients[client].at = At::Filled;
    }

    /// The head moves behind the record.
    pub(crate) fn head(&mut self, config: &Config, client: usize) {
        let file = self.call(config, client).and_then(Call::file).expect("a write has its file");
        let Client { number, version, .. } = self.clients[client];
        self.clients[client].record = self.ring.head();
        self.ring.records.push(Record { number, file, version });
        let sized = !config.shows() || config.has(Mutation::SizeBeforeHead);
        self.clients[client].at = if sized { At::Published } else { At::Headed };
    }

    /// Others are shown the size that the record makes.
    pub(crate) fn show(&mut self, config: &Config, client: usize) {
        let file = self.call(config, client).and_then(Call::file).expect("a write has its file");
        self.ring.sizes[file] = self.clients[client].version;
        self.clients[client].at = At::Published;
    }

    /// What the library has of the file.
    fn read_own(&mut self, config: &Config, client: usize, file: usize) {
        let number = self.program.held[file];
        let mut records = self.ring.records.iter().rev();
        let own = records.find(|r| (r.number, r.file) == (number, file)).map(|r| r.version);
        self.clients[client].version = own.unwrap_or(self.program.base[file]);
        match config.has(Mutation::NoLookAfterRead) {
            true => self.sees(client, file, self.clients[client].version),
            false => self.clients[client].at = At::Took,
        }
    }

    /// fsync(2): by the log, if that is a way, else by the daemon.
    fn begin_fsync(&mut self, config: &Config, client: usize, file: usize) {
        let needs = &mut self.clients[client].needs[file];
        *needs = self.ghost.wrote[file].max(*needs);
        self.clients[client].record = self.ring.head();
        self.clients[client].at = At::Asked;
        let room = self.program.position - self.words.begin < LOG;
        if self.program.medium != Medium::File || !self.log_promises(config, client, file) {
            return;
        }
        if self.ring.logged == self.ring.head() {
            return self.log_has(config, client, file);
        }
        if !room {
            return;
        }
        let left_out = if config.has(Mutation::BatchWithoutIngested) { self.ring.tail } else { 0 };
        let first = self.ring.logged.max(left_out);
        let records = self.ring.records[usize::from(first)..].to_vec();
        let position = self.program.position;
        // What was there is gone as soon as the write begins.
        self.put(position, None);
        self.program.writing = Some(Batch { position, records });
        self.program.position += 1;
        self.clients[client].at = At::Writing;
        if config.has(Mutation::AckBeforePersist) {
            self.ring.logged = self.ring.head();
            self.promised(client, file);
        }
    }

    /// May the batch of this client, or of one that has returned too early, become persistent?
    pub(crate) fn may_persist(&self) -> bool {
        self.program.writing.is_some()
    }

    pub(crate) fn persist(&mut self, config: &Config) {
        let batch = self.program.writing.take().expect("asked before");
        self.put(batch.position, Some(batch));
        let Some(client) = self.clients.iter().position(|c| c.at == At::Writing) else { return };
        // Nothing is published between the batch and its fsync's look but what came later.
        self.ring.logged = self.ring.logged.max(self.clients[client].record);
        let file = self.call(config, client).and_then(Call::file).expect("an fsync has its file");
        self.log_has(config, client, file);
    }

    /// The program changes its log, if its descriptor still is of that.
    fn put(&mut self, position: u8, batch: Option<Batch>) {
        if let Some(log) = self.disk.log.as_mut().filter(|_| !self.program.detached) {
            log[usize::from(position % LOG)] = batch;
        }
    }

    /// The batch on its way cannot be written, and may be there: the daemon is asked from now on.
    pub(crate) fn log_fails(&mut self, written: bool) {
        let batch = self.program.writing.take().expect("asked before");
        if written {
            self.put(batch.position, Some(batch));
        }
        self.program.medium = Medium::Daemon;
        let writing = self.clients.iter_mut().filter(|c| c.at == At::Writing);
        writing.for_each(|c| c.at = At::Asked);
    }

    /// The log has all that the fsync is about.
    fn log_has(&mut self, config: &Config, client: usize, file: usize) {
        match config.has(Mutation::LookBeforeOnly) {
            true => self.promised(client, file),
            false => self.clients[client].at = At::Persistent,
        }
    }

    /// Do the grantor's words say that the log alone makes the file durable?
    pub(crate) fn log_promises(&self, config: &Config, client: usize, file: usize) -> bool {
        let (words, number) = (&self.words, self.clients[client].number);
        let slot = words.slots[file];
        let after = self.clients[client].at == At::Persistent;
        if after && config.has(Mutation::OrderBeforeOnly) {
            return words.vouched && self.is_granted(file, number);
        }
        let covered = slot.covered != 0 || config.has(Mutation::NoLookAtCovered);
        let order = slot.covered == words.order
            || config.has(Mutation::NoLookAtOrder)
            || slot.covered == 0 && covered;
        let until = words.vouched || config.has(Mutation::NoLookAtUntil);
        let lease = self.is_granted(file, number) || config.has(Mutation::NoLookAtLease);
        covered && order && until && lease
    }

    /// The look afterwards.
    pub(crate) fn look(&mut self, config: &Config, client: usize) {
        let file = self.call(config, client).and_then(Call::file).expect("it is about a file");
        let Client { at, number, version, .. } = self.clients[client];
        let lasts = self.is_granted(file, number);
        match at {
            At::Published if lasts || config.has(Mutation::NoLookAfterPublish) => {
                self.wrote(client, file);
            }
            At::Published => self.clients[client].at = At::Settling,
            At::Took if lasts => {
                if self.clients[client].late {
                    self.ghost.note(Broken::Dead);
                }
                self.sees(client, file, version);
            }
            At::Persistent if self.log_promises(config, client, file) => {
                self.promised(client, file);
            }
            At::Persistent => self.clients[client].at = At::Asked,
            // By the mount.
            _ => self.clients[client].at = At::Sent,
        }
    }

    /// Has the lease of a record ended?
    pub(crate) fn may_settle(&self, config: &Config, client: usize) -> bool {
        let file = self.call(config, client).and_then(Call::file);
        let ended = |file: usize| self.words.slots[file].said == Said::Ended;
        self.clients[client].at == At::Settling && file.is_some_and(ended)
    }

    /// A write whose lease has ended is done if it was taken in; else it goes by the mount.
    pub(crate) fn settle(&mut self, config: &Config, client: usize) {
        let file = self.call(config, client).and_then(Call::file).expect("a write has its file");
        let Client { record, .. } = self.clients[client];
        let covered = record < self.words.slots[file].ingested;
        match covered || config.has(Mutation::UncoveredIsDone) {
            true => self.wrote(client, file),
            false => self.clients[client].at = At::Sent,
        }
    }

    /// Does the client wait for a daemon that is dead?
    pub(crate) fn may_abandon(&self, config: &Config, client: usize) -> bool {
        let Client { at, .. } = self.clients[client];
        let asks = matches!(at, At::Asked | At::Sent);
        let waits = at == At::Settling && !self.may_settle(config, client);
        let dead = self.over && self.program.alive;
        let holder = config.who(client) == Who::Holder;
        holder && dead && (asks || waits) && !config.has(Mutation::WaitsForTheDead)
    }

    /// A write of the holder's returns.
    fn wrote(&mut self, client: usize, file: usize) {
        let Client { version, late, .. } = self.clients[client];
        if late {
            self.ghost.note(Broken::Dead);
        }
        // What the Runtime could not write is told by the next fsync, and not by its write.
        if version <= self.ghost.lost[file] {
            return self.returns(client);
        }
        let wrote = &mut self.ghost.wrote[file];
        *wrote = version.max(*wrote);
        if self.daemon == Daemon::Up && !self.over {
            let returned = &mut self.ghost.returned[file];
            *returned = version.max(*returned);
        }
        self.returns(client);
    }

    /// A call returns with these bytes. What is seen after the daemon's death is the mount's error
    /// elsewhere, and is not judged.
    pub(crate) fn sees(&mut self, client: usize, file: usize, version: u8) {
        if self.daemon == Daemon::Up && !self.over {
            if version < self.clients[client].needs[file] {
                self.ghost.note(Broken::Older);
            }
            let returned = &mut self.ghost.returned[file];
            *returned = version.max(*returned);
        }
        self.returns(client);
    }

    /// An fsync of this file returns.
    pub(crate) fn promised(&mut self, client: usize, file: usize) {
        let Client { needs, orders, .. } = self.clients[client];
        let promised = &mut self.ghost.promised[file];
        *promised = needs[file].max(*promised);
        self.ghost.promised_orders = self.ghost.promised_orders.max(orders);
        self.returns(client);
    }

    /// A call is over.
    pub(crate) fn returns(&mut self, client: usize) {
        let call = self.clients[client].call + 1;
        self.clients[client] = Client { call, ..Client::default() };
    }
}
