//! The thread that finds out which commands wait for something else than a processor.

use super::line::Ticket;
use super::thread::{Look, Thread};
use super::{Shared, State};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(1);
/// Commands that lend are looked at together up to this many in one look: others in the next ones.
const LENDING: usize = 64;

pub(super) fn begin(shared: Arc<Shared>) -> io::Result<JoinHandle<()>> {
    Builder::new().name("siftfs-lookout".into()).spawn(move || run(&shared))
}

fn run(shared: &Shared) {
    let mut state = shared.lock();
    let mut last = Ticket(0);
    loop {
        if !state.queue.waits() {
            state.rests = !state.over;
        }
        let wait = shared.look.wait_while(state, |state| state.rests && !state.over);
        state = wait.unwrap_or_else(PoisonError::into_inner);
        let wait = shared.look.wait_timeout_while(state, PAUSE, |state| !state.over);
        (state, _) = wait.unwrap_or_else(PoisonError::into_inner);
        if state.over {
            return;
        }
        let some = whom(&state, &mut last);
        drop(state);
        let looked: Vec<_> = some.into_iter().map(|(ticket, one)| (ticket, one.look())).collect();
        state = shared.lock();
        for (ticket, look) in looked {
            judge(shared, &mut state, ticket, look);
        }
        shared.start(&mut state);
    }
}

/// All commands that are at work, and some that lend: those behind `last`.
fn whom(state: &State, last: &mut Ticket) -> Vec<(Ticket, Thread)> {
    let thread = |ticket: &Ticket| Some((*ticket, state.callers.get(ticket)?.thread));
    let mut at_work = Vec::new();
    let mut lending = Vec::new();
    for (_, ticket, lent) in state.queue.started() {
        if lent { lending.push(ticket) } else { at_work.push(ticket) }
    }
    lending.sort_unstable();
    let from = lending.partition_point(|ticket| *ticket <= *last);
    lending.rotate_left(from);
    lending.truncate(LENDING);
    *last = lending.last().copied().unwrap_or(Ticket(0));
    at_work.iter().chain(&lending).filter_map(thread).collect()
}

/// Does the command lend now?
fn judge(shared: &Shared, state: &mut State, ticket: Ticket, look: Option<Look>) {
    let State { queue, callers, .. } = state;
    // It may have ended meanwhile.
    let Some(caller) = callers.get_mut(&ticket) else { return };
    let before = caller.seen;
    let again = std::mem::replace(&mut caller.looked, true);
    caller.seen = look;
    let lends = match (before, look) {
        (Some(before), Some(now)) => now.sleeps && now.ran == before.ran,
        // It is not to be seen.
        (None, None) => again,
        _ => return,
    };
    if queue.lend(caller.session, ticket, lends) && lends {
        shared.lent.fetch_add(1, Ordering::Relaxed);
    }
}
