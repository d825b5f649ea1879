//! Which leaves are in memory, and which of them goes when there is no room.

use std::sync::atomic::{AtomicBool, Ordering};

/// Leaves that are passed over because they were used, before one goes though it was.
const MOST_STEPS: usize = 64;

/// Whether each frame was used since the hand passed it. It is told by checks, without a lock.
pub(super) struct Used(Box<[AtomicBool]>);

impl Used {
    /// Of this many frames.
    pub fn new(frames: usize) -> Self {
        Self((0..frames).map(|_| AtomicBool::new(false)).collect())
    }

    /// The leaf in this frame was looked at.
    pub fn mark(&self, frame: u32) {
        let Some(used) = self.at(frame) else { return };
        // Most are marked already, and stay in the cache of each processor if they are only read.
        if !used.load(Ordering::Relaxed) {
            used.store(true, Ordering::Relaxed);
        }
    }

    fn at(&self, frame: u32) -> Option<&AtomicBool> {
        self.0.get(usize::try_from(frame).unwrap_or(usize::MAX))
    }

    pub fn frames(&self) -> usize {
        self.0.len()
    }
}

/// The frames of leaves in memory. They are gone round in a circle.
#[derive(Default)]
pub(super) struct Clock {
    /// The leaf in each frame that has been used so far.
    leaves: Vec<Option<u64>>,
    free: Vec<u32>,
    hand: usize,
}

impl Clock {
    /// A frame for this leaf, or nothing if every frame has a leaf.
    pub fn put(&mut self, leaf: u64, used: &Used) -> Option<u32> {
        let frame = match self.free.pop() {
            Some(frame) => frame,
            None if self.leaves.len() < used.frames() => {
                self.leaves.push(None);
                u32::try_from(self.leaves.len() - 1).expect("there are fewer frames")
            }
            None => return None,
        };
        let old = self.at(frame).replace(leaf);
        assert!(old.is_none(), "a frame with a leaf was free");
        used.mark(frame);
        Some(frame)
    }

    /// The leaf in this frame goes.
    pub fn release(&mut self, frame: u32) {
        let old = self.at(frame).take();
        assert!(old.is_some(), "a frame without a leaf is free already");
        self.free.push(frame);
    }

    fn at(&mut self, frame: u32) -> &mut Option<u64> {
        let at = usize::try_from(frame).unwrap_or(usize::MAX);
        self.leaves.get_mut(at).expect("a frame")
    }

    /// The leaf that is to go next, if there is one: it was not used since the hand passed it, or
    /// the hand has passed [`MOST_STEPS`] that were, or all of them twice. Checks mark leaves
    /// meanwhile, so there may be none that is unmarked when the hand comes to it.
    pub fn victim(&mut self, used: &Used) -> Option<u64> {
        let (mut steps, mut passed) = (0, None);
        // Twice round: in the first round every leaf may be marked.
        let frames = self.leaves.len();
        for _ in 0..frames * 2 {
            self.hand = (self.hand + 1) % frames;
            let Some(leaf) = self.leaves.get(self.hand).copied().flatten() else { continue };
            let frame = used.0.get(self.hand).expect("a frame");
            if steps == MOST_STEPS || !frame.swap(false, Ordering::Relaxed) {
                return Some(leaf);
            }
            passed = Some(leaf);
            steps += 1;
        }
        passed
    }

    /// How many leaves are in memory.
    pub fn leaves(&self) -> usize {
        self.leaves.len() - self.free.len()
    }

    /// Bytes of the clock itself.
    pub fn bytes(&self, used: &Used) -> usize {
        self.leaves.capacity() * size_of::<Option<u64>>()
            + self.free.capacity() * size_of::<u32>()
            + used.frames()
    }
}

#[cfg(test)]
#[path = "clock_tests.rs"]
mod tests;
