//! Where a receiver lies while the thread that had it does something else: leader and followers,
//! as Schmidt and others describe them, with a hand-over that is put off ("Threads" in
//! `docs/design/network.md`). To hand a receiver over wakes a thread, which costs more than most
//! calls. So a thread lays it down and tells nobody, and takes it up again when it is done; another
//! thread is called only where the receiver has lain for too long.

mod clerk;

pub(crate) use clerk::Clerk;

use clerk::{Lies, Looks};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Between two looks at what lies on a desk. What was not taken up from one look to the next has
/// lain for too long.
const PAUSE: Duration = Duration::from_millis(1);
/// After how many looks at which nothing had changed nobody looks any more, until something does.
const STILL: u32 = 20;

/// Something that one thread has at a time.
pub(crate) struct Desk<T> {
    state: Mutex<State<T>>,
    /// It lies there, and one that waits for it is to take it.
    free: Condvar,
    /// What sees to it that it does not lie for too long.
    looks: Looking,
}

/// What sees to it that nothing lies for too long.
enum Looking {
    /// A clerk, who looks at many desks.
    Clerk(Arc<Looks>),
    /// A thread that waits at this desk alone, in [`Desk::attend`].
    Own,
    /// Nothing: it is never laid down without a thread being called.
    Nobody,
}

struct State<T> {
    lies: Option<T>,
    /// Threads that wait for it.
    waiting: usize,
    /// How often it was laid down.
    laid: u64,
    /// The thread of the desk is to take it now.
    called: bool,
    /// The thread of the desk looks no more.
    rests: bool,
}

/// What was taken. Dropped, it lies on its desk again, and a thread that waits for it is called.
pub(crate) struct Held<'a, T: Send> {
    desk: &'a Desk<T>,
    it: Option<T>,
}

impl<T: Send + 'static> Desk<T> {
    /// A desk that a clerk looks at.
    pub fn new(it: T, clerk: &Clerk) -> Arc<Self> {
        let Some(looks) = clerk.looks() else { return Arc::new(Self::with(it, Looking::Nobody)) };
        let desk = Arc::new(Self::with(it, Looking::Clerk(looks)));
        clerk.add(desk.clone());
        desk
    }

    /// A desk with a thread of its own, which is in [`Desk::attend`] when it has nothing else to
    /// do.
    pub fn attended(it: T) -> Self {
        Self::with(it, Looking::Own)
    }

    fn with(it: T, looks: Looking) -> Self {
        let (waiting, laid, called, rests) = Default::default();
        let state = Mutex::new(State { lies: Some(it), waiting, laid, called, rests });
        Self { state, free: Condvar::new(), looks }
    }
}

impl<T: Send> Desk<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self, it: T) -> Held<'_, T> {
        Held { desk: self, it: Some(it) }
    }

    /// Takes what lies there, and waits until something does.
    pub fn take(&self) -> Held<'_, T> {
        let mut state = self.lock();
        loop {
            if let Some(it) = state.lies.take() {
                return self.held(it);
            }
            state.waiting += 1;
            state = self.free.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
    }

    /// Takes what lies there, if it does and `fits`.
    pub fn try_take(&self, fits: impl FnOnce(&T) -> bool) -> Option<Held<'_, T>> {
        let it = self.lock().lies.take_if(|it| fits(it))?;
        Some(self.held(it))
    }

    /// Takes it when that is asked for, or it has lain for too long. One thread of a desk calls
    /// this.
    pub fn attend(&self) -> Held<'_, T> {
        let mut state = self.lock();
        let (mut seen, mut still) = (None, 0);
        loop {
            let same = seen == Some(state.laid);
            if state.lies.is_some() && (same || state.called) {
                state.called = false;
                let it = state.lies.take().expect("it lies there");
                return self.held(it);
            }
            still = if same { still + 1 } else { 0 };
            seen = Some(state.laid);
            state.waiting += 1;
            // Some other thread has had it all the time, and receives.
            state.rests = still >= STILL;
            state = if state.rests {
                self.free.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else {
                self.free.wait_timeout(state, PAUSE).unwrap_or_else(PoisonError::into_inner).0
            };
            state.waiting -= 1;
            if std::mem::take(&mut state.rests) || still >= STILL {
                (seen, still) = (None, 0);
            }
        }
    }

    /// If it lies there, a thread that waits for it is to take it now.
    pub fn call(&self) {
        let mut state = self.lock();
        if state.lies.is_some() {
            self.call_one(&mut state);
        }
    }

    fn call_one(&self, state: &mut State<T>) {
        state.called = true;
        if state.waiting > 0 {
            self.free.notify_one();
        }
    }

    /// Threads that wait for it.
    pub fn waiting(&self) -> usize {
        self.lock().waiting
    }

    fn put(&self, it: T, calls: bool) {
        let mut state = self.lock();
        (state.lies, state.called) = (Some(it), false);
        state.laid = state.laid.wrapping_add(1);
        match &self.looks {
            _ if calls => self.call_one(&mut state),
            Looking::Nobody => self.call_one(&mut state),
            // Under the lock: one that is about to rest looks at this desk once more.
            Looking::Clerk(looks) => looks.begin(),
            Looking::Own if state.rests => {
                state.rests = false;
                self.free.notify_one();
            }
            Looking::Own => {}
        }
    }
}

impl<T: Send> Held<'_, T> {
    /// Lays it down without calling another thread: this one is about to come back for it.
    pub fn lay_down(mut self) {
        if let Some(it) = self.it.take() {
            self.desk.put(it, false);
        }
    }
}

impl<T: Send> Drop for Held<'_, T> {
    fn drop(&mut self) {
        if let Some(it) = self.it.take() {
            self.desk.put(it, true);
        }
    }
}

impl<T: Send> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.it.as_ref().expect("it is taken away at the end")
    }
}

impl<T: Send> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.it.as_mut().expect("it is taken away at the end")
    }
}

impl<T: Send> Lies for Desk<T> {
    fn look(&self, seen: &mut u64) -> bool {
        let mut state = self.lock();
        let same = std::mem::replace(seen, state.laid) == state.laid;
        let lies = state.lies.is_some();
        if same && lies {
            self.call_one(&mut state);
        }
        lies || !same
    }
}

#[cfg(test)]
#[path = "mod_tests.rs"]
mod tests;
