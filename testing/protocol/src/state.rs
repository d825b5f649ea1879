//! The model's state: storage, the processes that may run a Service, the host, and what the judge
//! remembers.

use crate::storage::Storage;

/// Files.
pub const FILES: usize = 2;
/// Most lanes.
pub const LANES: usize = 2;
/// Most data blocks.
pub const BLOCKS: usize = 3;
/// No block.
pub const NONE: u8 = u8::MAX;
/// Runs that one transaction may send straight to the area.
pub const DIRECT: usize = 2;
/// The host's place among the processes that may run a Service; devices come after it.
pub const LOCAL: usize = 0;
/// The record area's place among the lanes, where there is one.
pub const AREA: usize = 1;
/// Stands for the stalled host's own Service as the holder of the Service's lock.
pub const STALLED: u8 = 0x80;

/// What a data block holds: the operation that wrote it, and for which file; 0 for nothing.
pub type Value = u8;

/// The value that operation `op` gives to `file`.
pub fn value(file: usize, op: u8) -> Value {
    op * 2 + u8::from(file == 1)
}

/// A file in metadata: the operation that made it what it is, and its block. Operations are
/// numbered volume-wide, so that each state of each file is told from every other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Inode {
    /// Operation; 0 before the first.
    pub op: u8,
    /// Has it a name?
    pub live: bool,
    /// The file's block; [`NONE`] if it has none.
    pub block: u8,
}

impl Inode {
    /// A file that never was.
    pub const NEVER: Self = Self { op: 0, live: false, block: NONE };
}

/// The metadata of both files: one block of images, written whole.
pub type Image = [Inode; FILES];

/// A staged transaction: one file's whole state, logically.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Key that it was written under.
    pub key: u8,
    /// Mount that wrote it; for the judge alone.
    pub mount: u8,
    /// The record's lane.
    pub lane: u8,
    /// Position in its lane.
    pub pos: u8,
    /// The record's number.
    pub lsn: u8,
    /// Number of the newest record before it in the lanes of the disk (rule R24). Nothing that
    /// holds asks for it in the record area, whose chain is that of its positions.
    pub prev: u8,
    /// Number of the newest record before it in the record area (rule R44).
    pub prev_area: u8,
    /// Numbers of what must be there if the record is: the file's newest record before it, and
    /// the newest ordered one; for the judge alone.
    pub needs: [u8; 2],
    /// Which file.
    pub file: u8,
    /// Operation whose result it carries.
    pub op: u8,
    /// Has the file a name?
    pub live: bool,
    /// The block that it overwrites, of a physical record; else [`NONE`].
    pub home: u8,
}

/// A copy tag: a staged record's data becomes a block of the area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Copy {
    /// Lane of the record.
    pub lane: u8,
    /// Position of the record; [`NONE`] if it was not fixed yet.
    pub pos: u8,
    /// The record's number.
    pub lsn: u8,
    /// The data that the copy carries.
    pub value: Value,
    /// The area block that the copy goes to.
    pub dst: u8,
}

/// A background journal transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Txn {
    /// Key that it was written under; 0 before it is written.
    pub key: u8,
    /// Mount that cut it; for the judge alone.
    pub mount: u8,
    /// Sequence number.
    pub seq: u8,
    /// Cut: the newest number contained.
    pub cut: u8,
    /// Per lane, up to where records are contained.
    pub upto: [u8; LANES],
    /// Where the one before ends in the record area: the physical records from there up to `upto`
    /// are part of this one, and under all else in it (rule R42).
    pub from: u8,
    /// Copies, at most one per file.
    pub copies: [Option<Copy>; FILES],
    /// Metadata after the cut.
    pub image: Image,
    /// Blocks freed, one bit each.
    pub drops: u8,
    /// Runs sent ahead, straight to the area: block and value.
    pub direct: [Option<(u8, Value)>; DIRECT],
}

/// The Service's header record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServiceRecord {
    /// Newest checkpointed transaction.
    pub seq: u8,
    /// The cut of that transaction.
    pub cut: u8,
    /// Tails of the lanes.
    pub tails: [u8; LANES],
    /// The metadata of that transaction; for the judge alone.
    pub image: Image,
}

/// What a host record says of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostState {
    /// The area is everything.
    Clean,
    /// Lanes and journal are in use.
    Mounted,
    /// A recovery writes to the journal; the lanes are as they were found.
    Recovering,
}

/// The host's header record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HostRecord {
    /// What the record says of the volume.
    pub state: HostState,
    /// Key of the journal's records: the present epoch.
    pub key: u8,
    /// Key of the lanes' records.
    pub lane_key: u8,
    /// Ends of the lanes found by a recovery; [`NONE`] for lanes being written.
    pub ends: [u8; LANES],
}

