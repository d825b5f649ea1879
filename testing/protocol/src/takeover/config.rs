//! What is explored: the servers, what clients ask of them, and what may fail.

use super::state::SERVERS;

/// How many faults of each kind a run may have, and how many together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// All kinds together.
    pub total: u8,
    /// The cluster ends the watch of a server that lives.
    pub watch: u8,
    /// A server dies.
    pub dies: u8,
    /// An operator has a server take over.
    pub operator: u8,
    /// Somebody breaks the lock by hand.
    pub by_hand: u8,
    /// A server ends in order.
    pub ends: u8,
}

/// A fault of the protocol itself, planted to see that a property notices it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutation {
    /// The successor breaks the lock and reads, and puts the old owner on the block list then.
    RecoverBeforeFence,
    /// It reads before it has the newest map.
    ReadByAnOldMap,
    /// It breaks the lock before the old owner is on the block list.
    BreakBeforeEntry,
    /// It takes an entry of a short term for one that stays.
    TrustShortTerm,
    /// It takes a short entry away and makes a long one.
    ExtendByRemoving,
    /// It leaves the owner whose watch is gone to librbd, which makes a short entry.
    LeaveItToLibrbd,
    /// It writes its name down once it has the lock.
    NameAfterLock,
    /// A server that ends takes its name away while writes of it are under way.
    ClearNameEarly,
    /// A server takes over because it does not hear of the owner itself.
    TrustOwnView,
    /// A server answers from its memory, without a look whether it is still the one.
    AnswerFromMemory,
    /// It looks at the object that has the lock, and not at one that its successor has read.
    LookAtTheLock,
    /// An fsync is answered when its record is sent.
    AckAtSend,
    /// A refusal is taken for an answer.
    RefusedIsDone,
    /// A server that waits does so until the lock is free.
    NeverBreak,
}

/// One configuration of the model.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The configuration's name in reports.
    pub name: &'static str,
    /// How many servers the volume has. The first one has it when a run begins.
    pub servers: usize,
    /// What clients make durable: values from one to this.
    pub fsyncs: u8,
    /// How often clients read.
    pub reads: u8,
    /// Servers write their names down beside the volume.
    pub names: bool,
    /// What may fail.
    pub faults: Faults,
    /// A fault of the protocol itself.
    pub mutation: Option<Mutation>,
}

impl Config {
    /// Nothing fails, and nobody reads.
    pub fn new(name: &'static str, servers: usize, fsyncs: u8) -> Self {
        let faults = Faults::default();
        Self { name, servers, fsyncs, reads: 0, names: true, faults, mutation: None }
    }

    /// The same where clients read.
    #[must_use]
    pub fn reading(mut self, reads: u8) -> Self {
        self.reads = reads;
        self
    }

    /// The same where no server writes its name down.
    #[must_use]
    pub fn nameless(mut self) -> Self {
        self.names = false;
        self
    }

    /// The same where this may fail.
    #[must_use]
    pub fn failing(mut self, faults: Faults) -> Self {
        self.faults = faults;
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

    /// Panics when the configuration is not one that the model holds.
    pub(crate) fn validate(&self) {
        assert!((2..=SERVERS).contains(&self.servers), "servers");
        assert!(self.fsyncs <= 4 && self.reads <= 2, "calls");
        assert!(
            self.names || self.faults.by_hand == 0,
            "a lock is broken by hand: names are needed"
        );
    }
}
