//! One worker: in turn a poller, which begins what comes, and a finisher, which ends it.

use crate::device::calls;
use crate::device::programs::{Access, Entering, Plan, Request, Within, plan};
use crate::device::workers::Common;
use crate::device::workers::mailbox::{Mail, Mailbox, Told};
use crate::device::workers::member::{Ends, Member, Newcomer};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use siftfs_base::{Error, Inside, Result};
use siftfs_device::{Io, IoDone, IoKind, IoQueue};
use siftfs_wire::StorageAnswer;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

/// What the worker's own descriptors are called, and the first connection.
const BELL: u64 = 0;
const RING: u64 = 1;
pub(super) const FIRST_NUMBER: u64 = 2;

/// Accesses under way.
const MOST_UNDER_WAY: usize = 256;
/// What a connection begins in one turn.
const TURN: usize = 4;
/// Helpers of a connection at once.
const MOST_HELPED: usize = 2;
/// How often connections are tended.
const TICK: Duration = Duration::from_millis(100);
/// How often something is looked at that no descriptor tells of.
const SOON: Duration = Duration::from_millis(1);
/// What is waited for without a sleep.
const SHORT: Duration = Duration::from_micros(50);

/// A request whose access is under way.
struct Running {
    request: Request,
    within: Within,
    kind: IoKind,
    /// In the area.
    bytes: Range<u64>,
    _beside: Option<Inside>,
}

/// A worker, in its thread.
pub(super) struct Worker {
    mailbox: Arc<Mailbox>,
    common: Arc<Common>,
    epoll: OwnedFd,
    members: HashMap<u64, Member>,
    /// Connections that are asked, because their descriptors say nothing.
    hot: Vec<u64>,
    /// Connections with something to begin, each once.
    ready: VecDeque<u64>,
    queue: IoQueue,
    running: HashMap<u64, Running>,
    next: u64,
    tended: Instant,
}

fn no_epoll(e: Errno) -> Error {
    Error::Refused(format!("a worker cannot wait: {e}"))
}

