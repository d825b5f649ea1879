//! A server that takes the volume over, step by step. Each step may be the last one before it
//! sleeps for hours.

use super::state::{AREA, Broken, Entry, HEADER, LOG, Phase, Slot, Volume};
use super::{Config, Mutation};

/// Which step comes behind this one.
fn after(config: &Config, phase: Phase) -> Phase {
    use Phase::*;
    let late = config.has(Mutation::RecoverBeforeFence);
    let first_break = late || config.has(Mutation::BreakBeforeEntry);
    let unnamed = !config.names || config.has(Mutation::NameAfterLock);
    let next = match phase {
        Fences if late => Checks,
        Fences if first_break => Names,
        Fences => Breaks,
        Breaks if first_break && !late => Fences,
        Breaks => Names,
        Names => Locks,
        Locks if late => Maps,
        Locks => Checks,
        Checks if late => Replays,
        Checks => Maps,
        Maps => Reads,
        other => unreachable!("no step of a takeover: {other:?}"),
    };
    match next {
        Names if unnamed => Locks,
        Checks if !config.names => after(config, Checks),
        Maps if config.has(Mutation::ReadByAnOldMap) => Reads,
        next => next,
    }
}

impl Volume {
    pub(crate) fn may_look(&self, config: &Config, server: usize) -> bool {
        let may_break = |owner: usize| {
            let word = !self.cluster.watches(owner) || self.servers[server].told;
            (word && !config.has(Mutation::NeverBreak)) || config.has(Mutation::TrustOwnView)
        };
        self.is_at(server, Phase::Waits) && self.cluster.lock.is_none_or(may_break)
    }

    pub(crate) fn look(&mut self, config: &Config, server: usize) {
        if !self.reaches(server, HEADER) {
            return;
        }
        let s = &mut self.servers[server];
        s.from = self.cluster.lock;
        let first_break = [Mutation::RecoverBeforeFence, Mutation::BreakBeforeEntry];
        let to_librbd = config.has(Mutation::LeaveItToLibrbd);
        s.phase = match s.from {
            None => after(config, Phase::Breaks),
            Some(_) if to_librbd => after(config, Phase::Breaks),
            Some(_) if first_break.iter().any(|fault| config.has(*fault)) => Phase::Breaks,
            Some(_) => Phase::Fences,
        };
        if s.from.is_none() && config.has(Mutation::BreakBeforeEntry) {
            s.phase = after(config, Phase::Fences);
        }
    }

    /// A request that its server waits for. False: it was refused, and the server latches.
    fn reaches(&mut self, server: usize, object: usize) -> bool {
        let taken = self.cluster.reach(object, server, self.servers[server].map);
        if !taken {
            self.latch(server);
        }
        taken
    }

    pub(crate) fn may_go_on(&self, config: &Config, server: usize) -> bool {
        let s = &self.servers[server];
        match s.phase {
            _ if !s.up => false,
            Phase::Fences => s.from.is_none_or(|owner| self.may_fence(config, owner)),
            Phase::Checks => {
                s.removes.is_some()
                    || self.others(server).all(|other| self.may_fence(config, other))
            }
            Phase::Breaks | Phase::Names | Phase::Locks | Phase::Maps | Phase::Leaves => true,
            _ => false,
        }
    }

    /// Whose names are written down beside this server's own.
    fn others(&self, server: usize) -> impl Iterator<Item = usize> + use<> {
        let names = self.cluster.names;
        (0..self.servers.len()).filter(move |other| *other != server && names & 1 << other != 0)
    }

    /// Can this one be put on the block list now? While there is a short entry there is no way:
    /// a second one changes nothing, and to take it away would let in what it keeps out.
    fn may_fence(&self, config: &Config, other: usize) -> bool {
        let faults = [Mutation::TrustShortTerm, Mutation::ExtendByRemoving];
        self.cluster.entry(other) != Entry::Short || faults.iter().any(|fault| config.has(*fault))
    }

    pub(crate) fn go_on(&mut self, config: &Config, server: usize) {
        match self.servers[server].phase {
            Phase::Fences => self.fence(config, server),
            Phase::Breaks => self.break_lock(config, server),
            Phase::Names => self.name(config, server),
            Phase::Locks => self.lock(config, server),
            Phase::Checks => self.check(config, server),
            Phase::Maps => {
                self.servers[server].map = self.cluster.newest();
                self.servers[server].phase = after(config, Phase::Maps);
            }
            Phase::Leaves => self.leave(server),
            other => unreachable!("nothing to do: {other:?}"),
        }
    }

