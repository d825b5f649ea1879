//! Nodes by 32-bit number.

use std::ops::{Index, IndexMut};

const CHUNK: usize = 64;

/// Grows by chunks, so that neither a copy nor half-empty doubling ever happens.
pub(crate) struct Arena<T> {
    chunks: Vec<Box<[T]>>,
    used: usize,
    free: Vec<u32>,
}

impl<T: Clone> Arena<T> {
    pub fn new() -> Self {
        Self { chunks: Vec::new(), used: 0, free: Vec::new() }
    }

    /// A node with the contents of `value`.
    pub fn alloc(&mut self, value: T) -> u32 {
        if let Some(nr) = self.free.pop() {
            self[nr] = value;
            return nr;
        }
        if self.used == self.chunks.len() * CHUNK {
            self.chunks.push(vec![value.clone(); CHUNK].into_boxed_slice());
        }
        let nr = u32::try_from(self.used).expect("memory ends long before node numbers do");
        self.used += 1;
        self[nr] = value;
        nr
    }

    pub fn release(&mut self, nr: u32) {
        self.free.push(nr);
    }

    /// Forgets all nodes, keeps their memory.
    pub fn clear(&mut self) {
        self.used = 0;
        self.free.clear();
    }

    /// Bytes taken from the allocator.
    pub fn memory(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<T>()
            + self.chunks.capacity() * size_of::<Box<[T]>>()
            + self.free.capacity() * size_of::<u32>()
    }
}

impl<T> Index<u32> for Arena<T> {
    type Output = T;
    #[inline]
    fn index(&self, nr: u32) -> &T {
        &self.chunks[nr as usize / CHUNK][nr as usize % CHUNK]
    }
}

impl<T> IndexMut<u32> for Arena<T> {
    #[inline]
    fn index_mut(&mut self, nr: u32) -> &mut T {
        &mut self.chunks[nr as usize / CHUNK][nr as usize % CHUNK]
    }
}