impl Worker {
    /// Without a connection.
    ///
    /// # Errors
    /// There are no descriptors.
    pub fn new(mailbox: &Arc<Mailbox>, common: &Arc<Common>) -> Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(no_epoll)?;
        let queue = IoQueue::new(MOST_UNDER_WAY as u32);
        let bell = EventData::new_u64(BELL);
        epoll::add(&epoll, mailbox.descriptor(), bell, EventFlags::IN).map_err(no_epoll)?;
        if let Some(ring) = queue.descriptor() {
            let flags = EventFlags::IN | EventFlags::ET;
            epoll::add(&epoll, ring, EventData::new_u64(RING), flags).map_err(no_epoll)?;
        }
        Ok(Self {
            mailbox: mailbox.clone(),
            common: common.clone(),
            epoll,
            members: HashMap::new(),
            hot: Vec::new(),
            ready: VecDeque::new(),
            queue,
            running: HashMap::new(),
            next: 0,
            tended: Instant::now(),
        })
    }

    /// Works until all are to stop.
    pub fn work(mut self) {
        let mut last = Instant::now();
        while !self.common.stopping.load(Ordering::Acquire) {
            let busy = self.turn();
            if busy {
                last = Instant::now();
            }
            // A sleep takes longer than what it is for, where that is short.
            let soon = self.queue.patience().is_some_and(|patience| patience < SHORT);
            let looks = busy || soon || last.elapsed() < self.common.spin;
            let sleep = if looks || !self.arm() { Duration::ZERO } else { self.patience() };
            if !busy && sleep.is_zero() {
                thread::yield_now();
            }
            self.wait(sleep);
        }
        self.finish_all();
    }

    /// Everything once; whether there was anything to do.
    fn turn(&mut self) -> bool {
        let mail = self.mailbox.take();
        let mut busy = !mail.is_empty();
        self.sort(mail);
        busy |= self.poll();
        busy |= self.begin();
        busy |= self.finish();
        self.look_again();
        if self.tended.elapsed() >= TICK {
            self.tended = Instant::now();
            self.common.tokens.look();
            self.each(Member::tend);
            // What is silent is heard of by asking.
            self.hot = self.members.keys().copied().collect();
            self.members.values_mut().for_each(|member| member.armed = false);
        }
        busy
    }

    fn sort(&mut self, Mail { newcomers, requests, told }: Mail) {
        newcomers.into_iter().for_each(|newcomer| self.welcome(newcomer));
        for request in requests {
            let number = request.line.number;
            match self.members.get_mut(&number) {
                Some(member) => {
                    member.ready.push_back(request);
                    self.may_begin(number);
                }
                None => request.abandon(),
            }
        }
        for (number, told) in told {
            let Some(member) = self.members.get_mut(&number) else { continue };
            let said = match told {
                Told::Kept(kept) => member.set_kept(kept),
                Told::Broke(error) => Err(Ends::Broke(error)),
                Told::Helped => {
                    member.helped -= 1;
                    member.under_way -= 1;
                    Ok(())
                }
            };
            match said {
                Ok(()) => {
                    self.may_begin(number);
                    self.wants_room(number);
                }
                Err(ends) => self.part(number, &ends),
            }
        }
    }

    fn welcome(&mut self, newcomer: Newcomer) {
        let number = newcomer.number;
        let welcomed = Member::new(newcomer, &self.mailbox).and_then(|member| {
            let flags = EventFlags::IN | EventFlags::ET;
            for fd in &member.awaited.descriptors {
                let data = EventData::new_u64(number);
                epoll::add(&self.epoll, fd, data, flags).map_err(no_epoll)?;
            }
            Ok(member)
        });
        match welcomed {
            Ok(member) => {
                self.members.insert(number, member);
                self.hot.push(number);
            }
            Err(error) => {
                self.mailbox.members.fetch_sub(1, Ordering::AcqRel);
                self.common.broken(&error);
            }
        }
    }

    /// A connection ends.
    fn part(&mut self, number: u64, ends: &Ends) {
        let Some(member) = self.members.remove(&number) else { return };
        for fd in &member.awaited.descriptors {
            // It was added.
            let _ = epoll::delete(&self.epoll, fd);
        }
        if let Ends::Broke(error) = ends {
            self.common.broken(error);
        }
        self.hot.retain(|hot| *hot != number);
        member.end(ends);
        self.mailbox.members.fetch_sub(1, Ordering::AcqRel);
    }

    fn each(&mut self, look: impl Fn(&mut Member) -> std::result::Result<(), Ends>) {
        let look = |(number, member): (&u64, &mut Member)| Some((*number, look(member).err()?));
        let ended: Vec<(u64, Ends)> = self.members.iter_mut().filter_map(look).collect();
        ended.iter().for_each(|(number, ends)| self.part(*number, ends));
    }

    /// The poller: takes messages of those that may have some.
    fn poll(&mut self) -> bool {
        let mut busy = false;
        for number in self.hot.clone() {
            let Some(member) = self.members.get_mut(&number) else { continue };
            match member.receive() {
                Ok(came) => {
                    busy |= came;
                    if came {
                        self.may_begin(number);
                    }
                }
                Err(ends) => self.part(number, &ends),
            }
        }
        busy
    }

    fn may_begin(&mut self, number: u64) {
        let member = self.members.get(&number);
        let some = member.is_some_and(|member| !member.ready.is_empty() || !member.slow.is_empty());
        if some && !self.ready.contains(&number) {
            self.ready.push_back(number);
        }
    }

    /// Begins what may begin, of one connection after the other.
    fn begin(&mut self) -> bool {
        let mut begun = false;
        for _ in 0..self.ready.len() {
            let Some(number) = self.ready.pop_front() else { break };
            for _ in 0..TURN {
                let full = self.running.len() >= MOST_UNDER_WAY;
                let Some(member) = self.members.get_mut(&number) else { break };
                if member.helped < MOST_HELPED
                    && let Some((request, within)) = member.slow.pop_front()
                {
                    member.helped += 1;
                    self.help(request, within);
                } else if let Some(request) = member.next_ready(full) {
                    self.begin_one(number, request);
                } else {
                    break;
                }
                begun = true;
            }
            // What is full goes on when something has ended.
            let able = self.members.get(&number).is_some_and(|member| {
                let slow = member.helped < MOST_HELPED && !member.slow.is_empty();
                slow || (!member.ready.is_empty() && !member.is_full())
            });
            if able {
                self.may_begin(number);
            }
        }
        begun
    }

    fn begin_one(&mut self, number: u64, request: Request) {
        if request.over {
            return request.line.answer(request.id, Err(Error::Posix(libc::ESTALE)));
        }
        let grant = request.open.grant.clone();
        let (within, request) = match grant.enter(request) {
            Entering::Late => return,
            Entering::Over(request) => {
                return request.finish(None, Err(Error::Posix(libc::ESTALE)));
            }
            Entering::Inside(within, request) => (within, request),
        };
        let slow = match plan(&grant, &within, &request.call) {
            Plan::Answer(answer) => return request.finish(Some(within), answer),
            Plan::Slow => (request, within),
            Plan::Access(access) => match self.submit(request, within, access) {
                None => {
                    self.member(number, |member| member.under_way += 1);
                    return;
                }
                Some(slow) => slow,
            },
        };
        let mut slow = Some(slow);
        let mut waits = false;
        self.member(number, |member| {
            member.under_way += 1;
            waits = member.helped + member.slow.len() >= MOST_HELPED;
            member.slow.extend(slow.take());
        });
        if waits {
            self.common.counts.waits();
        }
        self.may_begin(number);
    }

    fn member(&mut self, number: u64, with: impl FnOnce(&mut Member)) {
        self.members.get_mut(&number).map(with);
    }

    /// Has the device begin an access; what it does not begin comes back.
    fn submit(
        &mut self,
        request: Request,
        within: Within,
        Access { kind, offset, buf, bytes, device }: Access,
    ) -> Option<(Request, Within)> {
        let beside = match kind {
            IoKind::Read => None,
            IoKind::Write { .. } => match request.open.grant.beside() {
                Some(beside) => Some(beside),
                None => return Some((request, within)),
            },
        };
        self.next += 1;
        let id = self.next;
        match device.begin(Io { id, kind, offset, buf }, &mut self.queue) {
            Ok(()) => {
                self.common.counts.began();
                let running = Running { request, within, kind, bytes, _beside: beside };
                self.running.insert(id, running);
                None
            }
            Err(_) => Some((request, within)),
        }
    }

    fn help(&mut self, request: Request, within: Within) {
        self.common.counts.helped();
        let waits = self.common.helpers.help(Box::new(move || {
            let line = request.line.clone();
            request.carry_out(within);
            line.mailbox.tell(line.number, Told::Helped);
        }));
        if waits {
            self.common.counts.waits();
        }
    }

    /// The finisher: ends what the storage has done.
    fn finish(&mut self) -> bool {
        let mut ended = Vec::new();
        self.queue.ended(&mut ended);
        let some = !ended.is_empty();
        for IoDone { id, buf, result } in ended {
            let running = self.running.remove(&id).expect("what ends has begun");
            let number = running.request.line.number;
            running.end(&buf, result);
            self.member(number, |member| member.under_way -= 1);
            self.may_begin(number);
        }
        some
    }

    /// What no descriptor tells of: queues that are opened, and room in shared memory.
    fn look_again(&mut self) {
        self.members
            .values_mut()
            .filter(|member| member.has_openings())
            .for_each(Member::look_at_openings);
        self.each(|member| if member.keeps() { member.push() } else { Ok(()) });
        let has_room = |member: &Member| member.wants_room && !member.keeps();
        let rooms = self.members.iter().filter(|(_, member)| has_room(member));
        let rooms: Vec<u64> = rooms.map(|(number, _)| *number).collect();
        rooms.into_iter().for_each(|number| self.wants_room(number));
    }

    /// Has the socket tell of room as long as something is kept.
    fn wants_room(&mut self, number: u64) {
        let Some(member) = self.members.get_mut(&number) else { return };
        let wants = member.keeps() && member.awaited.tells_room;
        let Some(fd) = member.awaited.descriptors.first() else { return };
        if wants != std::mem::replace(&mut member.wants_room, wants) {
            let flags = EventFlags::IN | EventFlags::ET;
            let flags = if wants { flags | EventFlags::OUT } else { flags };
            // It was added. At the worst nothing tells of room before the next look.
            let _ = epoll::modify(&self.epoll, fd, EventData::new_u64(number), flags);
        }
    }

    /// Before a sleep: true if the descriptors tell of everything that comes.
    fn arm(&mut self) -> bool {
        let mut hot = Vec::new();
        let mut quiet = true;
        for number in std::mem::take(&mut self.hot) {
            let Some(member) = self.members.get_mut(&number) else { continue };
            if member.pauses() {
                hot.push(number);
                continue;
            }
            // What is wrong with it is found when it is asked.
            member.armed = member.end.receiver.arm().unwrap_or(false);
            if !member.armed {
                quiet = false;
                hot.push(number);
            }
        }
        self.hot = hot;
        quiet && self.mailbox.sleeps()
    }

    /// How long to sleep at most.
    fn patience(&self) -> Duration {
        let tick = match self.members.is_empty() {
            true => TICK * 4,
            false => TICK.saturating_sub(self.tended.elapsed()),
        };
        let soon = |member: &Member| {
            member.has_openings() || (member.keeps() && !member.awaited.tells_room)
        };
        let soon = self.members.values().any(soon).then_some(SOON);
        self.queue.patience().into_iter().chain(soon).fold(tick, Duration::min)
    }

    fn wait(&mut self, most: Duration) {
        let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 64];
        let timeout = Timespec::try_from(most).unwrap_or_default();
        let count = match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
            Ok(count) => count,
            Err(Errno::INTR) => return,
            Err(error) => {
                tracing::error!(%error, "a worker cannot wait");
                return thread::sleep(SOON);
            }
        };
        for event in events.iter().take(count) {
            match event.data.u64() {
                BELL => self.mailbox.quiet(),
                RING => {}
                number => self.woken(number),
            }
        }
    }

    fn woken(&mut self, number: u64) {
        let Some(member) = self.members.get_mut(&number) else { return };
        let woken = member.end.receiver.woken();
        member.armed = false;
        if !self.hot.contains(&number) {
            self.hot.push(number);
        }
        if let Err(error) = woken {
            self.part(number, &Ends::Broke(error));
        }
    }

    /// Ends all connections, and what is under way.
    fn finish_all(&mut self) {
        let all: Vec<u64> = self.members.keys().copied().collect();
        all.into_iter().for_each(|number| self.part(number, &Ends::Closed));
        let mut ended = Vec::new();
        self.queue.drain(&mut ended);
        for IoDone { id, buf, result } in ended {
            let running = self.running.remove(&id).expect("what ends has begun");
            running.end(&buf, result);
        }
        let Mail { newcomers, requests, .. } = self.mailbox.close();
        newcomers.into_iter().for_each(|newcomer| newcomer.end.sender.close());
        requests.into_iter().for_each(Request::abandon);
    }
}

impl Running {
    /// The access has ended.
    fn end(self, buf: &[u8], result: Result<()>) {
        let Self { request, within, kind, bytes, _beside } = self;
        let grant = &request.open.grant;
        let answer = match kind {
            IoKind::Read => result.map(|()| calls::data_of(buf)),
            IoKind::Write { durable } => {
                grant.wrote(durable, result.is_ok());
                result.map(|()| {
                    if grant.fresh.blocks() > 0 {
                        grant.fresh.note_written(&bytes);
                    }
                    StorageAnswer::Done
                })
            }
        };
        drop(_beside);
        request.finish(Some(within), answer);
    }
}
