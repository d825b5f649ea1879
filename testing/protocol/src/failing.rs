//! A flush that fails (rule R21): the process that asked for it promises nothing more, and what was
//! to be made durable is checked anew.

use crate::action::Flush;
use crate::config::{Config, Mutation};
use crate::judge::Broken;
use crate::state::Ghost;
use crate::state::{FromService, Journaling, LOCAL, Phase, Recovering, Replaying, State, Task};
use crate::storage::{Failure, Regions};

/// Bits of hosts in [`crate::state::Ghost::failed`] come after those of processes.
const HOSTS: u8 = 6;

impl State {
    /// Regions that the next step of this kind would flush; nothing if it would flush none.
    pub(crate) fn flushed_next(&self, config: &Config, flush: Flush) -> Option<Regions> {
        let none = Regions::default();
        match flush {
            Flush::Lanes => {
                let running = self.host.phase == Phase::Running;
                let any = running && self.host.unflushed(config);
                any.then_some(Regions { lanes: true, ..none })
            }
            Flush::Compact => {
                let running = self.host.phase == Phase::Running;
                let any = self.host.records.iter().any(|p| self.may_persist(config, p));
                (running && any).then_some(Regions { compact: true, ..none })
            }
            Flush::Header => match self.host.phase {
                Phase::Recover(Recovering::TailFlush) => Some(Regions { service: true, ..none }),
                Phase::Recover(Recovering::EpochFlush | Recovering::MountFlush)
                | Phase::CleanFlush => Some(Regions { host: true, ..none }),
                _ => None,
            },
            Flush::Service(p) => self.service_flushes(config, usize::from(p)),
        }
    }

    fn service_flushes(&self, config: &Config, p: usize) -> Option<Regions> {
        let none = Regions::default();
        let service = self.processes[p].service.as_ref()?;
        let recovering = self.host.recovers(p);
        let regions = match service.task {
            Task::Open => Regions {
                journal: true,
                service: true,
                area: false,
                lanes: recovering,
                compact: recovering,
                host: recovering,
            },
            Task::Journal { step: Journaling::AreaFlush, .. } => Regions { area: true, ..none },
            Task::Journal { step: Journaling::Flush, .. } => Regions { journal: true, ..none },
            Task::Replay { upto, step: Replaying::Writes(done) } => {
                if usize::from(done) < self.plan(config, p, upto).len() {
                    return None;
                }
                Regions { area: true, ..none }
            }
            Task::Replay { step: Replaying::TailFlush, .. } => Regions { service: true, ..none },
            _ => return None,
        };
        Some(regions)
    }

    /// The flush fails. Its process latches that: a Service stops and says so, a host ends.
    pub(crate) fn flush_fails(&mut self, config: &Config, flush: Flush, choice: u16) {
        let regions = self.flushed_next(config, flush).expect("asked before");
        self.storage.fail(regions, Failure::Flush, usize::from(choice));
        self.ghost.failed |= match flush {
            Flush::Lanes | Flush::Compact | Flush::Header => self.host_bit(),
            Flush::Service(p) => 1 << p,
        };
        let goes_on = match config.mutation {
            Some(Mutation::RetryFlush) => matches!(flush, Flush::Lanes | Flush::Compact),
            Some(Mutation::RetryAreaFlush) => regions.area,
            _ => false,
        };
        match flush {
            _ if goes_on => {}
            Flush::Lanes | Flush::Compact => self.host.phase = Phase::Latched,
            Flush::Header => self.host_ends(config),
            Flush::Service(p) => self.service_stops(config, usize::from(p)),
        }
    }

    fn service_stops(&mut self, config: &Config, p: usize) {
        if self.host.recovers(p) {
            return self.host_ends(config);
        }
        let process = &mut self.processes[p];
        if process.connected {
            process.outbox.push(FromService::Failed);
        }
        process.connected = false;
        process.inbox.clear();
        self.let_go(p);
    }

    fn host_bit(&self) -> u8 {
        1 << (HOSTS + self.turn)
    }

    /// The host promises something.
    pub(crate) fn host_promises(&mut self) {
        if self.ghost.failed & self.host_bit() != 0 {
            self.ghost.note(Broken::Promised);
        }
    }

    /// The host's process has ended.
    pub(crate) fn forget_host_failure(&mut self) {
        self.ghost.forget_failure(LOCAL);
        self.ghost.failed &= !self.host_bit();
    }
}

impl Ghost {
    /// The Service of this process promises something.
    pub(crate) fn service_promises(&mut self, p: usize) {
        if self.failed & 1 << p != 0 {
            self.note(Broken::Promised);
        }
    }

    /// This process opens a Service anew: what failed before is another one's.
    pub(crate) fn forget_failure(&mut self, p: usize) {
        self.failed &= !(1 << p);
    }
}
