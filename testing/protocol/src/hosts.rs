//! Host processes: their ends, and two of them that want one volume (rule R9).
//!
//! [`State::host`] is the host whose turn it is; the other one is stalled, and keeps its locks.
//! With the host's lock a second host gets no further than to ask for it while the first one lives.

use crate::config::{Config, Mutation};
use crate::state::{BLOCKS, Client, Host, LOCAL, Phase, Process, STALLED, State};
use std::mem::swap;

impl State {
    /// The host's process ends, by itself or not: its locks are free, and its answers reach no
    /// client.
    pub(crate) fn host_ends(&mut self, config: &Config) {
        self.disconnect(config);
        self.processes[LOCAL] = Process::default();
        if self.lock.map(usize::from) == Some(LOCAL) {
            self.lock = None;
        }
        if self.host_lock == Some(self.turn) {
            self.host_lock = None;
        }
        self.host = Host::down();
        self.forget_host_failure();
        (self.ghost.acked, self.ghost.acked_alone) = (0, 0);
        self.ghost.owed = None;
        self.ghost.direct = [0; BLOCKS];
        for client in &mut self.clients {
            if client.at == self.turn {
                *client = Client { pc: client.pc, waits: 0, op: 0, at: 0 };
            }
        }
    }

    /// All host processes end.
    pub(crate) fn hosts_end(&mut self, config: &Config) {
        self.host_ends(config);
        if self.stalled.is_some() {
            self.pass_turn();
            self.host_ends(config);
            self.pass_turn();
        }
    }

    /// The two hosts change places.
    pub(crate) fn pass_turn(&mut self) {
        let Some(other) = &mut self.stalled else { return };
        swap(&mut self.host, &mut other.host);
        swap(&mut self.processes[LOCAL], &mut other.local);
        self.turn = 1 - self.turn;
        self.lock = match self.lock {
            Some(0) => Some(STALLED),
            Some(STALLED) => Some(0),
            other => other,
        };
    }

    /// A process ends, to which the stalled host may be linked.
    pub(crate) fn stalled_loses(&mut self, config: &Config, p: usize) {
        let Some(other) = &mut self.stalled else { return };
        if other.host.link.map(usize::from) == Some(p) {
            other.host.unlink(config);
        }
    }

    pub(crate) fn may_stall(&self, config: &Config) -> bool {
        self.stalled.is_some() && self.ghost.stalls < config.stalls
    }

    /// The host that wants the volume finds the other one's lock.
    pub(crate) fn finds_host_lock(&self) -> bool {
        self.host.phase == Phase::Down && self.host_lock == Some(1 - self.turn)
    }

    /// A mount takes the host's lock, then the Service's.
    pub(crate) fn may_mount(&self, config: &Config) -> bool {
        let alone = self.host_lock.is_none() || config.has(Mutation::MountWithoutLock);
        self.host.phase == Phase::Down && alone && self.lock.is_none()
    }

    /// Rule R9 of hosts: a host that has the volume mounted, or is on the way there, holds the
    /// host's lock, and a stalled one's own Service holds the Service's.
    pub(crate) fn one_host(&self) -> bool {
        let holds = |host: &Host, name: u8| {
            matches!(host.phase, Phase::Down | Phase::Unmounted) || self.host_lock == Some(name)
        };
        let stalled = self.stalled.as_ref().is_none_or(|other| {
            let serves = other.local.service.is_none() || self.lock == Some(STALLED);
            serves && holds(&other.host, 1 - self.turn)
        });
        stalled && holds(&self.host, self.turn)
    }
}
