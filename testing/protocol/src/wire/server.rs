//! The server: it takes calls, carries them out when they may be, and answers.

use super::config::{Call, Config, Mutation};
use super::runtime::Change;
use super::state::{Broken, CLIENTS, Job, Numbers, Reply, Sent, Session, Snapshot, Told, Up};

/// The slot of a program's calls, and that of what is repeated.
const OWN: usize = 0;
pub(crate) const REPEATS: usize = 1;

/// What is known of a call that may have come before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nothing.
    New,
    /// This server has carried it out, with this answer.
    Answered(Told),
    /// A server that died has, and it is there.
    There,
}

impl Snapshot {
    /// The session of a client that has one.
    pub(crate) fn session(&mut self, client: usize) -> &mut Session {
        self.server.sessions[client].as_mut().expect("it has a session")
    }

    /// The number of a program's present call in its slot.
    pub(crate) fn number(&self, client: usize) -> u8 {
        u8::try_from(self.clients[client].call + 1).expect("few calls")
    }

    /// May the server carry out now what this client has sent?
    pub(crate) fn may_receive(&self, config: &Config, c: usize) -> bool {
        let (Some(sent), Some(session)) = (self.to[c], &self.server.sessions[c]) else {
            return false;
        };
        if self.server.up != Up::Serving || !session.here {
            return false;
        }
        if self.server.jobs[c].is_some() && sent == Sent::Call {
            let known = || self.known(config, (c, OWN), self.number(c), 1 << self.number(c));
            let early = config.has(Mutation::AnsweredBeforeSettled);
            return early && matches!(known(), Known::Answered(_));
        }
        match sent {
            Sent::Call => self.may_call(config, c),
            Sent::Kept(kept, ..) => match &session.returning {
                Some(progress) => {
                    let at = self.place(config, &kept);
                    progress.at == Some(at) && self.is_first(config, c, at)
                }
                // It is refused.
                None => true,
            },
            Sent::Reclaim => {
                session.returning.is_none_or(|progress| progress.repeated) && self.have_repeated()
            }
            Sent::Returned => true,
        }
    }

    fn may_call(&self, config: &Config, c: usize) -> bool {
        let call = config.call(c, self.clients[c].call);
        let first = config.has(Mutation::FsyncFirst) && matches!(call, Some(Call::Fsync(_)));
        let goes_on = self.server.open || config.has(Mutation::GraceNotAwaited) || first;
        let free = self.server.lock.is_none_or(|holder| holder == c);
        goes_on && (call != Some(Call::Lock) || free)
    }

    /// What is known of a change by its slot and number, and the numbers that it had at servers
    /// that died.
    pub(crate) fn known(
        &self,
        config: &Config,
        (client, slot): (usize, usize),
        number: u8,
        tried: Numbers,
    ) -> Known {
        if config.has(Mutation::RunTwice) {
            return Known::New;
        }
        let replies = self.server.sessions[client].as_ref().map(|session| session.replies[slot]);
        if let Some(Some(reply)) = replies
            && reply.number == number
        {
            return Known::Answered(reply.told);
        }
        let is_it = |of: u8| match config.has(Mutation::BySlotOnly) {
            true => of != 0,
            false => of != 0 && tried & 1 << of != 0,
        };
        let mut found = self.past().iter().filter_map(|part| part.found);
        match found.any(|found| is_it(found.replies[client][slot])) {
            true => Known::There,
            false => Known::New,
        }
    }

    /// Takes what a client has sent.
    pub(crate) fn receive(&mut self, config: &Config, c: usize) {
        match self.to[c].take().expect("something was sent") {
            Sent::Call => self.receive_call(config, c),
            Sent::Kept(kept, number, tried) => self.receive_kept(config, c, (kept, number, tried)),
            Sent::Reclaim => match self.server.lock.is_none_or(|holder| holder == c) {
                true => {
                    self.grant(c);
                    self.from[c].push(Told::Yes);
                }
                false => self.from[c].push(Told::Failed),
            },
            Sent::Returned => {
                self.session(c).returning = None;
                self.from[c].push(Told::Back);
            }
        }
    }

    fn receive_call(&mut self, config: &Config, c: usize) {
        let call = config.call(c, self.clients[c].call).expect("a call is under way");
        match call {
            Call::Read(file) => {
                self.session(c).knows |= 1 << file;
                let value = self.files.data[file].last().copied().unwrap_or_default();
                self.from[c].push(Told::Value(value));
            }
            Call::Fsync(file) => {
                let before = self.server.order;
                self.sync(config, file);
                let job = Job { sync: Some(before), ..Job::of(file, Told::Yes) };
                self.server.jobs[c] = Some(job);
            }
            Call::Lock => {
                self.grant(c);
                self.from[c].push(Told::Yes);
            }
            Call::Unlock => {
                let lock = &mut self.server.lock;
                *lock = lock.filter(|holder| *holder != c);
                self.from[c].push(Told::Yes);
            }
            Call::Write(file) | Call::Name(file) | Call::Compound(file) => {
                let number = self.number(c);
                let twice = call.writes() && config.has(Mutation::WriteTwice);
                let finally = matches!(call, Call::Compound(_));
                let known = match twice || finally {
                    true => Known::New,
                    false => self.known(config, (c, OWN), number, 1 << number),
                };
                match known {
                    Known::Answered(told) => self.from[c].push(told),
                    Known::There => self.from[c].push(Told::Done(0, 0)),
                    Known::New => self.change(config, c, (call, file, number)),
                }
            }
        }
    }

