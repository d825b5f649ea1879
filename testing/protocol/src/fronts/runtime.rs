//! The Runtime: what it does with a request, and what it waits for before it answers.

use super::config::{Call, Config, Mutation};
use super::state::{
    ALL, At, Broken, Changes, EMBEDDED, Ends, For, KERNELS, Known, Notice, Page, SESSIONS, Scene,
    Stage, Thing,
};

impl Scene {
    /// A client's present call, if there is one left.
    pub(crate) fn call(&self, config: &Config, client: usize) -> Option<Call> {
        config.programs[client].1.get(self.clients[client].call).copied()
    }

    /// The bit of a client's present call.
    pub(crate) fn change(&self, config: &Config, client: usize) -> Changes {
        config.change(client, self.clients[client].call)
    }

    /// May the Runtime carry a client's request out, or recall the lease for it?
    pub(crate) fn may_apply(&self, config: &Config, client: usize) -> bool {
        let recalled = matches!(self.lease.stage, Stage::Recalled | Stage::Returning);
        let Some(call) = self.call(config, client) else { return false };
        self.clients[client].at == At::Sent && !(recalled && call.recalls())
    }

    pub(crate) fn apply(&mut self, config: &Config, client: usize) {
        let call = self.call(config, client).expect("asked before");
        if call.recalls() {
            match self.lease.stage {
                Stage::Granted => {
                    self.lease.stage = Stage::Recalled;
                    return;
                }
                Stage::Draining => self.cancel_drain(config),
                _ => {}
            }
        }
        match call {
            Call::Stat => self.tell(config, client, Thing::Attributes),
            Call::Read(page) | Call::Store(page) => self.tell(config, client, Thing::Page(page)),
            Call::Lookup => self.tell(config, client, Thing::Name),
            Call::Write(page) | Call::Fill(page) => self.write(config, client, page),
            Call::Put => self.write(config, client, 0),
            Call::Append(len) => self.append(config, client, len),
            Call::Create => self.create(config, client),
            Call::Unlink => {
                self.truth.linked = false;
                self.changed(config, client, &[Thing::Name, Thing::Attributes]);
            }
            Call::Start => {
                self.section.get_or_insert(config.session_of(client));
                self.clients[client].at = At::Answered;
            }
            Call::Commit => {
                let own = self.section.take_if(|s| *s == config.session_of(client)).is_some();
                match own {
                    true => self.changed(config, client, &[Thing::Page(0), Thing::Attributes]),
                    false => self.returns(client),
                }
            }
            Call::Fsync => {
                self.durable = self.truth;
                self.clients[client].at = At::Held;
            }
            Call::Lease => self.ask_for_lease(config, client),
            Call::Return => self.give_back(config, client),
            Call::Hold | Call::Close => unreachable!("no request"),
        }
    }

    /// The answer to a request for this. What is told is remembered before the state is read.
    fn tell(&mut self, config: &Config, client: usize, thing: Thing) {
        let session = config.session_of(client);
        let late = session < KERNELS && config.has(Mutation::RememberAfterRead);
        if !late {
            self.remember(session, thing);
        }
        if let (Thing::Page(page), true) = (thing, session < KERNELS) {
            self.note_reread(session, page);
        }
        self.clients[client].says = self.truth.of(thing);
        self.clients[client].at = if late { At::Read } else { At::Answered };
    }

    /// A kernel reads a page: after it was taken back, or while it is.
    fn note_reread(&mut self, kernel: usize, page: usize) {
        if self.taken[kernel][page] {
            let about = |n: &Notice| n.to == kernel && n.thing == Thing::Page(page);
            self.reread[kernel][page] = true;
            self.taken[kernel][page] = self.notices.iter().any(about);
        }
    }

    /// The second half of that, where it is one (planted fault only).
    pub(crate) fn remember_late(&mut self, config: &Config, client: usize) {
        let thing = match self.call(config, client).expect("a call") {
            Call::Stat => Thing::Attributes,
            Call::Read(page) | Call::Store(page) => Thing::Page(page),
            _ => Thing::Name,
        };
        self.remember(config.session_of(client), thing);
        self.clients[client].at = At::Answered;
    }

    fn remember(&mut self, session: usize, thing: Thing) {
        if let Some(known) = self.known.get_mut(session) {
            known[thing.place()] = Known::Told;
        }
    }

    /// A kernel has this page, because it sent it.
    pub(crate) fn remember_page(&mut self, kernel: usize, page: usize) {
        self.remember(kernel, Thing::Page(page));
    }

    fn write(&mut self, config: &Config, client: usize, page: usize) {
        let session = config.session_of(client);
        self.changed(config, client, &[Thing::Page(page), Thing::Attributes]);
        self.remember(session, Thing::Page(page));
        let content = self.truth.of(Thing::Page(page));
        if let Some(kernel) = self.kernels.get_mut(session) {
            // What was written as a whole has met what is there now.
            let whole = |c| if c == ALL { content } else { c };
            kernel.pages[page] = kernel.pages[page].with(whole);
            self.tell_own_kernel(config, client, page);
        }
    }

