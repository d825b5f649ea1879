//! What is explored.

use crate::state::{BLOCKS, LANES};

/// One step of a client's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Writes a file, which is made if it has no name.
    Write(u8),
    /// Makes a file's present state durable, its absence included (fsync of its directory).
    Fsync(u8),
    /// Removes a file; its block is free once that is journaled, and reusable once reclaimed.
    Unlink(u8),
}

/// How the Service replays (rule R22).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Replay {
    /// Every range of every transaction, in order.
    Ordered,
    /// The final state of the batch alone.
    Coalesce,
}

/// How many faults of each kind a run may have, and how many together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// All kinds together.
    pub total: u8,
    /// The host process dies.
    pub host: u8,
    /// A device process dies.
    pub device: u8,
    /// The link breaks while both sides live: messages on their way are lost.
    pub link: u8,
    /// Everything dies at once, and storage keeps any selection of the unflushed writes.
    pub power: u8,
    /// A flush fails, and some of the writes that it was to cover are gone.
    pub flush: u8,
}

/// A fault of the protocol itself, planted to see that a property notices it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutation {
    /// fsync returns when its record is written, before any flush.
    AckBeforeFlush,
    /// A staged transaction is shown to assembly before its place in the lane is fixed.
    PublishBeforeFix,
    /// A transaction counts as journaled for replay before its flush.
    ReplayBeforeCommit,
    /// Credits are returned before the tail record is flushed.
    CreditsBeforeTail,
    /// Recovery applies every record that it finds, at or below the cut too.
    RecoverWithoutCut,
    /// A flush counts for all published records, written or not.
    FlushCoversUnwritten,
    /// A transaction is submitted before its sources are flushed.
    SubmitBeforeFlush,
    /// Mount and recovery go on under the old key.
    KeepKey,
    /// A new device opens the volume while the old one holds the lock.
    TakeoverWithoutLock,
    /// A device serves a `Hello` of any epoch.
    AnyEpoch,
    /// A checkpoint does not flush the area.
    NoAreaFlush,
    /// Coalescing keeps the first write of a range.
    FirstWriteWins,
    /// A takeover reports what it found committed without flushing it.
    TakeoverWithoutFlush,
    /// A takeover that finds nothing committed does not flush the tails that it found either.
    TakeoverTrustsTails,
    /// Recovery replays what it found committed without flushing it.
    RecoverWithoutFlush,
    /// Freed blocks are allocated again when their transaction is journaled.
    ReuseAtJournaled,
    /// Freed blocks are allocated again when their discard is asked for, not when it has ended.
    ReuseBeforeDiscarded,
    /// The host forgets where staged data lies when it is journaled.
    ForgetIndexAtJournaled,
    /// The host does not ask for a checkpoint when credits run out.
    NoEmergency,
    /// A checkpoint asked for on a connection that broke counts as asked for.
    AskOnce,
    /// After a reconnect everything kept is sent again, journaled or not.
    ResendJournaled,
    /// After a reconnect direct data is not sent again.
    ForgetDirect,
    /// `Welcome` does not count as an answer to what was submitted before it.
    WelcomeIsNoAnswer,
    /// The host takes the lock for its own once the device said `Bye`.
    ByeIsTheLock,
    /// The volume is called clean before everything is in the area.
    CleanTooEarly,
    /// A flush of the lanes that failed is repeated, and counts when it succeeds.
    RetryFlush,
    /// A flush of the area that failed is repeated, and counts when it succeeds.
    RetryAreaFlush,
    /// A host mounts although another one holds the host's lock.
    MountWithoutLock,
    /// A record goes to the record area although the file's newest one is not durable on the disk.
    PassItsOwnRecord,
    /// A record goes to the record area although an ordered one of the disk is not durable.
    PassAnOrderedRecord,
    /// A record of the area counts as durable when it is stored, before it is persisted.
    AckBeforePersist,
    /// A record of the area counts although one before it in the area is not persisted.
    AckOverAHole,
    /// An fsync whose record lies in the area waits for the bulk before it on the disk, too.
    WaitForBulk,
    /// Recovery drops a record of the area whose predecessor on the disk is lost.
    DropWithTheDisk,
    /// Recovery keeps records of the disk whose predecessor in the area is lost.
    KeepOverTheArea,
    /// Recovery does not persist what it found in the area.
    RecoverWithoutPersist,
    /// A removed file's block is free at once, if only a record has its data.
    FreeWhatIsStaged,
    /// The Service digests records a transaction late, after the one that may free their blocks.
    DigestLate,
    /// The Service digests every record that lies in the area, those behind the cut too.
    DigestBeyondCut,
    /// A transaction's physical records are written over its copies, not under them.
    DigestLast,
    /// A recovery's replay does not digest.
    ReplayWithoutDigest,
}

