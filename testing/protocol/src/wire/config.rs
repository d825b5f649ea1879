//! What is explored: the calls of each client's program, and what may fail.

use super::state::{CLIENTS, FILES, Id};

/// A call of a program, through its client's kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// Writes this file at an offset.
    Write(usize),
    /// Changes this file's name: a rename, a removal.
    Name(usize),
    /// A compound of a write and a change of names.
    Compound(usize),
    /// Reads this file.
    Read(usize),
    /// Makes it durable.
    Fsync(usize),
    /// Takes the lock.
    Lock,
    /// Gives it back.
    Unlock,
}

impl Call {
    /// The file that it is about.
    pub(crate) fn file(self) -> Option<usize> {
        match self {
            Self::Write(f) | Self::Name(f) | Self::Compound(f) => Some(f),
            Self::Read(f) | Self::Fsync(f) => Some(f),
            Self::Lock | Self::Unlock => None,
        }
    }

    /// Does it change a file's bytes?
    pub(crate) fn writes(self) -> bool {
        matches!(self, Self::Write(_) | Self::Compound(_))
    }

    /// Does it change a name?
    pub(crate) fn names(self) -> bool {
        matches!(self, Self::Name(_) | Self::Compound(_))
    }
}

/// How many faults of each kind a run may have, and how many together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// All kinds together.
    pub total: u8,
    /// A connection is lost.
    pub lose: u8,
    /// The server is killed.
    pub kill: u8,
    /// The server ends in order.
    pub end: u8,
    /// A client dies.
    pub dies: u8,
    /// A client that lives is away for too long.
    pub late: u8,
    /// The book is lost.
    pub book: u8,
}

/// A fault of the protocol itself, planted to see that a property notices it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutation {
    /// A call that comes a second time is carried out a second time.
    RunTwice,
    /// A write that comes a second time to the same server is carried out a second time.
    WriteTwice,
    /// A change is answered before other kernels have forgotten what was before.
    AnswerBeforeInvalidate,
    /// A change that comes a second time is answered although the first one still waits for other
    /// kernels.
    AnsweredBeforeSettled,
    /// A session without a connection is not waited for: its kernel shows what was before.
    AwayIsInvalidated,
    /// The steps of a compound become durable one after the other.
    HalfCompound,
    /// The reply of a change of names becomes durable without its effect.
    ReplyWithoutEffect,
    /// The effect becomes durable without its reply.
    EffectWithoutReply,
    /// A reply that survived is looked for by client and slot, and not by number.
    BySlotOnly,
    /// What a change was repeated as at a server that died is forgotten.
    TriedForgotten,
    /// Of what a change was repeated as, only the newest is told.
    OnlyLastTried,
    /// What is durable is told before it is written down.
    BookAfterTold,
    /// A sync of one client is not written down for others that keep changes of the file.
    NoMark,
    /// A client that has synced a file is taken for one that keeps nothing of it, whether it has
    /// the answer or not.
    SyncedIsTold,
    /// Kept changes are repeated in each client's own order only.
    OwnOrderOnly,
    /// Where servers have died one after the other, their numbers say which came first.
    OrderByNumber,
    /// Calls go on before the clients have come back.
    GraceNotAwaited,
    /// A client whose connection is lost while it comes back has come back.
    LossIsReturned,
    /// The client record is written after its session counts.
    ClientUnwritten,
    /// What was recovered is not written down before clients are answered.
    FoundUnwritten,
    /// What a recovery found is taken for the server before, whatever epoch it is of.
    AnyEpoch,
    /// The volume's epoch is durable before the book says what was found in the one before.
    EpochFirst,
    /// The book names the epoch that begins, and no longer the one that the volume may stay in.
    LastForgotten,
    /// A server without a book goes on at once.
    NoBookNoWait,
    /// A fsync after a death goes before kept changes are repeated.
    FsyncFirst,
    /// The client forgets what it keeps when it comes back.
    KeptForgotten,
    /// What cannot be repeated is dropped without a word.
    DroppedInSilence,
    /// A session ends with its connection: its lock is another one's at once.
    EndsWithConnection,
    /// A session is ended while its client keeps what is not durable.
    EndedWithKept,
    /// A client whose session was ended counts as the one that was there.
    EndedIsSame,
    /// A client that is told so acts on it only if the connection lasts by which it is told.
    HeardOnce,
    /// A client whose session was ended takes its lock again, if that is free just then.
    LateReclaim,
    /// An orderly end leaves no replies in the book.
    EndForgets,
    /// A client whose session was ended makes a write again that was not answered.
    WriteAfterTerm,
    /// An unanswered compound is made again.
    CompoundAgain,
    /// The owner of the lock is waited for, whether it lives or not.
    WaitsForTheDead,
    /// A client that is gone is waited for without a bound.
    NoGraceTime,
}

/// One configuration of the model.
#[derive(Clone, Debug)]
pub struct Config {
    /// The configuration's name in reports.
    pub name: &'static str,
    /// The calls of each client's program, in order.
    pub programs: Vec<Vec<Call>>,
    /// Does the Runtime make things durable by itself?
    pub commits: bool,
    /// Does the server make durable what clients keep?
    pub keeps: bool,
    /// May a new server's number be below those before?
    pub low: bool,
    /// What may fail.
    pub faults: Faults,
    /// A fault of the protocol itself.
    pub mutation: Option<Mutation>,
}

/// Calls of a program at most.
pub(crate) const CALLS: usize = 6;

impl Config {
    /// Nothing becomes durable unasked, and nothing fails.
    pub fn new(name: &'static str, programs: &[&[Call]]) -> Self {
        Self {
            name,
            programs: programs.iter().map(|calls| calls.to_vec()).collect(),
            commits: false,
            keeps: false,
            low: false,
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

    /// Is this fault planted?
    pub(crate) fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// The call of a client's program with this place.
    pub(crate) fn call(&self, client: usize, call: usize) -> Option<Call> {
        self.programs[client].get(call).copied()
    }

    /// The number of the change that a call makes: the next one is of a compound's second step.
    pub(crate) fn id(client: usize, call: usize) -> Id {
        u8::try_from(1 + 2 * (client * CALLS + call)).expect("few calls")
    }

    /// Panics when the configuration is not one that the model holds.
    pub(crate) fn validate(&self) {
        assert!(self.programs.len() <= CLIENTS, "clients");
        assert!(self.programs.iter().all(|calls| calls.len() <= CALLS), "calls");
        let files = self.programs.iter().flatten().filter_map(|call| call.file());
        assert!(files.into_iter().all(|file| file < FILES), "files");
    }
}
