//! Freed blocks go back to the storage: one that is reclaimed is nobody's until its discard has
//! ended (rule R5).

use crate::config::{Config, Mutation};
use crate::judge::Broken;
use crate::state::Process;
use crate::state::{Block, FromService, Host, Phase, State, Task, ToService};

/// What a discarded block holds: nothing that any file has.
const UNDEFINED: u8 = 0;

impl Host {
    /// The quarantine of what transactions up to `seq` freed ends, or goes on until the discard.
    pub(crate) fn release(&mut self, config: &Config, seq: u8) {
        let next = if config.discard { Block::Waiting } else { Block::Free };
        for block in &mut self.blocks {
            if matches!(block, Block::Quarantined(by) if *by <= seq) {
                *block = next;
            }
        }
    }

    /// What the Service was asked for over a link that is gone is asked for again.
    pub(crate) fn forget_discards(&mut self) {
        for block in &mut self.blocks {
            if *block == Block::Asked {
                *block = Block::Waiting;
            }
        }
    }

    /// Is no block waiting for its discard?
    pub(crate) fn has_discarded(&self) -> bool {
        !self.blocks.iter().any(|b| matches!(b, Block::Waiting | Block::Asked))
    }

    pub(crate) fn discarded(&mut self, block: u8) {
        let block = &mut self.blocks[usize::from(block)];
        if *block == Block::Asked {
            *block = Block::Free;
        }
    }
}

impl State {
    pub(crate) fn may_discard(&self, config: &Config, block: usize) -> bool {
        let host = &self.host;
        let room = |link: u8| self.processes[usize::from(link)].inbox.len() < config.queue;
        host.phase == Phase::Running
            && host.greeted
            && host.link.is_some_and(room)
            && host.blocks[block] == Block::Waiting
    }

    pub(crate) fn discard(&mut self, config: &Config, block: u8) {
        self.send(ToService::Discard { block });
        let early = config.has(Mutation::ReuseBeforeDiscarded);
        let next = if early { Block::Free } else { Block::Asked };
        self.host.blocks[usize::from(block)] = next;
    }

    /// The oldest discard is carried out, and answered.
    pub(crate) fn empty(&mut self, p: usize) {
        let service = self.processes[p].service.as_mut().expect("asked before");
        let block = service.discards.remove(0);
        let sent_ahead = service.direct.iter().any(|(to, _)| *to == block);
        if sent_ahead || self.storage.in_use(block) {
            self.ghost.note(Broken::Early);
        }
        self.storage.blocks[usize::from(block)].write(UNDEFINED);
        self.processes[p].say(FromService::Discarded { block });
    }
}

impl Process {
    /// Between any two steps of what else the Service does.
    pub(crate) fn may_empty(&self) -> bool {
        let service = self.service.as_ref();
        service.is_some_and(|s| s.task != Task::Open && !s.discards.is_empty())
    }
}
