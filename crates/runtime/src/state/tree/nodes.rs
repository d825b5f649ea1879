//! The inodes in memory, each in memory of its own: what is forgotten is given back, and the table
//! holds no more than numbers and pointers.

use crate::state::caches::eviction::{EvictionOrder, Fate};
use crate::state::tree::node::Node;
use ahash::HashMap;
use siftfs_base::InodeNr;

/// A table smaller than this is not made smaller.
const SMALL: usize = 1024;

/// The inodes in memory, by number.
#[derive(Default)]
pub struct Nodes {
    map: HashMap<InodeNr, Box<Node>>,
    order: EvictionOrder<InodeNr>,
}

impl Nodes {
    /// The node, if in memory.
    pub fn get(&self, ino: &InodeNr) -> Option<&Node> {
        self.map.get(ino).map(Box::as_ref)
    }

    /// The node to be changed, if in memory.
    pub fn get_mut(&mut self, ino: &InodeNr) -> Option<&mut Node> {
        self.map.get_mut(ino).map(Box::as_mut)
    }

    /// Is the inode in memory?
    pub fn contains_key(&self, ino: &InodeNr) -> bool {
        self.map.contains_key(ino)
    }

    /// How many inodes are in memory.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Adds a node that was read or made; it is the youngest for eviction.
    pub fn insert(&mut self, ino: InodeNr, node: Node) {
        if self.map.insert(ino, Box::new(node)).is_none() {
            self.order.push(ino);
        }
    }

    /// Takes the node out of memory.
    pub fn remove(&mut self, ino: &InodeNr) -> Option<Box<Node>> {
        let node = self.map.remove(ino)?;
        give_back(&mut self.map);
        Some(node)
    }

    /// Considers nodes, oldest first, until `limit` at most are in memory or `most` were asked
    /// about: those that are `idle` are taken out of memory and handed to `gone`.
    pub fn sweep(
        &mut self,
        limit: usize,
        most: usize,
        idle: impl Fn(InodeNr, &Node) -> bool,
        mut gone: impl FnMut(InodeNr, &Node),
    ) {
        let Self { map, order } = self;
        order.sweep(map.len(), limit, most, |ino, evict| {
            let Some(node) = map.get(&ino) else { return Fate::Gone };
            if !evict || !idle(ino, node) {
                return Fate::Kept;
            }
            gone(ino, node);
            map.remove(&ino);
            give_back(map);
            Fate::Evicted
        });
    }

    /// Memory in bytes, without what single nodes hold.
    pub fn bytes(&self) -> u64 {
        let table = self.map.capacity() * size_of::<(InodeNr, Box<Node>)>();
        (self.map.len() * size_of::<Node>() + table) as u64 + self.order.bytes()
    }
}

/// Gives back the memory of a table that is far larger than it needs to be.
pub fn give_back<K: std::hash::Hash + Eq, V>(map: &mut HashMap<K, V>) {
    if map.capacity() > SMALL && map.capacity() / 4 > map.len() {
        map.shrink_to(2 * map.len());
    }
}

#[cfg(test)]
#[path = "nodes_tests.rs"]
mod tests;
