//! Mounting: the host takes both locks, runs the Service itself, brings the volume up to date (rule
//! R18) and opens a new epoch.

use crate::config::{Config, Mutation};
use crate::host::Start;
use crate::judge::Broken;
use crate::state::Ghost;
use crate::state::{
    AREA, Copy, DIRECT, FILES, Host, HostRecord, HostState, Image, Inode, Journaling, LOCAL, NONE,
    Phase, Process, Record, Recovering, Service, ServiceRecord, State, Task, Txn, value,
};
use crate::storage::Storage;
use crate::storage::{Chains, View, mapped, well_founded};

impl State {
    pub(crate) fn mount(&mut self) {
        let record = *self.storage.host.visible();
        self.host_lock = Some(self.turn);
        self.lock = Some(0);
        self.host.phase = Phase::Recover(Recovering::Replaying);
        let service = Service::opening(record.key, record.lane_key, true);
        self.processes[LOCAL] = Process { service: Some(service), ..Process::default() };
    }

    pub(crate) fn may_recover(&self) -> bool {
        let local = &self.processes[LOCAL];
        let rest = local.service.as_ref().is_some_and(|s| s.task == Task::Idle && s.head == s.tail);
        match self.host.phase {
            Phase::Recover(Recovering::Replaying | Recovering::Applying) => rest,
            Phase::Recover(_) => true,
            _ => false,
        }
    }

    pub(crate) fn recover(&mut self, config: &Config) {
        let Phase::Recover(step) = self.host.phase else { return };
        let next = match step {
            Recovering::Replaying => self.open_epoch(config),
            Recovering::EpochFlush => self.apply_staged(config),
            Recovering::Applying => self.storage.empty_lanes(),
            Recovering::TailFlush => {
                self.storage.service.flush();
                Recovering::Mount
            }
            Recovering::Mount => {
                let key = self.fresh_key(config);
                let (state, lane_key, ends) = (HostState::Mounted, key, [NONE; 2]);
                self.storage.host.write(HostRecord { state, key, lane_key, ends });
                Recovering::MountFlush
            }
            Recovering::MountFlush => {
                self.storage.host.flush();
                return self.mounted();
            }
        };
        self.host.phase = Phase::Recover(next);
    }

    fn fresh_key(&mut self, config: &Config) -> u8 {
        if config.has(Mutation::KeepKey) {
            return self.storage.host.visible().lane_key;
        }
        self.next_key += 1;
        self.next_key
    }

    /// Where recovery reads the lanes from: the tails, or with a fault planted where they began.
    fn first(&self, config: &Config) -> [u8; 2] {
        match config.has(Mutation::RecoverWithoutCut) {
            true => self.host.found_tails,
            false => self.storage.service.visible().tails,
        }
    }

    /// The lanes are read to their ends; a new epoch says so before anything is written under it
    /// (R8).
    fn open_epoch(&mut self, config: &Config) -> Recovering {
        let record = *self.storage.host.visible();
        let (_, ends) = self.storage.staged(View::Visible, &record, self.first(config));
        let key = self.fresh_key(config);
        let state = HostState::Recovering;
        self.storage.host.write(HostRecord { state, key, lane_key: record.lane_key, ends });
        Recovering::EpochFlush
    }

    /// Rule R1: what is staged above the newest durable cut becomes a transaction.
    fn apply_staged(&mut self, config: &Config) -> Recovering {
        self.storage.host.flush();
        if config.has(Mutation::RecoverWithoutFlush) {
            // The log's flush serves all of its regions; here it comes too late.
            self.storage.flush_lanes();
            self.storage.persist_area();
            self.storage.flush_journal();
            self.storage.service.flush();
        }
        let record = *self.storage.host.visible();
        let service = *self.storage.service.visible();
        let cut = if config.has(Mutation::RecoverWithoutCut) { 0 } else { service.cut };
        let (found, ends) = self.storage.staged(View::Visible, &record, self.first(config));
        let chains = Chains {
            area: config.area,
            together: config.has(Mutation::DropWithTheDisk),
            both: !config.has(Mutation::KeepOverTheArea),
        };
        let found = chains.above_cut(&found, cut);
        if !well_founded(&found, service.cut) {
            self.ghost.note(Broken::Unfounded);
        }
        if found.iter().any(|r| r.mount != self.ghost.mount) {
            self.ghost.note(Broken::OldRecord);
        }
        let base = *self.storage.meta.visible();
        let txn = found.last().map(|last| {
            let cut = last.lsn.max(service.cut);
            self.ghost.transaction(config, &found, base, service.seq + 1, cut, ends)
        });
        let local = self.processes[LOCAL].service.as_mut().expect("recovering");
        local.key = record.key;
        if let Some(txn) = txn {
            local.task = Task::Journal { txn, step: Journaling::Write };
        }
        Recovering::Applying
    }

    /// The host runs on what recovery made.
    fn mounted(&mut self) {
        self.judge_recovery();
        let record = *self.storage.service.visible();
        let image = *self.storage.meta.visible();
        let key = self.storage.host.visible().key;
        self.host = Host::start(&Start { key, record, image, blocks: self.storage.blocks.len() });
        self.processes[LOCAL] = Process::default();
        self.lock = None;
        self.ghost.mount += 1;
        (self.ghost.acked, self.ghost.acked_alone) = (0, 0);
    }
}

impl Ghost {
    fn transaction(
        &self,
        config: &Config,
        found: &[Record],
        base: Image,
        seq: u8,
        cut: u8,
        upto: [u8; 2],
    ) -> Txn {
        let mut taken = mapped(&base);
        let mut txn = Txn {
            key: 0,
            mount: self.mount,
            seq,
            cut,
            upto,
            // What recovery applies it applies as a mount would: by copies.
            from: upto[AREA],
            copies: [None; FILES],
            image: base,
            drops: 0,
            direct: [None; DIRECT],
        };
        for record in found {
            let f = usize::from(record.file);
            let was = &mut txn.image[f];
            if !record.live {
                txn.drops |= if was.live { 1 << was.block } else { 0 };
                txn.copies[f] = None;
                *was = Inode { op: record.op, live: false, block: NONE };
                continue;
            }
            if !was.live {
                let block = (0..config.blocks).find(|b| taken & 1 << b == 0);
                was.block = block.map_or(NONE, |b| u8::try_from(b).expect("few"));
                taken |= block.map_or(0, |b| 1 << b);
            }
            *was = Inode { op: record.op, live: true, block: was.block };
            let (lane, pos, lsn, dst) = (record.lane, record.pos, record.lsn, was.block);
            txn.copies[f] = Some(Copy { lane, pos, lsn, value: value(f, record.op), dst });
        }
        txn.copies.iter_mut().for_each(|c| *c = c.filter(|c| c.dst != NONE));
        txn
    }
}

impl Storage {
    /// Everything staged is in the area: the lanes are empty from their ends on.
    fn empty_lanes(&mut self) -> Recovering {
        let ends = self.host.visible().ends;
        let record = *self.service.visible();
        if record.tails == ends {
            return Recovering::Mount;
        }
        self.service.write(ServiceRecord { tails: ends, ..record });
        Recovering::TailFlush
    }
}
