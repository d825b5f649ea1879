//! The properties. Those of states read the state alone; those of steps (what a replay read, what a
//! recovery brought back) are noted by the step in [`Ghost::broken`].

use crate::model::Protocol;
use crate::state::Host;
use crate::state::{
    AREA, FILES, FromService, Ghost, HostState, Image, LANES, LOCAL, NONE, Phase, Published,
    Recovering, Service, State, Task, ToService, Txn, value,
};
use crate::storage::{Chains, Storage, View, well_founded};
use stateright::Property;

/// Properties of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Replayed without a durable commit and valid sources.
    NotEligible,
    /// Recovery brought back something else than the newest cut with what is staged above it.
    NotOneCut,
    /// Recovery lost what a client was told is durable.
    Lost,
    /// Recovery took a record of a dead epoch.
    OldRecord,
    /// Older data was replayed over newer.
    Stale,
    /// A block was written that replay or recovery may still need.
    Early,
    /// Ordered and coalesced replay differ.
    Modes,
    /// The Service had to refuse what the host that it serves sent.
    Refused,
    /// A host or Service whose flush had failed promised something.
    Promised,
    /// Recovery brought a record back without what it needs.
    Unfounded,
}

impl Ghost {
    /// Notes a broken property.
    pub(crate) fn note(&mut self, broken: Broken) {
        self.broken |= 1 << broken as u16;
    }

    fn holds(&self, broken: Broken) -> bool {
        self.broken & 1 << broken as u16 == 0
    }
}

/// A file's state after a crash: newest operation, whether it has a name.
type Outcome = [(u8, bool); FILES];

impl Storage {
    /// What recovery owes if `view` is all that there is; nothing if data that metadata promises is
    /// not there.
    fn outcome(&self, view: View) -> Option<Outcome> {
        let host = view.of(&self.host);
        let record = view.of(&self.service);
        let committed = self.committed(view, host.key);
        let (mut image, mut cut, mut tails) = (record.image, record.cut, record.tails);
        let mut blocks: Vec<u8> = self.blocks.iter().map(|b| *view.of(b)).collect();
        let start = view.of(&self.meta);
        if committed.is_empty() && start.map(|i| i.op) != image.map(|i| i.op) {
            return None;
        }
        for txn in committed {
            if self.has_area {
                for copy in self.digest(view, host.lane_key, txn.from, txn.upto[AREA]) {
                    blocks[usize::from(copy.dst)] = copy.value;
                }
            }
            for copy in txn.copies.iter().flatten() {
                let slot = view.of(self.lane(usize::from(copy.lane), copy.pos));
                slot.filter(|r| r.key == host.lane_key && r.pos == copy.pos && r.lsn == copy.lsn)?;
                blocks[usize::from(copy.dst)] = copy.value;
            }
            (image, cut, tails) = (txn.image, txn.cut, txn.upto);
        }
        for (f, inode) in image.iter().enumerate() {
            if inode.live && blocks.get(usize::from(inode.block)) != Some(&value(f, inode.op)) {
                return None;
            }
        }
        let mut outcome = image.map(|i| (i.op, i.live));
        let (found, _) = self.staged(view, host, tails);
        let kept = Chains::new(self.has_area).above_cut(&found, cut);
        if !well_founded(&kept, cut) {
            return None;
        }
        for record in kept {
            outcome[usize::from(record.file)] = (record.op, record.live);
        }
        Some(outcome)
    }

    /// Do metadata and data say this?
    fn holds(&self, image: &Image, owed: &Outcome) -> bool {
        image.iter().zip(owed).enumerate().all(|(f, (inode, owed))| {
            let block = || self.blocks.get(usize::from(inode.block)).map(|b| *b.visible());
            (inode.op, inode.live) == *owed && (!inode.live || block() == Some(value(f, inode.op)))
        })
    }
}

