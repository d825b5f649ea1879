//! For how long what the kernel knows counts: the client asks its server again and again whether
//! the session is there (`docs/design/lost-server.md`, "What a kernel knows without a connection").
//!
//! Only when a question was *sent* says something, and only if it was answered. A network may keep
//! an answer for any time.

use super::{Client, Shared};
use crate::term::{DOUBT, EVERY, moment};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use siftfs_base::{Error, Result};
use siftfs_proto::Cache;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// What is told counts until the newest answered question is that old: the kernel takes a moment to
/// take an answer, and a server's clock may run a little faster.
const COUNTS: Duration = Duration::from_millis(3500);
/// A server that gives signs of life is given up when it leaves this number of questions in a row
/// unanswered.
const SILENT: usize = 10;
/// How often a call that waits looks whether its session is over.
const LOOK: Duration = Duration::from_millis(200);

type Kernel = Option<Arc<dyn Cache>>;

/// What is certain of the session.
pub(super) struct Certain {
    /// Whether the server is asked.
    asks: bool,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The connection by which is asked; none while it is lost.
    link: Option<(u64, Weak<Client>)>,
    next: u64,
    /// Questions that are not answered, and when they were asked.
    open: VecDeque<(u64, Duration)>,
    /// When the newest question was asked, answered or not.
    last: Duration,
    /// When the newest question was asked that was answered.
    since: Duration,
    /// The kernel was told to forget, and no question was answered since.
    doubts: bool,
}

/// What the thread that asks is to do.
enum Due {
    Ask(Arc<Client>, u64),
    Doubt(Option<Arc<Client>>),
    GiveUp(Arc<Client>),
    Nothing,
}

