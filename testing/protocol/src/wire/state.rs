//! The model's state: what each client keeps, what is on its way, the server's memory, what is
//! durable, and what the judge remembers.

/// Files. Each has bytes, whose content is the number of the write that made it, and a name, with
/// all changes that were made to it.
pub const FILES: usize = 2;
/// Clients.
pub const CLIENTS: usize = 2;

/// The number of a change, from 1 on.
pub type Id = u8;
/// A set of changes.
pub type Ids = u32;

/// The set of one change.
pub(crate) fn bit(id: Id) -> Ids {
    1 << id
}

/// Numbers of what is repeated, a bit for each.
pub type Numbers = u32;

/// A change that was answered and that is not known to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kept {
    /// The change.
    pub id: Id,
    /// Its file.
    pub file: usize,
    /// The server that answered it.
    pub instance: u8,
    /// That server's order.
    pub order: u8,
    /// LSN of a change of names; 0 for a write.
    pub lsn: u8,
    /// The server at which it was repeated last without an answer, and its number there.
    pub last: Option<(u8, u8)>,
    /// Its numbers at all servers at which it was repeated without an answer.
    pub tried: Numbers,
}

/// What a client has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sent {
    /// Its program's present call.
    Call,
    /// A kept change that it repeats, the number of that, and those that it had before.
    Kept(Kept, u8, Numbers),
    /// It wants its lock again.
    Reclaim,
    /// It has come back.
    Returned,
}

/// What the server has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Told {
    /// A change is made, at this place of the order; 0: it was there. And its LSN.
    Done(u8, u8),
    /// What was read.
    Value(Id),
    /// What was asked for is so.
    Yes,
    /// It failed.
    Failed,
    /// Calls may come again: the client has said that it has come back.
    Back,
    /// Forget what is known of this file.
    Notice(usize),
    /// All up to this place of the order is durable.
    Durable(u8),
    /// The server ends, and has answered all that it had begun.
    Ended,
}

/// Where a client stands with the server that it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Back {
    /// The server that it knows.
    Same,
    /// That one has died.
    Again,
    /// Nothing is known of what the client had.
    Unknown,
    /// That one has ended in order.
    Clean,
}

/// A client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It has one.
    Up,
    /// It has none.
    Lost,
    /// It brings back what it had.
    Returning(Back),
    /// It has died.
    Dead,
}

/// A client: a mount with its kernel and one program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    /// Its connection.
    pub phase: Phase,
    /// The server that it knows.
    pub instance: u8,
    /// Its program's present or next call.
    pub call: usize,
    /// That has begun.
    pub waits: bool,
    /// By how many connections it was sent to the server that the client knows.
    pub sent: u8,
    /// A server has said, since the client was there last, that it knows nothing of it.
    pub forgotten: bool,
    /// The server had answered all when the last connection ended.
    pub had_answers: bool,
    /// What it keeps, in its own order.
    pub kept: Vec<Kept>,
    /// Numbers of repeated changes so far.
    pub repeats: u8,
    /// It has asked for its lock since it came back.
    pub reclaimed: bool,
    /// What its kernel knows of each file.
    pub cache: [Option<Id>; FILES],
    /// Files of which something is lost, and the program is to be told; one bit each.
    pub errors: u8,
    /// It believes that it has the lock.
    pub holds: bool,
    /// Changes that the present call must see, or make durable.
    pub needs: Ids,
}

/// What a new server had recovered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Found {
    /// The epoch that had died.
    pub epoch: u8,
    /// LSNs of the changes of names that are there.
    pub lsns: u32,
    /// Of each client and slot, the number of the newest change of names that is there; 0: none.
    pub replies: [[u8; 2]; CLIENTS],
}

/// One server's part of the book.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Part {
    /// The server.
    pub instance: u8,
    /// Its epoch.
    pub epoch: u8,
    /// Its clients, one bit each.
    pub clients: u8,
    /// All up to here in its order is durable.
    pub durable: u8,
    /// Of each file, all up to here is durable.
    pub marks: [u8; FILES],
    /// What was recovered after its death.
    pub found: Option<Found>,
    /// Then the volume is in one of these epochs, in which nothing but recoveries has worked; 0:
    /// none.
    pub follows: [u8; 2],
    /// It ended in order.
    pub ended: bool,
}

/// A change of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NameOp {
    /// The change.
    pub id: Id,
    /// Its LSN.
    pub lsn: u8,
}

/// The newest change of names of a slot, as the Runtime notes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Note {
    /// The change's number in the slot; 0 for a slot without a change of names.
    pub number: u8,
    /// The file.
    pub file: usize,
}