impl State {
    /// At the start of a recovery: what it owes, in the judge's own reckoning.
    pub(crate) fn note_owed(&mut self) {
        self.ghost.owed = self.storage.outcome(View::Visible);
        if self.ghost.owed.is_none() {
            self.ghost.note(Broken::NotOneCut);
        }
    }

    /// At its end: is it that?
    pub(crate) fn judge_recovery(&mut self) {
        let image = *self.storage.meta.visible();
        let owed = self.ghost.owed.take();
        if owed.is_some_and(|owed| !self.storage.holds(&image, &owed)) {
            self.ghost.note(Broken::NotOneCut);
        }
        let floor = self.ghost.floor;
        if image.iter().zip(floor).any(|(inode, floor)| inode.op < floor) {
            self.ghost.note(Broken::Lost);
        }
    }

    /// Everything that a client or a host was told is durable can be brought back from what is.
    fn durable_is_enough(&self) -> bool {
        let outcome = self.storage.outcome(View::Durable);
        outcome.is_some_and(|o| o.iter().zip(self.ghost.floor).all(|((op, _), floor)| *op >= floor))
    }

    /// Rule R3: nothing acknowledged has a hole below it.
    fn no_hole(&self) -> bool {
        let durable = |p: &Published| {
            let slot = &self.storage.lane(usize::from(p.lane), p.record.pos).durable;
            let in_area = self.storage.has_area && usize::from(p.lane) == AREA;
            let alone = if in_area { self.ghost.acked_alone } else { 0 };
            p.record.lsn > self.ghost.acked.max(alone) || *slot == Some(p.record)
        };
        !self.host.running() || self.host.records.iter().all(durable)
    }

    fn credits_are_durable(&self) -> bool {
        let record = &self.storage.service.durable;
        let host = &self.host;
        !self.host.running()
            || host.reclaimed <= record.seq
                && (0..LANES).all(|lane| host.tails[lane] <= record.tails[lane])
    }

    /// Rule R9: a process that has a Service open holds the lock, and serves the present epoch.
    fn one_writer(&self) -> bool {
        let current = self.storage.host.visible().key;
        self.one_host()
            && self.processes.iter().enumerate().all(|(p, process)| {
                process.service.as_ref().is_none_or(|s| {
                    self.lock.map(usize::from) == Some(p) && (p == 0 || s.key == current)
                })
            })
    }

    /// A read outside the cache finds the newest state.
    fn reads_are_newest(&self) -> bool {
        if !self.host.running() {
            return true;
        }
        self.host.files.iter().enumerate().all(|(f, file)| {
            let clean = file.live && file.ready.op == file.op && file.journaled >= file.op;
            if !clean {
                return true;
            }
            let of_file = |p: &&Published| {
                usize::from(p.record.file) == f && p.record.op == file.op && p.indexed && p.written
            };
            match self.host.records.iter().find(of_file) {
                Some(p) => {
                    let lane = usize::from(p.lane);
                    *self.storage.lane(lane, p.record.pos).visible() == Some(p.record)
                }
                None => {
                    let block = self.storage.blocks.get(usize::from(file.home));
                    block.map(|b| *b.visible()) == Some(value(f, file.op))
                }
            }
        })
    }

    /// A volume that says clean is whole without its log.
    fn clean_is_whole(&self) -> bool {
        let storage = &self.storage;
        if storage.host.possible().all(|r| r.state != HostState::Clean) {
            return true;
        }
        let image = storage.meta.durable;
        (0..FILES).all(|f| {
            let inode = image[f];
            let data = || storage.blocks[usize::from(inode.block)].durable == value(f, inode.op);
            inode.op >= self.ghost.floor[f] && (!inode.live || data())
        }) && storage.outcome(View::Durable) == Some(image.map(|i| (i.op, i.live)))
    }
}

impl Host {
    fn running(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Leaving)
    }

    fn published_are_fixed(&self) -> bool {
        self.kept.iter().flat_map(|t| t.copies.iter().flatten()).all(|c| c.pos != NONE)
    }
}

