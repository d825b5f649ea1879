//! The order of one grant's requests, which several connections of its program bring in any order
//! (`docs/design/target.md`, "Queues").
//!
//! A request has a number, and begins when all with lower numbers than its group's first one have
//! ended. So the groups run one after the other, and the requests of a group at once. The numbers
//! are the program's, and are believed for its own file alone: a number that is not in the window,
//! or was there already, is refused, and one that never comes ends the life of its queue.

use crate::device::calls::lock;
use siftfs_base::{Error, Result};
use siftfs_wire::{Carried, Place, QUEUE_WINDOW, UNORDERED};
use std::mem;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A request that waits for its turn.
pub trait Waits {
    /// Where it belongs.
    fn place(&self) -> Place;
}

/// The requests of a grant, in their order. `T` is what waits for its turn.
pub struct Queue<T> {
    order: Mutex<Order<T>>,
    /// No request runs.
    drained: Condvar,
}

struct Order<T> {
    /// The newest one that was attached.
    life: u64,
    /// No request of it is carried out any more.
    ended: bool,
    /// The life whose numbers these are: the last one of which a request has come.
    of: u64,
    /// The lowest number that has not ended.
    low: u64,
    /// Bit `i`: the number `low - 64 + i` was carried out, which a request that failed was not.
    carried: u128,
    /// Bit `i`: the number `low + i` has come.
    come: u64,
    /// Bit `i`: the number `low + i` has ended.
    done: u64,
    /// Requests of any life that have begun and not ended.
    running: u32,
    waiting: Vec<T>,
    /// Since when nothing has moved.
    still: Instant,
}

/// What becomes of a request that comes.
pub enum Turn<T> {
    /// It begins now, and its end is to be told.
    Begins(T),
    /// It waits.
    Waits {
        /// None did before.
        first: bool,
    },
}

impl<T: Waits> Default for Queue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Waits> Queue<T> {
    /// Nothing is attached.
    pub fn new() -> Self {
        let order = Order {
            life: 0,
            ended: true,
            of: 0,
            low: 0,
            carried: 0,
            come: 0,
            done: 0,
            running: 0,
            waiting: Vec::new(),
            still: Instant::now(),
        };
        Self { order: Mutex::new(order), drained: Condvar::new() }
    }

