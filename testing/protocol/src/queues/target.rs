//! The target: it looks at numbers, parks what comes before its turn, carries out, and counts.

use super::config::{Config, Mutation};
use super::state::{Answer, Broken, Grant, Id, Message, Neighbour, Place, Traffic, bit};

impl Traffic {
    /// Threads of the target that have a request.
    pub(crate) fn busy(&self, config: &Config) -> usize {
        let kept = |m: &Message| matches!(m.place, Place::Parked | Place::Ready);
        let kept = config.has(Mutation::ParkHoldsThread).then(|| self.count(kept));
        self.running() + kept.unwrap_or(0)
    }

    /// Threads of the target that carry a request out.
    pub(crate) fn running(&self) -> usize {
        let runs = self.count(|m| matches!(m.place, Place::Running(..)));
        runs + usize::from(self.neighbour == Neighbour::Runs)
    }

    /// Is a thread free for one request more?
    pub(crate) fn has_thread(&self, config: &Config) -> bool {
        config.neighbour.is_none_or(|threads| self.busy(config) < threads)
    }

    /// May a request that is ready be begun?
    pub(crate) fn may_begin(&self, config: &Config) -> bool {
        self.has_thread(config) || config.has(Mutation::ParkHoldsThread)
    }

    fn set(&mut self, message: Message, place: Place) {
        let known = self.messages.iter_mut().find(|known| **known == message);
        known.expect("a request that is there").place = place;
        self.forget_answers();
    }

    /// A request comes to the target.
    pub(crate) fn arrive(&mut self, config: &Config, message: Message) {
        let old = message.life < self.target.life;
        if self.target.grant != Grant::Open {
            return self.set(message, Place::Answered(Answer::Refused));
        }
        if old && !config.has(Mutation::OldLifeAccepted) {
            // It is refused, and the program does not hear answers of a life that it has left.
            return self.messages.retain(|known| *known != message);
        }
        if self.target.ended {
            return self.set(message, Place::Answered(Answer::Ended));
        }
        if !old && self.target.order != message.life {
            self.forget(message.life);
        }
        if !self.takes(config, message) {
            if config.is_honest() {
                self.ghost.note(Broken::Honest);
            }
            return self.set(message, Place::Answered(Answer::Refused));
        }
        match self.target.low >= message.first {
            true => self.set(message, Place::Ready),
            false => self.set(message, Place::Parked),
        }
    }

    /// Does the target take this number? It is hostile until this is checked.
    fn takes(&self, config: &Config, message: Message) -> bool {
        let (target, number) = (&self.target, message.number);
        let beside = |known: &Message| {
            let there = !matches!(known.place, Place::Way | Place::Answered(_));
            there && known.life == message.life && known.number == number
        };
        let twice = target.finished & bit(number) != 0 || self.messages.iter().any(beside);
        let ahead = number.checked_sub(target.low);
        let within = match config.has(Mutation::NoBound) {
            true => ahead.is_some(),
            false => ahead.is_some_and(|ahead| ahead < config.window),
        };
        let in_group = message.first <= number || config.has(Mutation::FirstBeyondNumber);
        match config.has(Mutation::CountNotBitmap) {
            true => in_group,
            false => in_group && within && !twice,
        }
    }

    /// A thread of the target begins a request: the table is looked at.
    pub(crate) fn begin(&mut self, config: &Config, message: Message) {
        self.turn(message);
        if message.call.is_some_and(|call| config.calls[call].denied) {
            self.set(message, Place::Answered(Answer::Refused));
            if !config.has(Mutation::FailedDoesNotCount) {
                self.finished(config, message, config.has(Mutation::FailedIsDone));
            }
            return;
        }
        self.set(message, Place::Running(0, [0; 2]));
        if config.has(Mutation::CountAtArrival) {
            self.finished(config, message, true);
        }
    }

    /// For the judge: has everything before the request's group truly been finished?
    fn turn(&mut self, message: Message) {
        if message.life != self.target.order {
            return;
        }
        let [begun, finished] = self.ghost.numbers;
        let before = (0..message.first).all(|number| finished & bit(number) != 0);
        if !before || begun & bit(message.number) != 0 {
            self.ghost.note(Broken::Turn);
        }
        self.ghost.numbers[0] |= bit(message.number);
    }

    /// First block and number of blocks of a request. One that nobody has numbered has none.
    fn span(config: &Config, message: &Message) -> (usize, usize) {
        message.call.map_or((0, 0), |call| config.calls[call].part(message.part))
    }

    /// Is a block of it left?
    pub(crate) fn is_whole(config: &Config, message: &Message, at: u8) -> bool {
        usize::from(at) == Self::span(config, message).1
    }

    /// The next block of a running request is read or written.
    pub(crate) fn effect(&mut self, config: &Config, message: Message, at: u8, mut seen: [Id; 2]) {
        let call = message.call.expect("a call with blocks");
        let block = Self::span(config, &message).0 + usize::from(at);
        match config.calls[call].writes {
            true => self.blocks[block] = Id::try_from(call + 1).expect("few calls"),
            false => seen[usize::from(at)] = self.blocks[block],
        }
        self.set(message, Place::Running(at + 1, seen));
        if message.life == self.target.order && Self::is_whole(config, &message, at + 1) {
            self.ghost.effects |= bit(message.number);
        }
    }

    /// A running request is finished.
    pub(crate) fn finish(&mut self, config: &Config, message: Message, seen: [Id; 2]) {
        self.set(message, Place::Answered(Answer::Done(seen)));
        if !config.has(Mutation::CountAtArrival) {
            self.finished(config, message, true);
        }
        if message.life == self.target.order {
            self.ghost.numbers[1] |= bit(message.number);
        }
    }

    /// A number is finished: the lowest that is not may move, and what is parked have its turn.
    fn finished(&mut self, config: &Config, message: Message, done: bool) {
        let target = &mut self.target;
        if message.life != target.order && !config.has(Mutation::OldLifeAccepted) {
            return;
        }
        target.finished |= bit(message.number);
        if done {
            target.done |= bit(message.number);
        }
        if message.call.is_some_and(|call| config.calls[call].denied) {
            self.ghost.numbers[1] |= bit(message.number);
        }
        match config.has(Mutation::CountNotBitmap) {
            true => target.low += 1,
            false => {
                while target.finished & bit(target.low) != 0 {
                    target.low += 1;
                }
            }
        }
        let low = target.low;
        if !config.has(Mutation::ParkForever) {
            let turn = |m: &&mut Message| m.place == Place::Parked && m.first <= low;
            let parked = self.messages.iter_mut().filter(turn);
            parked.for_each(|message| message.place = Place::Ready);
        }
    }
}