impl Storage {
    fn transactions(&self) -> impl Iterator<Item = &Txn> {
        let key = self.host.durable.key;
        let tail = self.service.durable.seq;
        let journal = self.journal.iter().flat_map(|c| c.possible().flatten());
        journal.filter(move |t| t.key == key && t.seq > tail)
    }

    /// Rule R4: whatever journal record may survive, what it names is durable.
    fn journaled_is_complete(&self) -> bool {
        let key = self.host.durable.lane_key;
        let copied = self.transactions().flat_map(|t| t.copies.iter().flatten()).all(|copy| {
            let slot = &self.lane(usize::from(copy.lane), copy.pos).durable;
            slot.is_some_and(|r| r.key == key && r.pos == copy.pos && r.lsn == copy.lsn)
        });
        let mut digested = self.transactions().flat_map(|t| t.from..t.upto[AREA]);
        copied
            && (!self.has_area
                || digested.all(|pos| {
                    let slot = &self.lane(AREA, pos).durable;
                    slot.is_some_and(|r| r.key == key && r.pos == pos)
                }))
    }

    /// Rule R11: no tail that may survive is ahead of what of the area may survive.
    fn tail_is_in_the_area(&self) -> bool {
        let storage = self;
        storage.service.possible().all(|record| {
            (0..FILES).all(|f| {
                let inode = record.image[f];
                let data = |v: &u8| *v >= value(f, inode.op) && *v % 2 == value(f, 0);
                let held = || {
                    let block = storage.blocks.get(usize::from(inode.block));
                    block.is_some_and(|block| block.possible().all(data))
                };
                storage.meta.possible().all(|image| image[f].op >= inode.op)
                    && (!inode.live || held())
            })
        })
    }
}

/// Names of the properties, as reports and tests use them.
pub mod names {
    /// Invariant 1 of the protocol.
    pub const COMPLETION: &str = "completion means a durable, self-contained record";
    /// Invariant 2.
    pub const PUBLISH: &str = "published only after its place is fixed";
    /// Invariant 3.
    pub const ELIGIBLE: &str = "replayed only with commit and sources valid";
    /// Invariant 4.
    pub const RECLAIM: &str = "credits only for what neither replay nor recovery needs";
    /// Rule R1.
    pub const R01: &str = "R1 recovery is the newest cut and what is staged above it";
    /// Rule R3.
    pub const R03: &str = "R3 no acknowledgement over a hole";
    /// Rule R4.
    pub const R04: &str = "R4 journaled means complete";
    /// Rule R8.
    pub const R08: &str = "R8 old records stay dead";
    /// Rule R9.
    pub const R09: &str = "R9 one writer";
    /// Rule R11.
    pub const R11: &str = "R11 no tail ahead of the area";
    /// Rule R11, reads.
    pub const READS: &str = "R11 reads find the newest state";
    /// Rule R21.
    pub const R21: &str = "R21 nothing is promised after a failed flush";
    /// Rule R22.
    pub const R22: &str = "R22 modes differ in work, not in meaning";
    /// Rule R22 and R15, from the volume's side.
    pub const CLEAN: &str = "a clean volume is whole without its log";
    /// Rule R44, recovery.
    pub const R44: &str = "R44 what comes back has what it needs";
    /// Rule R44, waiting.
    pub const ALONE: &str = "R44 a record of the area waits for no bulk";
    /// Nothing acknowledged is lost.
    pub const LOST: &str = "no acknowledged data lost";
    /// Nothing stale.
    pub const STALE: &str = "no stale block replayed over a newer one";
    /// Nothing reused early.
    pub const EARLY: &str = "no space reused early";
    /// No protocol error between two correct sides.
    pub const REFUSED: &str = "neither side has to refuse the other";
    /// Waiting ends.
    pub const PROGRESS: &str = "without further faults every wait ends";
}

