//! The process: it places records, acknowledges, journals, and goes from one log to the other.

use super::state::{FIRST, Log, Logs, Lsn, Mode, Record, SPARE, Staged};
use super::{Config, Mutation};

impl Logs {
    fn takes(&self) -> Option<usize> {
        match self.mode {
            Mode::To(log) | Mode::Alone(log) => Some(log),
            Mode::Leaves(_) | Mode::Latched => None,
        }
    }

    pub(crate) fn may_fsync(&self, config: &Config) -> bool {
        let room = |log: usize| self.logs[log].has_room(config.room[log], 1);
        self.newest() < config.fsyncs && self.takes().is_some_and(room)
    }

    pub(crate) fn fsync(&mut self, config: &Config) {
        let at = self.takes().expect("a log");
        self.staged.push(Staged { at, durable: [false; 2] });
        self.place(config, at, self.newest(), false);
    }

    /// Places a record, which says what is durable of its log before it. That is not what the
    /// watermark says: a copy may be on its way whose record is durable in the other log.
    fn place(&mut self, config: &Config, log: usize, lsn: Lsn, copy: bool) {
        let Log { head, taken, away, .. } = &self.logs[log];
        let unanswered = away.iter().map(|away| away.record.place).min();
        let open = taken.iter().find(|record| record.lsn > self.acked).map(|record| record.place);
        let first = if config.has(Mutation::SureByWatermark) { open } else { unanswered };
        let sure = first.unwrap_or(*head);
        self.logs[log].place(lsn, copy, sure);
    }

    /// A write reaches the medium, whatever has become of its log meanwhile.
    pub(crate) fn land(&mut self, config: &Config, log: usize, lsn: Lsn) {
        let log_room = config.room[log];
        let log = &mut self.logs[log];
        let away = log.away.iter_mut().find(|away| away.record.lsn == lsn).expect("on its way");
        away.landed = true;
        log.ring[usize::from(away.record.place % log_room)] = Some(away.record);
    }

    pub(crate) fn answer(&mut self, log: usize, lsn: Lsn) {
        self.logs[log].away.retain(|away| away.record.lsn != lsn);
        self.staged[usize::from(lsn) - 1].durable[log] = true;
    }

    /// Would a recovery find the record in this log? Its write was answered, and so was that of
    /// each record before it there: a reader stops at the first that is not whole.
    fn is_found(&self, config: &Config, log: usize, lsn: Lsn) -> bool {
        let Log { taken, away, .. } = &self.logs[log];
        let place = taken.iter().find(|record| record.lsn == lsn).map(|record| record.place);
        let hole = |place: u8| away.iter().any(|away| away.record.place < place);
        let holed = place.is_some_and(hole) && !config.has(Mutation::AckBehindAHole);
        self.of(lsn).durable[log] && !holed
    }

    /// Is everything up to this record durable (rule R3)?
    pub(crate) fn may_acknowledge(&self, config: &Config, upto: Lsn) -> bool {
        let counts = |lsn: Lsn| {
            let found = |log: usize| self.is_found(config, log, lsn);
            let there = match self.mode {
                Mode::Alone(log) => found(log),
                _ if config.has(Mutation::WaitForFirst) => found(self.of(lsn).at),
                _ => found(FIRST) || found(SPARE),
            };
            let early = config.has(Mutation::AckBeforeRestaging) && self.mode == Mode::To(SPARE);
            there || (early && lsn < upto)
        };
        self.takes().is_some() && (self.home.max(self.acked) + 1..=upto).all(counts)
    }

    pub(crate) fn acknowledge(&mut self, upto: Lsn) {
        self.acked = upto;
        if self.mode == Mode::To(FIRST) && self.logs[SPARE].taken.is_empty() {
            self.safe = upto;
        }
    }

    /// Which log has the journal?
    fn journal(&self) -> Option<usize> {
        match self.mode {
            Mode::To(_) if !self.logs[FIRST].failed => Some(FIRST),
            Mode::Alone(log) => Some(log),
            _ => None,
        }
    }

    pub(crate) fn may_go_home(&self, config: &Config) -> bool {
        if self.home >= self.newest() || self.journal().is_none() {
            return false;
        }
        let staged = self.of(self.home + 1);
        let by_copy = config.has(Mutation::FreeAtCopy) && staged.durable.contains(&true);
        by_copy || staged.durable[staged.at] || config.has(Mutation::HomeBeforeAnswer)
    }

    /// The oldest record goes home: it is read where the journal names it, the area is flushed, and
    /// the header says so.
    pub(crate) fn go_home(&mut self, config: &Config) {
        let journal = self.journal().expect("a journal");
        self.home += 1;
        let lsn = self.home;
        let staged = self.of(lsn);
        self.unread |= !staged.durable[staged.at] && !config.has(Mutation::FreeAtCopy);
        (self.area, self.logs[journal].base) = (lsn, lsn);
        self.reclaim(config);
    }

