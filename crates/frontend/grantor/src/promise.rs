//! What a session's file log and the daemon promise together. Before the daemon promises by another
//! way than the log that bytes of a leased file are durable, it has the log forget all its batches,
//! durably: else a crash would write older bytes over them.

use crate::RegisteredLease;
use crate::log::{Log, Means, over};
use crate::session::answered;
use siftfs_base::{Result, corrupt};
use siftfs_lease::{Answer, Held};
use siftfs_proto::{Reply, Request};
use std::time::{Duration, Instant};

impl Log {
    /// Is the session over?
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// The leases that last and for which the file log is a way.
    pub fn logged(&self) -> Vec<Held> {
        let logged = self.slots.iter().flatten().filter(|leased| leased.logged);
        logged.map(|leased| leased.held).filter(|held| self.lasts(*held)).collect()
    }

    /// Makes a leased file durable, and all for which the file log is a way; has the log forget
    /// what it has up to `end`; and from now on the log is a way for this file, as of `order`. All
    /// that is published is taken in.
    ///
    /// # Errors
    /// The holder broke a rule.
    pub fn promise(
        &mut self,
        means: &Means,
        held: Held,
        (order, end): (u64, u64),
    ) -> Result<Answer> {
        self.check(end)?;
        let synced = self.sync(means, held).and_then(|()| self.sync_logged(means));
        if let Err(error) = synced {
            return Ok(answered(Err(error)));
        }
        // In this order: batches of other leases may have records of this one, which were passed
        // over until now, and are older than what was promised otherwise.
        let recorded = self.forget_up_to(end).and_then(|()| self.register(held));
        match recorded {
            Ok(()) => {
                if self.of(held).is_some_and(|leased| leased.logged) {
                    self.reader.covered(held, order);
                }
                Ok(Answer::Done)
            }
            Err(error) => {
                tracing::error!(%error, "the registry of private logs cannot be written");
                Ok(answered(self.give_up(means).map(|()| Answer::Done)))
            }
        }
    }

    /// Makes durable what the file log has up to `end`, and forgets that. All that is published is
    /// taken in.
    ///
    /// # Errors
    /// The holder broke a rule.
    pub fn forget(&mut self, means: &Means, end: u64) -> Result<()> {
        self.check(end)?;
        if let Err(error) = self.sync_logged(means) {
            // The log keeps what it has, and its program comes to the daemon when it is full.
            tracing::warn!(%error, "what a file log has cannot be made durable otherwise");
            return Ok(());
        }
        if let Err(error) = self.forget_up_to(end) {
            tracing::error!(%error, "the registry of private logs cannot be written");
            let _ = self.give_up(means);
        }
        Ok(())
    }

    /// What was taken in by age becomes durable by age, but the file log would write older bytes
    /// over it after a crash, as long as its program does not call fsync(2): so leases end of which
    /// the log has not had all for that long.
    ///
    /// # Errors
    /// The holder broke a rule.
    pub(crate) fn catch_up(
        &mut self,
        means: &Means,
        (now, commit): (Instant, Duration),
    ) -> Result<()> {
        let logged = self.reader.logged();
        let behind = self.behind.filter(|(records, _)| logged < *records);
        let fresh = || (logged < self.reader.passed()).then(|| (self.reader.passed(), now));
        self.behind = behind.or_else(fresh);
        match self.behind {
            Some((_, since)) if now.saturating_duration_since(since) >= commit => {
                self.behind = None;
                self.end(means, self.logged())
            }
            _ => Ok(()),
        }
    }

    /// Leases have ended, with all that was published of them: their records in the file log do not
    /// count any more before anybody else has the file (R36).
    pub(crate) fn unlog(&mut self, means: &Means, ended: &[Held]) {
        let mut numbers = Vec::new();
        for held in ended.iter().copied() {
            if self.of(held).is_none_or(|leased| !leased.logged) {
                continue;
            }
            if let Err(error) = self.sync(means, held) {
                // The volume promises nothing more, to nobody: what the log has stays.
                let ino = self.of(held).map(|leased| leased.ino);
                tracing::error!(?ino, %error, "a file cannot be made durable as its lease ends");
                continue;
            }
            if let Some(leased) = self.of(held) {
                leased.logged = false;
            }
            numbers.push(held.number);
        }
        let Some(file) = self.file.as_mut().filter(|_| !numbers.is_empty()) else { return };
        if let Err(error) = file.end(&numbers) {
            tracing::error!(%error, "the registry of private logs cannot be written");
            if let Err(error) = self.give_up(means) {
                tracing::error!(%error, "a file log may undo what others write after a crash");
            }
        }
    }

    /// Can a program say that its newest batch ends here?
    fn check(&self, end: u64) -> Result<()> {
        let fits = match &self.file {
            Some(file) => file.is_end(end),
            None => end == 0,
        };
        match fits {
            true => Ok(()),
            false => Err(corrupt("file log", format!("it cannot end at {end}"))),
        }
    }

    fn register(&mut self, held: Held) -> Result<()> {
        let Self { file: Some(file), slots, .. } = self else { return Ok(()) };
        let leased = slots.get_mut(held.slot as usize).and_then(Option::as_mut);
        let Some(leased) = leased.filter(|leased| leased.held == held && !leased.logged) else {
            return Ok(());
        };
        let Held { slot, number } = held;
        let (ino, generation) = (leased.ino, leased.generation);
        leased.logged = file.register(RegisteredLease { slot, number, ino, generation })?;
        Ok(())
    }

    fn forget_up_to(&mut self, end: u64) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.forget(end)?;
        self.reader.forgot(end);
        Ok(())
    }

    fn sync_logged(&mut self, means: &Means) -> Result<()> {
        let written = self.slots.iter().flatten().filter(|leased| leased.logged && leased.written);
        let written: Vec<Held> = written.map(|leased| leased.held).collect();
        written.into_iter().try_for_each(|held| self.sync(means, held))
    }

    /// Makes what was taken in of a file durable, with its names and whatever is ordered before.
    fn sync(&mut self, means: &Means, held: Held) -> Result<()> {
        let leased = self.of(held).ok_or_else(over)?;
        let fsync = Request::Fsync { file: leased.handle.into(), datasync: false };
        means.call(&leased.credentials, fsync).and_then(Reply::done)?;
        leased.written = false;
        Ok(())
    }

    /// The registry cannot be written: the log is a way for nobody any more, and has nothing.
    fn give_up(&mut self, means: &Means) -> Result<()> {
        let logged: Vec<Held> =
            self.slots.iter().flatten().filter(|leased| leased.logged).map(|l| l.held).collect();
        logged.iter().for_each(|held| self.reader.covered(*held, 0));
        // What was promised by the log before that is published, and taken in now.
        let (_, taken) = self.take_in(means);
        logged.into_iter().try_for_each(|held| self.sync(means, held))?;
        taken?;
        self.slots.iter_mut().flatten().for_each(|leased| leased.logged = false);
        self.file.as_mut().map_or(Ok(()), |file| file.give_up())
    }
}
