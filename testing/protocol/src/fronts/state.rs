//! The model's state: what the Runtime has, what the kernels have, messages, and what the judge
//! remembers.

/// Sessions: two kernels, and one that embeds.
pub const SESSIONS: usize = 3;
/// Kernels; they come first.
pub const KERNELS: usize = 2;
/// The embedded session.
pub const EMBEDDED: usize = 2;
/// Pages of the file.
pub const PAGES: usize = 2;

/// A set of changes, one bit for each call of a program. Something that is read is described by the
/// changes that it reflects: whether it is older than a call is a question of sets.
pub type Changes = u16;
/// A page that was written as a whole before the request of that has arrived: whatever the request
/// meets there is overwritten.
pub const ALL: Changes = Changes::MAX;

/// What a kernel may know, and a notice may take back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Thing {
    /// The file's attributes.
    Attributes,
    /// A page of the file.
    Page(usize),
    /// The name, or that it is free.
    Name,
    /// The file's size. Every kernel that has looked the file up believes in one.
    Size,
}

/// What a kernel may know, without the size.
pub const THINGS: [Thing; 4] = [Thing::Attributes, Thing::Page(0), Thing::Page(1), Thing::Name];

impl Thing {
    /// Its place in tables.
    pub(crate) fn place(self) -> usize {
        match self {
            Self::Attributes => 0,
            Self::Page(page) => 1 + page,
            Self::Name => 1 + PAGES,
            Self::Size => unreachable!("not remembered as known"),
        }
    }

    /// Is it of the file, and not of its directory?
    pub(crate) fn is_of_file(self) -> bool {
        self != Self::Name
    }
}

/// File and name, as the Runtime has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Truth {
    /// Changes that each of [`THINGS`] reflects.
    pub things: [Changes; 2 + PAGES],
    /// The file's end.
    pub end: u8,
    /// The file has its name.
    pub linked: bool,
}

impl Truth {
    /// The changes that this reflects.
    pub(crate) fn of(&self, thing: Thing) -> Changes {
        self.things[thing.place()]
    }

    /// Reflects a change.
    pub(crate) fn add(&mut self, thing: Thing, change: Changes) {
        self.things[thing.place()] |= change;
    }
}

/// What the Runtime remembers of what it told a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Known {
    /// Nothing that is valid.
    #[default]
    Nothing,
    /// Something.
    Told,
    /// Something of before a change; the notice of that is not acknowledged.
    TakenBack,
}

/// Who waits for a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum For {
    /// This client's change.
    Client(usize),
    /// The grant of a lease.
    Lease,
    /// Nobody, until there is an FSYNC: pages that this kernel sent by itself.
    Debt(usize),
    /// Nobody any more.
    Nobody,
}

/// A notice on its way, or its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Notice {
    /// The kernel.
    pub to: usize,
    /// What is to be forgotten.
    pub thing: Thing,
    /// Who waits.
    pub by: For,
    /// The kernel has forgotten it; the acknowledgement is on its way.
    pub done: bool,
}

/// A page in a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Page {
    /// Not there.
    #[default]
    Gone,
    /// There.
    Clean(Changes),
    /// There, and mapped by a program: only the drop of the whole file takes it.
    Mapped(Changes),
    /// Stored to through a mapping, and not sent.
    Dirty(Changes),
    /// Sent by the kernel itself.
    Sent(Changes),
    /// The same, where its request waits for notices (planted fault only).
    Waits(Changes),
    /// Locked by a READ of this client; it holds nothing valid.
    Reading(usize),
    /// Locked by a WRITE of this client that does not fill it; it holds nothing valid.
    Writing(usize),
}

impl Page {
    /// What a program sees that may look at it.
    pub(crate) fn content(self) -> Option<Changes> {
        match self {
            Self::Clean(c) | Self::Mapped(c) | Self::Dirty(c) | Self::Sent(c) | Self::Waits(c) => {
                Some(c)
            }
            Self::Gone | Self::Reading(_) | Self::Writing(_) => None,
        }
    }

    /// The same page with another content, if it has one.
    pub(crate) fn with(self, change: impl Fn(Changes) -> Changes) -> Self {
        match self {
            Self::Clean(c) => Self::Clean(change(c)),
            Self::Mapped(c) => Self::Mapped(change(c)),
            Self::Dirty(c) => Self::Dirty(change(c)),
            Self::Sent(c) => Self::Sent(change(c)),
            Self::Waits(c) => Self::Waits(change(c)),
            other => other,
        }
    }
}

