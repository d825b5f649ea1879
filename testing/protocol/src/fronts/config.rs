//! What is explored: the calls of each session, what its kernel knows at the start, what may fail.

use super::state::{Changes, EMBEDDED, SESSIONS, Thing};

/// A call of a program, through its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// Asks for the file's attributes.
    Stat,
    /// Reads this page of the file.
    Read(usize),
    /// Writes a part of this page.
    Write(usize),
    /// Writes all of this page.
    Fill(usize),
    /// Stores to this page through a mapping.
    Store(usize),
    /// Makes the file durable, and what the session's programs stored to it.
    Fsync,
    /// Writes bytes of this number to the end of the file, by O_APPEND.
    Append(u8),
    /// Looks the name up.
    Lookup,
    /// Makes a file under the name, in place of what it named.
    Create,
    /// Takes the file's name away.
    Unlink,
    /// Keeps the directory's lock for as long as its kernel lives.
    Hold,
    /// Starts a section of the file.
    Start,
    /// Commits it.
    Commit,
    /// Asks for a write lease.
    Lease,
    /// Writes a part of the first page under the lease: into memory that the daemon can read.
    Put,
    /// Gives the lease back.
    Return,
    /// Closes the file, which has no other handle.
    Close,
}

impl Call {
    /// Does it change this?
    pub(crate) fn changes(self, thing: Thing) -> bool {
        use Call::{Append, Commit, Create, Fill, Put, Store, Unlink, Write};
        match (thing, self) {
            (Thing::Page(page), Write(of) | Fill(of) | Store(of)) => of == page,
            (Thing::Page(page), Commit | Put) => page == 0,
            (Thing::Attributes, Write(_) | Fill(_) | Store(_) | Append(_)) => true,
            (Thing::Attributes, Commit | Put | Unlink) => true,
            (Thing::Name, Create | Unlink) => true,
            (Thing::Size, Append(_)) => true,
            _ => false,
        }
    }

    /// Is it a write of the file's pages, by write(2)?
    pub(crate) fn is_write(self) -> bool {
        matches!(self, Self::Write(_) | Self::Fill(_))
    }

    /// Does its request name the leased inode, so that it recalls the lease (rule R48)?
    pub(crate) fn recalls(self) -> bool {
        use Call::{Close, Create, Hold, Lease, Lookup, Return};
        !matches!(self, Lookup | Create | Hold | Lease | Return | Close)
    }
}

/// How many faults of each kind a run may have, and how many together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// All kinds together.
    pub total: u8,
    /// A session ends: its kernel, or the embedding program, dies.
    pub death: u8,
    /// A session goes silent: it lives, and does nothing of what it is asked for.
    pub silence: u8,
    /// The daemon dies, with all sessions, and another one starts.
    pub daemon: u8,
    /// The machine sleeps for longer than a term.
    pub sleep: u8,
    /// An acknowledgement comes of which no notice is open, or by another session.
    pub stray: u8,
}

/// A fault of the protocol itself, planted to see that a property notices it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutation {
    /// A change is answered before its notices are acknowledged.
    AnswerBeforeAcknowledged,
    /// What an answer tells is remembered after the state was read for it, not before.
    RememberAfterRead,
    /// An acknowledgement makes forget what was told after its notice.
    ForgetNewer,
    /// A notice that finds no inode counts as acknowledged, while the inode's first answer is on
    /// its way.
    MissingIsAcknowledged,
    /// A write waits for the other kernel's pages, also for one that the other kernel keeps locked
    /// for a write that waits itself.
    NoEarlyAnswer,
    /// After a term that kernel is aborted, too, which waits for a request of its own.
    AbortTheBlocked,
    /// A kernel is not told of its own write, although it has read the page again meanwhile.
    OwnPageUntold,
    /// A write is answered early although the other kernel reads the page.
    EarlyOverReads,
    /// A write is answered early whatever the other kernel has left of the page.
    EarlyByTime,
    /// Names are valid for ever.
    NamesWithoutValidity,
    /// A name's validity counts from the change that made it, not from the answer.
    ValidityFromChange,
    /// A change waits for a name's validity alone, and not for the time that the answer was on its
    /// way.
    NoMargin,
    /// A name's validity is counted by a clock that goes on while the machine sleeps.
    NamesByBoottime,
    /// Pages that the kernel sends by itself wait for their notices.
    KernelsPagesWait,
    /// FSYNC does not wait for what such pages owe.
    DebtsForgotten,
    /// An acknowledgement counts although its notice is not there any more.
    CountTwice,
    /// An acknowledgement counts whose notice is another session's.
    CountForeign,
    /// An acknowledgement counts whose session has ended.
    CountAfterEnd,
    /// A write lease is granted at once.
    GrantBeforeDrained,
    /// Pages that kernels send because of a drain are not taken back again.
    DrainOnce,
    /// A write lease is granted beside a section.
    LeaseBesideSection,
    /// A write lease outlives its session.
    LeaseOutlivesSession,
    /// What a dead or silent holder had published is dropped.
    PublishedIsDropped,
    /// A lease that is given back is applied, although it has ended before.
    LateReturn,
    /// The holder is told that its bytes are ingested before they are.
    ToldBeforeIngested,
    /// The holder looks at its own clock, which stands still while the machine sleeps, and not at
    /// the lease's word.
    HoldersClock,
    /// The lease's word says nothing of the daemon's death.
    WordOutlivesDaemon,
    /// The number of a removed file is given to another one while the file is leased.
    ReuseWhileLeased,
    /// An append goes where its request says.
    AppendAtOffset,
    /// An append that is moved leaves only the end that its kernel had not been told of.
    ToldEndForgotten,
}

