//! What single decisions take, measured in this process: which group a call joins, and when a
//! request begins at the target. They are timed many at once, so that the clock does not count.

use siftfs_device_target::{Kind, RequestOrder, Sequence, Taken};
use siftfs_placement::queue::{Queue, Turn, Waits};
use siftfs_rig::place::{Failed, Result};
use siftfs_wire::Place;
use std::collections::VecDeque;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Decisions that are timed together.
const TOGETHER: usize = 64;
/// Bytes of a block.
const BLOCK: u64 = 4096;

/// A request at the target.
#[derive(Clone, Copy)]
pub struct Asked {
    /// The thread that asks.
    pub thread: usize,
    /// Its place.
    pub place: Place,
}

impl Waits for Asked {
    fn place(&self) -> Place {
        self.place
    }
}

/// A queue of the target in its first life.
///
/// # Errors
/// Never, of a new queue.
pub fn queue() -> Result<Queue<Asked>> {
    let queue = Queue::new();
    let (_, attached) = queue.attach(1, Duration::ZERO);
    attached.map_err(|e| Failed(e.to_string()))?;
    Ok(queue)
}

/// The place of one write of a thread's own block.
///
/// # Errors
/// The sequence has been ended.
pub fn decide(sequence: &Sequence, thread: usize) -> Result<Place> {
    let from = thread as u64 * BLOCK;
    let range = from..from + BLOCK;
    let taken: Taken = sequence
        .take(Kind::Write, std::slice::from_ref(&range), 1, |_| ())
        .map_err(|e| Failed(e.to_string()))?;
    Ok(taken.place(0, 0))
}

/// Nanoseconds of the decisions for one write, at its begin and at its answer, with this many
/// writes in flight, of blocks of their own. One number for each batch of decisions.
///
/// # Errors
/// Never, of a sequence that is not ended.
pub fn decisions(order: RequestOrder, in_flight: usize, batches: usize) -> Result<Vec<f64>> {
    let sequence = Sequence::new(order);
    let mut flying: VecDeque<Place> = VecDeque::new();
    let mut next = 0;
    let mut all = Vec::with_capacity(batches);
    for _ in 0..batches {
        let begun = Instant::now();
        for _ in 0..TOGETHER {
            if flying.len() == in_flight
                && let Some(oldest) = flying.pop_front()
            {
                sequence.answered(oldest);
            }
            flying.push_back(black_box(decide(&sequence, next % in_flight)?));
            next += 1;
        }
        all.push(begun.elapsed().as_nanos() as f64 / TOGETHER as f64);
    }
    Ok(all)
}

/// Nanoseconds of the target's decisions for one request, at its begin and at its end, with this
/// many in flight and groups of one each.
///
/// # Errors
/// The target refuses a request.
pub fn ordering(in_flight: u64, batches: usize) -> Result<Vec<f64>> {
    let queue = queue()?;
    let refused = |e: siftfs_base::Error| Failed(e.to_string());
    let mut all = Vec::with_capacity(batches);
    let mut number = 0;
    for _ in 0..batches {
        let begun = Instant::now();
        for _ in 0..TOGETHER {
            for at in number..number + in_flight {
                let place = Place { queue: 0, number: at, first: at };
                match queue.arrive(1, Asked { thread: 0, place }).map_err(refused)? {
                    Turn::Begins(_) => {}
                    Turn::Waits { .. } => drop(black_box(at)),
                }
            }
            for at in number..number + in_flight {
                drop(black_box(queue.ended(1, at, true)));
            }
            number += in_flight;
        }
        let requests = TOGETHER as u64 * in_flight;
        all.push(begun.elapsed().as_nanos() as f64 / requests as f64);
    }
    Ok(all)
}

#[cfg(test)]
#[path = "costs_tests.rs"]
mod tests;