    /// Is a place of this log to be given back: its record is home, and its write was answered?
    fn is_free(&self, config: &Config, log: usize) -> bool {
        let counts = !matches!(self.mode, Mode::Alone(only) if only != log);
        let Log { taken, away, .. } = &self.logs[log];
        let early = config.has(Mutation::FreeAtCopy);
        let answered = |place: u8| !away.iter().any(|away| away.record.place == place);
        let free = |front: &Record| front.lsn <= self.home && (early || answered(front.place));
        counts && taken.front().is_some_and(free)
    }

    pub(crate) fn may_reclaim(&self, config: &Config) -> bool {
        let free = (0..self.logs.len()).any(|log| self.is_free(config, log));
        free && self.journal().is_some()
    }

    /// Places are given back, as the header says from now on.
    pub(crate) fn reclaim(&mut self, config: &Config) {
        for log in 0..self.logs.len() {
            while self.is_free(config, log) {
                let front = self.logs[log].taken.pop_front().expect("one is free");
                self.logs[log].tail = front.place + 1;
            }
        }
    }

    pub(crate) fn may_fail_over(&self, config: &Config) -> bool {
        let [first, spare] = &self.logs;
        self.mode == Mode::To(FIRST)
            && !first.failed
            && !spare.failed
            && !first.away.is_empty()
            && self.faults[1] < config.overs
            && spare.has_room(config.room[SPARE], self.in_doubt(config).len())
    }

    /// Records of the first log above all that a recovery would find for sure, and that the spare
    /// one has not: those that were not answered, and those behind them.
    fn in_doubt(&self, config: &Config) -> Vec<Lsn> {
        let found = |lsn: &Lsn| {
            let found = |log: usize| self.is_found(config, log, *lsn);
            let there = self.of(*lsn).durable[SPARE];
            let answered = config.has(Mutation::CopyTheUnanswered) && self.of(*lsn).durable[FIRST];
            found(FIRST) || there || answered || self.logs[SPARE].is_away(*lsn)
        };
        (self.home + 1..=self.newest()).filter(|lsn| !found(lsn)).collect()
    }

    /// Records go to the spare log from now on, behind copies of those in doubt.
    pub(crate) fn fail_over(&mut self, config: &Config) {
        self.faults[1] += 1;
        self.mode = Mode::To(SPARE);
        if !config.has(Mutation::AckBeforeRestaging) {
            for lsn in self.in_doubt(config) {
                self.place(config, SPARE, lsn, true);
            }
        }
    }

    pub(crate) fn may_go_back(&self, config: &Config) -> bool {
        let first = &self.logs[FIRST];
        let free = config.has(Mutation::FreeAtCopy);
        let counts = |place: u8| !free || place >= first.tail;
        let answered = !first.away.iter().any(|away| counts(away.record.place));
        let forgotten = config.has(Mutation::FailureIsForgotten);
        self.mode == Mode::To(SPARE)
            && (answered || forgotten || config.has(Mutation::BackBeforeAnswer))
            && (!first.failed || forgotten)
    }

    /// Records go to the first log again. What the spare one has goes home like all else.
    pub(crate) fn go_back(&mut self, config: &Config) {
        self.mode = Mode::To(FIRST);
        if config.has(Mutation::BackBeforeHome) {
            let spare = &mut self.logs[SPARE];
            spare.tail = spare.head;
            spare.taken.clear();
        }
    }

    /// A write or a flush fails: the log is latched (rule R21), and what is not home is staged
    /// again on the other one, or the mount latches.
    pub(crate) fn fails(&mut self, config: &Config, log: usize) {
        self.faults[0] += 1;
        self.logs[log].failed = true;
        let other = 1 - log;
        let forgotten = config.has(Mutation::FailureIsForgotten);
        if forgotten && self.mode == Mode::To(SPARE) && log == FIRST {
            return;
        }
        let lacks = |lsn: &Lsn| !self.of(*lsn).durable[other] && !self.logs[other].is_away(*lsn);
        let all: Vec<Lsn> = (self.home + 1..=self.newest()).filter(lacks).collect();
        let room = self.logs[other].has_room(config.room[other], all.len());
        if !matches!(self.mode, Mode::To(_)) || self.logs[other].failed || !room {
            self.mode = Mode::Latched;
            return;
        }
        self.mode = Mode::Leaves(log);
        for lsn in all {
            self.place(config, other, lsn, true);
        }
    }

    pub(crate) fn may_be_alone(&self, config: &Config) -> bool {
        let Mode::Leaves(from) = self.mode else { return false };
        let mut left = self.home + 1..=self.newest();
        let early = config.has(Mutation::AloneBeforeCopies);
        early || left.all(|lsn| self.is_found(config, 1 - from, lsn))
    }

    /// The log that is left says so in its header, and what it has is named there from now on.
    pub(crate) fn be_alone(&mut self) {
        let Mode::Leaves(from) = self.mode else { unreachable!("a log is left") };
        let left = 1 - from;
        self.mode = Mode::Alone(left);
        (self.logs[left].alone, self.logs[left].base) = (true, self.home);
        self.staged.iter_mut().for_each(|staged| staged.at = left);
    }
}
