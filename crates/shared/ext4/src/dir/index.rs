//! Blocks of a directory's hash index: the root in block 0 and the nodes one level below.
//!
//! Both hold a header of limit, count and the block of the lowest hashes, then `count - 1`
//! pairs of (hash, block); here the header counts as pair 0, whose hash is its parent's.

use siftfs_base::{BLOCK_SIZE, Error, corrupt};

use super::csum::index_csum;
use super::hash::HashVersion;
use super::leaf::{Block, get16, get32, put16, put32};

/// Why an index cannot be used.
#[derive(Debug)]
pub(super) enum Fault {
    /// It makes no sense; the entries themselves may still be found block by block.
    Broken(&'static str),
    /// Reading failed, or a checksum.
    Failed(Error),
}

impl From<Error> for Fault {
    fn from(e: Error) -> Self {
        Fault::Failed(e)
    }
}

impl Fault {
    /// As an error, where there is no way around the index.
    pub fn into_error(self) -> Error {
        match self {
            Fault::Broken(why) => corrupt("directory index", why),
            Fault::Failed(e) => e,
        }
    }
}

/// Result of an operation on the index.
pub(super) type Walk<T> = std::result::Result<T, Fault>;

/// Where the root's header starts, after `.`, `..` and eight bytes on the hash.
pub(super) const ROOT_HEADER: usize = 32;
/// Where a node's header starts, after an empty record.
pub(super) const NODE_HEADER: usize = 8;
/// Bytes of a pair.
const PAIR: usize = 8;
/// Length of the record of `..` in a root: it hides the index.
pub(super) const ROOT_DOTDOT_LEN: usize = BLOCK_SIZE - 12;
/// Levels of nodes between root and leaves that this format allows without `largedir`.
pub(super) const MAX_LEVELS: u8 = 1;
/// The rest of a block number field is reserved.
const BLOCK_MASK: u32 = 0x0fff_ffff;

/// A checked index block: all its pairs in use lie within the block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    header: usize,
    /// Pairs in use, the header included; at least 1.
    pub count: usize,
    /// Pairs that fit.
    pub limit: usize,
}

/// What the root says of the whole index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Root {
    pub version: HashVersion,
    pub levels: u8,
    pub node: Node,
}

/// Pairs that fit behind a header at `header`.
fn limit(header: usize, csum: bool) -> usize {
    (BLOCK_SIZE - header) / PAIR - usize::from(csum)
}

impl Node {
    fn parse(block: &Block, header: usize, csum: bool) -> Walk<Node> {
        let node = Node {
            header,
            limit: usize::from(get16(block, header)),
            count: usize::from(get16(block, header + 2)),
        };
        if node.limit != limit(header, csum) {
            return Err(Fault::Broken("an impossible number of slots"));
        }
        if node.count == 0 || node.count > node.limit {
            return Err(Fault::Broken("an impossible number of entries"));
        }
        Ok(node)
    }

    /// The node in a block other than the root.
    pub fn of_block(block: &Block, csum: bool) -> Walk<Node> {
        if !looks_like_node(block) {
            return Err(Fault::Broken("a node without its empty record"));
        }
        Node::parse(block, NODE_HEADER, csum)
    }

    fn at(&self, i: usize) -> usize {
        assert!(i < self.limit);
        self.header + i * PAIR
    }

    /// Lowest hash of pair `i`, for `i` from 1; its lowest bit marks a continuation.
    pub fn hash(&self, block: &Block, i: usize) -> u32 {
        assert!(i > 0);
        get32(block, self.at(i))
    }

    /// Block of pair `i`.
    pub fn child(&self, block: &Block, i: usize) -> u32 {
        get32(block, self.at(i) + 4) & BLOCK_MASK
    }

