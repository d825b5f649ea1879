//! The host's end of the link: messages to and from the device, connecting, giving back, leaving.

use crate::config::{Config, Mutation};
use crate::host::messages;
use crate::state::Host;
use crate::state::{FromService, HostState, LOCAL, Phase, State, ToService};

impl State {
    pub(crate) fn next_message(&self, config: &Config) -> Option<ToService> {
        let host = &self.host;
        let to = &self.processes[usize::from(host.link?)];
        if !host.greeted || to.inbox.len() >= config.queue {
            return None;
        }
        let next = host.outgoing().get(usize::from(host.sent)).copied()?;
        let early = config.has(Mutation::SubmitBeforeFlush);
        match next {
            ToService::Submit(txn) if !early && !host.flushed(&txn) => None,
            _ => Some(next),
        }
    }

    pub(crate) fn send(&mut self, message: ToService) {
        let link = self.host.link.expect("linked");
        self.processes[usize::from(link)].inbox.push(message);
    }

    pub(crate) fn may_ask(&self, config: &Config, emergency: bool) -> bool {
        let host = &self.host;
        let Some(link) = host.link else { return false };
        let wanted = match emergency {
            true => self.starved(config) && !config.has(Mutation::NoEmergency),
            false => config.background || config.unmount && self.programs_done(config),
        };
        wanted
            && host.phase == Phase::Running
            && host.greeted
            && !host.asked[usize::from(emergency)]
            && host.reclaimed < host.journaled
            && self.processes[usize::from(link)].inbox.len() < config.queue
    }

    pub(crate) fn receive(&mut self, config: &Config) {
        let link = usize::from(self.host.link.expect("linked"));
        match self.processes[link].outbox.remove(0) {
            FromService::Welcome { journaled } => self.welcome(config, journaled),
            FromService::Journaled { seq } => self.journaled(config, seq),
            FromService::Reclaimed { seq, tails } => {
                if !config.has(Mutation::WelcomeIsNoAnswer) {
                    self.journaled(config, seq);
                }
                self.host.reclaimed(config, seq, tails);
            }
            FromService::Failed => {
                self.disconnect(config);
                self.host.phase = Phase::Latched;
            }
            FromService::Discarded { block } => self.host.discarded(block),
            FromService::Done { emergency } => self.host.asked[usize::from(emergency)] = false,
            FromService::Bye => {
                self.disconnect(config);
                if config.has(Mutation::ByeIsTheLock) {
                    self.host.phase = Phase::CleanWrite;
                    self.lock = Some(0);
                }
            }
        }
    }

    fn welcome(&mut self, config: &Config, journaled: u8) {
        self.host.greeted = true;
        match config.mutation {
            Some(Mutation::ResendJournaled) => {}
            Some(Mutation::WelcomeIsNoAnswer) => {
                let known = self.host.kept.iter().filter(|t| t.seq <= journaled);
                let messages: usize = known.map(messages).sum();
                self.host.sent = u8::try_from(messages).expect("few");
            }
            _ => self.journaled(config, journaled),
        }
    }

    /// Everything up to `seq` is durable in the journal. May be told twice.
    fn journaled(&mut self, config: &Config, seq: u8) {
        let host = &mut self.host;
        let first = host.kept.iter().position(|t| t.seq > seq).unwrap_or(host.kept.len());
        let rest = host.kept.split_off(first);
        for txn in std::mem::replace(&mut host.kept, rest) {
            host.sent = host.sent.saturating_sub(u8::try_from(messages(&txn)).expect("few"));
            for (f, inode) in txn.image.iter().enumerate() {
                host.files[f].journaled = host.files[f].journaled.max(inode.op);
                self.ghost.floor[f] = self.ghost.floor[f].max(inode.op);
            }
            if config.has(Mutation::ForgetIndexAtJournaled) {
                for p in &mut host.records {
                    p.indexed &= p.record.pos >= txn.upto[usize::from(p.lane)];
                }
            }
        }
        host.journaled = host.journaled.max(seq);
        for held in &mut host.held {
            *held = if *held > seq { *held } else { 0 };
        }
        if config.has(Mutation::ReuseAtJournaled) {
            host.release(config, seq);
        }
    }

    pub(crate) fn disconnect(&mut self, config: &Config) {
        if let Some(link) = self.host.link {
            let process = &mut self.processes[usize::from(link)];
            process.connected = false;
            process.outbox.clear();
        }
        self.host.unlink(config);
    }

    pub(crate) fn may_connect(&self, process: usize) -> bool {
        self.host.phase == Phase::Running
            && self.host.link.is_none()
            && self.processes[process].is_ready()
    }

    pub(crate) fn connect(&mut self, process: usize) {
        let hello = ToService::Hello { key: self.host.key };
        self.processes[process].connected = true;
        self.processes[process].inbox.push(hello);
        self.host.link = Some(u8::try_from(process).expect("few processes"));
    }

    pub(crate) fn may_give_back(&self) -> bool {
        self.host.link == Some(0)
            && self.host.phase == Phase::Running
            && self.processes[LOCAL].is_idle()
            && self.processes.iter().skip(1).any(|p| p.is_ready())
    }

    pub(crate) fn give_back(&mut self, config: &Config) {
        self.disconnect(config);
        self.processes[LOCAL] = Default::default();
        self.lock = None;
    }

    /// Everything is journaled and checkpointed, and the device knows.
    pub(crate) fn may_leave(&self, config: &Config) -> bool {
        let host = &self.host;
        let ready = config.unmount
            && self.programs_done(config)
            && host.phase == Phase::Running
            && host.greeted;
        let settled = !self.host.wants_cut()
            && host.kept.is_empty()
            && host.reclaimed == host.seq
            && host.has_discarded()
            && host.asked == [false; 2]
            && self.unsettled(config).next().is_none();
        ready && (settled || config.has(Mutation::CleanTooEarly) && host.kept.is_empty())
    }

    /// The host may write *clean* itself once no process runs the Service.
    pub(crate) fn may_finish_leaving(&self) -> bool {
        match self.host.phase {
            Phase::Leaving => self.host.link.is_none() && self.lock.is_none(),
            Phase::CleanWrite | Phase::CleanFlush => true,
            _ => false,
        }
    }

    pub(crate) fn finish_leaving(&mut self) {
        match self.host.phase {
            Phase::Leaving => {
                self.lock = Some(0);
                self.host.phase = Phase::CleanWrite;
            }
            Phase::CleanWrite => {
                let record = *self.storage.host.visible();
                self.storage
                    .host
                    .write(crate::state::HostRecord { state: HostState::Clean, ..record });
                self.host.phase = Phase::CleanFlush;
            }
            _ => {
                self.storage.host.flush();
                self.lock = None;
                self.host_lock = None;
                self.host.phase = Phase::Unmounted;
            }
        }
    }
}

impl Host {
    /// Credits: monotone, clamped to what was handed out.
    fn reclaimed(&mut self, config: &Config, seq: u8, tails: [u8; 2]) {
        let host = self;
        host.reclaimed = host.reclaimed.max(seq.min(host.seq));
        for (lane, tail) in tails.into_iter().enumerate() {
            host.tails[lane] = host.tails[lane].max(tail.min(host.heads[lane]));
        }
        let tails = host.tails;
        host.records.retain(|p| p.record.pos >= tails[usize::from(p.lane)]);
        host.release(config, host.reclaimed);
    }
}