/// One configuration of the model.
#[derive(Clone, Debug)]
pub struct Config {
    /// The configuration's name in reports.
    pub name: &'static str,
    /// One program per client; a client's steps run in order.
    pub programs: Vec<Vec<Step>>,
    /// Staging lanes; file `f` uses lane `f % lanes`.
    pub lanes: usize,
    /// Whether the second of two lanes is a record area; all files use the first one then.
    pub area: bool,
    /// Whether a record of the area that overwrites a mapped block names it, and is not copied by a
    /// tag (rule R42).
    pub physical: bool,
    /// Records a lane holds.
    pub lane_slots: u8,
    /// Transactions the journal holds.
    pub journal_slots: u8,
    /// Data blocks in the area.
    pub blocks: usize,
    /// Transactions that may be cut and not journaled yet.
    pub pipeline: usize,
    /// Device processes.
    pub devices: usize,
    /// How checkpoints replay.
    pub replay: Replay,
    /// Whether checkpoints also run without need.
    pub background: bool,
    /// Whether data without a home may go straight to the area.
    pub direct: bool,
    /// Whether freed blocks go back to the storage before they are anybody's again.
    pub discard: bool,
    /// How often the host may take the Service role over while the device is away.
    pub fallbacks: u8,
    /// Whether the volume is unmounted when all programs are done.
    pub unmount: bool,
    /// Messages that fit the link towards the Service.
    pub queue: usize,
    /// How often a host stalls and another one, which wants the volume too, gets its turn.
    pub stalls: u8,
    /// What may fail.
    pub faults: Faults,
    /// A fault of the protocol itself.
    pub mutation: Option<Mutation>,
}

impl Config {
    /// A small volume without faults.
    pub fn new(name: &'static str, programs: &[&[Step]]) -> Self {
        Self {
            name,
            programs: programs.iter().map(|p| p.to_vec()).collect(),
            lanes: 1,
            area: false,
            physical: false,
            lane_slots: 2,
            journal_slots: 2,
            blocks: 2,
            pipeline: 1,
            devices: 1,
            replay: Replay::Ordered,
            background: false,
            direct: false,
            discard: false,
            fallbacks: 0,
            unmount: false,
            queue: 2,
            stalls: 0,
            faults: Faults::default(),
            mutation: None,
        }
    }

    /// The same with a fault planted.
    #[must_use]
    pub fn mutated(mut self, mutation: Mutation) -> Self {
        self.mutation = Some(mutation);
        self
    }

    /// The lane on the disk that takes this file's records.
    pub(crate) fn lane_of(&self, file: usize) -> usize {
        if self.area { 0 } else { file % self.lanes }
    }

    /// Is this fault planted?
    pub(crate) fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Panics when the configuration is not one that the model's arrays hold.
    pub(crate) fn validate(&self) {
        assert!((1..=LANES).contains(&self.lanes), "lanes");
        assert!(!self.area || self.lanes == 2, "a lane on the disk, and the area");
        assert!(!self.physical || self.area, "physical records lie in the area");
        assert!((1..=BLOCKS).contains(&self.blocks), "blocks");
        assert!(self.lane_slots >= 1 && self.journal_slots >= 1, "rings are not empty");
        assert!((1..=2).contains(&self.devices), "devices");
        assert!(self.pipeline >= 1 && self.queue >= 1, "a message and a transaction must fit");
        let ops: usize = self.programs.iter().map(Vec::len).sum();
        assert!(ops <= 60, "values are bytes");
    }
}