    /// The pair that leads to `hash`: the last one not above it.
    pub fn search(&self, block: &Block, hash: u32) -> usize {
        let (mut low, mut high) = (0, self.count);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.hash(block, middle) <= hash { low = middle } else { high = middle }
        }
        low
    }

    /// Checks checksum and order.
    pub fn verify(&self, block: &Block, seed: Option<u32>) -> Walk<()> {
        if let Some(seed) = seed {
            let tail = self.header + self.limit * PAIR;
            let want = index_csum(seed, block, self.header + self.count * PAIR, tail);
            if get32(block, tail + 4) != want {
                return Err(corrupt("directory index", "checksum mismatch").into());
            }
        }
        // Several leaves may continue one hash, so equal neighbours are right if marked.
        let hashes = (1..self.count).map(|i| self.hash(block, i));
        if hashes.clone().zip(hashes.skip(1)).any(|(a, b)| a > b || (a == b && b & 1 == 0)) {
            return Err(Fault::Broken("entries out of order"));
        }
        Ok(())
    }

    /// Brings the checksum up to date.
    pub fn seal(&self, block: &mut Block, seed: Option<u32>) {
        if let Some(seed) = seed {
            let tail = self.header + self.limit * PAIR;
            put32(block, tail, 0);
            let csum = index_csum(seed, block, self.header + self.count * PAIR, tail);
            put32(block, tail + 4, csum);
        }
    }

    fn set_count(&mut self, block: &mut Block, count: usize) {
        assert!(count >= 1 && count <= self.limit);
        self.count = count;
        put16(block, self.header + 2, count);
    }

    /// Puts a pair behind pair `i`; there must be room. Not sealed.
    pub fn insert_after(&mut self, block: &mut Block, i: usize, hash: u32, child: u32) {
        assert!(i < self.count && self.count < self.limit);
        let (from, to) = (self.header + (i + 1) * PAIR, self.header + self.count * PAIR);
        block.copy_within(from..to, from + PAIR);
        put32(block, from, hash);
        put32(block, from + 4, child);
        self.set_count(block, self.count + 1);
    }

    /// All pairs from `from` on, as (hash, block); the hash of pair 0 means nothing.
    pub fn pairs(&self, block: &Block, from: usize) -> Vec<(u32, u32)> {
        (from..self.count)
            .map(|i| (if i == 0 { 0 } else { self.hash(block, i) }, self.child(block, i)))
            .collect()
    }

    /// Drops the pairs from `count` on. Not sealed.
    pub fn truncate(&mut self, block: &mut Block, count: usize) {
        let (from, to) = (self.header + count * PAIR, self.header + self.count * PAIR);
        block.get_mut(from..to).expect("pairs in use lie within the block").fill(0);
        self.set_count(block, count);
    }

    fn fill(block: &mut Block, header: usize, csum: bool, pairs: &[(u32, u32)]) -> Node {
        let mut node = Node { header, count: 0, limit: limit(header, csum) };
        for (i, (hash, child)) in pairs.iter().enumerate() {
            if i > 0 {
                put32(block, node.at(i), *hash);
            }
            put32(block, node.at(i) + 4, *child);
        }
        put16(block, header, node.limit);
        node.set_count(block, pairs.len());
        node
    }

    /// Makes an empty block a node with these pairs. Not sealed.
    pub fn format(block: &mut Block, csum: bool, pairs: &[(u32, u32)]) -> Node {
        block.fill(0);
        put16(block, 4, BLOCK_SIZE);
        Node::fill(block, NODE_HEADER, csum, pairs)
    }
}

/// Does the block start with an unused record over all of it, as nodes do?
pub(super) fn looks_like_node(block: &Block) -> bool {
    get32(block, 0) == 0 && usize::from(get16(block, 4)) == BLOCK_SIZE && block[6] == 0
}

/// Does block 0 start with `.` and a `..` that hides an index?
pub(super) fn looks_like_root(block: &Block) -> bool {
    usize::from(get16(block, 4)) == 12
        && block[6] == 1
        && block[8] == b'.'
        && usize::from(get16(block, 16)) == ROOT_DOTDOT_LEN
        && block[18] == 2
        && block[20..22] == *b".."
}

impl Root {
    /// The root in block 0.
    pub fn of_block(block: &Block, csum: bool, volume_unsigned: bool) -> Walk<Root> {
        if !looks_like_root(block) {
            return Err(Fault::Broken("no root in block 0"));
        }
        if get32(block, 24) != 0 || block[29] != 8 {
            return Err(Fault::Broken("bad root information"));
        }
        let version = HashVersion::from_disk(block[28], volume_unsigned)
            .map_err(|_| Fault::Broken("unknown hash version"))?;
        let levels = block[30];
        if levels > MAX_LEVELS {
            return Err(Fault::Broken("too many levels"));
        }
        Ok(Root { version, levels, node: Node::parse(block, ROOT_HEADER, csum)? })
    }

    /// Turns block 0, whose `.` and `..` stay, into a root with one leaf. Not sealed.
    pub fn format(block: &mut Block, csum: bool, version: HashVersion, leaf: u32) -> Node {
        put16(block, 16, ROOT_DOTDOT_LEN);
        block[24..].fill(0);
        block[28] = version.to_disk();
        block[29] = 8;
        Node::fill(block, ROOT_HEADER, csum, &[(0, leaf)])
    }

    /// Leaves one pair in the root, leading to a node that took over all of them. Not sealed.
    pub fn deepen(&mut self, block: &mut Block, node: u32) {
        assert!(self.levels < MAX_LEVELS);
        self.node.truncate(block, 1);
        put32(block, self.node.at(0) + 4, node);
        self.levels += 1;
        block[30] = self.levels;
    }
}
