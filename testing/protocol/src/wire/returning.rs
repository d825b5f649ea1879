//! Clients that come back: sessions that are resumed, kept changes, the book, the grace time.

use super::config::{Config, Mutation};
use super::runtime::Change;
use super::server::{Known, REPEATS};
use super::state::{
    Back, Broken, CLIENTS, Found, Kept, Numbers, Part, Phase, Progress, Reply, Server, Session,
    Snapshot, Told, Up, bit,
};

impl Snapshot {
    /// The parts of the servers before, the oldest first.
    pub(crate) fn past(&self) -> &[Part] {
        self.disk.book.split_last().map_or(&[], |(_, past)| past)
    }

    /// The part of the present server.
    pub(crate) fn own_part(&mut self) -> &mut Part {
        self.disk.book.last_mut().expect("a server has a part")
    }

    /// The place of a kept change among those of all clients. What a server has repeated that died
    /// itself comes before what it had not repeated.
    pub(crate) fn place(&self, config: &Config, kept: &Kept) -> (u8, u8) {
        if config.has(Mutation::OrderByNumber) {
            return (kept.instance, kept.order);
        }
        let later = self.past().iter().rev().position(|part| part.instance == kept.instance);
        (later.map_or(u8::MAX, |later| u8::try_from(later).expect("few")), kept.order)
    }

    /// Has nobody an older change to be repeated?
    pub(crate) fn is_first(&self, config: &Config, c: usize, at: (u8, u8)) -> bool {
        if config.has(Mutation::OwnOrderOnly) {
            return true;
        }
        let later = |p: &Progress| p.repeated || p.at.is_some_and(|theirs| at < theirs);
        let others = self.server.sessions.iter().enumerate().filter(|(other, _)| *other != c);
        let mut returning = others.filter_map(|(_, session)| session.as_ref()?.returning);
        self.server.expected == 0 && returning.all(|progress| later(&progress))
    }

    /// Have all clients repeated what they keep?
    pub(crate) fn have_repeated(&self) -> bool {
        let mut sessions = self.server.sessions.iter().flatten();
        self.server.expected == 0
            && sessions.all(|session| session.returning.is_none_or(|it| it.repeated))
    }

    /// Is a kept change there, as far as the book knows?
    pub(crate) fn is_there(part: &Part, kept: &Kept) -> bool {
        let named = |lsn: u8| part.found.is_some_and(|found| found.lsns & 1 << lsn != 0);
        part.ended
            || kept.order <= part.durable
            || match kept.lsn {
                0 => kept.order <= part.marks[kept.file],
                lsn => named(lsn),
            }
    }

    /// A kept change comes, and is the first one.
    pub(crate) fn receive_kept(
        &mut self,
        config: &Config,
        c: usize,
        (kept, number, tried): (Kept, u8, Numbers),
    ) {
        let Some(progress) = &mut self.session(c).returning else {
            return self.from[c].push(Told::Failed);
        };
        progress.at = None;
        let part = self.past().iter().find(|part| part.instance == kept.instance).copied();
        let Some(part) = part else { return self.from[c].push(Told::Failed) };
        let known = match Self::is_there(&part, &kept) {
            true => Known::There,
            false => self.known(config, (c, REPEATS), number, tried),
        };
        let told = match known {
            Known::There => Told::Done(0, 0),
            Known::Answered(told) => told,
            Known::New => {
                let named = kept.lsn != 0;
                let (order, lsn) = self.run(Change {
                    id: kept.id,
                    file: kept.file,
                    writes: !named,
                    names: named.then_some(kept.id),
                    origin: (c, REPEATS, number),
                    repeated: true,
                });
                let told = Told::Done(order, lsn);
                let session = self.session(c);
                session.replies[REPEATS] = Some(Reply { number, told });
                session.keeps[kept.file] = order;
                told
            }
        };
        self.from[c].push(told);
    }