/// A kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// It has looked the file up.
    pub has_inode: bool,
    /// Attributes that it need not ask for.
    pub attributes: Option<Changes>,
    /// The size that it believes in: where an append goes.
    pub size: u8,
    /// Pages.
    pub pages: [Page; PAGES],
    /// Pages before this one have been dropped by the drop of the whole file that is under way.
    pub swept: usize,
    /// The name, while it is valid.
    pub name: Option<Changes>,
    /// Who holds the directory's lock.
    pub directory: Option<usize>,
    /// Who holds the inode's lock: one write or fsync at a time.
    pub inode: Option<usize>,
}

/// Which ends a kernel may believe in that are not the file's (rule R50).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ends {
    /// The smallest and the largest.
    pub range: (u8, u8),
    /// The one behind its last append that was moved.
    pub next: Option<u8>,
}

/// Where a call is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum At {
    /// The next call has not begun.
    #[default]
    Ready,
    /// An append has taken its offset, and its request is not sent.
    Offset,
    /// The request is on its way, or waits for the end of a lease.
    Sent,
    /// The state was read, and what is told is not remembered yet (planted fault only).
    Read,
    /// Applied; the answer waits.
    Held,
    /// The answer is on its way.
    Answered,
    /// Bytes are published under a lease, and the holder has not looked at its word.
    Published,
    /// Its session has ended.
    Ended,
}

/// A program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Client {
    /// Its present or next call.
    pub call: usize,
    /// Where that is.
    pub at: At,
    /// The changes that had returned when the call began.
    pub needs: Changes,
    /// What the answer says, or a lease that is given back carries.
    pub says: Changes,
    /// An append's offset.
    pub offset: u8,
    /// Notices that the change waits for, as the Runtime counts them.
    pub owed: u8,
    /// What the answer says is not kept: of attributes, they were taken back meanwhile; of a name,
    /// it has no validity.
    pub stale: bool,
}

/// Scene of a write lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The file has no lease.
    #[default]
    None,
    /// What is pending becomes durable, and other sessions forget the file.
    Draining,
    /// The holder may have changes that nobody else has seen.
    Granted,
    /// Another session's request waits.
    Recalled,
    /// The holder has given it back; its changes are applied next.
    Returning,
}

/// A write lease of the embedded session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Its state. The word that the holder looks at says valid while it is granted or recalled.
    pub stage: Stage,
    /// The client that asked for it.
    pub asker: usize,
    /// The term is not over by the grantor's clock.
    pub fresh: bool,
    /// The term is not over by the holder's clock.
    pub believed: bool,
    /// Bytes that the holder has published, in memory that the daemon can read.
    pub published: Changes,
    /// The first page when it was granted.
    pub base: Changes,
    /// The holder was not told that the daemon has died (planted fault only).
    pub orphaned: bool,
}

impl Lease {
    /// Does its word say that it is valid?
    pub(crate) fn is_valid(&self) -> bool {
        matches!(self.stage, Stage::Granted | Stage::Recalled) || self.orphaned
    }
}

/// Properties of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A call saw older state than one that had returned before it began.
    Older,
    /// A kernel was aborted that does what it is asked for.
    Aborted,
    /// An acknowledgement was counted that its own session has not sent.
    Counted,
    /// Bytes of a lease appeared after its end.
    AfterEnd,
    /// The number of a leased inode was given away.
    Reused,
    /// An append went elsewhere than to the end.
    NotAtEnd,
}

/// What the judge remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ghost {
    /// Changes whose calls have returned.
    pub returned: Changes,
    /// Changes that another mount's store to the same page took away, or a death.
    pub lost: Changes,
    /// Changes of a lease that its holder was told are ingested.
    pub told: Changes,
    /// Properties that a step has broken, one bit each.
    pub broken: u8,
    /// Faults so far: deaths, silences, daemon's deaths, sleeps, strays.
    pub faults: [u8; 5],
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
pub struct Scene {
    /// The present state.
    pub truth: Truth,
    /// What of it is durable.
    pub durable: Truth,
    /// What the Runtime remembers per kernel and thing.
    pub known: [[Known; 2 + PAGES]; KERNELS],
    /// Ends that a kernel may believe in.
    pub ends: [Option<Ends>; KERNELS],
    /// Pages that were taken back from a kernel since it read them, or are being taken back.
    pub taken: [[bool; PAGES]; KERNELS],
    /// Pages that it has read again since, and not written.
    pub reread: [[bool; PAGES]; KERNELS],
    /// Notices, in order.
    pub notices: Vec<Notice>,
    /// The write lease.
    pub lease: Lease,
    /// The session that has a section open.
    pub section: Option<usize>,
    /// The embedded session has the file open.
    pub open: bool,
    /// Sessions that live.
    pub alive: [bool; SESSIONS],
    /// Sessions that do nothing of what they are asked for.
    pub silent: [bool; SESSIONS],
    /// The kernels.
    pub kernels: [Kernel; KERNELS],
    /// The programs.
    pub clients: Vec<Client>,
    /// What the judge remembers.
    pub ghost: Ghost,
}