/// Files, with the changes that made them what they are, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Files {
    /// Writes of each.
    pub data: [Vec<Id>; FILES],
    /// Changes of each one's name.
    pub names: [Vec<NameOp>; FILES],
    /// Notes: of each client, of its program's slot and of the one of repeated changes.
    pub notes: [[Note; 2]; CLIENTS],
}

/// What survives the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Disk {
    /// The volume.
    pub files: Files,
    /// Its epoch.
    pub epoch: u8,
    /// The book.
    pub book: Vec<Part>,
}

/// A call that came before, by its number, and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reply {
    /// The number.
    pub number: u8,
    /// The answer.
    pub told: Told,
}

/// A client that comes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Progress {
    /// The kept change that it would repeat next: its server and its order.
    pub at: Option<(u8, u8)>,
    /// It has repeated all.
    pub repeated: bool,
}

/// What the server knows of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Session {
    /// It has a connection.
    pub here: bool,
    /// It comes back.
    pub returning: Option<Progress>,
    /// Replies: of its program's slot, and of the one of repeated changes.
    pub replies: [Option<Reply>; 2],
    /// Files of which its kernel knows something, one bit each.
    pub knows: u8,
    /// The newest change of each file that it keeps.
    pub keeps: [u8; FILES],
    /// The newest that it may keep, because it may not have the answer of its sync.
    pub synced: [u8; FILES],
}

/// A call that was carried out, and not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Job {
    /// The answer.
    pub told: Told,
    /// Clients whose kernels have to forget something before, one bit each.
    pub waits: u8,
    /// The file.
    pub file: usize,
    /// A fsync: the newest change before it began.
    pub sync: Option<u8>,
    /// It is durable when it is answered; how many of its steps are.
    pub durably: Option<u8>,
    /// Its connection is lost: nobody is answered.
    pub over: bool,
}

/// The server's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Up {
    /// It serves.
    Serving,
    /// It has ended in order, and said so.
    Ended,
    /// No process of the server exists.
    Down,
    /// The book says what there is to be recovered, and which epoch begins.
    Noted,
    /// The volume is recovered, in that epoch.
    Recovered,
}

/// The server's memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    /// Its process.
    pub up: Up,
    /// Its number.
    pub instance: u8,
    /// The order.
    pub order: u8,
    /// Everybody goes on.
    pub open: bool,
    /// Clients that are expected, one bit each.
    pub expected: u8,
    /// Those that it knows.
    pub sessions: [Option<Session>; CLIENTS],
    /// Who has the lock.
    pub lock: Option<usize>,
    /// What is under way.
    pub jobs: [Option<Job>; CLIENTS],
    /// The epoch that it begins.
    pub next: u8,
    /// What was recovered, where that is not in the book by then.
    pub found: Option<Found>,
    /// All that clients were told to be durable.
    pub durable: u8,
    /// Of each file, what a sync made durable of changes that others keep.
    pub marks: [u8; FILES],
    /// It has begun without a book: it knows nobody.
    pub knows_nobody: bool,
}

/// Properties of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A change was carried out twice.
    Twice,
    /// A fsync was answered that does not cover what was answered before.
    Promise,
    /// A fsync was answered although something of its file was lost.
    Silence,
    /// A kernel has shown what is older than an answered change.
    Stale,
    /// Two clients had the lock.
    Lock,
    /// A server had a book that did not fit the volume.
    Forgotten,
}

/// What the judge remembers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ghost {
    /// Changes that programs were told to be made.
    pub answered: Ids,
    /// Those that may be gone: their client died, was struck out, or nobody can know.
    pub lost: Ids,
    /// Those of which their program was not told.
    pub untold: Ids,
    /// Changes that the present server has carried out.
    pub ran: Ids,
    /// Writes of each file, in the order in which they were made.
    pub writes: [Vec<Id>; FILES],
    /// The same of changes of names.
    pub renames: [Vec<Id>; FILES],
    /// Clients whose lock was another one's since, one bit each.
    pub passed: u8,
    /// Epochs so far, of which some never began: none comes twice.
    pub epochs: u8,
    /// Properties that a step has broken, one bit each.
    pub broken: u8,
    /// Faults so far, in the order of [`super::config::Faults`].
    pub faults: [u8; 6],
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
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Snapshot {
    /// The volume in the server's memory.
    pub files: Files,
    /// The newest LSN.
    pub lsn: u8,
    /// The server.
    pub server: Server,
    /// What survives it.
    pub disk: Disk,
    /// What clients have sent.
    pub to: [Option<Sent>; CLIENTS],
    /// What they were sent.
    pub from: [Vec<Told>; CLIENTS],
    /// The clients.
    pub clients: Vec<Client>,
    /// What the judge remembers.
    pub ghost: Ghost,
}
