//! What is explored: the calls of each program, what there is at the start, what may fail.

use super::state::FILES;

/// Who makes a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    /// A thread of the program with the private log.
    Holder,
    /// A program that knows the mount alone.
    Mount,
}

/// A call of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// Asks for the lease of this file.
    Lease(usize),
    /// Writes this file, of which each write makes a newer version.
    Write(usize),
    /// Reads it.
    Read(usize),
    /// Asks for its size, which each write makes larger.
    Stat(usize),
    /// Makes it durable.
    Fsync(usize),
    /// Gives the lease back.
    Return(usize),
    /// Changes it by the kernel: a truncation, a mapping, a write that is too long for a record.
    Kernel(usize),
    /// Says that the file log is half full.
    Forget,
    /// Renames a durable file, or changes a directory's permissions.
    Order,
    /// `siftfs sync`.
    Sync,
    /// Unmounts the volume, and mounts it again.
    Unmount,
}

impl Call {
    /// The file that it is about.
    pub(crate) fn file(self) -> Option<usize> {
        match self {
            Self::Lease(f) | Self::Write(f) | Self::Read(f) => Some(f),
            Self::Stat(f) | Self::Fsync(f) | Self::Return(f) | Self::Kernel(f) => Some(f),
            Self::Forget | Self::Order | Self::Sync | Self::Unmount => None,
        }
    }

    /// Can a program of the mount make it?
    fn is_of_mount(self) -> bool {
        !matches!(self, Self::Lease(_) | Self::Return(_) | Self::Forget)
    }

    /// Can a holder make it?
    fn is_of_holder(self) -> bool {
        !matches!(self, Self::Order | Self::Sync | Self::Stat(_) | Self::Unmount)
    }
}

/// How many faults of each kind a run may have, and how many together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// All kinds together.
    pub total: u8,
    /// The program with the private log is killed.
    pub program: u8,
    /// The daemon is killed.
    pub daemon: u8,
    /// Power fails.
    pub power: u8,
    /// The program is stopped.
    pub stop: u8,
    /// The Runtime cannot write what the grantor takes in.
    pub io: u8,
    /// A batch cannot be written; it may lie there nonetheless.
    pub log: u8,
    /// The registry's row cannot be written; either row may lie there.
    pub row: u8,
}

/// A fault of the protocol itself, planted to see that a property notices it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutation {
    /// A write returns without a look at the lease after it was published.
    NoLookAfterPublish,
    /// A read from the library's own memory returns without a look at the lease.
    NoLookAfterRead,
    /// A write that a recall's ingestion did not cover counts as done.
    UncoveredIsDone,
    /// Others are shown a file's size before the record that makes it is published.
    SizeBeforeHead,
    /// While the ring is taken in others are shown the size that is there.
    SizeBesideRecall,
    /// An fsync by the log is acknowledged without a look at *order*.
    NoLookAtOrder,
    /// ... at *covered*.
    NoLookAtCovered,
    /// ... at *until*.
    NoLookAtUntil,
    /// ... at the lease's word.
    NoLookAtLease,
    /// It looks before its batch is written, and not after that is persistent.
    LookBeforeOnly,
    /// It looks at *order* and *covered* before its batch is written, and after that at *until* and
    /// the lease's word alone. That breaks nothing: an fsync need not cover what is answered while
    /// it is under way.
    OrderBeforeOnly,
    /// The batch is acknowledged before it is persistent.
    AckBeforePersist,
    /// A batch leaves out records that the daemon has taken in.
    BatchWithoutIngested,
    /// A recall reads the head before it changes the lease's word.
    HeadBeforeWord,
    /// A program's death takes in only what its file log has.
    IngestTheDurable,
    /// A reader of the mount does not recall the lease.
    DoorWithoutRecall,
    /// The lease is returned before its end is durable in the registry.
    ReturnBeforeUnlogged,
    /// The registry forgets a lease before its file is durable.
    UnlogBeforeSync,
    /// A lease's end leaves its records in the log counting.
    NeverUnlogged,
    /// The registry's *begin* moves before the files are durable.
    BeginBeforeSync,
    /// A daemon's fsync forgets the whole log, and makes only the one file durable.
    SyncOwnAlone,
    /// A daemon's fsync leaves the log as it is.
    PromiseKeepsLog,
    /// The program may write over what the registry has not forgotten durably.
    ForgotBeforeRow,
    /// A lease's first fsync is answered before the registry has the lease.
    RegisterAfterAnswer,
    /// The registry has the lease before it has forgotten what the log had of it till then.
    RegisterBeforeForget,
    /// The order that an fsync covers is read after it.
    OrderReadLate,
    /// The word is counted up after the answer.
    OrderAfterAnswer,
    /// `siftfs sync` goes on with the leases that the log counts for.
    SyncKeepsLeases,
    /// A log that is given up is emptied in its place, where its program may still write.
    EmptiedInPlace,
    /// The words still say that the log is a way when it is given up.
    GivenUpUntold,
    /// A log is given up before its files are durable.
    GivenUpBeforeSync,
    /// A log that is given up is left as it is.
    GivenUpFull,
    /// A batch that could not be written is not forgotten.
    FailedBatchStays,
    /// The host record names the registry after the first fsync that counts on it.
    NamedLate,
    /// A log's file is removed before its row.
    FileBeforeRow,
    /// The end of a lease waits for what the holder is about.
    AsksTheHolder,
    /// The library waits for the answer of a daemon that is dead.
    WaitsForTheDead,
    /// Writes and reads by the lease do not look at *until*.
    DeadWordsCount,
    /// The volume is closed while a program's session goes on.
    ClosedBesideLogs,
    /// The Runtime ends a recalled lease by its term, while the grantor takes the log in.
    TermEndsRecalls,
    /// Recovery does not wait for programs that outlive their daemon.
    NoWait,
    /// Recovery takes in records of leases that the row does not have.
    ReplayAll,
    /// Recovery reads the log from its start, and not from *begin*.
    ReplayForgotten,
    /// The host record forgets the registry before the files are durable.
    UnnamedBeforeDurable,
    /// The host record says clean and still names the registry.
    CleanWhileNamed,
    /// The logs are removed before the host record forgets the registry.
    RemovedWhileNamed,
}

