//! The cluster: maps with the block list, keepers of objects that learn them late, the lock.

use super::state::{Broken, Cluster, Entry, HEADER, LOG, List, Phase, Sent, Slot, Volume};
use super::{Config, Mutation};

impl Cluster {
    /// What the newest map says of a server.
    pub(crate) fn entry(&self, server: usize) -> Entry {
        self.maps.last().expect("a map")[server]
    }

    /// The newest map.
    pub(crate) fn newest(&self) -> usize {
        self.maps.len() - 1
    }

    /// Makes a map that says something else of a server. An entry that is there already stays as
    /// it is.
    pub(crate) fn add(&mut self, server: usize, entry: Entry) {
        if self.entry(server) == Entry::None {
            self.set(server, entry);
        }
    }

    /// Makes a map without an entry of this server.
    pub(crate) fn remove(&mut self, server: usize) {
        self.set(server, Entry::None);
    }

    fn set(&mut self, server: usize, entry: Entry) {
        let mut list: List = *self.maps.last().expect("a map");
        list[server] = entry;
        self.maps.push(list);
    }

    /// A request of a server reaches an object: its keeper fetches the map that the request names
    /// before it answers. False: it is refused.
    pub(crate) fn reach(&mut self, object: usize, server: usize, map: usize) -> bool {
        self.known[object] = self.known[object].max(map);
        self.maps[self.known[object]][server] == Entry::None
    }

    /// Does the cluster hear of this server?
    pub(crate) fn watches(&self, server: usize) -> bool {
        self.watches & 1 << server != 0
    }
}

impl Volume {
    pub(crate) fn may_learn(&self, object: usize) -> bool {
        self.cluster.known[object] < self.cluster.newest()
    }

    pub(crate) fn may_expire(&self, server: usize) -> bool {
        self.cluster.entry(server) == Entry::Short
    }

    /// Does the cluster end the watch of this server without any fault of its own?
    pub(crate) fn is_unheard(&self, server: usize) -> bool {
        let s = &self.servers[server];
        let over = !s.up || matches!(s.phase, Phase::Latched | Phase::Ended);
        self.cluster.watches(server) && (over || self.cluster.entry(server) != Entry::None)
    }

    pub(crate) fn watch_ends(&mut self, server: usize) {
        self.cluster.watches &= !(1 << server);
    }

    pub(crate) fn is_away(&self, server: usize, slot: Slot) -> bool {
        matches!(self.servers[server].sent[slot as usize], Some(Sent::Away { .. }))
    }

    /// A request is carried out, or refused.
    pub(crate) fn land(&mut self, config: &Config, server: usize, slot: Slot) {
        let Some(Sent::Away { value, map }) = self.servers[server].sent[slot as usize] else {
            unreachable!("sent before")
        };
        let object = match slot {
            Slot::Check if config.has(Mutation::LookAtTheLock) => HEADER,
            Slot::Check => LOG,
            written => written as usize + LOG,
        };
        let taken = self.cluster.reach(object, server, map);
        if taken && slot != Slot::Check {
            self.write(server, object, value);
        }
        let answer = if taken { Sent::Done(value) } else { Sent::Refused(value) };
        self.servers[server].sent[slot as usize] = Some(answer);
    }

    fn write(&mut self, server: usize, object: usize, value: u8) {
        if self.ghost.seen[object] > self.servers[server].turn {
            self.ghost.note(Broken::Writer);
        }
        match object {
            LOG => self.cluster.log[record_of(value)] = value,
            _ => self.cluster.area = value,
        }
    }

    pub(crate) fn may_be_broken_by_hand(&self) -> bool {
        self.cluster.lock.is_some()
    }

    /// Somebody breaks the lock with the cluster's own tool.
    pub(crate) fn broken_by_hand(&mut self) {
        let owner = self.cluster.lock.take().expect("a lock");
        self.cluster.add(owner, Entry::Short);
    }
}

/// Where a value's record lies.
pub(crate) fn record_of(value: u8) -> usize {
    usize::from(value % super::state::RECORDS)
}