/// One configuration of the model.
#[derive(Clone, Debug)]
pub struct Config {
    /// The configuration's name in reports.
    pub name: &'static str,
    /// Programs: their session, and their calls in order.
    pub programs: Vec<(usize, Vec<Call>)>,
    /// What each of the two kernels knows at the start.
    pub knows: Vec<(usize, Thing)>,
    /// A page of each kernel that a program has mapped.
    pub maps: Vec<(usize, usize)>,
    /// Pages of those that a kernel has dropped by itself.
    pub drops: Vec<(usize, usize)>,
    /// A kernel that has not looked the file up.
    pub stranger: Option<usize>,
    /// Whether a term passes without need, too.
    pub clock: bool,
    /// What may fail.
    pub faults: Faults,
    /// A fault of the protocol itself.
    pub mutation: Option<Mutation>,
}

impl Config {
    /// Nobody knows anything, and nothing fails.
    pub fn new(name: &'static str, programs: &[(usize, &[Call])]) -> Self {
        Self {
            name,
            programs: programs.iter().map(|(s, calls)| (*s, calls.to_vec())).collect(),
            knows: Vec::new(),
            maps: Vec::new(),
            drops: Vec::new(),
            stranger: None,
            clock: false,
            faults: Faults::default(),
            mutation: None,
        }
    }

    /// The same where kernels know this of the file or its name.
    #[must_use]
    pub fn knowing(mut self, knows: &[(usize, Thing)]) -> Self {
        self.knows = knows.to_vec();
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

    /// The session of a client.
    pub(crate) fn session_of(&self, client: usize) -> usize {
        self.programs[client].0
    }

    /// The bit of a client's change: its call of this number.
    pub(crate) fn change(&self, client: usize, call: usize) -> Changes {
        let before: usize = self.programs[..client].iter().map(|(_, calls)| calls.len()).sum();
        1 << (before + call)
    }

    /// The calls of a client that have begun before this one, and change something.
    pub(crate) fn changes_before(&self, client: usize, call: usize) -> Changes {
        (0..call).map(|call| self.change(client, call)).fold(0, |all, bit| all | bit)
    }

    /// The changes of this.
    pub(crate) fn changes_of(&self, thing: Thing) -> Changes {
        let clients = self.programs.iter().enumerate();
        let calls = clients.flat_map(|(c, (_, calls))| (0..calls.len()).map(move |n| (c, n)));
        let these = calls.filter(|(c, n)| self.programs[*c].1[*n].changes(thing));
        these.fold(0, |all, (client, call)| all | self.change(client, call))
    }

    /// Panics when the configuration is not one that the model holds.
    pub(crate) fn validate(&self) {
        let calls: usize = self.programs.iter().map(|(_, calls)| calls.len()).sum();
        assert!(calls < 16, "changes are bits, and one stands for all");
        for (session, calls) in &self.programs {
            assert!(*session < SESSIONS, "sessions");
            let leases =
                |c: &Call| matches!(c, Call::Lease | Call::Put | Call::Return | Call::Close);
            assert!(*session == EMBEDDED || !calls.iter().any(leases), "kernels hold no lease");
            let kernels = |c: &Call| matches!(c, Call::Store(_) | Call::Hold);
            assert!(*session != EMBEDDED || !calls.iter().any(kernels), "only kernels have pages");
        }
    }
}
