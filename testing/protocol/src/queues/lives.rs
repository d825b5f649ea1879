//! The queue's lives: the program takes a new one when its connections break or a term passes; the
//! target waits for what runs of the old one, and says what was carried out. And the grant's end.

use super::config::{Config, Mutation};
use super::program::repeats_in_order;
use super::state::{Answer, Broken, Grant, Message, Place, Stage, Traffic, bit};

/// Kinds of faults, by their place in the judge's count.
pub(crate) mod fault {
    pub(crate) const BREAK: usize = 0;
    pub(crate) const STOP: usize = 1;
    pub(crate) const EARLY: usize = 2;
    pub(crate) const REVOKE: usize = 3;
}

impl Traffic {
    /// The program takes a new life. It believes no answer of an older one.
    pub(crate) fn new_life(&mut self) {
        self.program.life += 1;
        self.program.attached = false;
        self.attaches |= 1 << self.program.life;
        self.messages.retain(|message| !matches!(message.place, Place::Answered(_)));
    }

    /// The target has said that the life is over.
    pub(crate) fn ended(&mut self) {
        if !self.is_over() {
            self.new_life();
        }
    }

    /// The target hears of a life. If that is a new one, what is parked of older ones is refused,
    /// and nobody waits for that answer.
    pub(crate) fn hear(&mut self, life: u8) {
        self.attaches &= !(1 << life);
        if life <= self.target.life {
            return;
        }
        (self.target.life, self.target.attaching, self.target.ended) = (life, true, false);
        let stays = |message: &Message| !matches!(message.place, Place::Parked | Place::Ready);
        self.messages.retain(stays);
    }

    /// Does nothing run of the lives before the one that waits for its answer? When the grant is
    /// over nothing does, and that is not looked at again.
    pub(crate) fn may_attach(&self, config: &Config) -> bool {
        let (life, gone) = (self.target.life, self.target.grant == Grant::Gone);
        let drained = gone || !self.runs(|message| message.life < life);
        self.target.attaching && (drained || config.has(Mutation::LifeWithoutDrain))
    }

    /// The new life is answered, with what was finished of the last one that had requests. If the
    /// program has taken another one since, it does not hear this.
    pub(crate) fn attached(&mut self, config: &Config) {
        self.target.attaching = false;
        if self.target.life == self.program.life {
            match self.target.grant {
                Grant::Open => self.told(config),
                Grant::Closing | Grant::Gone => self.all_fail(config),
            }
        }
        if config.has(Mutation::ForgetsAtAttach) {
            self.forget(self.target.life);
        }
    }

    /// The target's order is of this life now, and nothing of it is finished.
    pub(crate) fn forget(&mut self, life: u8) {
        let target = &mut self.target;
        (target.order, target.low, target.finished, target.done) = (life, 0, 0, 0);
        (self.ghost.numbers, self.ghost.effects) = ([0; 2], 0);
    }

    /// The program numbers from 0. A write that was carried out is answered by that; every other
    /// call that was not answered is repeated as a whole.
    fn told(&mut self, config: &Config) {
        let program = &mut self.program;
        program.attached = true;
        (program.next, program.first, program.group, program.answered) = (0, 0, 0, 0);
        for (call, what) in config.calls.iter().enumerate() {
            let Stage::Open(life, number) = self.program.calls[call].stage else { continue };
            let known = self.target.order == life || config.has(Mutation::OrderOfAnyLife);
            let done = |part: &usize| {
                self.program.calls[call].answered & 1 << part != 0
                    || (known && self.target.done & bit(number + *part as u64) != 0)
            };
            let there = (0..what.parts).filter(done).count();
            let repeats = !what.writes || config.has(Mutation::RepeatsFinished);
            if there == what.parts && !repeats {
                self.complete(config, call);
                continue;
            }
            let thread = &mut self.program.calls[call];
            thread.half |= what.writes && there > 0;
            thread.stage = match repeats_in_order(config) {
                true => Stage::Again(life, number),
                false => Stage::Again(0, 0),
            };
            if !config.has(Mutation::RepeatsParts) {
                (thread.answered, thread.seen) = (0, [0; 2]);
            }
        }
    }

    /// The grant is over, as the program learns. Once it has ended the target says what of the last
    /// life was carried out, and the rest is for the program to do another way.
    fn all_fail(&mut self, config: &Config) {
        if self.target.grant == Grant::Gone && self.leaves_what_was_carried_out(config) {
            self.ghost.note(Broken::Left);
        }
        let left = self.program.calls.iter_mut().filter(|thread| !thread.is_over());
        left.for_each(|thread| thread.stage = Stage::Failed);
    }