/// All properties.
pub fn properties() -> Vec<Property<Protocol>> {
    use names::*;
    vec![
        Property::always(COMPLETION, |_, s: &State| s.durable_is_enough()),
        Property::always(PUBLISH, |_, s: &State| s.host.published_are_fixed()),
        Property::always(ELIGIBLE, |_, s: &State| s.ghost.holds(Broken::NotEligible)),
        Property::always(RECLAIM, |_, s: &State| s.credits_are_durable()),
        Property::always(R01, |_, s: &State| s.ghost.holds(Broken::NotOneCut)),
        Property::always(R03, |_, s: &State| s.no_hole()),
        Property::always(R04, |_, s: &State| s.storage.journaled_is_complete()),
        Property::always(R08, |_, s: &State| s.ghost.holds(Broken::OldRecord)),
        Property::always(R09, |_, s: &State| s.one_writer()),
        Property::always(R11, |_, s: &State| s.storage.tail_is_in_the_area()),
        Property::always(READS, |_, s: &State| s.reads_are_newest()),
        Property::always(R21, |_, s: &State| s.ghost.holds(Broken::Promised)),
        Property::always(R22, |_, s: &State| s.ghost.holds(Broken::Modes)),
        Property::always(R44, |_, s: &State| s.ghost.holds(Broken::Unfounded)),
        Property::always(ALONE, |m: &Protocol, s: &State| s.alone_is_enough(m.config())),
        Property::always(CLEAN, |_, s: &State| s.clean_is_whole()),
        Property::always(LOST, |_, s: &State| s.ghost.holds(Broken::Lost)),
        Property::always(STALE, |_, s: &State| s.ghost.holds(Broken::Stale)),
        Property::always(EARLY, |_, s: &State| s.ghost.holds(Broken::Early)),
        Property::always(REFUSED, |_, s: &State| s.ghost.holds(Broken::Refused)),
        Property::always(PROGRESS, |m: &Protocol, s: &State| m.is_done(s) || m.can_move(s)),
    ]
}

/// Situations that a model worth exploring gets into; each configuration says which are its own.
pub mod landmarks {
    /// A client, or the host itself, waits for credits.
    pub const STARVED: &str = "somebody waits for credits";
    /// A checkpoint that is waited for is under way.
    pub const EMERGENCY: &str = "an emergency checkpoint replays";
    /// One block has held data of both files.
    pub const PASSED_ON: &str = "a block passes from one file to the other";
    /// The volume is clean after a fault.
    pub const UNMOUNTED: &str = "unmounted after a fault";
    /// Recovery journals what was staged.
    pub const APPLIED: &str = "recovery applies what is staged";
    /// A write finds no space, and nothing will free any.
    pub const FULL: &str = "the file system is full";
    /// A takeover finds a transaction that its predecessor did not flush.
    pub const FOUND_JOURNAL: &str = "a transaction is found unflushed";
    /// A takeover finds tails that its predecessor did not flush.
    pub const FOUND_TAIL: &str = "a tail record is found unflushed";
    /// A device finishes what is committed after its host has died.
    pub const ALONE: &str = "a device finishes alone";
    /// A lane's end holds a record of a dead epoch that would fit.
    pub const DEAD_RECORD: &str = "a dead record lies where it would fit";
    /// A `Hello` of an epoch that has ended waits to be read.
    pub const OLD_HELLO: &str = "a Hello of a dead epoch waits";
    /// A device holds the lock while the host speaks to another one.
    pub const OLD_HOLDER: &str = "the old device holds the lock of the new one";
    /// What is kept waits to be sent over another connection.
    pub const SENT_AGAIN: &str = "a transaction is kept over a broken connection";
    /// The host runs the Service.
    pub const FALLBACK: &str = "the host serves itself";
    /// A host has latched a failed flush, its own or the Service's.
    pub const LATCHED: &str = "a host has latched a failed flush";
    /// A journal record that was written has gone with a failed flush, and is sent or cut anew.
    pub const WRITTEN_AND_GONE: &str = "a failed flush has lost a transaction";
    /// A second host that wants the volume is refused.
    pub const SECOND_WAITS: &str = "a second host finds the lock of the first";
    /// A second host has it, the first one having ended.
    pub const SECOND_HOST: &str = "the second host has the volume";
    /// A client was answered by a record of the area while one before it is not durable on the
    /// disk.
    pub const PASSED: &str = "a record of the area passes one of the disk";
    /// A dead host has left a record in the area that is not persisted.
    pub const FOUND_COMPACT: &str = "a record of the area is found unpersisted";
    /// Recovery finds a record of the disk, of which another one's loss takes the meaning.
    pub const CUT_AT_GAP: &str = "recovery drops a record of the disk and keeps one of the area";
    /// The area is full, and an fsync goes to the disk.
    pub const AREA_FULL: &str = "the record area is full";
    /// A physical record is digested.
    pub const DIGESTED: &str = "a physical record is digested";
    /// A transaction digests a record, and a copy of it goes to the same block.
    pub const OVER_DIGESTED: &str = "a copy lies over what is digested";
    /// The Service does something else first.
    pub const DISCARDS: &str = "a discard waits for its turn";
    /// A device may still carry a discard out whose host has gone.
    pub const DISCARDS_ALONE: &str = "a discard is left by a host that has gone";
    /// A batch has several transactions.
    pub const BATCH: &str = "a batch of several transactions is replayed";
}