impl Certain {
    /// Of a session that speaks for a kernel, or that may find its volume at another server. Of all
    /// others nothing has to be certain, and nothing is asked.
    pub fn new(asks: bool) -> Self {
        let (link, next, open) = Default::default();
        let now = if asks { moment() } else { Duration::ZERO };
        let state = State { link, next, open, last: now, since: now, doubts: true };
        Self { asks, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Is the server asked?
    pub fn asks(&self) -> bool {
        self.asks
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection was made, and its session opened, which was asked for at this moment.
    pub fn connects(
        &self,
        (number, client): (u64, &Arc<Client>),
        asked: Duration,
        kernel: &Kernel,
    ) {
        let mut state = self.lock();
        // It may have been lost already, and have said so.
        if !self.asks || client.lost().is_some() {
            return;
        }
        state.link = Some((number, Arc::downgrade(client)));
        state.open.clear();
        state.last = asked;
        self.is_certain(&mut state, asked, kernel);
    }

    /// A question was answered.
    pub fn answered(&self, connection: u64, question: u64, kernel: &Kernel) {
        let mut state = self.lock();
        if state.link.as_ref().is_none_or(|(number, _)| *number != connection) {
            return;
        }
        let Some(at) = state.open.iter().position(|(number, _)| *number == question) else {
            return;
        };
        let asked = state.open.drain(..=at).next_back().map(|(_, asked)| asked);
        asked.iter().for_each(|asked| self.is_certain(&mut state, *asked, kernel));
    }

    fn is_certain(&self, state: &mut State, asked: Duration, kernel: &Kernel) {
        state.since = state.since.max(asked);
        let age = moment().saturating_sub(state.since);
        // The answer came too late.
        if age >= DOUBT {
            return;
        }
        kernel.iter().for_each(|kernel| kernel.trusts(COUNTS.saturating_sub(age)));
        if std::mem::take(&mut state.doubts) {
            self.changed.notify_all();
        }
    }

    /// A connection is lost: the kernel is about to be told to forget.
    pub fn lost(&self, connection: u64, kernel: &Kernel) {
        let mut state = self.lock();
        if state.link.as_ref().is_some_and(|(number, _)| *number == connection) {
            state.link = None;
            state.doubts = true;
            kernel.iter().for_each(|kernel| kernel.trusts(Duration::ZERO));
            self.changed.notify_all();
        }
    }

    /// Waits until the session of this connection is certainly there. False if the connection is
    /// lost, or `over`.
    pub fn wait(&self, connection: u64, over: impl Fn() -> bool) -> bool {
        let mut state = self.lock();
        loop {
            if state.link.as_ref().is_none_or(|(number, _)| *number != connection) {
                return false;
            }
            // Also where the thread that asks is late.
            if !state.doubts && moment().saturating_sub(state.since) < COUNTS {
                return true;
            }
            if over() {
                return false;
            }
            let waited = self.changed.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What is due now, and the moment when something is due again.
    fn look(&self, kernel: &Kernel) -> (Due, Duration) {
        let mut state = self.lock();
        let now = moment();
        let age = now.saturating_sub(state.since);
        if !state.doubts && age >= DOUBT {
            state.doubts = true;
            kernel.iter().for_each(|kernel| kernel.trusts(Duration::ZERO));
            return (Due::Doubt(state.client()), now);
        }
        let doubt = if state.doubts { now + EVERY } else { state.since + DOUBT };
        let client = state.client();
        let Some(client) = client else { return (Due::Nothing, doubt.min(now + EVERY)) };
        if state.open.len() >= SILENT {
            state.open.clear();
            return (Due::GiveUp(client), now + EVERY);
        }
        let next = state.last + EVERY;
        if now < next {
            return (Due::Nothing, next.min(doubt));
        }
        state.next += 1;
        let question = state.next;
        state.last = now;
        state.open.push_back((question, now));
        (Due::Ask(client, question), doubt.min(now + EVERY))
    }
}

impl State {
    /// The connection by which is asked.
    fn client(&self) -> Option<Arc<Client>> {
        self.link.as_ref().and_then(|(_, client)| client.upgrade())
    }
}

/// Starts the thread that asks. It ends with the session.
///
/// # Errors
/// It cannot be started.
pub(super) fn start(shared: &Arc<Shared>) -> Result<()> {
    let failed =
        |e: &dyn std::fmt::Display| Error::Refused(format!("cannot start a session's thread: {e}"));
    // It goes on while the machine is suspended, and wakes the thread as soon as that is over.
    let flags = TimerfdFlags::CLOEXEC;
    let timer = timerfd_create(TimerfdClockId::Boottime, flags).map_err(|e| failed(&e))?;
    let shared = Arc::downgrade(shared);
    let thread = std::thread::Builder::new().name("siftfs-asks".into());
    thread.spawn(move || ask(&shared, &timer)).map(drop).map_err(|e| failed(&e))
}

fn ask(shared: &Weak<Shared>, timer: &OwnedFd) {
    loop {
        let next = {
            let Some(shared) = shared.upgrade() else { return };
            if shared.lock().leaving {
                return;
            }
            let (due, next) = shared.certain.look(&shared.cache);
            match due {
                // One that cannot be sent is not answered.
                Due::Ask(client, question) => drop(client.asks(question)),
                Due::Doubt(client) => shared.doubt(client),
                Due::GiveUp(client) => {
                    tracing::warn!("the server gives signs of life, and answers no question");
                    client.cut();
                }
                Due::Nothing => {}
            }
            next
        };
        wait_until(timer, next);
    }
}

impl Shared {
    /// A server that stands still may be one whose volume another one has by now, and whose clients
    /// are waited for there no longer than the grace time: so the others are asked.
    fn doubt(&self, client: Option<Arc<Client>>) {
        tracing::warn!(server = self.peer_name(), "the server has not answered for {DOUBT:?}");
        if let Some(kernel) = &self.cache {
            kernel.doubts(self.looked_up.generations());
        }
        if let Some(client) = client.filter(|_| self.ways.addresses().are_several()) {
            self.ways.pass_by();
            client.cut();
        }
    }
}

/// Waits until a moment of this machine. A timer that fails is as one that is over a little later.
fn wait_until(timer: &OwnedFd, moment: Duration) {
    let at = Timespec::try_from(moment.max(Duration::from_nanos(1))).unwrap_or_default();
    let once = Itimerspec { it_interval: Timespec::default(), it_value: at };
    let set = timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &once);
    let waited =
        set.and_then(|_| rustix::io::retry_on_intr(|| rustix::io::read(timer, &mut [0; 8])));
    if let Err(error) = waited {
        tracing::debug!(%error, "a timer");
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
#[path = "certain_tests.rs"]
mod tests;
