//! What is explored: the program's requests, the host's script, and what may fail.

use super::state::{BLOCKS, READERS};

/// A request of the program, by the numbers of blocks: it may name any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// Writes a block.
    Write(usize),
    /// Reads one.
    Read(usize),
    /// Writes two blocks, both or none, by the redo lane: durable when it is answered.
    Atomic(usize, usize),
    /// Makes durable what was answered.
    Sync,
}

/// What the host does, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Takes a block from the program's file: it is truncated.
    Free(usize),
    /// Gives a free block to another file, whose data is durable with that.
    Give(usize),
    /// Gives a free block to the program's file, unwritten.
    Extend(usize),
    /// Reads a block of the program's file for another program.
    Look(usize),
    /// Writes a block of the program's file for another program, and makes that durable.
    Put(usize),
}

/// How many faults of each kind a run may have, and how many together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// All kinds together.
    pub total: u8,
    /// The host dies.
    pub host: u8,
    /// The target dies.
    pub target: u8,
    /// The program dies.
    pub program: u8,
    /// Power fails.
    pub power: u8,
}

/// A fault of the protocol itself, planted to see that a property notices it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutation {
    /// The target says that a lease is over while a request of it is carried out (R29).
    AckRevokeBeforeDrain,
    /// A request is checked when it comes, and not when it is carried out (R29).
    CheckAtArrival,
    /// A block is freed before the target was asked (R29).
    FreeFirst,
    /// A lease ends before what was committed of it is replayed (R29).
    FreeBeforeReplay,
    /// A lease ends before the redo lane's tail is durable behind what was replayed (R33).
    TailLater,
    /// A write goes to its block while committed redo of it waits (R33).
    RedoOverNewer,
    /// The host goes on before a target that came has replayed what was committed (R33).
    LinkBeforeReplay,
    /// Requests are taken before the redo lane is read (R33).
    IndexLater,
    /// A commit is answered before its lane is flushed (R33).
    CommitBeforeFlush,
    /// A record without its commit is replayed.
    ReplayUncommitted,
    /// A sync is answered before the area is flushed (R33).
    SyncBeforeFlush,
    /// A block that was never written is read as it is (R30).
    UnwrittenReadable,
    /// A block is written down as written before it is flushed (R30).
    WrittenBeforeFlush,
    /// The program's word that it wrote a block is taken (R30).
    ProgramIsBelieved,
    /// A grant counts on under the next host (DESIGN, "Seams").
    GrantOutlivesEpoch,
    /// Another program is served while the lease is there (R48).
    NoRecall,
    /// A dead program's lease is never ended.
    NoTerm,
    /// The file is changed while programs read it at the target (R29).
    ReadersStay,
    /// The target says that a program reads no more while a read of it is carried out (R29).
    AckReaderBeforeDrain,
}

/// One configuration of the model.
#[derive(Clone, Debug)]
pub struct Config {
    /// The configuration's name in reports.
    pub name: &'static str,
    /// The program's requests, in order.
    pub program: Vec<Call>,
    /// The host's script.
    pub host: Vec<Op>,
    /// Programs that read beside others: which block each reads, twice.
    pub readers: Vec<usize>,
    /// What may fail.
    pub faults: Faults,
    /// A fault of the protocol itself.
    pub mutation: Option<Mutation>,
}

impl Config {
    /// Nothing fails.
    pub fn new(name: &'static str, program: &[Call], host: &[Op]) -> Self {
        let (program, host) = (program.to_vec(), host.to_vec());
        let (readers, faults) = Default::default();
        Self { name, program, host, readers, faults, mutation: None }
    }

    /// The same with programs that read these blocks.
    #[must_use]
    pub fn beside(mut self, readers: &[usize]) -> Self {
        self.readers = readers.to_vec();
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
        let blocks = self.program.iter().flat_map(|call| match *call {
            Call::Write(block) | Call::Read(block) => vec![block],
            Call::Atomic(one, other) => vec![one, other],
            Call::Sync => vec![],
        });
        let blocks = blocks.chain(self.readers.iter().copied());
        assert!(blocks.into_iter().all(|block| block < BLOCKS), "blocks");
        assert!(self.readers.len() <= READERS, "readers");
        assert!(self.program.len() <= 8 && self.host.len() <= 8, "steps");
    }
}
