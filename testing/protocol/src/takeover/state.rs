//! What a state of the model has: the cluster, the servers, and what the judge remembers.

/// Servers of a volume, at most.
pub const SERVERS: usize = 3;

/// The object that has the lock, the names and the watches.
pub const HEADER: usize = 0;
/// The object of the volume's log, which every successor reads.
pub const LOG: usize = 1;
/// The object of the volume's area.
pub const AREA: usize = 2;
/// Objects, each with a keeper of its own.
pub const OBJECTS: usize = 3;

/// Records that the log has room for.
pub const RECORDS: u8 = 2;

/// What the block list says of a server's address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Entry {
    /// Nothing.
    #[default]
    None,
    /// It is refused for an hour.
    Short,
    /// It is refused for longer than an address lives.
    Years,
}

/// The block list of one map.
pub type List = [Entry; SERVERS];

/// The replicated storage. What it has answered is durable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cluster {
    /// The block list of each map, the newest one last.
    pub maps: Vec<List>,
    /// Which map the keeper of each object knows.
    pub known: [usize; OBJECTS],
    /// The lock's owner.
    pub lock: Option<usize>,
    /// Servers whose names stand beside the volume, a bit each.
    pub names: u8,
    /// Servers that watch, a bit each.
    pub watches: u8,
    /// The log: the value of each record.
    pub log: [u8; RECORDS as usize],
    /// The area: the value that is home.
    pub area: u8,
}

/// What a server sends without waiting for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slot {
    /// A record of the log.
    Log = 0,
    /// A write to the area.
    Area = 1,
    /// A look whether the server is still the one.
    Check = 2,
}

/// All of them.
pub const SLOTS: [Slot; 3] = [Slot::Log, Slot::Area, Slot::Check];

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sent {
    /// On its way, with the map that its sender knew.
    Away {
        /// What is written.
        value: u8,
        /// The map.
        map: usize,
    },
    /// Carried out; the answer is on its way.
    Done(u8),
    /// Refused; the answer is on its way.
    Refused(u8),
}

/// How far a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// It waits, and serves nobody.
    Waits,
    /// It puts the owner on the block list.
    Fences,
    /// It breaks the owner's lock.
    Breaks,
    /// It writes its name down.
    Names,
    /// It asks for the lock.
    Locks,
    /// It puts all others whose names are written down on the block list.
    Checks,
    /// It waits for the newest map.
    Maps,
    /// It reads the volume.
    Reads,
    /// It writes home what it has found.
    Replays,
    /// It serves.
    Serves,
    /// It has taken its name away and gives the lock back.
    Leaves,
    /// It has ended in order.
    Ended,
    /// It was refused, and does nothing any more.
    Latched,
}

/// A server's memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    /// It lives.
    pub up: bool,
    /// How far it is.
    pub phase: Phase,
    /// The owner that it takes the volume from.
    pub from: Option<usize>,
    /// An operator has told it to.
    pub told: bool,
    /// The map that it knows.
    pub map: usize,
    /// How many had the lock before it.
    pub turn: u8,
    /// What it has read of the log, and of the area.
    pub read: (Option<[u8; RECORDS as usize]>, Option<u8>),
    /// The value that it has recovered.
    pub base: u8,
    /// The newest value that is durable, as far as it knows.
    pub durable: u8,
    /// The newest value that is home, as far as it knows.
    pub home: u8,
    /// What it has sent.
    pub sent: [Option<Sent>; SLOTS.len()],
    /// What was acknowledged when a client asked it, and what it will answer.
    pub asked: Option<(u8, u8)>,
    /// Whose short entry it is about to take away: by a planted fault alone.
    pub removes: Option<usize>,
}

/// Properties of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A write has landed in an object that a successor had read.
    Writer,
    /// Something acknowledged is lost.
    Lost,
    /// A client was shown what was not so any more when it asked.
    Stale,
    /// A server was put on the block list by another one's own view.
    View,
}

/// What the judge remembers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ghost {
    /// The newest value that a client was told is durable.
    pub acked: u8,
    /// How many reads were begun.
    pub reads: u8,
    /// The newest turn that has read each object.
    pub seen: [u8; OBJECTS],
    /// How many had the lock.
    pub turns: u8,
    /// Properties that a step broke, a bit each.
    pub broken: u8,
    /// How many of each fault happened: watch, deaths, operator, by hand, ends.
    pub faults: [u8; 5],
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

/// A state: the cluster, and the servers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Volume {
    /// The storage.
    pub cluster: Cluster,
    /// The servers.
    pub servers: Vec<Server>,
    /// For the judge.
    pub ghost: Ghost,
}

/// A server that has just come.
fn waiting() -> Server {
    Server {
        up: true,
        phase: Phase::Waits,
        from: None,
        told: false,
        map: 0,
        turn: 0,
        read: (None, None),
        base: 0,
        durable: 0,
        home: 0,
        sent: [None; SLOTS.len()],
        asked: None,
        removes: None,
    }
}

impl Volume {
    /// The first server serves, and the others wait.
    pub(crate) fn first(servers: usize, names: bool) -> Self {
        let cluster = Cluster {
            maps: vec![[Entry::None; SERVERS]],
            known: [0; OBJECTS],
            lock: Some(0),
            names: u8::from(names),
            watches: (1 << servers) - 1,
            log: [0; RECORDS as usize],
            area: 0,
        };
        let mut all = vec![waiting(); servers];
        (all[0].phase, all[0].turn) = (Phase::Serves, 1);
        let ghost = Ghost { turns: 1, seen: [1; OBJECTS], ..Ghost::default() };
        Self { cluster, servers: all, ghost }
    }
}
