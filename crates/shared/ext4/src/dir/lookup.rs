//! Finding names, and the changes that stay inside one block.

use siftfs_base::{BLOCK_SIZE, Result, corrupt, errno};

use super::hash::{DirHash, dir_hash};
use super::index::{Fault, Node, Root, Walk, looks_like_node, looks_like_root};
use super::leaf::{self, Block, Record};
use super::{Dir, DirBlocks, Found, HashVersion};

/// Where an entry is.
pub(super) struct Slot {
    pub lblk: u64,
    record: Record,
    before: Option<Record>,
}

/// One index block on the way down, and the pair taken there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub lblk: u64,
    pub node: Node,
    pub at: usize,
}

/// The way from the root to a leaf.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub root: Root,
    /// The root, then a node if there is one.
    pub steps: Vec<Step>,
    pub leaf: u64,
}

impl Path {
    /// The root's step.
    pub fn top(&self) -> &Step {
        self.steps.first().expect("a path begins at the root")
    }
    /// The same, to be changed.
    pub fn top_mut(&mut self) -> &mut Step {
        self.steps.first_mut().expect("a path begins at the root")
    }
    /// The step that leads to the leaf.
    pub fn last(&self) -> &Step {
        self.steps.last().expect("a path begins at the root")
    }
    /// The same, to be changed.
    pub fn last_mut(&mut self) -> &mut Step {
        self.steps.last_mut().expect("a path begins at the root")
    }
}

/// What a block is when blocks are read one by one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Leaf,
    Root,
    Node,
}

fn kind(indexed: bool, lblk: u64, block: &Block) -> Kind {
    match lblk {
        0 if indexed && looks_like_root(block) => Kind::Root,
        // Without checksums an empty leaf has the same bytes, and is as empty.
        n if n > 0 && indexed && looks_like_node(block) => Kind::Node,
        _ => Kind::Leaf,
    }
}

