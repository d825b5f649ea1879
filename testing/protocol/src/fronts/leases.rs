//! Write leases: asked for, drained, granted, recalled, given back, ended.

use super::config::{Call, Config, Mutation};
use super::state::{At, Broken, EMBEDDED, For, Known, Lease, Scene, Stage, THINGS, Thing};

/// What of the file kernels may have.
const OF_FILE: [Thing; 3] = [Thing::Attributes, Thing::Page(0), Thing::Page(1)];

impl Scene {
    pub(crate) fn ask_for_lease(&mut self, config: &Config, client: usize) {
        let beside = self.section.is_some() && !config.has(Mutation::LeaseBesideSection);
        if self.lease.stage != Stage::None || beside {
            self.returns(client);
            return;
        }
        self.clients[client].at = At::Held;
        self.lease = Lease { stage: Stage::Draining, asker: client, ..Lease::default() };
        self.collect(&OF_FILE, EMBEDDED, For::Lease);
    }

    /// Another request for the inode came first: the asker is told to try again.
    pub(crate) fn cancel_drain(&mut self, config: &Config) {
        self.nobody_waits_for_lease();
        let Lease { asker, .. } = std::mem::take(&mut self.lease);
        if self.clients[asker].at == At::Held && self.call(config, asker) == Some(Call::Lease) {
            self.returns(asker);
        }
    }

    fn nobody_waits_for_lease(&mut self) {
        for notice in self.notices.iter_mut().filter(|n| n.by == For::Lease) {
            notice.by = For::Nobody;
        }
        self.notices.sort_unstable();
        self.notices.dedup();
    }

    /// Is something of the file pending?
    fn is_pending(&self) -> bool {
        THINGS.iter().any(|thing| self.truth.of(*thing) != self.durable.of(*thing))
    }

    /// What kernels were told since the drain began: the pages that it makes them send.
    fn told_meanwhile(&self) -> impl Iterator<Item = (usize, Thing)> {
        let kernels = 0..self.known.len();
        let all = kernels.flat_map(|k| OF_FILE.into_iter().map(move |thing| (k, thing)));
        all.filter(|(k, thing)| self.known[*k][thing.place()] == Known::Told)
    }

    pub(crate) fn may_drain(&self, config: &Config) -> bool {
        let told = self.told_meanwhile().next().is_some() && !config.has(Mutation::DrainOnce);
        self.lease.stage == Stage::Draining && (told || self.is_pending())
    }

    pub(crate) fn drain(&mut self, config: &Config) {
        self.durable = self.truth;
        let told: Vec<_> = self.told_meanwhile().collect();
        let told = told.into_iter().filter(|_| !config.has(Mutation::DrainOnce));
        told.for_each(|(to, thing)| self.notify(to, thing, For::Lease));
        self.notices.sort_unstable();
    }

    /// Does any kernel have something of the file, as far as the Runtime remembers?
    fn is_known(&self) -> bool {
        let of_file =
            |known: &[Known; 4]| OF_FILE.iter().any(|thing| known[thing.place()] != Known::Nothing);
        self.known.iter().any(of_file)
    }

    pub(crate) fn may_grant(&self, config: &Config) -> bool {
        let drained = !self.is_pending() && !self.is_known();
        let early = config.has(Mutation::GrantBeforeDrained);
        self.lease.stage == Stage::Draining && (drained || early)
    }

    pub(crate) fn grant(&mut self, config: &Config) {
        self.nobody_waits_for_lease();
        self.lease.stage = Stage::Granted;
        (self.lease.fresh, self.lease.believed) = (true, true);
        self.lease.base = self.truth.of(Thing::Page(0));
        let asker = self.lease.asker;
        if self.call(config, asker) == Some(Call::Lease) {
            self.returns(asker);
        }
    }

    /// The holder does what a recall asks for.
    pub(crate) fn may_comply(&self) -> bool {
        self.lease.stage == Stage::Recalled && self.alive[EMBEDDED] && !self.silent[EMBEDDED]
    }

    /// The holder's request to give the lease back has arrived.
    pub(crate) fn give_back(&mut self, config: &Config, client: usize) {
        if !matches!(self.lease.stage, Stage::None | Stage::Draining) {
            self.lease.stage = Stage::Returning;
            self.clients[client].at = At::Held;
            return;
        }
        if config.has(Mutation::LateReturn) {
            // The page is what the holder had, whatever others have made of it since.
            self.truth.things[Thing::Page(0).place()] = self.clients[client].says;
            self.ghost.note(Broken::AfterEnd);
        }
        self.returns(client);
    }

    /// The lease ends: what its holder has published is applied.
    pub(crate) fn end_lease(&mut self, config: &Config, drop: bool) {
        let published = self.lease.published;
        let believed = self.lease.believed && config.has(Mutation::HoldersClock);
        self.lease = Lease { believed, ..Lease::default() };
        if published != 0 && !drop {
            for thing in [Thing::Page(0), Thing::Attributes] {
                self.truth.add(thing, published);
            }
            self.collect(&OF_FILE, EMBEDDED, For::Nobody);
        }
        for client in 0..self.clients.len() {
            let returns = self.call(config, client) == Some(Call::Return);
            if returns && self.clients[client].at == At::Held {
                self.ghost.told |= published;
                self.returns(client);
            }
        }
    }

    /// Its term is over, and its holder has not given it back.
    pub(crate) fn may_expire(&self) -> bool {
        matches!(self.lease.stage, Stage::Granted | Stage::Recalled) && !self.lease.fresh
    }
}