    /// While a WRITE was on its way its page may have been taken back and read again: that page
    /// does not have the bytes. A kernel writes a file by one write(2) after the other, so only the
    /// first WRITE since can be meant.
    fn tell_own_kernel(&mut self, config: &Config, client: usize, page: usize) {
        let own = config.session_of(client);
        let reread = std::mem::take(&mut self.reread[own][page]);
        if reread && !config.has(Mutation::OwnPageUntold) {
            self.notify(own, Thing::Page(page), For::Client(client));
            self.notices.sort_unstable();
            self.clients[client].owed += 1;
        }
    }

    fn create(&mut self, config: &Config, client: usize) {
        let held = self.truth.linked || self.open;
        let leased = self.lease.stage != Stage::None;
        if !held && (!leased || config.has(Mutation::ReuseWhileLeased)) {
            self.truth.linked = true;
            if leased {
                self.ghost.note(Broken::Reused);
            }
        }
        self.changed(config, client, &[Thing::Name]);
        self.clients[client].says = self.truth.of(Thing::Name);
        if config.has(Mutation::ValidityFromChange) {
            self.remember(config.session_of(client), Thing::Name);
        }
    }

    /// A change is applied: kernels that know what it touches are told, and the answer waits.
    fn changed(&mut self, config: &Config, client: usize, things: &[Thing]) {
        let change = self.change(config, client);
        for thing in things.iter().filter(|thing| **thing != Thing::Size) {
            self.truth.add(*thing, change);
        }
        // A section comes by ioctl(2): its own kernel is to be told, too.
        let commit = self.call(config, client) == Some(Call::Commit);
        let by = if commit { SESSIONS } else { config.session_of(client) };
        self.clients[client].owed = self.collect(things, by, For::Client(client));
        self.clients[client].at = At::Held;
    }

    /// Tells every other kernel that knows one of these things. Returns how many notices that is.
    pub(crate) fn collect(&mut self, things: &[Thing], except: usize, by: For) -> u8 {
        let before = self.notices.len();
        let alive = self.alive;
        for to in (0..KERNELS).filter(|to| *to != except && alive[*to]) {
            for thing in things {
                let knows = match thing {
                    Thing::Size => self.kernels[to].has_inode,
                    _ => self.known[to][thing.place()] != Known::Nothing,
                };
                if !knows {
                    continue;
                }
                self.notify(to, *thing, by);
                if let Thing::Page(page) = *thing {
                    self.taken[to][page] = true;
                }
            }
        }
        let count = self.notices.len() - before;
        self.notices.sort_unstable();
        u8::try_from(count).expect("few things and kernels")
    }

    /// A notice to one kernel. The caller sorts them then.
    pub(crate) fn notify(&mut self, to: usize, thing: Thing, by: For) {
        if thing != Thing::Size {
            self.known[to][thing.place()] = Known::TakenBack;
        }
        if let Thing::Page(page) = thing {
            // A drop that has passed the page begins anew.
            let swept = &mut self.kernels[to].swept;
            *swept = page.min(*swept);
        }
        let notice = Notice { to, thing, by, done: false };
        // One that nobody counts is not sent twice.
        if matches!(by, For::Client(_)) || !self.notices.contains(&notice) {
            self.notices.push(notice);
        }
    }

    /// Rule R50: an append goes to the end, if its kernel may have believed that the end was where
    /// the request says.
    fn append(&mut self, config: &Config, client: usize, len: u8) {
        let session = config.session_of(client);
        let before = self.truth.end;
        let asked = if session == EMBEDDED { before } else { self.clients[client].offset };
        let at = self.place_append(config, session, asked, len);
        if at != before {
            self.ghost.note(Broken::NotAtEnd);
        }
        self.truth.end = before.max(at + len);
        self.changed(config, client, &[Thing::Attributes, Thing::Size]);
        for kernel in (0..KERNELS).filter(|k| *k != session && self.kernels[*k].has_inode) {
            let ends = Ends { range: (before, before), next: None };
            let ends = self.ends[kernel].get_or_insert(ends);
            ends.range = (ends.range.0.min(before), ends.range.1.max(before));
        }
    }

    fn place_append(&mut self, config: &Config, session: usize, asked: u8, len: u8) -> u8 {
        let end = self.truth.end;
        let Some(slot) = self.ends.get_mut(session) else { return asked };
        if asked == end {
            // A write that took an older end has ended: a kernel appends one after the other.
            *slot = None;
            return asked;
        }
        let Some(ends) = slot else { return asked };
        let believed = (ends.range.0..=ends.range.1).contains(&asked) || ends.next == Some(asked);
        if !believed || config.has(Mutation::AppendAtOffset) {
            return asked;
        }
        ends.next = Some(asked + len);
        if !config.has(Mutation::ToldEndForgotten) {
            // The kernel may have been told of this end after the append had taken its offset.
            ends.range.1 = ends.range.1.max(end);
        }
        end
    }