impl<B: DirBlocks> Dir<'_, B> {
    /// The entry of `name`, `.` and `..` included. One leaf is read, through the index if
    /// there is one; without, or if it makes no sense, all blocks up to the name's.
    pub fn lookup(&mut self, name: &[u8]) -> Result<Option<Found>> {
        Ok(self.find(name)?.map(|s| Found { ino: s.record.ino, ftype: s.record.ftype }))
    }

    /// Removes an entry and answers what it was; ENOENT if there is none. The block's other
    /// entries stay where they are.
    pub fn remove(&mut self, name: &[u8]) -> Result<Found> {
        if name == b"." || name == b".." {
            return Err(errno(libc::EINVAL));
        }
        let slot = self.find(name)?.ok_or(errno(libc::ENOENT))?;
        let layout = self.layout;
        let block = self.blocks.modify(slot.lblk)?;
        leaf::remove(block, slot.record, slot.before);
        leaf::seal(block, layout);
        Ok(Found { ino: slot.record.ino, ftype: slot.record.ftype })
    }

    /// Lets an existing name lead to another inode and answers where it led before; ENOENT if
    /// there is no such name.
    pub fn replace(&mut self, name: &[u8], ino: u32, ftype: u8) -> Result<Found> {
        assert_ne!(ino, 0);
        let slot = self.find(name)?.ok_or(errno(libc::ENOENT))?;
        let (layout, r) = (self.layout, slot.record);
        let seal = self.sealer(slot.lblk)?;
        let block = self.blocks.modify(slot.lblk)?;
        leaf::put32(block, r.at, ino);
        if layout.filetype {
            leaf::put_bytes(block, r.at + 7, &[ftype]);
        }
        match seal {
            Some(root) => root.seal(block, layout.seed),
            None => leaf::seal(block, layout),
        }
        Ok(Found { ino: r.ino, ftype: r.ftype })
    }

    /// The parent's inode.
    pub fn dotdot(&mut self) -> Result<u32> {
        match self.lookup(b"..")? {
            Some(found) => Ok(found.ino),
            None => Err(corrupt("directory block 0", "no entry for the parent")),
        }
    }

    /// Gives the directory another parent.
    pub fn set_dotdot(&mut self, parent: u32) -> Result<()> {
        self.replace(b"..", parent, super::ftype::DIRECTORY).map(|_| ())
    }

    /// Is there nothing but `.` and `..`? Reads blocks up to the first entry.
    pub fn is_empty(&mut self) -> Result<bool> {
        for lblk in 0..self.blocks.block_count() {
            let end = self.scan_end(lblk)?;
            let block = self.blocks.read(lblk)?;
            let mut all = leaf::records(block, end, self.layout);
            if lblk == 0 {
                for dot in [&b"."[..], b".."] {
                    let found = all.next().transpose()?;
                    if !found.is_some_and(|r| r.ino != 0 && r.name(block) == dot) {
                        return Err(corrupt("directory block 0", "does not start with . and .."));
                    }
                }
            }
            for r in all {
                if r?.ino != 0 {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    pub(super) fn find(&mut self, name: &[u8]) -> Result<Option<Slot>> {
        if name == b"." || name == b".." {
            let end = self.scan_end(0)?;
            return self.find_in(0, end, name);
        }
        if self.ctx.indexed {
            match self.find_indexed(name) {
                Ok(found) => return Ok(found),
                Err(Fault::Failed(e)) => return Err(e),
                Err(Fault::Broken(_)) => {}
            }
        }
        for lblk in 0..self.blocks.block_count() {
            let end = self.scan_end(lblk)?;
            if let Some(slot) = self.find_in(lblk, end, name)? {
                return Ok(Some(slot));
            }
        }
        Ok(None)
    }

    fn find_in(&mut self, lblk: u64, end: usize, name: &[u8]) -> Result<Option<Slot>> {
        let found = leaf::find(self.blocks.read(lblk)?, end, self.layout, name)?;
        Ok(found.map(|(record, before)| Slot { lblk, record, before }))
    }

    fn find_indexed(&mut self, name: &[u8]) -> Walk<Option<Slot>> {
        let root = self.root()?;
        let hash = self.hash(name, root.version).major;
        let mut path = self.probe(root, hash)?;
        loop {
            self.check_leaf(path.leaf)?;
            if let Some(slot) = self.find_in(path.leaf, self.layout.end(), name)? {
                return Ok(Some(slot));
            }
            if self.next_boundary(&path)? != Some(hash | 1) {
                return Ok(None);
            }
            self.advance(&mut path)?;
        }
    }

    pub(super) fn hash(&self, name: &[u8], version: HashVersion) -> DirHash {
        dir_hash(name, version, &self.ctx.hash_seed)
    }

    /// The index's root, checked.
    pub(super) fn root(&mut self) -> Walk<Root> {
        let (csum, seed) = (self.csum(), self.layout.seed);
        let unsigned = self.ctx.hash_version.unsigned;
        let checked = self.blocks.verified(0)?;
        let block = self.blocks.read(0)?;
        let root = Root::of_block(block, csum, unsigned)?;
        if !checked {
            root.node.verify(block, seed)?;
            self.blocks.set_verified(0)?;
        }
        Ok(root)
    }

    /// The node in block `lblk`, checked.
    fn node(&mut self, lblk: u64) -> Walk<Node> {
        let (csum, seed) = (self.csum(), self.layout.seed);
        if lblk == 0 || lblk >= self.blocks.block_count() {
            return Err(Fault::Broken("a node outside the directory"));
        }
        let checked = self.blocks.verified(lblk)?;
        let block = self.blocks.read(lblk)?;
        let node = Node::of_block(block, csum)?;
        if !checked {
            node.verify(block, seed)?;
            self.blocks.set_verified(lblk)?;
        }
        Ok(node)
    }

    /// The way to the first leaf that may hold `hash`.
    pub(super) fn probe(&mut self, root: Root, hash: u32) -> Walk<Path> {
        let at = root.node.search(self.blocks.read(0)?, hash);
        let mut path = Path { root, steps: Vec::with_capacity(2), leaf: 0 };
        path.steps.push(Step { lblk: 0, node: root.node, at });
        if root.levels == 1 {
            let lblk = u64::from(root.node.child(self.blocks.read(0)?, at));
            let node = self.node(lblk)?;
            let at = node.search(self.blocks.read(lblk)?, hash);
            path.steps.push(Step { lblk, node, at });
        }
        self.set_leaf(&mut path)?;
        Ok(path)
    }

    fn set_leaf(&mut self, path: &mut Path) -> Walk<()> {
        let last = *path.last();
        path.leaf = u64::from(last.node.child(self.blocks.read(last.lblk)?, last.at));
        if path.leaf == 0 || path.leaf >= self.blocks.block_count() {
            return Err(Fault::Broken("a leaf outside the directory"));
        }
        Ok(())
    }

    /// The lowest hash of the leaf after this one, its continuation mark included.
    pub(super) fn next_boundary(&mut self, path: &Path) -> Walk<Option<u32>> {
        for step in path.steps.iter().rev() {
            if step.at + 1 < step.node.count {
                return Ok(Some(step.node.hash(self.blocks.read(step.lblk)?, step.at + 1)));
            }
        }
        Ok(None)
    }

    /// The lowest hash of the path's leaf, without a continuation mark.
    pub(super) fn boundary(&mut self, path: &Path) -> Walk<u32> {
        for step in path.steps.iter().rev() {
            if step.at > 0 {
                return Ok(step.node.hash(self.blocks.read(step.lblk)?, step.at) & !1);
            }
        }
        Ok(0)
    }

    /// Goes on to the next leaf, which [`Self::next_boundary`] announced.
    pub(super) fn advance(&mut self, path: &mut Path) -> Walk<()> {
        path.last_mut().at += 1;
        if path.last().at >= path.last().node.count {
            assert!(path.steps.len() == 2, "no leaf after the last one");
            path.top_mut().at += 1;
            let up = *path.top();
            assert!(up.at < up.node.count, "no leaf after the last one");
            let lblk = u64::from(up.node.child(self.blocks.read(up.lblk)?, up.at));
            *path.last_mut() = Step { lblk, node: self.node(lblk)?, at: 0 };
        }
        self.set_leaf(path)
    }

    /// Checks a leaf unless that was done since it was read.
    pub(super) fn check_leaf(&mut self, lblk: u64) -> Result<()> {
        if !self.blocks.verified(lblk)? {
            leaf::verify(self.blocks.read(lblk)?, self.layout)?;
            self.blocks.set_verified(lblk)?;
        }
        Ok(())
    }

    /// Prepares a block for being read one by one: checks it, and answers where its records
    /// end. Index blocks show their disguise: `.` and `..`, or nothing.
    pub(super) fn scan_end(&mut self, lblk: u64) -> Result<usize> {
        if lblk >= self.blocks.block_count() {
            return Err(corrupt("directory", "it has no blocks"));
        }
        let indexed = self.ctx.indexed;
        let checked = match kind(indexed, lblk, self.blocks.read(lblk)?) {
            Kind::Leaf => {
                self.check_leaf(lblk)?;
                return Ok(self.layout.end());
            }
            Kind::Root => self.root().map(|_| ()),
            Kind::Node => self.node(lblk).map(|_| ()),
        };
        match checked {
            // A broken index hides nothing but itself.
            Ok(()) | Err(Fault::Broken(_)) => Ok(BLOCK_SIZE),
            Err(Fault::Failed(e)) => Err(e),
        }
    }

    /// What brings the checksum of a block with entries up to date: the root, or the leaf that it
    /// is (`None`).
    fn sealer(&mut self, lblk: u64) -> Result<Option<Node>> {
        let (csum, unsigned) = (self.csum(), self.ctx.hash_version.unsigned);
        let indexed = self.ctx.indexed;
        let block = self.blocks.read(lblk)?;
        if kind(indexed, lblk, block) != Kind::Root {
            return Ok(None);
        }
        match Root::of_block(block, csum, unsigned) {
            Ok(root) => Ok(Some(root.node)),
            // Nothing to bring up to date.
            Err(Fault::Broken(_)) if !csum => Ok(None),
            Err(fault) => Err(fault.into_error()),
        }
    }
}
