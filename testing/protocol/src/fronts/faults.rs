//! Time, and what fails.

use super::config::{Config, Mutation};
use super::state::{
    At, Client, EMBEDDED, For, KERNELS, Kernel, Known, Lease, Notice, Scene, Stage, Thing,
};

impl Scene {
    /// A term passes, by every clock: names have run out, and leases may be ended.
    pub(crate) fn tick(&mut self, config: &Config) {
        (self.lease.fresh, self.lease.believed) = (false, false);
        if !config.has(Mutation::NamesWithoutValidity) {
            for kernel in &mut self.kernels {
                kernel.name = None;
            }
            self.names_run_out(config);
        }
    }

    /// By the Runtime's clock no kernel trusts the name any more, and nobody waits for one.
    fn names_run_out(&mut self, config: &Config) {
        let name = |n: &Notice| n.thing == Thing::Name;
        let (names, others): (Vec<_>, _) = self.notices.iter().copied().partition(name);
        self.notices = others;
        names.into_iter().for_each(|notice| self.settle(config, notice));
        for known in &mut self.known {
            known[Thing::Name.place()] = Known::Nothing;
        }
    }

    /// The machine sleeps: the clock of leases goes on, that of kernels stands still.
    pub(crate) fn sleep(&mut self, config: &Config) {
        self.lease.fresh = false;
        if config.has(Mutation::NamesByBoottime) {
            self.names_run_out(config);
        }
    }

    /// A session ends, with all that it has.
    pub(crate) fn session_ends(&mut self, config: &Config, session: usize) {
        self.alive[session] = false;
        for client in 0..self.clients.len() {
            if config.session_of(client) == session {
                let call = self.clients[client].call;
                self.clients[client] = Client { call, at: At::Ended, ..Client::default() };
                self.nobody_waits(For::Client(client));
            }
        }
        if self.section == Some(session) {
            self.section = None;
        }
        match session {
            EMBEDDED => self.embedded_ends(config),
            kernel => self.kernel_ends(config, kernel),
        }
    }

    fn nobody_waits(&mut self, by: For) {
        for notice in self.notices.iter_mut().filter(|n| n.by == by) {
            notice.by = For::Nobody;
        }
        self.notices.sort_unstable();
    }

    fn embedded_ends(&mut self, config: &Config) {
        self.open = false;
        if config.has(Mutation::LeaseOutlivesSession) {
            return;
        }
        match self.lease.stage {
            Stage::None => {}
            Stage::Draining => self.cancel_drain(config),
            _ => self.end_lease(config, config.has(Mutation::PublishedIsDropped)),
        }
    }

    fn kernel_ends(&mut self, config: &Config, kernel: usize) {
        self.kernels[kernel] = Kernel::default();
        self.ends[kernel] = None;
        (self.taken[kernel], self.reread[kernel]) = Default::default();
        let own = |n: &Notice| n.to == kernel;
        let (gone, others): (Vec<_>, _) = self.notices.iter().copied().partition(own);
        self.notices = others;
        gone.into_iter().for_each(|notice| self.settle(config, notice));
        self.known[kernel] = Default::default();
    }

    /// The daemon dies, and another one starts with what is durable. Every session is a new
    /// one, in which nothing is known.
    pub(crate) fn daemon_dies(&mut self, config: &Config) {
        let orphaned = self.lease.is_valid() && config.has(Mutation::WordOutlivesDaemon);
        self.truth = self.durable;
        self.known = Default::default();
        self.ends = Default::default();
        (self.taken, self.reread) = Default::default();
        self.notices.clear();
        self.section = None;
        self.open = false;
        self.lease = Lease { orphaned, ..Lease::default() };
        let end = self.truth.end;
        self.kernels = [Kernel { has_inode: true, size: end, ..Kernel::default() }; KERNELS];
        let mut begun = 0;
        for client in 0..self.clients.len() {
            let Client { call, at, .. } = self.clients[client];
            let under_way = !matches!(at, At::Ready | At::Published | At::Ended);
            let next = call + usize::from(under_way);
            begun |= config.changes_before(client, next);
            if under_way {
                self.clients[client] = Client { call: next, ..Client::default() };
            }
        }
        let kept = self.durable.things.iter().fold(0, |all, changes| all | changes);
        self.ghost.lost |= begun & !kept;
    }
}