    /// Is there a call that was not answered, and a request of it whose blocks were all read or
    /// written, but that is not told as carried out?
    fn leaves_what_was_carried_out(&self, config: &Config) -> bool {
        let left = self.ghost.effects & !self.target.done;
        self.program.calls.iter().zip(&config.calls).any(|(thread, call)| match thread.stage {
            Stage::Open(life, number) if life == self.target.order => {
                (number..number + call.parts as u64).any(|number| left & bit(number) != 0)
            }
            _ => false,
        })
    }

    /// Does nothing of the queue's life move by itself?
    fn is_quiet(&self) -> bool {
        let life = self.target.life;
        let still = |message: &Message| message.life < life || message.place == Place::Parked;
        let same = life == self.program.life && self.program.attached;
        same && self.messages.iter().all(still)
    }

    /// Is a request of the present life parked?
    pub(crate) fn has_parked(&self) -> bool {
        let life = self.target.life;
        self.count(|message| message.life == life && message.place == Place::Parked) > 0
    }

    /// Has the term of what is parked passed? It is longer than anything on its way needs.
    pub(crate) fn may_pass(&self, config: &Config) -> bool {
        self.is_quiet() && self.has_parked() && !config.has(Mutation::NoTerm)
    }

    /// The target ends the queue's life: what is parked is answered so.
    pub(crate) fn term(&mut self, config: &Config, early: bool) {
        if !early {
            self.passes_for_a_reason(config);
        }
        self.target.ended = true;
        let parked = |message: &&mut Message| message.place == Place::Parked;
        let parked = self.messages.iter_mut().filter(parked);
        parked.for_each(|message| message.place = Place::Answered(Answer::Ended));
        self.forget_answers();
    }

    /// Nobody hears the answer to an older life.
    pub(crate) fn forget_answers(&mut self) {
        let life = self.program.life;
        let heard = |m: &Message| m.life == life || !matches!(m.place, Place::Answered(_));
        self.messages.retain(heard);
    }

    /// Does a call wait for the window, and nothing else moves?
    pub(crate) fn may_pass_in_window(&self, config: &Config) -> bool {
        let waits = |call: usize| self.wants(config, call) && !self.has_room(config, call);
        let terms = !config.has(Mutation::NoTerm) && !config.has(Mutation::TermForParkedOnly);
        let stands = self.is_quiet() && !self.has_parked();
        terms && stands && (0..config.calls.len()).any(waits)
    }

    /// The program gives up the life in which a number is missing.
    pub(crate) fn window_term(&mut self, config: &Config) {
        self.passes_for_a_reason(config);
        self.new_life();
    }

    fn passes_for_a_reason(&mut self, config: &Config) {
        if config.is_honest() && self.ghost.faults[fault::STOP] == 0 {
            self.ghost.note(Broken::Needless);
        }
    }

    /// May this call's thread stop before this part is sent? It is with the thread still.
    pub(crate) fn may_stop(&self, call: usize, part: usize) -> bool {
        let Stage::Open(life, _) = self.program.calls[call].stage else { return false };
        let of = |m: &&Message| m.call == Some(call) && m.life == life && m.part >= part;
        let mut left = self.messages.iter().filter(of).peekable();
        let unsent = left.peek().is_some_and(|message| message.part == part);
        unsent && left.all(|message| message.place == Place::Way)
    }

    /// It stops.
    pub(crate) fn stop(&mut self, call: usize, part: usize) {
        self.messages.retain(|m| m.call != Some(call) || m.part < part || m.place != Place::Way);
        self.program.calls[call].stage = Stage::Stopped;
    }

    /// The host asks for the grant's end: what is not begun is refused.
    pub(crate) fn revoke(&mut self) {
        self.target.grant = Grant::Closing;
        let waits = |m: &&mut Message| matches!(m.place, Place::Parked | Place::Ready);
        let waiting = self.messages.iter_mut().filter(waits);
        waiting.for_each(|message| message.place = Place::Answered(Answer::Refused));
        self.forget_answers();
    }

    /// May the host be told that the grant is over?
    pub(crate) fn may_say_revoked(&self, config: &Config) -> bool {
        let whole = |message: &Message| match message.place {
            Place::Running(at, _) => Self::is_whole(config, message, at),
            _ => true,
        };
        let drained = match config.mutation {
            Some(Mutation::RevokeWithoutDrain) => true,
            Some(Mutation::CountsLater) => !self.runs(|message| !whole(message)),
            _ => !self.runs(|_| true),
        };
        self.target.grant == Grant::Closing && drained
    }
}