/// One configuration of the model.
#[derive(Clone, Debug)]
pub struct Config {
    /// The configuration's name in reports.
    pub name: &'static str,
    /// Programs: whose each is, and its calls in order. All holders are threads of one program.
    pub programs: Vec<(Who, Vec<Call>)>,
    /// The files that are leased at the start.
    pub leased: Vec<usize>,
    /// Those of them whose lease the registry has.
    pub logged: Vec<usize>,
    /// Is there no file log at the start, so that the first fsync asks for it?
    pub unmade: bool,
    /// Does the grantor take in by age, and the Runtime make durable by age?
    pub ages: bool,
    /// What may fail.
    pub faults: Faults,
    /// A fault of the protocol itself.
    pub mutation: Option<Mutation>,
}

impl Config {
    /// Nothing is leased, nothing ages, and nothing fails.
    pub fn new(name: &'static str, programs: &[(Who, &[Call])]) -> Self {
        Self {
            name,
            programs: programs.iter().map(|(who, calls)| (*who, calls.to_vec())).collect(),
            leased: Vec::new(),
            logged: Vec::new(),
            unmade: false,
            ages: false,
            faults: Faults::default(),
            mutation: None,
        }
    }

    /// The same where the holder has leases of these files, of which the registry has `logged`.
    #[must_use]
    pub fn leasing(mut self, leased: &[usize], logged: &[usize]) -> Self {
        (self.leased, self.logged) = (leased.to_vec(), logged.to_vec());
        self
    }

    /// The same with a fault planted.
    #[must_use]
    pub fn mutated(mut self, mutation: Mutation) -> Self {
        self.mutation = Some(mutation);
        self
    }

    /// Is this fault planted?
    pub(crate) fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Whose client this is.
    pub(crate) fn who(&self, client: usize) -> Who {
        self.programs[client].0
    }

    /// Does any program ask for sizes? If not, publishing is one step.
    pub(crate) fn shows(&self) -> bool {
        let mut calls = self.programs.iter().flat_map(|(_, calls)| calls);
        calls.any(|call| matches!(call, Call::Stat(_)))
    }

    /// Panics when the configuration is not one that the model holds.
    pub(crate) fn validate(&self) {
        for (who, calls) in &self.programs {
            let may = |call: &Call| match who {
                Who::Holder => call.is_of_holder(),
                Who::Mount => call.is_of_mount(),
            };
            assert!(calls.iter().all(may), "a call that its program does not make");
            let files = || calls.iter().filter_map(|call| call.file());
            assert!(files().all(|file| file < FILES), "files");
        }
        assert!(self.logged.iter().all(|f| self.leased.contains(f)), "only leases are logged");
    }
}