/// Host to Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ToService {
    /// First message of a connection: the host's epoch.
    Hello {
        /// The key of the epoch.
        key: u8,
    },
    /// Data that goes straight to a new block.
    Direct {
        /// Transaction that will list it.
        seq: u8,
        /// Block.
        block: u8,
        /// What to write.
        value: Value,
    },
    /// Journal this transaction.
    Submit(Txn),
    /// Checkpoint what is journaled.
    Checkpoint {
        /// A foreground caller waits.
        emergency: bool,
    },
    /// Give this block back to the storage.
    Discard {
        /// Block.
        block: u8,
    },
    /// The host unmounts.
    Goodbye,
}

/// Service to host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FromService {
    /// Answer to `Hello`.
    Welcome {
        /// Newest durable transaction.
        journaled: u8,
    },
    /// The transaction is durable.
    Journaled {
        /// Which.
        seq: u8,
    },
    /// Everything up to `seq` is in the area, and the tails are durable.
    Reclaimed {
        /// Newest checkpointed transaction.
        seq: u8,
        /// Tails of the lanes.
        tails: [u8; LANES],
    },
    /// A checkpoint that was asked for is done.
    Done {
        /// Which kind.
        emergency: bool,
    },
    /// The discard of this block has ended.
    Discarded {
        /// Block.
        block: u8,
    },
    /// Answer to `Goodbye`: the lock is free.
    Bye,
    /// A flush failed; the Service has stopped, and its lock is free.
    Failed,
}

/// What a Service does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Task {
    /// Waits for a message.
    Idle,
    /// Has the lock and has not read the volume yet.
    Open,
    /// Journals.
    Journal {
        /// What.
        txn: Txn,
        /// How far it is.
        step: Journaling,
    },
    /// Replays a batch that ends with `upto`.
    Replay {
        /// Last transaction of the batch.
        upto: u8,
        /// How far it is.
        step: Replaying,
    },
}

/// Steps of journaling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Journaling {
    /// The area is to be flushed: direct data.
    AreaFlush,
    /// The record is to be written.
    Write,
    /// The record is to be flushed.
    Flush,
}

/// Steps of a checkpoint (rule R11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Replaying {
    /// This many writes of the replay are done.
    Writes(u8),
    /// The tail record is to be written.
    Tail,
    /// The tail record is to be flushed.
    TailFlush,
}

/// An open Service: a process that has one may write journal, area and the service record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Service {
    /// Key of the journal.
    pub key: u8,
    /// Key of the lanes.
    pub lane_key: u8,
    /// Newest checkpointed transaction.
    pub tail: u8,
    /// Newest journaled transaction.
    pub head: u8,
    /// What was sent ahead of the next transaction.
    pub direct: Vec<(u8, Value)>,
    /// What the Service does.
    pub task: Task,
    /// Blocks to be discarded, in the order in which that was asked for.
    pub discards: Vec<u8>,
    /// Checkpoints asked for: up to which transaction; background, emergency. 0 for none.
    pub asked: [u8; 2],
    /// Replays everything, and then lets go: the host has gone, or this is a recovery.
    pub finishing: bool,
}

/// A process that may run a Service.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Process {
    /// Does its connection still lead to the host?
    pub connected: bool,
    /// Messages that it has not processed.
    pub inbox: Vec<ToService>,
    /// Messages that the host has not processed.
    pub outbox: Vec<FromService>,
    /// The Service, while it is open.
    pub service: Option<Service>,
}

/// A record that the host knows, until its space comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Published {
    /// The record; its position is [`NONE`] until it is fixed.
    pub record: Record,
    /// Lane.
    pub lane: u8,
    /// The record's write has returned.
    pub written: bool,
    /// A flush covers it.
    pub durable: bool,
    /// Reads may still be served from it.
    pub indexed: bool,
}

/// Where a file's newest state that a cut may take lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// In an earlier transaction, or it is a removal: metadata says it all.
    Metadata,
    /// In a staged record.
    Record {
        /// Lane.
        lane: u8,
        /// The record's number.
        lsn: u8,
    },
    /// In a physical record: no copy is needed.
    Physical,
    /// Sent straight to its block.
    Direct,
}

/// A file in the host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct File {
    /// Newest operation.
    pub op: u8,
    /// Has it a name?
    pub live: bool,
    /// Block that the running transaction maps; [`NONE`] if none.
    pub home: u8,
    /// The block as the newest cut has it.
    pub cut_home: u8,
    /// What a cut would take.
    pub ready: Inode,
    /// Where the state that a cut would take lies.
    pub source: Source,
    /// Newest operation known journaled.
    pub journaled: u8,
    /// The operation that gave the file its name, or took it.
    pub named: u8,
    /// Number of the newest record.
    pub newest: u8,
    /// Operation of that record.
    pub staged: u8,
}

/// A block in the host's allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Block {
    /// May be allocated.
    Free,
    /// Belongs to a file.
    Used,
    /// Freed by the running transaction.
    Freed,
    /// Freed by this transaction, which is not reclaimed.
    Quarantined(u8),
    /// Reclaimed, and to be discarded.
    Waiting,
    /// The Service was asked to discard it.
    Asked,
}

