//! What is explored: the program's calls, how it makes groups, and what may fail.

use super::state::{BLOCKS, CALLS};

/// A call of one thread. Each call has a thread of its own, so every order of calls is explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// It writes, or else it reads.
    pub writes: bool,
    /// Its first block.
    pub from: usize,
    /// Its number of blocks, one or two.
    pub len: usize,
    /// Its requests: one, or one for each of its blocks.
    pub parts: usize,
    /// The table does not have its blocks: the target refuses to carry it out.
    pub denied: bool,
}

/// A call that writes these blocks by one request.
pub const fn write(from: usize, len: usize) -> Call {
    Call { writes: true, from, len, parts: 1, denied: false }
}

/// A call that reads these blocks by one request.
pub const fn read(from: usize, len: usize) -> Call {
    Call { writes: false, from, len, parts: 1, denied: false }
}

impl Call {
    /// The same call with a request for each block.
    #[must_use]
    pub const fn split(mut self) -> Self {
        self.parts = self.len;
        self
    }

    /// The same call, of blocks that are not granted.
    #[must_use]
    pub const fn denied(mut self) -> Self {
        self.denied = true;
        self
    }

    /// Do the two calls share a block that one of them writes?
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        let apart = self.from + self.len <= other.from || other.from + other.len <= self.from;
        !apart && (self.writes || other.writes)
    }

    /// First block and number of blocks of a request.
    pub(crate) fn part(&self, part: usize) -> (usize, usize) {
        match self.parts {
            1 => (self.from, self.len),
            _ => (self.from + part, 1),
        }
    }
}

/// How the program makes groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// A write is a group of its own, and adjacent reads share one.
    Basic,
    /// A call joins the group unless it conflicts with a call in it.
    Merging,
    /// There is no order: every group begins with number 0.
    Ideal,
}

/// A request with a number that the queue's lock has not given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Forged {
    /// Its number.
    pub number: u64,
    /// What it says is the first number of its group.
    pub first: u64,
}

/// The number of times that each fault may happen in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Limits {
    /// The connections break.
    pub breaks: u8,
    /// A thread stops.
    pub stops: u8,
    /// A term passes although what is missing is on its way.
    pub early: u8,
    /// The grant is taken back.
    pub revokes: u8,
}

/// A fault of the protocol itself, planted to see that a property notices it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutation {
    /// A read joins the group of a write, as the text of the paper has it.
    ReadJoinsWriteGroup,
    /// A read joins a group that writes its blocks, and a write joins one that reads them.
    ConflictJoins,
    /// The group is decided under the lock, and the number is taken after it.
    NumbersAfterSend,
    /// The program takes numbers beyond the window.
    NoWindow,
    /// A request counts as finished when it begins.
    CountAtArrival,
    /// The target counts what is finished, and takes a number twice.
    CountNotBitmap,
    /// The target parks numbers that are beyond the window.
    NoBound,
    /// A request whose group begins behind itself is taken.
    FirstBeyondNumber,
    /// When a request is finished nobody looks at what is parked.
    ParkForever,
    /// A request that the table refuses does not count as finished.
    FailedDoesNotCount,
    /// A parked request keeps the thread that received it.
    ParkHoldsThread,
    /// A new life is answered while a request of an old one runs.
    LifeWithoutDrain,
    /// A request of an old life is carried out in the new one.
    OldLifeAccepted,
    /// The program repeats every call that was not answered, also if it was carried out.
    RepeatsFinished,
    /// The target forgets what was finished when it answers a new life.
    ForgetsAtAttach,
    /// The target does not say which life the finished numbers are of.
    OrderOfAnyLife,
    /// The target says of a request that the table refused that it was carried out.
    FailedIsDone,
    /// Calls are repeated in the order of their numbers, also if a later one is there by half.
    RepeatsInOrder,
    /// New calls take numbers before all is repeated.
    NewBeforeRepeated,
    /// Of a call that was answered in part only the rest is repeated.
    RepeatsParts,
    /// Nothing ends the life of a queue in which a number is missing.
    NoTerm,
    /// Only parked requests end it, and not calls that wait for the window.
    TermForParkedOnly,
    /// The target says that a grant is over while a request runs under it.
    RevokeWithoutDrain,
    /// It does when no block is read or written any more, before such requests count as finished.
    CountsLater,
}

/// One configuration of the model.
#[derive(Clone, Debug)]
pub struct Config {
    /// The configuration's name in reports.
    pub name: &'static str,
    /// The program's calls.
    pub calls: Vec<Call>,
    /// How it makes groups.
    pub policy: Policy,
    /// Numbers under way at once, at most.
    pub window: u64,
    /// Requests with numbers that nobody has given out, which come in the first life.
    pub forged: Vec<Forged>,
    /// Another file's queue has a request, and the target this number of threads for both.
    pub neighbour: Option<usize>,
    /// What may fail.
    pub limits: Limits,
    /// A fault of the protocol itself.
    pub mutation: Option<Mutation>,
}

impl Config {
    /// Nothing fails, and the window has room for three numbers.
    pub fn new(name: &'static str, policy: Policy, calls: &[Call]) -> Self {
        Self {
            name,
            calls: calls.to_vec(),
            policy,
            window: 3,
            forged: Vec::new(),
            neighbour: None,
            limits: Limits::default(),
            mutation: None,
        }
    }

    /// The same with this window.
    #[must_use]
    pub fn window(mut self, numbers: u64) -> Self {
        self.window = numbers;
        self
    }

    /// The same where these faults happen.
    #[must_use]
    pub fn failing(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The same with a hostile program, beside another file's queue.
    #[must_use]
    pub fn forged(mut self, numbers: &[(u64, u64)], threads: usize) -> Self {
        self.forged = numbers.iter().map(|&(number, first)| Forged { number, first }).collect();
        self.neighbour = Some(threads);
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

    /// Does the program take its numbers as it should?
    pub(crate) fn is_honest(&self) -> bool {
        self.forged.is_empty()
    }

    /// Panics when the configuration is not one that the model holds.
    pub(crate) fn validate(&self) {
        assert!(self.calls.len() <= CALLS, "calls");
        for call in &self.calls {
            assert!((1..=2).contains(&call.len), "ranges");
            assert!(call.from + call.len <= BLOCKS, "blocks");
            assert!(call.parts == 1 || call.parts == call.len, "requests");
        }
        let most = self.calls.iter().map(|call| call.parts).max().unwrap_or(0);
        assert!((1..=8).contains(&self.window) && most as u64 <= self.window, "window");
        assert!(self.neighbour.is_none_or(|threads| threads > 0), "threads");
    }
}
