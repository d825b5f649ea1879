//! What a state of the model has: the storage, three processes, and what the judge remembers.

use super::readers::Reading;

/// Blocks of the volume. The program's file has the first two; the last one is free, and has what a
/// file that is gone had there.
pub const BLOCKS: usize = 3;

/// Programs that read beside others, at most.
pub const READERS: usize = 2;

/// What a block holds, told apart by what wrote it.
pub type Id = u8;

/// Nothing but zeros.
pub const ZEROS: Id = 0;
/// What the free block had of a file that is gone.
pub const OLD: Id = 3;
/// What the program's first request writes; the next one's is one more.
const BY_PROGRAM: Id = 10;
/// What the host's first step writes.
const BY_HOST: Id = 30;

/// A set of them, a bit each.
pub type Ids = u64;

/// The set of one.
pub(crate) fn bit(id: Id) -> Ids {
    1 << id
}

/// What this request of the program writes.
pub(crate) fn by_program(call: usize) -> Id {
    BY_PROGRAM + u8::try_from(call).expect("few requests")
}

/// What this step of the host writes.
pub(crate) fn by_host(op: usize) -> Id {
    BY_HOST + u8::try_from(op).expect("few steps")
}

/// A block of the area.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stored {
    /// What a power cut leaves.
    pub durable: Id,
    /// Later writes that were not flushed.
    pub later: Vec<Id>,
}

impl Stored {
    /// What is read.
    pub(crate) fn now(&self) -> Id {
        self.later.last().copied().unwrap_or(self.durable)
    }

    /// All that was written is durable.
    pub(crate) fn flush(&mut self) {
        self.durable = self.now();
        self.later.clear();
    }
}

/// Whose a block is, as the host has it, durably.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// Nobody's.
    Free,
    /// The program's file's.
    File {
        /// It was written since.
        written: bool,
    },
    /// Another file's.
    Other,
}

/// How far something of a record was made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Flushed {
    /// Nothing.
    No,
    /// Its data.
    Data,
    /// Its commit, too.
    Commit,
}

/// An atomic write in the redo lane.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// What it writes.
    pub id: Id,
    /// Where.
    pub blocks: [usize; 2],
    /// It was committed.
    pub committed: bool,
    /// What is durable of it.
    pub flushed: Flushed,
}

/// What outlives every process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Disk {
    /// The area.
    pub blocks: [Stored; BLOCKS],
    /// The host's metadata: each change of it is one durable step.
    pub owner: [Owner; BLOCKS],
    /// The redo lane from its durable tail on.
    pub lane: Vec<Record>,
}

/// A request at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Which of the program's.
    pub call: usize,
    /// It was allowed when it came.
    pub allowed: bool,
}

/// The program's queue at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Queue {
    /// None is there.
    Gone,
    /// Requests are taken from it.
    Open,
    /// It is to end: nothing is begun any more.
    Closing,
}

/// A sync that is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Syncing {
    /// Its request.
    pub call: usize,
    /// The area was flushed for it.
    pub flushed: bool,
}

/// The target's memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// It runs.
    pub up: bool,
    /// The host's epoch that it serves.
    pub epoch: u8,
    /// It knows what the redo lane had when it came.
    pub index: bool,
    /// The permission table: whether the program may use each block, and whether that is written.
    pub table: [Option<bool>; BLOCKS],
    /// The queue.
    pub queue: Queue,
    /// A request that came.
    pub waiting: Option<Request>,
    /// One that is carried out.
    pub running: Option<Request>,
    /// A commit that waits for its lane's flush.
    pub committing: Option<usize>,
    /// A sync.
    pub syncing: Option<Syncing>,
    /// Records of the lane that went to their blocks, and those of which the blocks were flushed.
    pub replayed: [usize; 2],
    /// Blocks that were written as the first of their lease, and not told to the host, a bit each;
    /// and those of them that were flushed.
    pub wrote: [u8; 2],
    /// What the host has said.
    pub hears: Option<Heard>,
    /// Blocks that are to be written down as written, a bit each.
    pub reports: u8,
    /// Programs that read beside others.
    pub readers: [Option<Reading>; READERS],
}

