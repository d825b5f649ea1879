//! What a state of the model has: the program, the target, what is between them, the file's blocks,
//! and what the judge remembers.

use super::config::Config;

/// Blocks of the file.
pub const BLOCKS: usize = 3;

/// Calls of the program, at most.
pub const CALLS: usize = 5;

/// What a block holds: 0 is what it had at first, and the number of a call and one is what that
/// call wrote.
pub type Id = u8;

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// It has its number, and is with its thread or on its way.
    Way,
    /// The target has parked it: its group's turn has not come.
    Parked,
    /// Its turn has come, and no thread of the target has begun it.
    Ready,
    /// It runs: this number of its blocks is done, and a read has seen this in them.
    Running(u8, [Id; 2]),
    /// Its answer is on its way.
    Answered(Answer),
}

/// What the target says of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Answer {
    /// It was carried out, and a read has seen this.
    Done([Id; 2]),
    /// It was not.
    Refused,
    /// Its queue's life is over.
    Ended,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Message {
    /// Its call; or nothing, if it has a number that nobody has given out.
    pub call: Option<usize>,
    /// Which of the call's requests it is.
    pub part: usize,
    /// The queue's life that its number is of.
    pub life: u8,
    /// Its number.
    pub number: u64,
    /// The first number of its group.
    pub first: u64,
    /// Where it is.
    pub place: Place,
}

/// How far a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// It has not begun.
    Idle,
    /// Its group begins with this number, and it has no number: only a planted fault does so.
    Decided(u64),
    /// It has numbers from this one on, of this life.
    Open(u8, u64),
    /// It is to be repeated. A planted fault remembers the life and the number that it had.
    Again(u8, u64),
    /// It was answered.
    Done,
    /// It was refused.
    Failed,
    /// Its thread has stopped.
    Stopped,
}

/// A call of the program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Thread {
    /// How far it is.
    pub stage: Stage,
    /// Requests that were answered, a bit each.
    pub answered: u8,
    /// What a read has seen.
    pub seen: [Id; 2],
    /// A part of its writes is there, as the target has said.
    pub half: bool,
}

impl Thread {
    /// Does nothing come of it any more?
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Done | Stage::Failed | Stage::Stopped)
    }
}

/// The program's end of the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Program {
    /// The queue's life.
    pub life: u8,
    /// The target has answered it.
    pub attached: bool,
    /// The next number.
    pub next: u64,
    /// The first number of the current group.
    pub first: u64,
    /// Calls in the current group, a bit each.
    pub group: u8,
    /// Numbers that were answered, a bit each.
    pub answered: u64,
    /// Its calls.
    pub calls: Vec<Thread>,
}

/// The grant under which the queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Grant {
    /// Requests are carried out.
    Open,
    /// The host has asked for its end: nothing is begun any more.
    Closing,
    /// The host was told that it is over.
    Gone,
}

/// The target's end of the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The newest life that it has heard of.
    pub life: u8,
    /// That one is not answered yet.
    pub attaching: bool,
    /// The term of that life has passed.
    pub ended: bool,
    /// The life that the following numbers are of.
    pub order: u8,
    /// The lowest number that is not finished.
    pub low: u64,
    /// Finished numbers, a bit each.
    pub finished: u64,
    /// Those of them that were carried out, a bit each.
    pub done: u64,
    /// The grant.
    pub grant: Grant,
}

/// A request of another file's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Neighbour {
    /// No other file has a request.
    Nothing,
    /// It is on its way.
    Waits,
    /// A thread of the target has it.
    Runs,
}

/// Properties of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// No order of calls explains what a read has shown.
    Order,
    /// A request was begun before its turn, or a number twice.
    Turn,
    /// The target has refused a number that the program took as it should.
    Honest,
    /// A term has passed, and no number was missing.
    Needless,
    /// A grant's end has left a request to be done another way that was carried out.
    Left,
}

/// What the judge remembers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ghost {
    /// For each call those that were answered before it began, a bit each.
    pub before: [u8; CALLS],
    /// Calls that have begun, a bit each.
    pub begun: u8,
    /// Numbers of the present order that were truly begun, and those that were finished.
    pub numbers: [u64; 2],
    /// Those whose blocks were all read or written, a bit each.
    pub effects: u64,
    /// Properties that a step broke, a bit each.
    pub broken: u8,
    /// How often each fault happened: breaks, stops, early terms, revokes.
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

/// A state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Traffic {
    /// The program.
    pub program: Program,
    /// The target.
    pub target: Target,
    /// Requests that are anywhere, in a fixed order.
    pub messages: Vec<Message>,
    /// Lives that the program has asked for, and the target has not heard of, a bit each.
    pub attaches: u8,
    /// The file's blocks.
    pub blocks: [Id; BLOCKS],
    /// Another file's request.
    pub neighbour: Neighbour,
    /// For the judge.
    pub ghost: Ghost,
}

/// The bit of a number; a number that no bit stands for has none.
pub(crate) fn bit(number: u64) -> u64 {
    u32::try_from(number).ok().and_then(|number| 1_u64.checked_shl(number)).unwrap_or(0)
}

impl Traffic {
    /// Nothing has begun, and the first life is answered.
    pub fn first(config: &Config) -> Self {
        let thread = Thread { stage: Stage::Idle, answered: 0, seen: [0; 2], half: false };
        let forged = config.forged.iter().map(|forged| Message {
            call: None,
            part: 0,
            life: 0,
            number: forged.number,
            first: forged.first,
            place: Place::Way,
        });
        let mut messages: Vec<_> = forged.collect();
        messages.sort_unstable();
        Self {
            program: Program {
                life: 0,
                attached: true,
                next: 0,
                first: 0,
                group: 0,
                answered: 0,
                calls: vec![thread; config.calls.len()],
            },
            target: Target {
                life: 0,
                attaching: false,
                ended: false,
                order: 0,
                low: 0,
                finished: 0,
                done: 0,
                grant: Grant::Open,
            },
            messages,
            attaches: 0,
            blocks: [0; BLOCKS],
            neighbour: match config.neighbour {
                Some(_) => Neighbour::Waits,
                None => Neighbour::Nothing,
            },
            ghost: Ghost::default(),
        }
    }

    /// The messages that are in such a place.
    pub(crate) fn count(&self, is: impl Fn(&Message) -> bool) -> usize {
        self.messages.iter().filter(|message| is(message)).count()
    }

    /// Does a request run that is such a one?
    pub(crate) fn runs(&self, is: impl Fn(&Message) -> bool) -> bool {
        self.messages.iter().any(|m| matches!(m.place, Place::Running(..)) && is(m))
    }

    /// Is every call over?
    pub(crate) fn is_over(&self) -> bool {
        self.program.calls.iter().all(Thread::is_over)
    }
}