impl State {
    fn devices(&self) -> impl Iterator<Item = (usize, &Service)> {
        let open = self.processes.iter().enumerate().skip(1);
        open.filter_map(|(p, process)| Some((p, process.service.as_ref()?)))
    }

    fn opening(&self) -> bool {
        self.processes.iter().filter_map(|p| p.service.as_ref()).any(|s| s.task == Task::Open)
    }

    fn dead_record(&self) -> bool {
        let host = self.storage.host.visible();
        let dead = |lane: usize| {
            let end = host.ends[lane];
            let slot = self.storage.lane(lane, end).visible();
            slot.is_some_and(|r| r.pos == end && r.key != host.lane_key)
        };
        let after = self.host.phase == Phase::Recover(Recovering::EpochFlush);
        after && (0..self.storage.lanes.len()).any(dead)
    }

    fn old_hello(&self) -> bool {
        let key = self.storage.host.visible().key;
        let old = |m: &ToService| matches!(m, ToService::Hello { key: k } if *k != key);
        self.processes.iter().any(|p| p.inbox.first().is_some_and(old))
    }

    /// The Service says that it failed, and the transaction that it was given is not in the
    /// journal.
    fn lost_journal(&self) -> bool {
        let failed = self.processes.iter().any(|p| p.outbox.contains(&FromService::Failed));
        let sent = self.host.kept.first().filter(|_| self.host.sent > 0);
        let gone = |t: &Txn| self.storage.journal(t.seq).visible().is_none_or(|j| j.seq != t.seq);
        failed && sent.is_some_and(gone)
    }

    fn passes(&self) -> bool {
        let (acked, alone) = (self.ghost.acked, self.ghost.acked_alone);
        let open =
            |p: &Published| usize::from(p.lane) != AREA && !p.durable && p.record.lsn < alone;
        acked < alone && self.host.records.iter().any(open)
    }

    /// A recovery that drops a record of the disk behind one that is lost, beside the area's.
    fn cuts_at_gap(&self) -> bool {
        if self.host.phase != Phase::Recover(Recovering::EpochFlush) {
            return false;
        }
        let (host, record) = (self.storage.host.visible(), self.storage.service.visible());
        let (found, _) = self.storage.staged(View::Visible, host, record.tails);
        let kept = Chains::new(true).above_cut(&found, record.cut);
        let dropped = found.iter().any(|r| r.lsn > record.cut && !kept.contains(r));
        dropped && kept.iter().any(|r| usize::from(r.lane) == AREA)
    }

