//! The program: its threads decide groups and take numbers, and take answers.

use super::config::{Config, Mutation, Policy};
use super::history::explains;
use super::state::{Answer, Broken, Message, Place, Stage, Traffic, bit};

impl Traffic {
    /// May this call take its numbers now?
    pub(crate) fn may_take(&self, config: &Config, call: usize) -> bool {
        let decided = matches!(self.program.calls[call].stage, Stage::Decided(_));
        let ready =
            decided || (self.wants(config, call) && !config.has(Mutation::NumbersAfterSend));
        self.program.attached && ready && self.has_room(config, call)
    }

    /// May a call decide its group without its numbers? Only a planted fault has it so.
    pub(crate) fn may_decide(&self, config: &Config, call: usize) -> bool {
        let planted = config.has(Mutation::NumbersAfterSend);
        planted && self.program.attached && self.wants(config, call)
    }

    /// Is it this call's turn to take numbers? Calls of which a part is there come first, then all
    /// others that are repeated, then new ones.
    pub(crate) fn wants(&self, config: &Config, call: usize) -> bool {
        let again = |is: &dyn Fn(bool, (u8, u64)) -> bool| {
            self.program.calls.iter().any(|thread| match thread.stage {
                Stage::Again(life, number) => is(thread.half, (life, number)),
                _ => false,
            })
        };
        match self.program.calls[call].stage {
            Stage::Idle => config.has(Mutation::NewBeforeRepeated) || !again(&|_, _| true),
            Stage::Again(life, number) if repeats_in_order(config) => {
                !again(&|_, other| other < (life, number))
            }
            Stage::Again(..) => self.program.calls[call].half || !again(&|half, _| half),
            _ => false,
        }
    }

    /// Are all numbers answered that lie a window before the last one that the call takes?
    pub(crate) fn has_room(&self, config: &Config, call: usize) -> bool {
        let program = &self.program;
        let last = program.next + config.calls[call].parts as u64 - 1;
        let before = last.checked_sub(config.window).map_or(0, |number| number + 1);
        let answered = (0..before).all(|number| program.answered & bit(number) != 0);
        answered || config.has(Mutation::NoWindow)
    }

    /// The call joins the current group, or begins one. Returns the group's first number.
    fn decide_group(&mut self, config: &Config, call: usize) -> u64 {
        let program = &self.program;
        let answered = (0..program.next).all(|number| program.answered & bit(number) != 0);
        if answered || !self.joins(config, call) {
            (self.program.first, self.program.group) = (self.program.next, 0);
        }
        self.program.group |= 1 << call;
        match config.policy {
            Policy::Ideal => 0,
            Policy::Basic | Policy::Merging => self.program.first,
        }
    }

    fn joins(&self, config: &Config, call: usize) -> bool {
        let new = &config.calls[call];
        let group = config.calls.iter().enumerate();
        let mut group = group.filter(|(other, _)| self.program.group & 1 << other != 0);
        match config.policy {
            Policy::Basic => {
                let among_writes = config.has(Mutation::ReadJoinsWriteGroup);
                !new.writes && group.all(|(_, other)| among_writes || !other.writes)
            }
            Policy::Merging => group.all(|(_, other)| {
                let ignored = config.has(Mutation::ConflictJoins) && new.writes != other.writes;
                ignored || !new.conflicts(other)
            }),
            Policy::Ideal => true,
        }
    }

    /// The group is decided, and the lock released: only a planted fault does so.
    pub(crate) fn decide(&mut self, config: &Config, call: usize) {
        self.begins(call);
        let first = self.decide_group(config, call);
        self.program.calls[call].stage = Stage::Decided(first);
    }

    /// The call has its group and its numbers, and its requests are on their way.
    pub(crate) fn take(&mut self, config: &Config, call: usize) {
        self.begins(call);
        let first = match self.program.calls[call].stage {
            Stage::Decided(first) => first,
            _ => self.decide_group(config, call),
        };
        let (life, number) = (self.program.life, self.program.next);
        let thread = &mut self.program.calls[call];
        thread.stage = Stage::Open(life, number);
        let missing = (0..config.calls[call].parts).filter(|part| thread.answered & 1 << part == 0);
        for part in missing {
            let (number, place) = (self.program.next, Place::Way);
            self.messages.push(Message { call: Some(call), part, life, number, first, place });
            self.program.next += 1;
        }
    }

    /// For the judge: what is over now comes before the call.
    fn begins(&mut self, call: usize) {
        if self.ghost.begun & 1 << call != 0 {
            return;
        }
        let calls = self.program.calls.iter().enumerate();
        let done = calls.filter(|(_, thread)| thread.stage == Stage::Done);
        self.ghost.before[call] = done.fold(0, |bits, (other, _)| bits | 1 << other);
        self.ghost.begun |= 1 << call;
    }

    /// The program takes an answer.
    pub(crate) fn answer(&mut self, config: &Config, message: Message, answer: Answer) {
        self.messages.retain(|other| *other != message);
        if answer == Answer::Ended {
            return self.ended();
        }
        let Some(call) = message.call else { return };
        self.program.answered |= bit(message.number);
        let thread = &mut self.program.calls[call];
        if !matches!(thread.stage, Stage::Open(..)) {
            return;
        }
        let Answer::Done(seen) = answer else {
            thread.stage = Stage::Failed;
            return;
        };
        thread.answered |= 1 << message.part;
        for (whole, part) in thread.seen[message.part..].iter_mut().zip(seen) {
            *whole = if part == 0 { *whole } else { part };
        }
        if thread.answered.count_ones() as usize == config.calls[call].parts {
            self.complete(config, call);
        }
    }

    /// A call is answered.
    pub(crate) fn complete(&mut self, config: &Config, call: usize) {
        self.program.calls[call].stage = Stage::Done;
        if config.is_honest() && !explains(config, self, None) {
            self.ghost.note(Broken::Order);
        }
    }
}

/// Does a planted fault have calls repeated in the order that they had?
pub(crate) fn repeats_in_order(config: &Config) -> bool {
    config.has(Mutation::RepeatsInOrder) || config.has(Mutation::RepeatsFinished)
}
