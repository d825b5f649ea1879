//! A server that serves: records, checkpoints, answers, and the end in order.

use super::cluster::record_of;
use super::state::{Broken, HEADER, Phase, RECORDS, Sent, Slot, Volume};
use super::{Config, Mutation};

impl Volume {
    /// Does this server live, and is it as far as that?
    pub(crate) fn is_at(&self, server: usize, phase: Phase) -> bool {
        self.servers[server].up && self.servers[server].phase == phase
    }

    fn is_idle(&self, server: usize, slot: Slot) -> bool {
        self.servers[server].sent[slot as usize].is_none()
    }

    pub(crate) fn may_fsync(&self, config: &Config, server: usize) -> bool {
        let s = &self.servers[server];
        self.is_at(server, Phase::Serves)
            && self.is_idle(server, Slot::Log)
            && s.durable < config.fsyncs
            && s.durable < s.home + RECORDS
    }

    pub(crate) fn fsync(&mut self, config: &Config, server: usize) {
        let value = self.servers[server].durable + 1;
        self.send(server, Slot::Log, value);
        if config.has(Mutation::AckAtSend) {
            self.acknowledge(server, value);
        }
    }

    pub(crate) fn send(&mut self, server: usize, slot: Slot, value: u8) {
        let s = &mut self.servers[server];
        s.sent[slot as usize] = Some(Sent::Away { value, map: s.map });
    }

    /// A client is told that a value is durable.
    fn acknowledge(&mut self, server: usize, value: u8) {
        self.ghost.acked = self.ghost.acked.max(value);
        let turn = self.servers[server].turn;
        let has_read = |read| matches!(read, (Some(_), Some(_)));
        let mut later = self.servers.iter().filter(|s| s.turn > turn && has_read(s.read));
        if later.any(|s| s.base < value) {
            self.ghost.note(Broken::Lost);
        }
    }

    pub(crate) fn may_checkpoint(&self, server: usize) -> bool {
        let s = &self.servers[server];
        self.is_at(server, Phase::Serves) && self.is_idle(server, Slot::Area) && s.durable > s.home
    }

    pub(crate) fn checkpoint(&mut self, server: usize) {
        self.send(server, Slot::Area, self.servers[server].durable);
    }

    pub(crate) fn may_read(&self, config: &Config, server: usize) -> bool {
        let idle = self.is_idle(server, Slot::Check) && self.servers[server].asked.is_none();
        self.is_at(server, Phase::Serves) && idle && self.ghost.reads < config.reads
    }

    pub(crate) fn read(&mut self, config: &Config, server: usize) {
        self.ghost.reads += 1;
        let shown = self.servers[server].durable;
        self.servers[server].asked = Some((self.ghost.acked, shown));
        match config.has(Mutation::AnswerFromMemory) {
            true => self.answer(server),
            false => self.send(server, Slot::Check, 0),
        }
    }

    fn answer(&mut self, server: usize) {
        let (newest, shown) = self.servers[server].asked.take().expect("asked before");
        if shown < newest {
            self.ghost.note(Broken::Stale);
        }
    }

    pub(crate) fn may_take(&self, server: usize, slot: Slot) -> bool {
        let s = &self.servers[server];
        let works = s.up && !matches!(s.phase, Phase::Latched | Phase::Ended);
        let answer = matches!(s.sent[slot as usize], Some(Sent::Done(_) | Sent::Refused(_)));
        works && answer
    }

    /// A server takes an answer: what was refused is the end of it.
    pub(crate) fn take(&mut self, config: &Config, server: usize, slot: Slot) {
        let answer = self.servers[server].sent[slot as usize].take();
        let value = match answer {
            Some(Sent::Done(value)) => value,
            Some(Sent::Refused(value)) if config.has(Mutation::RefusedIsDone) => value,
            _ => return self.latch(server),
        };
        match slot {
            Slot::Log => {
                self.servers[server].durable = value;
                self.acknowledge(server, value);
            }
            Slot::Area => {
                let s = &mut self.servers[server];
                s.home = value;
                if s.phase == Phase::Replays {
                    s.phase = Phase::Serves;
                }
            }
            Slot::Check => self.answer(server),
        }
    }

    /// A server was refused. What it has sent may still land.
    pub(crate) fn latch(&mut self, server: usize) {
        let s = &mut self.servers[server];
        (s.phase, s.asked) = (Phase::Latched, None);
    }

    pub(crate) fn may_end(&self, config: &Config, server: usize) -> bool {
        let s = &self.servers[server];
        let answered = s.sent.iter().all(Option::is_none) && s.durable == s.home;
        let early = config.has(Mutation::ClearNameEarly);
        self.is_at(server, Phase::Serves) && (answered || early)
    }

    /// A server takes its name away; the lock is given back in a step of its own.
    pub(crate) fn end(&mut self, server: usize) {
        if !self.cluster.reach(HEADER, server, self.servers[server].map) {
            return self.latch(server);
        }
        self.cluster.names &= !(1 << server);
        self.servers[server].phase = Phase::Leaves;
    }

    pub(crate) fn leave(&mut self, server: usize) {
        if self.cluster.lock == Some(server) {
            self.cluster.lock = None;
        }
        self.servers[server].phase = Phase::Ended;
    }

    /// What recovery makes of what it has read: the area, and the records that follow it.
    pub(crate) fn recover(&mut self, server: usize) {
        let s = &mut self.servers[server];
        let (Some(log), Some(area)) = s.read else { unreachable!("both were read") };
        let mut value = area;
        while log[record_of(value + 1)] == value + 1 {
            value += 1;
        }
        (s.base, s.durable, s.home) = (value, value, area);
        s.phase = Phase::Replays;
        if value < self.ghost.acked {
            self.ghost.note(Broken::Lost);
        }
    }
}
