//! The model's state: memory that program and daemon share, what each has for itself, what is
//! durable, and what the judge remembers.

/// Files. Each has one place, and its content is the number of the write that made it.
pub const FILES: usize = 2;
/// Batches that the log has room for.
pub const LOG: u8 = 2;

/// A record of the ring, and of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// The lease's number.
    pub number: u8,
    /// The file.
    pub file: usize,
    /// The version that it makes.
    pub version: u8,
}

/// What one fsync wrote to the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Batch {
    /// Its number: a counter that never turns back.
    pub position: u8,
    /// Its records, in the ring's order.
    pub records: Vec<Record>,
}

/// The state in a lease's word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Said {
    /// No lease, or one that has ended.
    #[default]
    Ended,
    /// The holder may go on.
    Granted,
    /// The ring is taken in.
    Recalled,
}

/// What the grantor's memory says of a lease. There is a slot for each file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The lease's number; 0: never used.
    pub number: u8,
    /// Its state.
    pub said: Said,
    /// Up to which record it was taken in when it ended.
    pub ingested: u8,
    /// Up to which order its file is durable; 0: the lease is not in the row.
    pub covered: u8,
}

/// The grantor's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Words {
    /// One for each file.
    pub slots: [Slot; FILES],
    /// The count of what a later fsync must not overtake.
    pub order: u8,
    /// What was forgotten of the log.
    pub begin: u8,
    /// The present time is before *until*.
    pub vouched: bool,
}

/// The holder's memory: the ring, with all that it ever had.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ring {
    /// Records below the head.
    pub records: Vec<Record>,
    /// Records that were taken in, or passed over.
    pub tail: u8,
    /// Records that the log has, or need not have.
    pub logged: u8,
    /// The size that others are shown of each file.
    pub sizes: [u8; FILES],
}

impl Ring {
    /// How many records are published.
    pub(crate) fn head(&self) -> u8 {
        u8::try_from(self.records.len()).expect("few writes")
    }
}

/// What makes a program's files durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Medium {
    /// It has not asked for a log yet.
    #[default]
    Unknown,
    /// Its log.
    File,
    /// The daemon: its log could not be written.
    Daemon,
}

/// The program with the private log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Program {
    /// It runs.
    pub alive: bool,
    /// It is stopped, and takes no step.
    pub stopped: bool,
    /// Numbers of the leases that it has not given back; 0: none.
    pub held: [u8; FILES],
    /// What it knows of each of these files from before its own writes.
    pub base: [u8; FILES],
    /// How it makes files durable.
    pub medium: Medium,
    /// The position of the next batch.
    pub position: u8,
    /// The batch that is on its way.
    pub writing: Option<Batch>,
    /// What the daemon was told to forget, and has not begun to.
    pub forget: Option<u8>,
    /// Its descriptor is of a file that is no log any more.
    pub detached: bool,
}

/// What the Runtime says of a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Leased {
    /// The file has no lease.
    #[default]
    No,
    /// The grantor's session has it.
    Yes,
    /// Another session's request waits for its end.
    Recalled,
}

/// Something that the Runtime has, and what of it is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Kept {
    /// In memory.
    pub now: u8,
    /// Durable by the Runtime's own log.
    pub durable: u8,
}

impl Kept {
    /// Makes it durable.
    pub(crate) fn sync(&mut self) {
        self.durable = self.now;
    }
}

/// What the grantor is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Ends leases that others wait for.
    Recall,
    /// Ends the lease that its holder gives back.
    Return,
    /// Carries an fsync out.
    Promise,
    /// Forgets a part of the log.
    Forget,
    /// Takes in what is old.
    Age,
    /// Makes a log.
    Make,
    /// Grants a lease.
    Lease,
    /// Takes all in for `siftfs sync`.
    Sync,
    /// Ends the session.
    Finish,
}

/// The grantor's steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The words of leases that end say *recalled*.
    Recall,
    /// Takes in what is published.
    Ingest,
    /// The words say *ended*, and up to which record.
    Ended,
    /// The Runtime's fsync of files that the log counts for, and of the one that is asked for.
    Sync,
    /// The row is written without the leases that end.
    Unlog,
    /// The leases are returned to the Runtime.
    GiveBack,
    /// The row's *begin* moves.
    Forget,
    /// So does the word.
    BeginWord,
    /// The row has the lease.
    Register,
    /// The word *covered* is set.
    Cover,
    /// The client is answered.
    Answer,
    /// The row is made, with the log's file.
    MakeRow,
    /// The host record names the registry.
    Name,
    /// The log is handed over.
    Pass,
    /// The log is given up: the words *covered* say that it is no way.
    Uncover,
    /// The log has nothing any more.
    Empty,
    /// The row goes.
    DropRow,
    /// The log's file goes.
    DropFile,
}

/// What the grantor is doing, which nobody else of the session can do meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Job {
    /// What it is.
    pub kind: Kind,
    /// Steps that are done.
    pub done: usize,
    /// The registry could not be written, and the log is given up: how many steps of that begun.
    pub giving: usize,
    /// Files whose leases end, one bit each.
    pub ends: u8,
    /// The order when it began.
    pub order: u8,
    /// The log is to be forgotten up to here.
    pub end: u8,
    /// Who waits for it.
    pub client: Option<usize>,
    /// The file that it is about, if it is one.
    pub file: Option<usize>,
}

