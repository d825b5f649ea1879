//! Requests of the mount: of other programs, and of the holder where it goes by the kernel.

use super::config::{Call, Config, Mutation, Who};
use super::state::{At, Client, Daemon, FILES, Leased, World};

impl World {
    /// May the Runtime carry a request out, or recall the lease for it?
    pub(crate) fn may_apply(&self, config: &Config, client: usize) -> bool {
        let Some(call) = self.call(config, client) else { return false };
        if self.clients[client].at != At::Sent || self.daemon != Daemon::Up {
            return false;
        }
        if config.who(client) == Who::Holder && self.over {
            return false;
        }
        match call {
            // The grantor has all taken in first.
            Call::Sync => self.over,
            // The session's end comes first.
            Call::Unmount => self.over || config.has(Mutation::ClosedBesideLogs),
            Call::Order => true,
            // What the holder shows counts while its lease is granted.
            Call::Stat(file) => {
                self.leases[file] == Leased::No
                    || self.is_granted(file, self.words.slots[file].number)
                    || config.has(Mutation::SizeBesideRecall)
            }
            _ => call.file().is_some_and(|file| self.leases[file] != Leased::Recalled),
        }
    }

    pub(crate) fn apply(&mut self, config: &Config, client: usize) {
        let call = self.call(config, client).expect("asked before");
        if let (Some(file), false) = (call.file(), matches!(call, Call::Stat(_))) {
            let passes = matches!(call, Call::Read(_)) && config.has(Mutation::DoorWithoutRecall);
            if self.leases[file] == Leased::Yes && !passes {
                self.leases[file] = Leased::Recalled;
                return;
            }
        }
        match call {
            Call::Read(file) => self.sees(client, file, self.files[file].now),
            Call::Stat(file) => self.sees(client, file, self.shown(file)),
            Call::Write(file) | Call::Kernel(file) => {
                let version = self.ghost.draw(file);
                self.files[file].now = version;
                let returned = &mut self.ghost.returned[file];
                *returned = version.max(*returned);
                self.returns(client);
            }
            Call::Fsync(file) => {
                self.sync(&[file]);
                self.promised(client, file);
            }
            Call::Order => {
                self.orders.now += 1;
                match config.has(Mutation::OrderAfterAnswer) {
                    true => self.late += 1,
                    false => self.words.order += u8::from(!self.over),
                }
                self.clients[client].at = At::Applied;
            }
            Call::Sync => self.clients[client].at = At::Applied,
            Call::Unmount => self.unmount(config, client),
            Call::Lease(_) | Call::Return(_) | Call::Forget => unreachable!("not of the mount"),
        }
    }

    /// The size that others are shown: what the holder says, but no less than what is there.
    fn shown(&self, file: usize) -> u8 {
        let slot = self.words.slots[file];
        let there = self.files[file].now;
        match self.leases[file] != Leased::No && self.is_granted(file, slot.number) {
            true => there.max(self.ring.sizes[file]),
            false => there,
        }
    }

    /// The answer to what is not answered at once.
    pub(crate) fn answer(&mut self, config: &Config, client: usize) {
        match self.call(config, client) {
            Some(Call::Sync) => self.sync_all(client),
            _ => self.ghost.ordered = self.ghost.ordered.max(self.orders.now),
        }
        self.returns(client);
    }

    /// Makes all durable, and promises it.
    pub(crate) fn sync_all(&mut self, client: usize) {
        let all: [usize; FILES] = std::array::from_fn(|file| file);
        self.sync(&all);
        let Client { needs, orders, .. } = self.clients[client];
        for (promised, needs) in self.ghost.promised.iter_mut().zip(needs) {
            *promised = needs.max(*promised);
        }
        self.ghost.promised_orders = self.ghost.promised_orders.max(orders);
    }

    /// Makes files durable, with all that was ordered before.
    pub(crate) fn sync(&mut self, files: &[usize]) {
        files.iter().for_each(|file| self.files[*file].sync());
        self.orders.sync();
    }
}
