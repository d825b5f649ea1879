//! What a state of the model has: two logs, the process, and what the judge remembers.

use std::collections::VecDeque;

/// Records that a log has room for, at most.
pub const ROOM: usize = 4;

/// The log that records go to as long as it answers.
pub const FIRST: usize = 0;
/// The other one.
pub const SPARE: usize = 1;

/// A record's number in the one order of all; it is also what the record writes to the block.
pub type Lsn = u8;

/// A record where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Its place, which is never another record's in the same log.
    pub place: u8,
    /// Its number.
    pub lsn: Lsn,
    /// It is the copy of a record of the other log.
    pub copy: bool,
    /// All before this place was known durable in its log when it was written (rule R14).
    pub sure: u8,
}

/// A write that was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Away {
    /// What is written.
    pub record: Record,
    /// It has reached the medium.
    pub landed: bool,
}

/// A log: its medium, and what the process knows of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Log {
    /// The ring on the medium.
    pub ring: [Option<Record>; ROOM],
    /// Up to which record everything is home, as the header on the medium says.
    pub base: Lsn,
    /// The header says that the other log does not count any more.
    pub alone: bool,
    /// The first place that is needed, as the header says.
    pub tail: u8,
    /// The next place.
    pub head: u8,
    /// Records between tail and head.
    pub taken: VecDeque<Record>,
    /// Writes that were not answered.
    pub away: Vec<Away>,
    /// Nothing is done with it any more.
    pub failed: bool,
}

/// Where the process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// New records go to this log.
    To(usize),
    /// This log has failed: what is not home is staged again on the other one.
    Leaves(usize),
    /// This log is the only one.
    Alone(usize),
    /// Nothing is acknowledged any more.
    Latched,
}

/// A record as the process knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Staged {
    /// Its log: where the journal names it.
    pub at: usize,
    /// It is durable there, and here.
    pub durable: [bool; 2],
}

/// A state: the logs, the area, the process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Logs {
    /// Both logs.
    pub logs: [Log; 2],
    /// What the block has in the area, durably.
    pub area: Lsn,
    /// Where the process is.
    pub mode: Mode,
    /// All records by number, from one on.
    pub staged: Vec<Staged>,
    /// Up to which everything is home.
    pub home: Lsn,
    /// Up to which everything was acknowledged.
    pub acked: Lsn,
    /// Up to which everything was acknowledged when the spare log had nothing.
    pub safe: Lsn,
    /// Logs that failed, and how often the first one was left.
    pub faults: [u8; 2],
    /// A record went home that was not where the journal named it.
    pub unread: bool,
}

impl Log {
    /// Is there room for that many records?
    pub(crate) fn has_room(&self, room: u8, records: usize) -> bool {
        usize::from(self.head - self.tail) + records <= usize::from(room)
    }

    /// Does this record have a write that was not answered?
    pub(crate) fn is_away(&self, lsn: Lsn) -> bool {
        self.away.iter().any(|away| away.record.lsn == lsn)
    }

    /// Places a record and begins its write.
    pub(crate) fn place(&mut self, lsn: Lsn, copy: bool, sure: u8) {
        let record = Record { place: self.head, lsn, copy, sure };
        self.head += 1;
        self.taken.push_back(record);
        self.away.push(Away { record, landed: false });
    }
}

impl Logs {
    /// Both logs are empty.
    pub(crate) fn first() -> Self {
        Self {
            logs: Default::default(),
            area: 0,
            mode: Mode::To(FIRST),
            staged: Vec::new(),
            home: 0,
            acked: 0,
            safe: 0,
            faults: [0; 2],
            unread: false,
        }
    }

    /// The newest record.
    pub(crate) fn newest(&self) -> Lsn {
        Lsn::try_from(self.staged.len()).expect("few records")
    }

    pub(crate) fn of(&self, lsn: Lsn) -> Staged {
        self.staged[usize::from(lsn) - 1]
    }
}
