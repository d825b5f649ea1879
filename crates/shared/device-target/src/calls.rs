//! Calls over one connection, each with a number, answered in any order. A thread that waits for
//! its answer receives for the others, too: no answer changes threads where one caller waits alone.
//!
//! While every thread sends, none receives, and the target may be waiting with an answer before it
//! takes what is sent. So no more calls are under way than the connection keeps answers of by
//! itself ([`QUEUE`]): then its watch takes them, and all goes on.

use siftfs_base::{Error, Result};
use siftfs_transport::{CallerEnd, Received, Receiver, Sender};
use siftfs_wire::{BlockProtocol, FromService, Place, StorageAnswer, StorageCall, ToService};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Answers that the connection keeps when nobody receives.
pub(crate) const QUEUE: usize = 64;
/// Calls under way at most. With the longest answers they are fewer bytes than a connection keeps
/// (16 MiB).
const MOST: usize = 56;

/// One connection, until it breaks.
pub(crate) struct Calls {
    sender: Arc<dyn Sender<ToService>>,
    receiver: Mutex<Box<dyn Receiver<FromService>>>,
    state: Mutex<State>,
    changed: Condvar,
    peer: String,
}

#[derive(Default)]
struct State {
    next: u64,
    /// What was asked, with what has come.
    asked: HashMap<u64, Option<StorageAnswer>>,
    /// A thread receives.
    receiving: bool,
    broken: Option<Error>,
}

impl Calls {
    /// Over a connection on which nothing was said.
    pub fn new(end: CallerEnd<BlockProtocol>) -> Self {
        let CallerEnd::<BlockProtocol> { sender, receiver, peer, .. } = end;
        let receiver = Mutex::new(receiver);
        Self { sender, receiver, state: Mutex::default(), changed: Condvar::new(), peer }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One call. What the target refused is an answer.
    ///
    /// # Errors
    /// [`Error::Link`]: the connection is broken, and the call may have been carried out.
    pub fn call(&self, call: StorageCall) -> Result<StorageAnswer> {
        let mut answers = self.all(vec![call])?;
        answers.pop().ok_or_else(|| self.odd("no answer"))
    }

    /// Several calls, all under way at once; the answers in their order.
    ///
    /// # Errors
    /// As [`Calls::call`]: any of them may have been carried out.
    pub fn all(&self, calls: Vec<StorageCall>) -> Result<Vec<StorageAnswer>> {
        let ids = self.ask(calls.len())?;
        let of = |(id, call)| ToService::Storage { id, call };
        self.send(&ids, ids.iter().copied().zip(calls).map(of))
    }

    /// As [`Calls::all`], of calls of queues, for which there is room by [`Calls::ask`].
    ///
    /// # Errors
    /// As [`Calls::call`].
    pub fn queued(
        &self,
        ids: &[u64],
        calls: Vec<(Place, StorageCall)>,
    ) -> Result<Vec<StorageAnswer>> {
        let of = |(id, (place, call))| ToService::Queued { id, place, call };
        self.send(ids, ids.iter().copied().zip(calls).map(of))
    }

    fn send(
        &self,
        ids: &[u64],
        mut messages: impl Iterator<Item = ToService>,
    ) -> Result<Vec<StorageAnswer>> {
        match messages.try_for_each(|message| self.sender.send(message)) {
            Ok(()) => self.wait(ids),
            Err(error) => Err(self.broke(error)),
        }
    }

    /// Is it of no use any more?
    pub fn is_broken(&self) -> bool {
        self.state().broken.is_some()
    }

    /// What room was asked for is not needed.
    pub fn unask(&self, ids: &[u64]) {
        let mut state = self.state();
        ids.iter().for_each(|id| drop(state.asked.remove(id)));
        drop(state);
        self.changed.notify_all();
    }

    /// Numbers for this count of calls, [`MOST`] at most, once there is room for them.
    ///
    /// # Errors
    /// As [`Calls::call`].
    pub fn ask(&self, calls: usize) -> Result<Vec<u64>> {
        assert!(calls <= MOST, "a caller asks for a window at a time");
        let mut state = self.state();
        loop {
            state.check()?;
            if state.asked.len() + calls <= MOST {
                let ids = state.next..state.next + calls as u64;
                state.next = ids.end;
                state.asked.extend(ids.clone().map(|id| (id, None)));
                return Ok(ids.collect());
            }
            state = self.turn(state);
        }
    }

    /// Receives, or waits for the thread that does, until all of these are answered.
    fn wait(&self, ids: &[u64]) -> Result<Vec<StorageAnswer>> {
        let mut state = self.state();
        loop {
            let all_here = ids.iter().all(|id| matches!(state.asked.get(id), Some(Some(_))));
            if all_here {
                let take = |id| state.asked.remove(id).flatten();
                let answers = ids.iter().map(take).collect::<Option<_>>();
                drop(state);
                // There is room for the next calls.
                self.changed.notify_all();
                return answers.ok_or_else(|| self.odd("gone"));
            }
            state.check()?;
            state = self.turn(state);
        }
    }

    /// Receives one answer, or waits until the thread that receives has one.
    fn turn<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if state.receiving {
            return self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.receiving = true;
        drop(state);
        let came = self.receiver.lock().unwrap_or_else(PoisonError::into_inner).recv(None);
        state = self.state();
        state.receiving = false;
        if let Err(error) = self.took(came, &mut state) {
            state.broken.get_or_insert(error);
            self.sender.cut();
        }
        self.changed.notify_all();
        state
    }

    /// Puts an answer where its caller finds it.
    fn took(&self, came: Result<Received<FromService>>, state: &mut State) -> Result<()> {
        match came? {
            Received::Message(FromService::Storage { id, answer }) => {
                match state.asked.get_mut(&id) {
                    Some(place @ None) => *place = Some(answer),
                    _ => return Err(self.odd("an answer to what was not asked")),
                }
                Ok(())
            }
            Received::Message(FromService::Refused { reason }) => {
                Err(Error::Link(format!("{} refused: {reason}", self.peer)))
            }
            Received::Message(FromService::Failed { error }) => {
                Err(Error::Link(format!("{}: {error}", self.peer)))
            }
            Received::Message(FromService::Bye) => Err(self.odd("it ends")),
            Received::Message(_) => Err(self.odd("it speaks of something else than storage")),
            Received::Timeout => Ok(()),
            Received::Closed => Err(self.odd("it closed the connection")),
        }
    }

    fn odd(&self, why: &str) -> Error {
        Error::Link(format!("{}: {why}", self.peer))
    }

    /// The connection is of no use any more, and every caller learns it.
    fn broke(&self, error: Error) -> Error {
        let mut state = self.state();
        let first = state.broken.get_or_insert(error).clone();
        drop(state);
        self.sender.cut();
        self.changed.notify_all();
        first
    }
}

impl State {
    fn check(&self) -> Result<()> {
        self.broken.clone().map_or(Ok(()), Err)
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        self.sender.close();
    }
}