/// What the host says to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Heard {
    /// The program may use these blocks; whether each is written.
    Grant([Option<bool>; BLOCKS]),
    /// The lease is to end, and this is the epoch.
    End(u8),
    /// This program may read these blocks, a bit each.
    Reader(usize, u8),
    /// It may not any more.
    EndReader(usize),
}

/// The program's lease, as the host has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lease {
    /// It has none.
    None,
    /// The target was told of it.
    Asked,
    /// It has one.
    Held,
    /// The target was told to end it.
    Ending,
}

/// The host's memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host {
    /// It runs.
    pub up: bool,
    /// Its epoch.
    pub epoch: u8,
    /// The program's lease.
    pub lease: Lease,
    /// A step of the script waits for the lease's end: no lease is given before it is done.
    pub busy: bool,
    /// The next step of the script.
    pub op: usize,
    /// What programs have that read beside others.
    pub readers: [Lease; READERS],
}

/// The program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Program {
    /// It runs.
    pub up: bool,
    /// Its next or present request.
    pub call: usize,
    /// That was submitted.
    pub waits: bool,
    /// It has a queue, as far as it knows.
    pub queue: bool,
}

/// Properties of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The program has read what is another file's.
    Secret,
    /// A read has shown what is older than an answered write, or was never written.
    Stale,
}

/// What the judge remembers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ghost {
    /// What a read of each block of the file may show.
    pub visible: [Ids; BLOCKS],
    /// What may be there after a power cut.
    pub allowed: [Ids; BLOCKS],
    /// What the other file has written to its block.
    pub other: [Id; BLOCKS],
    /// Blocks that were taken from the file, a bit each.
    pub taken: u8,
    /// Properties that a step broke, a bit each.
    pub broken: u8,
    /// How many of each fault happened: host, target, program, power.
    pub faults: [u8; 4],
}

impl Ghost {
    /// A step broke this.
    pub(crate) fn note(&mut self, broken: Broken) {
        self.broken |= 1 << broken as u8;
    }

    /// Did none break it?
    pub(crate) fn holds(&self, broken: Broken) -> bool {
        self.broken & 1 << broken as u8 == 0
    }
}

/// A state: the storage, and the three processes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plane {
    /// The storage.
    pub disk: Disk,
    /// The target.
    pub target: Target,
    /// The host.
    pub host: Host,
    /// The program.
    pub program: Program,
    /// How often each of those that read beside others wants to read.
    pub reads: [u8; READERS],
    /// For the judge.
    pub ghost: Ghost,
}

/// A target that has just come.
pub(crate) fn empty() -> Target {
    Target {
        up: false,
        epoch: 0,
        index: true,
        table: [None; BLOCKS],
        queue: Queue::Gone,
        waiting: None,
        running: None,
        committing: None,
        syncing: None,
        replayed: [0; 2],
        wrote: [0; 2],
        hears: None,
        reports: 0,
        readers: [None; READERS],
    }
}

impl Plane {
    /// All processes run, the file has two blocks, and this number of programs reads beside others.
    pub fn first(readers: usize) -> Self {
        let block = |id: Id| Stored { durable: id, later: Vec::new() };
        let file = Owner::File { written: true };
        let disk = Disk {
            blocks: [block(1), block(2), block(OLD)],
            owner: [file, file, Owner::Free],
            lane: Vec::new(),
        };
        let ids = [bit(1), bit(2), 0];
        Self {
            disk,
            target: Target { up: true, epoch: 1, ..empty() },
            host: Host {
                up: true,
                epoch: 1,
                lease: Lease::None,
                busy: false,
                op: 0,
                readers: [Lease::None; READERS],
            },
            program: Program { up: true, call: 0, waits: false, queue: false },
            reads: std::array::from_fn(|reader| if reader < readers { 2 } else { 0 }),
            ghost: Ghost { visible: ids, allowed: ids, ..Ghost::default() },
        }
    }

    /// Is this of the program's file, or of no file?
    pub(crate) fn is_foreign(&self, id: Id) -> bool {
        id == OLD || (id != ZEROS && self.ghost.other.contains(&id))
    }
}
