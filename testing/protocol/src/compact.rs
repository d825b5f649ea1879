//! The record area: which fsync goes there, its persists, and what returns without the disk.

use crate::config::{Config, Mutation, Step};
use crate::state::{AREA, Client, Host, Phase, Published, State};

impl Host {
    /// Does the record of this number lie in the area? One whose space came back lies nowhere.
    pub(crate) fn in_area(&self, config: &Config, lsn: u8) -> bool {
        let at = self.records.iter().find(|p| p.record.lsn == lsn);
        config.area && at.is_some_and(|p| usize::from(p.lane) == AREA)
    }
}

impl Published {
    /// Does it lie in the record area?
    pub(crate) fn is_compact(&self, config: &Config) -> bool {
        config.area && usize::from(self.lane) == AREA
    }
}

impl State {
    /// The dispatcher: an fsync goes to the record area where there is room at once, and all that
    /// the record needs is durable or lies there before it (rule R44). Which fsyncs are small
    /// enough is left open.
    pub(crate) fn may_compact(&self, config: &Config, client: usize) -> bool {
        let Some(Step::Fsync(f)) = self.step_of(config, client) else { return false };
        let (host, file) = (&self.host, usize::from(f));
        let entry = &host.files[file];
        let stages = entry.journaled < entry.op && host.record_of(file).is_none();
        let there = |lsn| host.is_durable(lsn) || host.in_area(config, lsn);
        config.area
            && stages
            && !host.is_full(config, AREA)
            && (there(entry.newest) || config.has(Mutation::PassItsOwnRecord))
            && (there(host.last_ordered) || config.has(Mutation::PassAnOrderedRecord))
    }

    pub(crate) fn compact(&mut self, config: &Config, client: usize) {
        let Some(Step::Fsync(f)) = self.step_of(config, client) else { return };
        self.clients[client].pc += 1;
        let lsn = self.stage_in(config, usize::from(f), AREA);
        self.wait_for(client, usize::from(f), lsn);
    }

    /// A record of the area is durable by its own persist.
    pub(crate) fn persist(&mut self, lsn: u8) {
        let published = self.host.records.iter_mut().find(|p| p.record.lsn == lsn);
        let published = published.expect("published");
        published.durable = true;
        let pos = published.record.pos;
        self.storage.lane_mut(AREA, pos).flush();
    }

    /// Is a record of the area stored, and not persisted?
    pub(crate) fn may_persist(&self, config: &Config, published: &Published) -> bool {
        published.is_compact(config) && published.written && !published.durable
    }

    /// Does the record that this client waits for lie in the area?
    pub(crate) fn waits_alone(&self, config: &Config, client: usize) -> bool {
        self.host.in_area(config, self.clients[client].waits)
    }

    /// Rule R44: an fsync whose record lies in the area returns when that and those before it in
    /// the area are persisted, whatever the disk does.
    pub(crate) fn alone_is_enough(&self, config: &Config) -> bool {
        (0..self.clients.len()).all(|client| {
            let Client { waits, at, .. } = self.clients[client];
            let before = |p: &&Published| p.is_compact(config) && p.record.lsn <= waits;
            let waiting = waits != 0 && at == self.turn && self.host.phase == Phase::Running;
            let done = || self.host.records.iter().filter(before).all(|p| p.durable);
            !(waiting && self.waits_alone(config, client) && done())
                || self.may_return(config, client)
        })
    }
}
