//! What is explored: how many fsyncs, how much room, and what may fail.

use super::state::{Lsn, ROOM};

/// A fault of the protocol itself, planted to see that a property notices it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutation {
    /// A record of the spare log is acknowledged before those below it are staged again.
    AckBeforeRestaging,
    /// What was answered is not staged again, also where it lies behind what was not.
    CopyTheUnanswered,
    /// A record counts as durable while one before it in its log is under way.
    AckBehindAHole,
    /// A record says of its log that what the watermark has passed is durable there.
    SureByWatermark,
    /// An fsync waits for the first log also when its record is durable on the spare one.
    WaitForFirst,
    /// Recovery applies what the spare log has, and then what the first has.
    SpareThenFirst,
    /// It applies what the first log has, and then what the spare one has.
    FirstThenSpare,
    /// It applies what lies behind a record that is lost.
    ApplyOverAGap,
    /// It takes the first log's word although the spare one says that it is the only one.
    FirstIsBelieved,
    /// Records go to the first log again while a write of it is under way.
    BackBeforeAnswer,
    /// They do, and what the spare log has is given up before it is home.
    BackBeforeHome,
    /// A record is journaled by its copy, and its place in the first log is free although its
    /// write is under way.
    FreeAtCopy,
    /// A record is journaled before it is durable where the journal names it.
    HomeBeforeAnswer,
    /// A log says that it is the only one before all copies are durable there.
    AloneBeforeCopies,
    /// The first log failed, and is gone back to.
    FailureIsForgotten,
}

/// One configuration of the model.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The configuration's name in reports.
    pub name: &'static str,
    /// Fsyncs, each of the same block.
    pub fsyncs: Lsn,
    /// Records that each log has room for.
    pub room: [u8; 2],
    /// How many logs may fail.
    pub fails: u8,
    /// How often records may go to the spare log.
    pub overs: u8,
    /// A fault of the protocol itself.
    pub mutation: Option<Mutation>,
}

impl Config {
    /// Nothing fails, and the first log is left once at most.
    pub fn new(name: &'static str, fsyncs: Lsn, room: [u8; 2]) -> Self {
        Self { name, fsyncs, room, fails: 0, overs: 1, mutation: None }
    }

    /// The same where logs fail.
    #[must_use]
    pub fn failing(mut self, fails: u8) -> Self {
        self.fails = fails;
        self
    }

    /// The same where the first log is left that often.
    #[must_use]
    pub fn leaving(mut self, overs: u8) -> Self {
        self.overs = overs;
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
        assert!(self.room.iter().all(|room| (1..=ROOM).contains(&usize::from(*room))), "room");
        assert!(self.fsyncs <= 8, "fsyncs");
    }
}