    /// Has a client that comes back something to say of where it is?
    pub(crate) fn arrives(&self, config: &Config, c: usize) -> Option<Progress> {
        let session = self.server.sessions[c].as_ref().filter(|session| session.here)?;
        let progress = session.returning?;
        let now = match self.to[c]? {
            super::state::Sent::Kept(kept, ..) => {
                Progress { at: Some(self.place(config, &kept)), ..progress }
            }
            super::state::Sent::Reclaim => Progress { repeated: true, at: None },
            _ => progress,
        };
        (now != progress && self.server.up == Up::Serving).then_some(now)
    }

    /// A client opens a session.
    pub(crate) fn connect(&mut self, config: &Config, c: usize) {
        let expected = self.server.expected & 1 << c != 0;
        let known = expected || self.server.sessions[c].is_some();
        let instance = self.clients[c].instance;
        let past = self.past().iter().find(|part| part.instance == instance);
        let back = match past {
            _ if instance == self.server.instance => {
                let same = known || config.has(Mutation::EndedIsSame);
                if same { Back::Same } else { Back::Unknown }
            }
            Some(part) if part.ended => Back::Clean,
            Some(_) if expected || self.may_still_repeat(config, c) => Back::Again,
            _ => Back::Unknown,
        };
        self.server.expected &= !(1 << c);
        if !known && !config.has(Mutation::ClientUnwritten) {
            self.own_part().clients |= 1 << c;
        }
        let mut session = self.server.sessions[c].unwrap_or_default();
        (session.here, session.knows) = (true, 0);
        session.returning = (known && back != Back::Same).then(Progress::default);
        self.server.sessions[c] = Some(session);
        // Its kernel knows nothing any more.
        self.taken(c, None);
        self.comes(config, c, back);
    }

    /// Is a client that was here already still among those that repeat?
    fn may_still_repeat(&self, config: &Config, c: usize) -> bool {
        let open = self.server.open && !config.has(Mutation::LossIsReturned);
        self.server.sessions[c].is_some() && !open
    }

    /// Do all go on?
    pub(crate) fn opens(&mut self, config: &Config) {
        let server = &self.server;
        let returns = server.sessions.iter().flatten().any(|session| session.returning.is_some());
        // A server that knows nobody waits for a term.
        let show = |c: &usize| self.clients[*c].cache.iter().any(Option::is_some);
        let unknown = (0..self.clients.len()).filter(|c| server.sessions[*c].is_none());
        let shown = server.knows_nobody && unknown.filter(show).count() > 0;
        let waits = shown && !config.has(Mutation::NoBookNoWait);
        if server.up == Up::Serving && server.expected == 0 && !returns && !waits {
            self.server.open = true;
        }
    }

    /// The grace time is over without a client.
    pub(crate) fn may_strike_out(&self, c: usize) -> bool {
        let server = &self.server;
        let expected = server.expected & 1 << c != 0;
        server.up == Up::Serving && expected && self.clients[c].cache.iter().all(Option::is_none)
    }

    pub(crate) fn strike_out(&mut self, c: usize) {
        self.server.expected &= !(1 << c);
        self.end_term(c);
        self.gives_up(c);
    }

    /// What a client keeps may be gone.
    pub(crate) fn gives_up(&mut self, c: usize) {
        let kept = self.clients[c].kept.iter().fold(0, |ids, kept| ids | bit(kept.id));
        self.ghost.lost |= kept;
        self.ghost.untold |= kept;
    }

    /// May a session without a connection be ended, once its term is over?
    pub(crate) fn may_end_term(&self, config: &Config, c: usize) -> bool {
        let Some(session) = &self.server.sessions[c] else { return false };
        let away = self.server.up == Up::Serving && !session.here && self.server.open;
        let shows = self.clients[c].cache.iter().any(Option::is_some);
        let keeps = session.keeps.iter().any(|newest| *newest != 0)
            || session.synced.iter().any(|newest| *newest != 0);
        let keeps = keeps && !config.has(Mutation::EndedWithKept);
        away && !shows && !keeps && self.server.jobs[c].is_none()
    }