/// A client's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    /// Next step of its program.
    pub pc: u8,
    /// Number of the record that its fsync waits for; 0 if it does not wait.
    pub waits: u8,
    /// Operation whose durability it waits for.
    pub op: u8,
    /// The host at which it waits.
    pub at: u8,
}

/// What the host is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Not running.
    Down,
    /// Recovering.
    Recover(Recovering),
    /// Mounted.
    Running,
    /// `Goodbye` is sent.
    Leaving,
    /// The device let go; the record *clean* is to be written.
    CleanWrite,
    /// ... and flushed.
    CleanFlush,
    /// The volume is clean.
    Unmounted,
    /// A flush failed: nothing is promised any more, and the process is about to end.
    Latched,
}

/// Steps of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recovering {
    /// The local Service opens and replays what is committed.
    Replaying,
    /// The record *recovering* is written; to be flushed.
    EpochFlush,
    /// What was staged is journaled and replayed.
    Applying,
    /// The tails that empty the lanes are written; to be flushed.
    TailFlush,
    /// The record *mounted* is to be written.
    Mount,
    /// ... and flushed.
    MountFlush,
}

/// The host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host {
    /// What the host does.
    pub phase: Phase,
    /// Key of its epoch.
    pub key: u8,
    /// Newest number drawn.
    pub lsn: u8,
    /// Number of the newest record of the disk, and of the record area.
    pub last_record: [u8; 2],
    /// Number of the newest record, in either, that carries a name given or taken: its place in
    /// the order counts for more than its file.
    pub last_ordered: u8,
    /// Files.
    pub files: [File; FILES],
    /// Records whose space has not come back, oldest first.
    pub records: Vec<Published>,
    /// Next position, per lane.
    pub heads: [u8; LANES],
    /// Oldest position still needed, per lane.
    pub tails: [u8; LANES],
    /// Heads at the last cut.
    pub cut_heads: [u8; LANES],
    /// The allocator.
    pub blocks: [Block; BLOCKS],
    /// Per file, the transaction that removes it, if a record that recovery would give a block to
    /// is older: so long the block that it would take is nobody else's (rule R5). 0 if there is
    /// none.
    pub held: [u8; FILES],
    /// Direct data of the running transaction.
    pub pushed: Vec<(u8, Value)>,
    /// A name operation is in no transaction yet.
    pub names_pending: bool,
    /// Newest transaction cut.
    pub seq: u8,
    /// Cut and not known journaled.
    pub kept: Vec<Txn>,
    /// Newest known journaled.
    pub journaled: u8,
    /// Newest known reclaimed.
    pub reclaimed: u8,
    /// Process at the other end of the link.
    pub link: Option<u8>,
    /// `Welcome` was received.
    pub greeted: bool,
    /// Of what is kept, in order, this many messages are sent on this connection.
    pub sent: u8,
    /// Checkpoints asked for and not done: background, emergency.
    pub asked: [bool; 2],
    /// Tails that recovery found; for one mutation.
    pub found_tails: [u8; LANES],
}

/// What the judge remembers; no process sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ghost {
    /// Newest operation, volume-wide.
    pub op: u8,
    /// Mounts so far.
    pub mount: u8,
    /// Per file, the newest operation that a client or a host was told is durable.
    pub floor: [u8; FILES],
    /// Newest number acknowledged to an fsync in this mount, with all before it.
    pub acked: u8,
    /// Newest number acknowledged with those before it in the record area alone.
    pub acked_alone: u8,
    /// What the recovery under way owes, in the judge's own reckoning.
    pub owed: Option<[(u8, bool); FILES]>,
    /// Per block, the transaction whose direct data was written there last.
    pub direct: [u8; BLOCKS],
    /// Properties of steps, not of states, that were broken: see [`crate::judge`].
    pub broken: u16,
    /// Faults so far: host, device, link, power, flush.
    pub faults: [u8; 5],
    /// Times that the host took the Service role over.
    pub fallbacks: u8,
    /// Times that a host stalled.
    pub stalls: u8,
    /// Processes and hosts with a flush that failed that have not begun anew: processes, then
    /// hosts, one bit each.
    pub failed: u8,
}

/// A host whose turn does not come, and the Service in its process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stalled {
    /// The host.
    pub host: Host,
    /// The stalled host's own process, as one that may run a Service.
    pub local: Process,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// Storage, with what is not flushed.
    pub storage: Storage,
    /// The process that holds the Service's lock.
    pub lock: Option<u8>,
    /// Which of the hosts holds the host's lock.
    pub host_lock: Option<u8>,
    /// The host itself (as a Service), then the devices.
    pub processes: Vec<Process>,
    /// The host whose turn it is.
    pub host: Host,
    /// Which one that is.
    pub turn: u8,
    /// The other one, where two hosts want the volume.
    pub stalled: Option<Box<Stalled>>,
    /// Clients; their programs are in the configuration.
    pub clients: Vec<Client>,
    /// Next fresh key.
    pub next_key: u8,
    /// The judge's memory.
    pub ghost: Ghost,
}