    /// A connection is to bring requests of this life. Of a newer one than there was, it is the
    /// first: this returns when nothing runs that began before. What waited is over: it is to be
    /// answered, and not done. What was carried out is told until a request of this life comes.
    ///
    /// # Errors
    /// Refused: there is a newer life. `EAGAIN`: this one has ended, or something ran for longer
    /// than `term`. `ESTALE`: there is no further one.
    pub fn attach(&self, life: u64, term: Duration) -> (Vec<T>, Result<Carried>) {
        let (over, begun) = self.begin_life(life);
        match begun {
            Err(error) => return (over, Err(error)),
            Ok(Some(carried)) => return (over, Ok(carried)),
            Ok(None) => {}
        }
        let begun = Instant::now();
        let mut order = lock(&self.order);
        loop {
            let left = term.saturating_sub(begun.elapsed());
            match order.begin_drained(life) {
                Some(carried) => return (over, carried),
                None if left.is_zero() => return (over, Err(Error::Posix(libc::EAGAIN))),
                None => {}
            }
            let woken = self.drained.wait_timeout(order, left);
            order = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// As [`Queue::attach`], without the wait: `None` if something runs that began before. Then
    /// [`Queue::drained`] is asked until it says that nothing does.
    ///
    /// # Errors
    /// As of [`Queue::attach`].
    pub fn begin_life(&self, life: u64) -> (Vec<T>, Result<Option<Carried>>) {
        let mut order = lock(&self.order);
        if order.life == u64::MAX {
            return (Vec::new(), Err(Error::Posix(libc::ESTALE)));
        }
        if life < order.life {
            return (Vec::new(), Err(Error::Refused("the grant's queue has a newer life".into())));
        }
        if life == order.life {
            let lasts = order.is_of(life).map_err(|_| Error::Posix(libc::EAGAIN));
            return (Vec::new(), lasts.map(|()| Some(order.told())));
        }
        let over = order.end();
        order.life = life;
        (over, order.begin_drained(life).transpose())
    }

    /// Whether a life that [`Queue::begin_life`] has begun has nothing to wait for any more.
    ///
    /// # Errors
    /// `EAGAIN`: it has ended. `ESTALE`: there is no further one.
    pub fn drained(&self, life: u64) -> Option<Result<Carried>> {
        lock(&self.order).begin_drained(life)
    }

    /// A request of this life comes.
    ///
    /// # Errors
    /// Refused: it has no place here. `ESTALE`: its life has ended.
    pub fn arrive(&self, life: u64, request: T) -> Result<Turn<T>> {
        let mut order = lock(&self.order);
        order.is_of(life)?;
        let place = request.place();
        if order.of != life {
            (order.of, order.low, order.carried, order.come, order.done) = (life, 0, 0, 0, 0);
        }
        if place.number != UNORDERED {
            order.take(place)?;
        }
        if place.number == UNORDERED || place.first <= order.low {
            order.running += 1;
            return Ok(Turn::Begins(request));
        }
        let first = order.waiting.is_empty();
        if first {
            order.still = Instant::now();
        }
        order.waiting.push(request);
        Ok(Turn::Waits { first })
    }

    /// A request that had begun has ended, and was `carried` out if it did not fail. What may begin
    /// now, which has begun with this.
    ///
    /// # Panics
    /// If none had begun.
    pub fn ended(&self, life: u64, number: u64, carried: bool) -> Vec<T> {
        let mut order = lock(&self.order);
        order.running = order.running.checked_sub(1).expect("what ends has begun");
        if order.running == 0 {
            self.drained.notify_all();
        }
        if number == UNORDERED || order.of != life {
            return Vec::new();
        }
        order.count(number, carried);
        match order.is_of(life) {
            Ok(()) => order.begin(),
            Err(_) => Vec::new(),
        }
    }

    /// The life ends, if it is this one. What waited is over.
    pub fn end_life(&self, life: u64) -> Vec<T> {
        let mut order = lock(&self.order);
        if order.life == life { order.end() } else { Vec::new() }
    }

    /// There is no further life. What waited is over.
    pub fn close(&self) -> Vec<T> {
        let mut order = lock(&self.order);
        order.life = u64::MAX;
        self.drained.notify_all();
        order.end()
    }

    /// What was carried out of the last life of which a request has come.
    pub fn told(&self) -> Carried {
        lock(&self.order).told()
    }

    /// What to do about requests that wait for others which do not come: ends the life of a queue
    /// in which nothing has run and nothing has come for `term`. What waited is over; `None` if
    /// nothing waits.
    pub fn look(&self, term: Duration) -> Option<Vec<T>> {
        let mut order = lock(&self.order);
        if order.waiting.is_empty() {
            return None;
        }
        if order.running > 0 || order.still.elapsed() < term {
            return Some(Vec::new());
        }
        Some(order.end())
    }
}

impl<T: Waits> Order<T> {
    fn is_of(&self, life: u64) -> Result<()> {
        if self.life == life && !self.ended { Ok(()) } else { Err(Error::Posix(libc::ESTALE)) }
    }

    /// Begins a life, if nothing runs of those before.
    fn begin_drained(&mut self, life: u64) -> Option<Result<Carried>> {
        match self.life {
            u64::MAX => return Some(Err(Error::Posix(libc::ESTALE))),
            newest if newest != life => return Some(Err(Error::Posix(libc::EAGAIN))),
            _ if self.running > 0 => return None,
            _ => {}
        }
        self.ended = false;
        Some(Ok(self.told()))
    }

    fn end(&mut self) -> Vec<T> {
        self.ended = true;
        mem::take(&mut self.waiting)
    }

    /// A number comes, which it does once.
    fn take(&mut self, Place { number, first, .. }: Place) -> Result<()> {
        let wrong = |what: &str| {
            let what = format!("request {number} of the group from {first} on, {what}");
            Err(Error::Refused(what))
        };
        if first > number {
            return wrong("which begins behind it");
        }
        let bit = match number.checked_sub(self.low) {
            Some(at) if at < QUEUE_WINDOW => 1 << at,
            _ => return wrong(&format!("while {} has not ended", self.low)),
        };
        if self.come & bit != 0 {
            return wrong("which was there already");
        }
        self.come |= bit;
        Ok(())
    }

    /// A number has ended.
    fn count(&mut self, number: u64, carried: bool) {
        let at = number - self.low;
        self.done |= 1 << at;
        self.carried |= u128::from(carried) << (at + QUEUE_WINDOW);
        let ended = self.done.trailing_ones();
        self.low += u64::from(ended);
        self.carried = self.carried.checked_shr(ended).unwrap_or(0);
        self.done = self.done.checked_shr(ended).unwrap_or(0);
        self.come = self.come.checked_shr(ended).unwrap_or(0);
        self.still = Instant::now();
    }

    /// What may begin now, which has begun with this.
    fn begin(&mut self) -> Vec<T> {
        let low = self.low;
        let begins: Vec<T> = self.waiting.extract_if(.., |w| w.place().first <= low).collect();
        self.running += begins.len() as u32;
        begins
    }

    fn told(&self) -> Carried {
        let Self { of: life, low, carried, .. } = *self;
        Carried { life, low, before: carried as u64, from: (carried >> QUEUE_WINDOW) as u64 }
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
