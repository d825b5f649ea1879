//! A client: its program's calls, its kernel, what it keeps, and how it comes back.

use super::config::{Call, Config, Mutation};
use super::state::{Back, Broken, Id, Ids, Kept, Phase, Sent, Snapshot, Told, bit};

impl Snapshot {
    /// The present or next call of a client's program.
    pub(crate) fn call(&self, config: &Config, c: usize) -> Option<Call> {
        config.call(c, self.clients[c].call)
    }

    /// May a client's next call begin? While it has no connection only what its kernel knows is
    /// read: what else is asked waits, as if it came later.
    pub(crate) fn may_begin(&self, config: &Config, c: usize) -> bool {
        let client = &self.clients[c];
        let Some(call) = self.call(config, c) else { return false };
        let known = matches!(call, Call::Read(file) if client.cache[file].is_some());
        let up = client.phase == Phase::Up && self.to[c].is_none();
        !client.waits && client.phase != Phase::Dead && (known || up)
    }

    /// The next call begins.
    pub(crate) fn begin(&mut self, config: &Config, c: usize) {
        let call = self.call(config, c).expect("it has a next call");
        let file = call.file();
        self.clients[c].needs = file.map_or(0, |file| self.answered_of(config, file));
        match call {
            Call::Read(file) => {
                if let Some(value) = self.clients[c].cache[file] {
                    self.sees(c, file, value);
                    return self.next(c);
                }
            }
            Call::Fsync(file) if self.clients[c].errors & 1 << file != 0 => {
                return self.tells_error(config, c, file);
            }
            Call::Unlock => {
                self.clients[c].holds = false;
                self.ghost.passed &= !(1 << c);
            }
            _ => {}
        }
        if let Some(file) = file.filter(|_| call.writes()) {
            self.clients[c].cache[file] = None;
        }
        let client = &mut self.clients[c];
        (client.waits, client.sent) = (true, 1);
        self.to[c] = Some(Sent::Call);
    }

    /// The call has returned.
    fn next(&mut self, c: usize) {
        let client = &mut self.clients[c];
        (client.waits, client.sent, client.needs) = (false, 0, 0);
        client.call += 1;
    }

    /// A fsync says that something of its file is lost.
    fn tells_error(&mut self, config: &Config, c: usize, file: usize) {
        self.clients[c].errors &= !(1 << file);
        self.ghost.untold &= !self.own_of(config, c, file);
        self.next(c);
    }

    /// All changes of a file by this client.
    fn own_of(&self, config: &Config, c: usize, file: usize) -> Ids {
        let calls = config.programs[c].iter().enumerate();
        let own = calls.filter(|(_, call)| call.file() == Some(file));
        own.fold(0, |ids, (at, _)| ids | 0b11 << Config::id(c, at))
    }

    /// The changes of a file that were answered.
    fn answered_of(&self, config: &Config, file: usize) -> Ids {
        let all = (0..self.clients.len()).fold(0, |all, c| all | self.own_of(config, c, file));
        self.ghost.answered & all
    }

    /// A program reads what its kernel has.
    fn sees(&mut self, c: usize, file: usize, value: Id) {
        let writes = &self.ghost.writes[file];
        let at = writes.iter().position(|id| *id == value).map_or(0, |at| at + 1);
        let answered = self.clients[c].needs & !self.ghost.lost;
        if writes[at..].iter().any(|id| answered & bit(*id) != 0) {
            self.ghost.note(Broken::Stale);
        }
    }

    /// A client gets the next message.
    pub(crate) fn deliver(&mut self, config: &Config, c: usize) {
        let told = self.from[c].remove(0);
        match (told, self.clients[c].phase) {
            (Told::Notice(file), _) => {
                self.clients[c].cache[file] = None;
                self.taken(c, Some(file));
            }
            (Told::Durable(order), _) => {
                let of = self.server.instance;
                let kept = &mut self.clients[c].kept;
                kept.retain(|kept| kept.instance != of || kept.order > order);
            }
            // It speaks of calls, of which a client that brings something back has sent none.
            (Told::Ended, phase) => self.clients[c].had_answers |= phase == Phase::Up,
            (Told::Back, _) => self.is_back(config, c),
            (told, Phase::Returning(_)) => self.brought(config, c, told),
            (told, _) => self.answered(config, c, told),
        }
    }

