//! What fails, dies or is lost.

use super::config::{Config, Mutation};
use super::returning::empty;
use super::state::{Found, Phase, Progress, Reply, Session, Snapshot, Told, Up};

impl Snapshot {
    /// A client's connection is lost, with what is on its way.
    pub(crate) fn lose(&mut self, config: &Config, c: usize) {
        self.cut(c);
        let server = &mut self.server;
        if let Some(job) = &mut server.jobs[c] {
            job.over = true;
        }
        if config.has(Mutation::EndsWithConnection) {
            server.lock = server.lock.filter(|holder| *holder != c);
        }
        let Some(session) = &mut server.sessions[c] else { return };
        session.here = false;
        let returned: Option<Progress> = session.returning.take();
        if returned.is_some() && !config.has(Mutation::LossIsReturned) {
            server.expected |= 1 << c;
        }
    }

    /// The client's end of that.
    fn cut(&mut self, c: usize) {
        self.to[c] = None;
        self.from[c].clear();
        let client = &mut self.clients[c];
        if matches!(client.phase, Phase::Up | Phase::Returning(_)) {
            client.phase = Phase::Lost;
        }
    }

    /// The server's process is gone, with all that only its memory had.
    pub(crate) fn kill(&mut self) {
        (0..self.clients.len()).for_each(|c| self.cut(c));
        self.server = empty();
        self.ghost.ran = 0;
        self.files.clone_from(&self.disk.files);
    }

    /// May the server end in order? It answers what it had begun.
    pub(crate) fn may_end(&self) -> bool {
        self.server.up == Up::Serving && self.server.jobs.iter().all(Option::is_none)
    }

    /// The server ends in order: all is durable, the book has the replies that clients may not
    /// have, and they are told.
    pub(crate) fn end(&mut self, config: &Config) {
        self.sync_all(config);
        let (order, epoch) = (self.server.order, self.disk.epoch);
        let number = |reply: Option<Reply>| reply.map_or(0, |reply| reply.number);
        let replies = |session: Option<Session>| session.map(|it| it.replies.map(number));
        let replies = self.server.sessions.map(|session| replies(session).unwrap_or_default());
        let part = self.own_part();
        (part.durable, part.ended) = (order, true);
        if !config.has(Mutation::EndForgets) {
            part.found = Some(Found { epoch, lsns: 0, replies });
        }
        self.disk.files.notes = Default::default();
        self.server.up = Up::Ended;
        for c in 0..self.clients.len() {
            if self.server.sessions[c].is_some_and(|session| session.here) {
                self.from[c].push(Told::Ended);
            }
        }
    }

    /// A client dies, with its kernel and its program.
    pub(crate) fn dies(&mut self, config: &Config, c: usize) {
        if matches!(self.clients[c].phase, Phase::Up | Phase::Returning(_)) {
            self.lose(config, c);
        }
        self.gives_up(c);
        self.ghost.passed &= !(1 << c);
        let client = &mut self.clients[c];
        client.phase = Phase::Dead;
        client.kept.clear();
        (client.waits, client.holds, client.errors) = (false, false, 0);
        client.cache = Default::default();
    }
}
