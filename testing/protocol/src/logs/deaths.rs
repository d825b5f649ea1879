//! What dies, and how a daemon starts.

use super::config::{Config, Mutation, Who};
use super::state::{At, Batch, Broken, Client, Daemon, FILES, LOG, Leased, Record, Row, World};

impl World {
    /// The program is killed. A batch that is on its way is not persistent.
    pub(crate) fn dies(&mut self, config: &Config) {
        (self.program.alive, self.program.stopped) = (false, false);
        (self.program.writing, self.program.forget) = (None, None);
        for client in 0..self.clients.len() {
            if config.who(client) == Who::Holder {
                self.ends(client);
            }
        }
    }

    /// A thread makes no more calls.
    pub(crate) fn ends(&mut self, client: usize) {
        let call = self.clients[client].call;
        self.clients[client] = Client { call, at: At::Ended, ..Client::default() };
    }

    /// The daemon is killed. The memory that it shared stays as it is.
    pub(crate) fn kill(&mut self, config: &Config) {
        self.daemon = Daemon::Down;
        self.back_to_durable();
        self.leases = [Leased::No; FILES];
        self.errors = [false; FILES];
        (self.over, self.job) = (true, None);
        self.ghost.returned = [0; FILES];
        for client in 0..self.clients.len() {
            let under_way = !matches!(self.clients[client].at, At::Ready | At::Ended);
            if config.who(client) == Who::Mount && under_way {
                self.returns(client);
            }
        }
    }

    /// Power fails.
    pub(crate) fn power(&mut self, config: &Config) {
        self.dies(config);
        self.kill(config);
        self.words.vouched = false;
    }

    /// The volume is closed: all is durable, and what follows is as at the end of a recovery.
    pub(crate) fn unmount(&mut self, config: &Config, client: usize) {
        self.sync_all(client);
        self.returns(client);
        let returned = self.ghost.returned;
        self.kill(config);
        self.ghost.returned = returned;
        self.daemon = Daemon::Durable;
    }

    fn back_to_durable(&mut self) {
        self.files.iter_mut().for_each(|file| file.now = file.durable);
        self.orders.now = self.orders.durable;
    }

    /// May what the daemon vouched for run out?
    pub(crate) fn may_expire(&self) -> bool {
        self.over && self.words.vouched && self.program.alive
    }

    /// Must recovery wait for a program that may still acknowledge (rule R37)?
    pub(crate) fn must_wait(&self) -> bool {
        let counts = self.disk.row.is_some_and(|row| row.leases != [0; FILES]);
        self.disk.named && counts && self.words.vouched && self.program.alive
    }

    /// Can the daemon that starts take its next step?
    pub(crate) fn may_recover(&self, config: &Config) -> bool {
        match self.daemon {
            Daemon::Up => false,
            Daemon::Lanes => !self.must_wait() || config.has(Mutation::NoWait),
            _ => true,
        }
    }

    pub(crate) fn recover(&mut self, config: &Config) {
        self.daemon = match self.daemon {
            Daemon::Down if self.disk.clean => return self.mount(),
            Daemon::Down => Daemon::Lanes,
            Daemon::Lanes => {
                if self.disk.named {
                    self.take_in(config);
                }
                if config.has(Mutation::UnnamedBeforeDurable) {
                    self.disk.named = false;
                }
                Daemon::TakenIn
            }
            Daemon::TakenIn => {
                for file in &mut self.files {
                    file.sync();
                }
                if config.has(Mutation::RemovedWhileNamed) {
                    (self.disk.row, self.disk.log) = (self.disk.row, None);
                }
                Daemon::Durable
            }
            Daemon::Durable => {
                self.disk.named &= config.has(Mutation::CleanWhileNamed);
                Daemon::Unnamed
            }
            Daemon::Unnamed => {
                self.disk.clean = true;
                Daemon::Clean
            }
            Daemon::Clean => {
                (self.disk.row, self.disk.log) = (None, None);
                return self.mount();
            }
            Daemon::Up => unreachable!("it has started"),
        };
    }

    /// The volume is mounted again, by sessions that are all new.
    fn mount(&mut self) {
        for file in 0..FILES {
            if self.files[file].durable < self.ghost.promised[file] {
                self.ghost.note(Broken::Promise);
            }
        }
        if self.orders.durable < self.ghost.promised_orders {
            self.ghost.note(Broken::Order);
        }
        self.ghost.ordered = self.ghost.ordered.min(self.orders.durable);
        self.disk.clean = false;
        self.daemon = Daemon::Up;
    }

    /// Recovery's second phase: what counts in the log becomes the files', in its order.
    fn take_in(&mut self, config: &Config) {
        let Some(row) = self.disk.row else { return };
        if self.disk.log.is_none() {
            self.ghost.note(Broken::Missing);
            return;
        }
        for record in self.left(config, row) {
            let counts = row.leases[record.file] == record.number;
            if counts || config.has(Mutation::ReplayAll) {
                self.files[record.file].now = record.version;
            }
        }
    }

    /// The records of the batches that follow each other from the row's *begin* on.
    pub(crate) fn left(&self, config: &Config, row: Row) -> Vec<Record> {
        let mut begin = row.begin;
        if config.has(Mutation::ReplayForgotten) {
            let batches = self.disk.log.iter().flatten().flatten();
            begin = batches.map(|batch| batch.position).min().unwrap_or(begin).min(begin);
        }
        let valid = (begin..begin + LOG).map_while(|position| self.batch_at(position));
        valid.flat_map(|batch| batch.records.iter().copied()).collect()
    }

    fn batch_at(&self, position: u8) -> Option<&Batch> {
        let log = self.disk.log.as_ref()?;
        log[usize::from(position % LOG)].as_ref().filter(|batch| batch.position == position)
    }
}