    fn fence(&mut self, config: &Config, server: usize) {
        if let Some(owner) = self.servers[server].from {
            if self.cluster.watches(owner) && !self.servers[server].told {
                self.ghost.note(Broken::View);
            }
            self.cluster.add(owner, Entry::Years);
        }
        self.servers[server].phase = after(config, Phase::Fences);
    }

    fn break_lock(&mut self, config: &Config, server: usize) {
        if !self.reaches(server, HEADER) {
            return;
        }
        // The owner is named, so that no other one's lock is broken.
        if self.cluster.lock == self.servers[server].from {
            self.cluster.lock = None;
        }
        self.servers[server].phase = after(config, Phase::Breaks);
    }

    fn name(&mut self, config: &Config, server: usize) {
        if self.reaches(server, HEADER) {
            self.cluster.names |= 1 << server;
            self.servers[server].phase = after(config, Phase::Names);
        }
    }

    /// A server asks for the lock. If its owner's watch is gone, librbd puts that one on the block
    /// list by itself, for as long as it was told to.
    fn lock(&mut self, config: &Config, server: usize) {
        if !self.reaches(server, HEADER) {
            return;
        }
        match self.cluster.lock {
            Some(owner) if self.cluster.watches(owner) => {
                self.cluster.names &= !(1 << server);
                let s = &mut self.servers[server];
                (s.phase, s.from) = (Phase::Waits, None);
                return;
            }
            Some(owner) => {
                let to_librbd = config.has(Mutation::LeaveItToLibrbd);
                self.cluster.add(owner, if to_librbd { Entry::Short } else { Entry::Years });
            }
            None => {}
        }
        self.cluster.lock = Some(server);
        self.ghost.turns += 1;
        self.servers[server].turn = self.ghost.turns;
        self.servers[server].phase = after(config, Phase::Locks);
    }

    /// Under the lock, all others that may have had it are put on the block list for years.
    fn check(&mut self, config: &Config, server: usize) {
        if let Some(other) = self.servers[server].removes.take() {
            return self.cluster.remove(other);
        }
        if !self.reaches(server, HEADER) {
            return;
        }
        if config.has(Mutation::ExtendByRemoving) {
            let short = |other: &usize| self.cluster.entry(*other) == Entry::Short;
            if let Some(other) = self.others(server).find(short) {
                self.servers[server].removes = Some(other);
                return;
            }
        }
        for other in self.others(server) {
            self.cluster.add(other, Entry::Years);
        }
        self.cluster.names = 1 << server;
        self.servers[server].phase = after(config, Phase::Checks);
        if self.servers[server].phase == Phase::Replays {
            self.replay(server);
        }
    }

    pub(crate) fn may_read_log(&self, server: usize) -> bool {
        self.is_at(server, Phase::Reads) && self.servers[server].read.0.is_none()
    }

    pub(crate) fn read_log(&mut self, config: &Config, server: usize) {
        if self.reaches(server, LOG) {
            self.servers[server].read.0 = Some(self.cluster.log);
            self.seen(config, server, LOG);
        }
    }

    pub(crate) fn may_read_area(&self, server: usize) -> bool {
        self.is_at(server, Phase::Reads) && self.servers[server].read.1.is_none()
    }

    pub(crate) fn read_area(&mut self, config: &Config, server: usize) {
        if self.reaches(server, AREA) {
            self.servers[server].read.1 = Some(self.cluster.area);
            self.seen(config, server, AREA);
        }
    }

    /// A server has read an object. Once it has read both it knows the volume.
    fn seen(&mut self, config: &Config, server: usize, object: usize) {
        let seen = &mut self.ghost.seen[object];
        *seen = (*seen).max(self.servers[server].turn);
        if !matches!(self.servers[server].read, (Some(_), Some(_))) {
            return;
        }
        self.recover(server);
        match config.has(Mutation::RecoverBeforeFence) {
            true => self.servers[server].phase = Phase::Fences,
            false => self.replay(server),
        }
    }

    /// What was committed is written home again before anything else.
    fn replay(&mut self, server: usize) {
        self.send(server, Slot::Area, self.servers[server].base);
    }
}