    /// Ends it, with all that it has.
    pub(crate) fn end_term(&mut self, c: usize) {
        self.server.sessions[c] = None;
        self.server.lock = self.server.lock.filter(|holder| *holder != c);
        self.files.notes[c] = Default::default();
        self.own_part().clients &= !(1 << c);
        self.taken(c, None);
    }

    /// What is found in an epoch goes into the book, if it is that of the newest server; and so
    /// does the epoch that follows it.
    pub(crate) fn write_found(&mut self, config: &Config, found: Found) {
        let (last, next) = (found.epoch, self.server.next);
        let Some(newest) = self.disk.book.last_mut().filter(|part| !part.ended) else { return };
        if newest.epoch == last || config.has(Mutation::AnyEpoch) {
            (newest.found, newest.follows) = (Some(found), [0, next]);
        } else if newest.follows.contains(&last) {
            let last = if config.has(Mutation::LastForgotten) { 0 } else { last };
            newest.follows = [last, next];
        }
    }

    /// A server that has recovered the volume writes its own part of the book, and serves.
    pub(crate) fn serve(&mut self, config: &Config, low: bool) {
        if let Some(found) = self.server.found {
            self.write_found(config, found);
        }
        let epoch = self.disk.epoch;
        let mut knows_nobody = false;
        let fits = |newest: &Part| newest.ended || newest.follows.contains(&epoch);
        if !self.disk.book.last().is_some_and(fits) {
            // Nothing is known of what clients keep.
            if !self.disk.book.is_empty() {
                self.ghost.note(Broken::Forgotten);
            }
            self.disk.book.clear();
            knows_nobody = true;
            (0..self.clients.len()).for_each(|c| self.gives_up(c));
        }
        if let Some(newest) = self.disk.book.last_mut() {
            newest.follows = Default::default();
        }
        let expected = self.disk.book.last().map_or(0, |part| part.clients);
        let instance = if low { FIRST - epoch } else { FIRST + epoch };
        self.disk.book.push(Part { instance, epoch, clients: expected, ..Part::default() });
        self.server = Server { up: Up::Serving, instance, expected, knows_nobody, ..empty() };
    }

    /// The first state.
    pub(crate) fn first(clients: usize) -> Self {
        let all = (0..clients).fold(0, |all, c| all | 1 << c);
        let session = |c| (c < clients).then(|| Session { here: true, ..Session::default() });
        let client = super::state::Client {
            phase: Phase::Up,
            instance: FIRST,
            call: 0,
            waits: false,
            sent: 0,
            forgotten: false,
            had_answers: false,
            kept: Vec::new(),
            repeats: 0,
            reclaimed: false,
            cache: Default::default(),
            errors: 0,
            holds: false,
            needs: 0,
        };
        let mut world = Self {
            files: Default::default(),
            lsn: 0,
            server: Server {
                up: Up::Serving,
                instance: FIRST,
                open: true,
                sessions: std::array::from_fn(session),
                ..empty()
            },
            disk: Default::default(),
            to: [None; CLIENTS],
            from: Default::default(),
            clients: vec![client; clients],
            ghost: Default::default(),
        };
        world.disk.book.push(Part { instance: FIRST, clients: all, ..Part::default() });
        world
    }
}

/// The first server's number. Later ones are above or below all before.
const FIRST: u8 = 8;

/// The memory of a process that does nothing.
pub(crate) fn empty() -> Server {
    Server {
        up: Up::Down,
        instance: 0,
        order: 0,
        open: false,
        expected: 0,
        sessions: [None; CLIENTS],
        lock: None,
        jobs: [None; CLIENTS],
        next: 0,
        found: None,
        durable: 0,
        marks: Default::default(),
        knows_nobody: false,
    }
}