/// The daemon, or the one that starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Daemon {
    /// It serves the mount.
    Up,
    /// No daemon runs.
    Down,
    /// The lanes are recovered, and the next epoch has begun.
    Lanes,
    /// What counts in the log is written to the files.
    TakenIn,
    /// It is durable.
    Durable,
    /// The host record names no registry any more.
    Unnamed,
    /// It says clean.
    Clean,
}

/// The registry's row of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Row {
    /// The first batch that counts.
    pub begin: u8,
    /// The number of the lease of each file whose records count; 0: none.
    pub leases: [u8; FILES],
}

/// What survives a power cut, besides the Runtime's own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Disk {
    /// The host record names the registry.
    pub named: bool,
    /// It says clean.
    pub clean: bool,
    /// The row, if there is one.
    pub row: Option<Row>,
    /// The log's file, if there is one: a place is damaged or was never written where no batch is.
    pub log: Option<[Option<Batch>; LOG as usize]>,
}

/// Where a call is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum At {
    /// The next call has not begun.
    #[default]
    Ready,
    /// The holder has written its record, and not moved the head.
    Filled,
    /// It is published, and the size that others are shown is the one before.
    Headed,
    /// The record is published, and the holder has not looked at its word.
    Published,
    /// The word has changed: the holder waits until it says *ended*.
    Settling,
    /// The holder has read from its own memory, and not looked.
    Took,
    /// Its batch is on its way.
    Writing,
    /// It is persistent, or there was nothing to write.
    Persistent,
    /// It has asked the daemon.
    Asked,
    /// A request of the mount is on its way, or waits.
    Sent,
    /// That was carried out, and the answer is on its way.
    Applied,
    /// Its program has ended, or its session with the mount has.
    Ended,
}

/// A thread of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Client {
    /// Its present or next call.
    pub call: usize,
    /// Where that is.
    pub at: At,
    /// The version that it makes, or has read.
    pub version: u8,
    /// The lease's number that it works with.
    pub number: u8,
    /// Its record; of an fsync, how many were published when it began.
    pub record: u8,
    /// What it must see, or make durable, of each file.
    pub needs: [u8; FILES],
    /// The orders that its fsync must not overtake.
    pub orders: u8,
    /// Nobody vouched for the grantor's words when it began.
    pub late: bool,
}

/// Properties of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A call saw older bytes than it must.
    Older,
    /// A recovery did not bring back what an fsync had promised.
    Promise,
    /// A recovery brought back an fsync's bytes without what was ordered before it.
    Order,
    /// A log that counts is missing.
    Missing,
    /// A call by the lease began when nobody vouched for the lease's word any more.
    Dead,
}

/// What the judge remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ghost {
    /// The newest version of each file.
    pub newest: [u8; FILES],
    /// The newest that a call of this daemon's time has returned or seen.
    pub returned: [u8; FILES],
    /// The newest that the holder's calls have returned, also after its daemon's death.
    pub wrote: [u8; FILES],
    /// The newest that an fsync has promised.
    pub promised: [u8; FILES],
    /// The newest that the Runtime could not write.
    pub lost: [u8; FILES],
    /// Orders that were answered.
    pub ordered: u8,
    /// Orders that an fsync has promised.
    pub promised_orders: u8,
    /// Properties that a step has broken, one bit each.
    pub broken: u8,
    /// Faults so far, in the order of [`super::config::Faults`].
    pub faults: [u8; 7],
}

impl Ghost {
    /// Notes a broken property.
    pub(crate) fn note(&mut self, broken: Broken) {
        self.broken |= 1 << broken as u8;
    }

    /// Has no step broken it?
    pub(crate) fn holds(&self, broken: Broken) -> bool {
        self.broken & 1 << broken as u8 == 0
    }

    /// The next version of a file.
    pub(crate) fn draw(&mut self, file: usize) -> u8 {
        self.newest[file] += 1;
        self.newest[file]
    }
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// Files as the Runtime has them.
    pub files: [Kept; FILES],
    /// How many orders it has carried out.
    pub orders: Kept,
    /// Its leases.
    pub leases: [Leased; FILES],
    /// What could not be written, and was not told.
    pub errors: [bool; FILES],
    /// The daemon.
    pub daemon: Daemon,
    /// The session of the program with its daemon: over, when the grantor has ended it or died.
    pub over: bool,
    /// What the grantor is doing.
    pub job: Option<Job>,
    /// Numbers of the leases that the log counts for, as the grantor has it; 0: none.
    pub logged: [u8; FILES],
    /// The registry could not be written.
    pub failed: bool,
    /// Leases that it has granted.
    pub drawn: u8,
    /// Orders of which the word does not tell yet (planted fault only).
    pub late: u8,
    /// The grantor's memory.
    pub words: Words,
    /// The holder's memory.
    pub ring: Ring,
    /// The program.
    pub program: Program,
    /// What is on storage besides.
    pub disk: Disk,
    /// The threads.
    pub clients: Vec<Client>,
    /// What the judge remembers.
    pub ghost: Ghost,
}