    fn kept_over(&self) -> bool {
        let host = &self.host;
        host.greeted && !host.kept.is_empty() && host.sent == 0 && self.ghost.faults != [0; 5]
    }
}

impl Storage {
    fn passed_on(&self) -> bool {
        let of = |cell: &crate::storage::Cell<u8>, file: u8| {
            cell.possible().any(|v| *v != 0 && v % 2 == file)
        };
        self.blocks.iter().any(|b| of(b, 0) && of(b, 1))
    }

    /// Does a journaled transaction digest a record; one over whose block it also copies?
    fn digests(&self, copied: bool) -> bool {
        let key = self.host.visible().lane_key;
        self.transactions().any(|t| {
            let found = self.digest(View::Visible, key, t.from, t.upto[AREA]);
            let over = |dst: u8| t.copies.iter().flatten().any(|copy| copy.dst == dst);
            found.iter().any(|digested| !copied || over(digested.dst))
        })
    }
}

/// Is this the situation of that name?
pub(crate) fn is_at(model: &Protocol, s: &State, landmark: &str) -> bool {
    use landmarks::*;
    let replays = |d: &Service| matches!(d.task, Task::Replay { .. });
    match landmark {
        STARVED => s.starved(model.config()),
        EMERGENCY => s.devices().any(|(_, d)| d.asked[1] != 0 && replays(d)),
        PASSED_ON => s.storage.passed_on(),
        UNMOUNTED => s.host.phase == Phase::Unmounted && s.ghost.faults != [0; 5],
        APPLIED => {
            let local = s.processes[LOCAL].service.as_ref();
            s.host.phase == Phase::Recover(Recovering::Applying)
                && local.is_some_and(|l| l.task != Task::Idle)
        }
        FULL => s.finds_full(model.config()),
        FOUND_JOURNAL => s.opening() && s.storage.journal.iter().any(|c| !c.pending.is_empty()),
        FOUND_TAIL => s.opening() && !s.storage.service.pending.is_empty(),
        ALONE => s.host.phase == Phase::Down && s.devices().any(|(_, d)| d.finishing && replays(d)),
        DEAD_RECORD => s.dead_record(),
        OLD_HELLO => s.old_hello(),
        OLD_HOLDER => {
            let link = s.host.link.map(usize::from);
            s.devices().any(|(p, _)| link.is_some_and(|l| l != p))
        }
        SENT_AGAIN => s.kept_over(),
        LATCHED => s.host.phase == Phase::Latched,
        WRITTEN_AND_GONE => s.lost_journal(),
        SECOND_WAITS => s.turn == 1 && s.finds_host_lock(),
        SECOND_HOST => s.turn == 1 && s.host.phase == Phase::Running,
        FALLBACK => s.host.link == Some(0) && s.host.greeted && s.processes[LOCAL].is_idle(),
        PASSED => s.passes(),
        FOUND_COMPACT => {
            let unpersisted = |c: &crate::storage::Cell<_>| !c.pending.is_empty();
            let area = s.storage.lanes.get(AREA).is_some_and(|l| l.iter().any(unpersisted));
            s.host.recovers(LOCAL) && s.opening() && area
        }
        CUT_AT_GAP => s.cuts_at_gap(),
        AREA_FULL => {
            let host = &s.host;
            let full = host.heads[AREA] - host.tails[AREA] >= model.config().lane_slots;
            host.phase == Phase::Running && full
        }
        DIGESTED => s.storage.digests(false),
        OVER_DIGESTED => s.storage.digests(true),
        DISCARDS => {
            s.devices().any(|(_, d)| !matches!(d.task, Task::Idle) && !d.discards.is_empty())
        }
        DISCARDS_ALONE => s.devices().any(|(_, d)| d.finishing && !d.discards.is_empty()),
        BATCH => s.devices().any(|(_, d)| match d.task {
            Task::Replay { upto, .. } => upto > d.tail + 1,
            _ => false,
        }),
        _ => unreachable!("no landmark has this name: {landmark}"),
    }
}