    /// May a change be answered?
    pub(crate) fn may_answer(&self, config: &Config, client: usize) -> bool {
        if self.clients[client].at != At::Held {
            return false;
        }
        match self.call(config, client) {
            Some(Call::Lease) => false,
            Some(Call::Return) => config.has(Mutation::ToldBeforeIngested),
            Some(Call::Fsync) => {
                let owes = self.notices.iter().any(|n| matches!(n.by, For::Debt(_)));
                !owes || config.has(Mutation::DebtsForgotten)
            }
            _ => {
                self.clients[client].owed == 0
                    || config.has(Mutation::AnswerBeforeAcknowledged)
                    || self.may_answer_early(config, client)
            }
        }
    }

    /// A write that waits for a page which the other kernel keeps locked for a write, while that
    /// write waits for this one's kernel: the page holds nothing valid, before and after. The same
    /// goes for a page of its own kernel that the write itself keeps locked.
    fn may_answer_early(&self, config: &Config, client: usize) -> bool {
        let own = config.session_of(client);
        let is_write = self.call(config, client).is_some_and(Call::is_write);
        if own == EMBEDDED || !is_write || config.has(Mutation::NoEarlyAnswer) {
            return false;
        }
        let waits_for_own = |other: usize| {
            let by = For::Client(other);
            let about = |n: &Notice| n.by == by && n.to == own && matches!(n.thing, Thing::Page(_));
            self.clients[other].at == At::Held && self.notices.iter().any(about)
        };
        let holds_back = |kernel: usize| {
            let of_kernel = |c: &usize| config.session_of(*c) == kernel;
            (0..self.clients.len()).filter(of_kernel).any(waits_for_own)
        };
        let mut owed = self.notices.iter().filter(|n| n.by == For::Client(client));
        owed.all(|n| {
            let Thing::Page(page) = n.thing else { return false };
            match self.kernels[n.to].pages[page] {
                Page::Writing(other) => other == client || waits_for_own(other),
                Page::Reading(_) if config.has(Mutation::EarlyOverReads) => holds_back(n.to),
                _ => config.has(Mutation::EarlyByTime) && holds_back(n.to),
            }
        })
    }

    pub(crate) fn answer(&mut self, config: &Config, client: usize) {
        for notice in self.notices.iter_mut().filter(|n| n.by == For::Client(client)) {
            notice.by = For::Nobody;
        }
        self.notices.sort_unstable();
        self.notices.dedup();
        self.clients[client].owed = 0;
        let session = config.session_of(client);
        if self.call(config, client) == Some(Call::Return) {
            self.ghost.told |= self.lease.published;
        }
        if self.call(config, client) != Some(Call::Create) || session == EMBEDDED {
            self.arrive(config, client);
            return;
        }
        if !config.has(Mutation::ValidityFromChange) {
            // The name is told as valid from now on, unless another change came between.
            let newest = self.clients[client].says == self.truth.of(Thing::Name);
            self.clients[client].stale = !newest;
            if newest {
                self.remember(session, Thing::Name);
            }
        }
        self.clients[client].at = At::Answered;
    }

    /// Acknowledgements arrive: of all notices that the kernel has done for one thing.
    pub(crate) fn acknowledge(&mut self, config: &Config, place: usize) {
        let Notice { to, thing, .. } = self.notices[place];
        let done = |n: &Notice| n.to == to && n.thing == thing && n.done;
        let (done, others): (Vec<_>, _) = self.notices.iter().copied().partition(done);
        self.notices = others;
        done.into_iter().for_each(|notice| self.settle(config, notice));
    }

    /// Another session acknowledges a notice, and that counts (planted fault only).
    pub(crate) fn count_foreign(&mut self, config: &Config, place: usize) {
        let notice = self.notices.remove(place);
        self.ghost.note(Broken::Counted);
        self.settle(config, notice);
    }

    /// A notice is no longer there: nobody waits for it any more.
    pub(crate) fn settle(&mut self, config: &Config, notice: Notice) {
        if let For::Client(client) = notice.by {
            let owed = &mut self.clients[client].owed;
            *owed = owed.saturating_sub(1);
        }
        if notice.thing == Thing::Size {
            return;
        }
        let other = |n: &Notice| n.to == notice.to && n.thing == notice.thing;
        let others = self.notices.iter().any(other);
        let known = &mut self.known[notice.to][notice.thing.place()];
        if *known == Known::TakenBack && !others || config.has(Mutation::ForgetNewer) {
            *known = Known::Nothing;
        }
    }
}
