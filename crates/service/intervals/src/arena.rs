//! Nodes by 32-bit number.

use memmap2::{Advice, MmapMut};
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Nodes of the first chunk; each further one has twice as many.
const FIRST: u32 = 64;
/// Bytes of a page.
const SMALL: usize = 4096;
/// Bytes of a large one.
const LARGE: usize = 2 << 20;

/// A node: plain bytes.
pub(crate) trait Node:
    FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned + Clone
{
}
impl<T: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned + Clone> Node for T {}

/// Grows by chunks, so that nothing is ever copied. A chunk's pages are taken when they are first
/// used. Those of a large chunk are large pages where the system has them: a search through
/// millions of intervals then seldom waits for an address to be translated.
pub(crate) struct Arena<T> {
    chunks: Vec<MmapMut>,
    used: u32,
    /// The largest `used` there ever was.
    most: u32,
    free: Vec<u32>,
    nodes: PhantomData<T>,
}

/// Chunk of a node, and its number in it.
#[inline(always)]
fn place(nr: u32) -> (usize, usize) {
    let at = nr + FIRST;
    let chunk = at.ilog2() - FIRST.ilog2();
    (chunk as usize, (at - (FIRST << chunk)) as usize)
}

/// Bytes of the pages that a chunk of this many bytes is made of.
fn page(chunk: usize) -> usize {
    // Where a part of a large page is little beside the whole.
    if chunk < 2 * LARGE { SMALL } else { LARGE }
}

/// Memory for at least `len` bytes, all zero.
fn new_chunk(len: usize) -> MmapMut {
    let len = len.next_multiple_of(page(len));
    let map = MmapMut::map_anon(len);
    let map = map.unwrap_or_else(|e| panic!("cannot have {len} bytes of memory: {e}"));
    if page(len) == LARGE {
        // Where the system has none, small ones do.
        let _ = map.advise(Advice::HugePage);
    }
    map
}

impl<T: Node> Arena<T> {
    pub fn new() -> Self {
        Self { chunks: Vec::new(), used: 0, most: 0, free: Vec::new(), nodes: PhantomData }
    }

    /// A node with the contents of `value`.
    pub fn alloc(&mut self, value: T) -> u32 {
        let nr = self.free.pop().unwrap_or_else(|| self.grow());
        self[nr] = value;
        nr
    }

    fn grow(&mut self) -> u32 {
        let nr = self.used;
        let (chunk, _) = place(nr);
        if chunk == self.chunks.len() {
            self.chunks.push(new_chunk((FIRST as usize * size_of::<T>()) << chunk));
        }
        self.used = nr.checked_add(1).expect("memory ends long before node numbers do");
        self.most = self.most.max(self.used);
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

    /// Bytes taken from the system: the pages of all nodes that were ever used.
    pub fn memory(&self) -> usize {
        let Some((last, before)) = self.chunks.split_last() else { return 0 };
        let (_, at) = place(self.most - 1);
        let used = ((at + 1) * size_of::<T>()).next_multiple_of(page(last.len()));
        let before: usize = before.iter().map(|c| c.len()).sum();
        let tables =
            self.chunks.capacity() * size_of::<MmapMut>() + self.free.capacity() * size_of::<u32>();
        before + used + tables
    }
}

impl<T: Node> Index<u32> for Arena<T> {
    type Output = T;
    #[inline(always)]
    fn index(&self, nr: u32) -> &T {
        let (chunk, at) = place(nr);
        let bytes = &self.chunks[chunk][at * size_of::<T>()..][..size_of::<T>()];
        T::ref_from_bytes(bytes).expect("as long as a node")
    }
}

impl<T: Node> IndexMut<u32> for Arena<T> {
    #[inline(always)]
    fn index_mut(&mut self, nr: u32) -> &mut T {
        let (chunk, at) = place(nr);
        let bytes = &mut self.chunks[chunk][at * size_of::<T>()..][..size_of::<T>()];
        T::mut_from_bytes(bytes).expect("as long as a node")
    }
}