    /// The program's call is answered.
    fn answered(&mut self, config: &Config, c: usize, told: Told) {
        let call = self.call(config, c).expect("a call is under way");
        match (told, call) {
            (Told::Done(order, lsn), _) => {
                let id = Config::id(c, self.clients[c].call);
                let file = call.file().expect("a change is of a file");
                let finally = matches!(call, Call::Compound(_));
                self.ghost.answered |= bit(id) | if finally { bit(id + 1) } else { 0 };
                if order != 0 && !finally {
                    let instance = self.server.instance;
                    let kept = Kept { id, file, instance, order, lsn, last: None, tried: 0 };
                    self.clients[c].kept.push(kept);
                }
            }
            (Told::Value(value), Call::Read(file)) => {
                self.sees(c, file, value);
                self.clients[c].cache[file] = Some(value);
            }
            (Told::Yes, Call::Fsync(file)) => {
                self.judge_fsync(config, c, file);
                self.clients[c].kept.retain(|kept| kept.file != file);
            }
            (Told::Yes, Call::Lock) => self.clients[c].holds = true,
            _ => {}
        }
        self.next(c);
    }

    /// A fsync is answered: does it cover all that was answered before?
    fn judge_fsync(&mut self, config: &Config, c: usize, file: usize) {
        let durable = &self.disk.files;
        let names = durable.names[file].iter().map(|op| op.id);
        let there = durable.data[file].iter().copied().chain(names);
        let there = there.fold(0, |ids, id| ids | bit(id));
        if self.clients[c].needs & !self.ghost.lost & !there != 0 {
            self.ghost.note(Broken::Promise);
        }
        if self.ghost.untold & self.own_of(config, c, file) != 0 {
            self.ghost.note(Broken::Silence);
        }
    }

    /// Places of what other servers than the present one have answered, in the order in which they
    /// were made: those of the first server first.
    fn to_repeat(&self, c: usize) -> Vec<usize> {
        let kept = &self.clients[c].kept;
        let first = |of: u8| kept.iter().position(|kept| kept.instance == of);
        let others = kept.iter().enumerate();
        let others = others.filter(|(_, kept)| kept.instance != self.server.instance);
        let mut others: Vec<_> =
            others.map(|(at, kept)| (first(kept.instance), kept.order, at)).collect();
        others.sort_unstable();
        others.into_iter().map(|(_, _, at)| at).collect()
    }

    /// A client has a connection again. Its kernel has forgotten what it knew.
    pub(crate) fn comes(&mut self, config: &Config, c: usize, back: Back) {
        let of = self.server.instance;
        let client = &mut self.clients[c];
        client.cache = Default::default();
        client.reclaimed = false;
        client.phase = Phase::Returning(back);
        let mut lost = Vec::new();
        match back {
            Back::Clean => client.kept.clear(),
            Back::Unknown => {
                client.forgotten = true;
                lost = client.kept.iter().filter(|kept| kept.instance != of).copied().collect();
                client.kept.retain(|kept| kept.instance == of);
                if !config.has(Mutation::LateReclaim) {
                    client.holds = false;
                    self.ghost.passed &= !(1 << c);
                }
            }
            Back::Again if config.has(Mutation::KeptForgotten) => client.kept.clear(),
            Back::Same | Back::Again => {}
        }
        lost.iter().for_each(|kept| self.loses(config, c, kept));
        self.brings(config, c);
    }