    /// Carries a program's change out.
    fn change(&mut self, config: &Config, c: usize, (call, file, number): (Call, usize, u8)) {
        let id = Config::id(c, self.clients[c].call);
        let finally = matches!(call, Call::Compound(_));
        let (order, lsn) = self.run(Change {
            id,
            file,
            writes: call.writes(),
            names: call.names().then_some(id + u8::from(finally)),
            origin: (c, OWN, if finally { 0 } else { number }),
            repeated: false,
        });
        let told = Told::Done(order, if finally { 0 } else { lsn });
        let mut job = Job { durably: finally.then_some(0), ..Job::of(file, told) };
        if call.writes() {
            job.waits = self.notify(config, c, file);
        }
        if !finally {
            let session = self.session(c);
            session.replies[OWN] = Some(Reply { number, told });
            session.keeps[file] = order;
        }
        self.server.jobs[c] = Some(job);
    }

    /// Tells the other kernels that know a file, and says for whom the change waits.
    fn notify(&mut self, config: &Config, c: usize, file: usize) -> u8 {
        let mut waits = 0;
        for (other, session) in self.server.sessions.iter_mut().enumerate() {
            let Some(session) = session.as_mut().filter(|_| other != c) else { continue };
            if session.knows & 1 << file == 0 {
                continue;
            }
            if session.here {
                session.knows &= !(1 << file);
                self.from[other].push(Told::Notice(file));
            }
            if session.here || !config.has(Mutation::AwayIsInvalidated) {
                waits |= 1 << other;
            }
        }
        if config.has(Mutation::AnswerBeforeInvalidate) { 0 } else { waits }
    }

    /// This client's kernel shows nothing of this file any more, or of all.
    pub(crate) fn taken(&mut self, c: usize, file: Option<usize>) {
        for job in self.server.jobs.iter_mut().flatten() {
            if file.is_none_or(|file| file == job.file) {
                job.waits &= !(1 << c);
            }
        }
    }

    /// May what was carried out be answered?
    pub(crate) fn may_answer(&self, c: usize) -> bool {
        let job = &self.server.jobs[c];
        self.server.up == Up::Serving && job.is_some_and(|job| job.waits == 0)
    }

    /// Answers it, or takes the next step to that.
    pub(crate) fn answer(&mut self, config: &Config, c: usize) {
        let mut job = self.server.jobs[c].take().expect("something was carried out");
        if let Some(before) = job.sync {
            self.synced(config, c, job.file, before);
        }
        if let Some(steps) = &mut job.durably {
            if config.has(Mutation::HalfCompound) && *steps == 0 {
                *steps += 1;
                self.disk.files.data[job.file].clone_from(&self.files.data[job.file]);
                self.server.jobs[c] = Some(job);
                return;
            }
            self.keep(config);
        }
        if !job.over {
            self.from[c].push(job.told);
        }
    }

    /// A file is durable up to a change, and a client is about to be told so.
    fn synced(&mut self, config: &Config, own: usize, file: usize, before: u8) {
        let mark = self.server.marks[file];
        let mut others = false;
        for (client, session) in self.server.sessions.iter_mut().enumerate() {
            let Some(session) = session else { continue };
            let (keeps, synced) = (&mut session.keeps[file], &mut session.synced[file]);
            match client == own {
                true if *keeps <= before => {
                    if !config.has(Mutation::SyncedIsTold) {
                        *synced = (*synced).max(*keeps);
                    }
                    *keeps = 0;
                }
                true => {}
                false => others |= (*keeps).max(*synced) > mark,
            }
        }
        if others && !config.has(Mutation::NoMark) {
            self.server.marks[file] = before;
            self.own_part().marks[file] = before;
        }
    }

    /// Does any client keep changes?
    pub(crate) fn any_keeps(&self) -> bool {
        let mut sessions = self.server.sessions.iter().flatten();
        sessions.any(|session| session.keeps.iter().any(|newest| *newest != 0))
    }

    /// Makes all durable, writes that down, and tells clients.
    pub(crate) fn keep(&mut self, config: &Config) {
        let order = self.server.order;
        self.sync_all(config);
        let late = self.server.durable;
        self.own_part().durable = match config.has(Mutation::BookAfterTold) {
            true => late,
            false => order,
        };
        self.server.durable = order;
        for client in 0..CLIENTS {
            let Some(session) = &mut self.server.sessions[client] else { continue };
            (session.keeps, session.synced) = Default::default();
            if session.here {
                self.from[client].push(Told::Durable(order));
            }
        }
    }

    /// A client gets the lock.
    pub(crate) fn grant(&mut self, c: usize) {
        self.server.lock = Some(c);
        for other in (0..self.clients.len()).filter(|other| *other != c) {
            if !self.clients[other].holds {
                continue;
            }
            let expected = self.server.expected & 1 << other != 0;
            match expected || self.server.sessions[other].is_some() {
                true => self.ghost.note(Broken::Lock),
                false => self.ghost.passed |= 1 << other,
            }
        }
    }
}

impl Job {
    /// What is answered at once.
    fn of(file: usize, told: Told) -> Self {
        Self { told, waits: 0, file, sync: None, durably: None, over: false }
    }
}