    /// A kept change cannot be repeated.
    fn loses(&mut self, config: &Config, c: usize, kept: &Kept) {
        self.ghost.lost |= bit(kept.id);
        self.ghost.untold |= bit(kept.id);
        if !config.has(Mutation::DroppedInSilence) {
            self.clients[c].errors |= 1 << kept.file;
        }
    }

    /// Sends what a client brings back next.
    fn brings(&mut self, config: &Config, c: usize) {
        let Phase::Returning(back) = self.clients[c].phase else { return };
        let of = self.server.instance;
        if let Some(at) = self.to_repeat(c).first().copied() {
            let client = &mut self.clients[c];
            let kept = client.kept[at];
            let number = match kept.last {
                // The connection was lost, and not the server.
                Some((server, number)) if server == of => number,
                _ => client.repeats + 1,
            };
            let tried = match kept.last {
                Some((server, _)) if server != of && config.has(Mutation::TriedForgotten) => 0,
                Some((_, last)) if config.has(Mutation::OnlyLastTried) => 1 << last,
                _ => kept.tried,
            };
            client.repeats = client.repeats.max(number);
            client.kept[at].last = Some((of, number));
            client.kept[at].tried |= 1 << number;
            self.to[c] = Some(Sent::Kept(kept, number, tried));
            return;
        }
        let client = &mut self.clients[c];
        let kept = back == Back::Same && !config.has(Mutation::EndsWithConnection);
        let reclaims = client.holds && !client.reclaimed && !kept;
        self.to[c] = Some(if reclaims { Sent::Reclaim } else { Sent::Returned });
    }

    /// What a client has brought back is answered.
    fn brought(&mut self, config: &Config, c: usize, told: Told) {
        let first = self.to_repeat(c).first().copied();
        match (told, first) {
            (Told::Done(0, _), Some(at)) => {
                self.clients[c].kept.remove(at);
            }
            (Told::Done(order, lsn), Some(at)) => {
                let of = self.server.instance;
                let kept = &mut self.clients[c].kept[at];
                (kept.instance, kept.order, kept.lsn) = (of, order, lsn);
                (kept.last, kept.tried) = (None, 0);
            }
            (Told::Failed, Some(at)) => {
                let kept = self.clients[c].kept.remove(at);
                self.loses(config, c, &kept);
            }
            (told, _) => {
                let client = &mut self.clients[c];
                client.reclaimed = true;
                if told == Told::Failed {
                    client.holds = false;
                    self.ghost.passed &= !(1 << c);
                }
            }
        }
        self.brings(config, c);
    }

    /// A client has brought back all: the call that was not answered is made again, or nobody can
    /// say what became of it.
    pub(crate) fn is_back(&mut self, config: &Config, c: usize) {
        let Phase::Returning(back) = self.clients[c].phase else { return };
        if self.clients[c].holds && self.ghost.passed & 1 << c != 0 {
            self.ghost.note(Broken::Lock);
        }
        let call = self.call(config, c);
        let client = &mut self.clients[c];
        (client.phase, client.instance) = (Phase::Up, self.server.instance);
        let had_answers = std::mem::take(&mut client.had_answers);
        if !client.waits {
            return;
        }
        let forgotten = std::mem::take(&mut client.forgotten);
        let forgotten = forgotten && (back == Back::Unknown || !config.has(Mutation::HeardOnce));
        let knows = matches!(back, Back::Same | Back::Again) && !forgotten || had_answers;
        let again = match call.expect("a call is under way") {
            Call::Compound(_) => config.has(Mutation::CompoundAgain),
            Call::Name(_) => knows,
            Call::Write(_) => !forgotten || config.has(Mutation::WriteAfterTerm),
            Call::Fsync(file) if client.errors & 1 << file != 0 => {
                return self.tells_error(config, c, file);
            }
            Call::Fsync(_) | Call::Read(_) | Call::Lock | Call::Unlock => true,
        };
        if !again {
            return self.next(c);
        }
        client.sent = if back == Back::Same { client.sent + 1 } else { 1 };
        self.to[c] = Some(Sent::Call);
    }
}
