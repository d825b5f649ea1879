//! Making directories and putting names into them: the first index, and splits.

use siftfs_base::{Error, Result, corrupt, errno};

use super::index::{Fault, MAX_LEVELS, Node, ROOT_DOTDOT_LEN, Root, Walk};
use super::leaf::{self, Block, NewEntry, record_len};
use super::lookup::{Path, Step};
use super::{Dir, DirBlocks, ftype};

/// An entry of a leaf that is being split.
struct Moving {
    hash: u32,
    name: Vec<u8>,
    ino: u32,
    ftype: u8,
}

impl Moving {
    fn len(&self) -> usize {
        record_len(self.name.len())
    }
    fn entry(&self) -> NewEntry<'_> {
        NewEntry { name: &self.name, ino: self.ino, ftype: self.ftype }
    }
}

fn total(entries: &[Moving]) -> usize {
    entries.iter().map(Moving::len).sum()
}

impl<B: DirBlocks> Dir<'_, B> {
    /// Makes a directory that has no blocks yet an empty one below `parent`.
    pub fn init(&mut self, parent: u32) -> Result<()> {
        assert_eq!(self.blocks.block_count(), 0, "a new directory has no blocks");
        let lblk = self.blocks.append()?;
        let (layout, ino) = (self.layout, self.ctx.ino);
        let dots = [(&b"."[..], ino), (&b".."[..], parent)];
        let entries = dots.map(|(name, ino)| NewEntry { name, ino, ftype: ftype::DIRECTORY });
        leaf::pack(self.blocks.modify(lblk)?, entries.into_iter(), layout);
        self.ctx.indexed = false;
        self.blocks.set_verified(lblk)
    }

    /// Puts a name into the directory.
    ///
    /// That the name is new is the caller's to know; EEXIST comes only if the name happens to
    /// be in the block that it would go to. EINVAL and ENAMETOOLONG for names that cannot be;
    /// ENOSPC if the volume is full, or the index (two levels); the directory is whole and
    /// without the name after every error.
    pub fn insert(&mut self, name: &[u8], ino: u32, ftype: u8) -> Result<()> {
        assert_ne!(ino, 0);
        if name.len() > leaf::NAME_MAX {
            return Err(errno(libc::ENAMETOOLONG));
        }
        if !leaf::name_ok(name) || name == b"." || name == b".." {
            return Err(errno(libc::EINVAL));
        }
        let entry = NewEntry { name, ino, ftype };
        if self.ctx.indexed {
            match self.insert_indexed(entry) {
                Err(Fault::Broken(_)) if !self.csum() => {
                    // Entries overwrite the index from now on, so it must not be used again.
                    self.ctx.indexed = false;
                }
                other => return other.map_err(Fault::into_error),
            }
        }
        self.insert_linear(entry)
    }

    fn insert_linear(&mut self, entry: NewEntry<'_>) -> Result<()> {
        let count = self.blocks.block_count();
        for lblk in 0..count {
            self.check_leaf(lblk)?;
            if self.put_if_room(lblk, entry)? {
                return Ok(());
            }
        }
        if count == 1 && self.ctx.dir_index {
            self.make_index()?;
            return self.insert_indexed(entry).map_err(Fault::into_error);
        }
        let lblk = self.blocks.append()?;
        let layout = self.layout;
        leaf::pack(self.blocks.modify(lblk)?, std::iter::once(entry), layout);
        self.blocks.set_verified(lblk)
    }

    /// Puts the entry into a checked leaf; false if it is full.
    fn put_if_room(&mut self, lblk: u64, entry: NewEntry<'_>) -> Result<bool> {
        let layout = self.layout;
        let Some(host) = leaf::room(self.blocks.read(lblk)?, layout, entry.name)? else {
            return Ok(false);
        };
        let block = self.blocks.modify(lblk)?;
        leaf::put(block, host, entry, layout);
        leaf::seal(block, layout);
        Ok(true)
    }

    /// Moves the entries of the only block to a second one and makes the first a root.
    fn make_index(&mut self) -> Result<()> {
        let mut all = self.collect(0, |_| 0)?;
        let (mut seen, dots) = (0, [&b"."[..], &b".."[..]]);
        all.retain(|e| {
            let dot = dots.get(seen).is_some_and(|d| e.name == *d);
            seen += usize::from(dot);
            !dot
        });
        let block = self.blocks.read(0)?;
        let starts_with_dots = usize::from(leaf::get16(block, 4)) == 12
            && block[6] == 1
            && block[18] == 2
            && block[8] == b'.'
            && block[20..22] == *b"..";
        if seen != 2 || !starts_with_dots {
            return Err(corrupt("directory block 0", "does not start with . and .."));
        }
        let lblk = self.blocks.append()?;
        let (layout, csum, version) = (self.layout, self.csum(), self.ctx.hash_version);
        leaf::pack(self.blocks.modify(lblk)?, all.iter().map(Moving::entry), layout);
        self.blocks.set_verified(lblk)?;
        let block = self.blocks.modify(0)?;
        let node = Root::format(block, csum, version, number(lblk)?);
        node.seal(block, layout.seed);
        debug_assert_eq!(usize::from(leaf::get16(block, 16)), ROOT_DOTDOT_LEN);
        self.ctx.indexed = true;
        Ok(())
    }

    /// The entries of a checked leaf, in the block's order.
    fn collect(&mut self, lblk: u64, hash: impl Fn(&[u8]) -> u32) -> Result<Vec<Moving>> {
        let (layout, end) = (self.layout, self.layout.end());
        let block: &Block = self.blocks.read(lblk)?;
        let mut all = Vec::new();
        for r in leaf::records(block, end, layout) {
            let r = r?;
            if r.ino != 0 {
                let name = r.name(block);
                let (hash, name) = (hash(name), name.to_vec());
                all.push(Moving { hash, name, ino: r.ino, ftype: r.ftype });
            }
        }
        Ok(all)
    }

    fn insert_indexed(&mut self, entry: NewEntry<'_>) -> Walk<()> {
        let root = self.root()?;
        let hash = self.hash(entry.name, root.version).major;
        let mut path = self.probe(root, hash)?;
        self.check_leaf(path.leaf)?;
        if self.put_if_room(path.leaf, entry)? {
            return Ok(());
        }
        self.make_room_above(&mut path)?;
        self.split_leaf(&path, hash, entry)
    }

    /// Sees to it that the path's last index block can take one more pair.
    fn make_room_above(&mut self, path: &mut Path) -> Walk<()> {
        let last = path.last();
        if last.node.count < last.node.limit {
            return Ok(());
        }
        if path.steps.len() == 1 && path.root.levels < MAX_LEVELS {
            return self.deepen(path);
        }
        if path.top().node.count >= path.top().node.limit {
            return Err(Fault::Failed(errno(libc::ENOSPC)));
        }
        self.split_node(path)
    }

    /// Moves the root's pairs to a node below it.
    fn deepen(&mut self, path: &mut Path) -> Walk<()> {
        let (csum, seed) = (self.csum(), self.layout.seed);
        let old = *path.top();
        let pairs = old.node.pairs(self.blocks.read(0)?, 0);
        let lblk = self.blocks.append()?;
        let block = self.blocks.modify(lblk)?;
        let node = Node::format(block, csum, &pairs);
        node.seal(block, seed);
        self.blocks.set_verified(lblk)?;
        let block = self.blocks.modify(0)?;
        path.root.deepen(block, number(lblk)?);
        path.root.node.seal(block, seed);
        path.steps =
            vec![Step { lblk: 0, node: path.root.node, at: 0 }, Step { lblk, node, at: old.at }];
        Ok(())
    }

    /// Moves the upper half of a node's pairs to a new node beside it.
    fn split_node(&mut self, path: &mut Path) -> Walk<()> {
        let (csum, seed) = (self.csum(), self.layout.seed);
        assert!(path.steps.len() == 2, "a root above leaves is deepened");
        let mut low = *path.last();
        let middle = low.node.count / 2;
        let pairs = low.node.pairs(self.blocks.read(low.lblk)?, middle);
        let (boundary, _) = *pairs.first().expect("half of a full node");
        let lblk = self.blocks.append()?;
        let block = self.blocks.modify(lblk)?;
        let high = Node::format(block, csum, &pairs);
        high.seal(block, seed);
        self.blocks.set_verified(lblk)?;
        let block = self.blocks.modify(low.lblk)?;
        low.node.truncate(block, middle);
        low.node.seal(block, seed);
        let up = path.top_mut();
        let block = self.blocks.modify(up.lblk)?;
        up.node.insert_after(block, up.at, boundary, number(lblk)?);
        up.node.seal(block, seed);
        let root = up.node;
        if low.at >= middle {
            up.at += 1;
            low = Step { lblk, node: high, at: low.at - middle };
        }
        path.root.node = root;
        *path.last_mut() = low;
        Ok(())
    }

    /// Moves the upper hashes of a full leaf to a new one, and puts `entry` where it belongs.
    fn split_leaf(&mut self, path: &Path, hash: u32, entry: NewEntry<'_>) -> Walk<()> {
        let layout = self.layout;
        let (version, seed) = (path.root.version, self.ctx.hash_seed);
        let mut all =
            self.collect(path.leaf, |name| super::dir_hash(name, version, &seed).major)?;
        all.sort_by_key(|e| e.hash);
        let need = record_len(entry.name.len());
        let at = split_at(&all, hash, need, layout.end())?;
        let mut high = all.split_off(at);
        let boundary = high.first().expect("a cut leaves entries on both sides").hash;
        let continued = all.last().is_some_and(|e| e.hash == boundary);
        let new = Moving { hash, name: entry.name.to_vec(), ino: entry.ino, ftype: entry.ftype };
        if hash >= boundary {
            high.push(new)
        } else {
            all.push(new)
        }

        let lblk = self.blocks.append()?;
        leaf::pack(self.blocks.modify(lblk)?, high.iter().map(Moving::entry), layout);
        self.blocks.set_verified(lblk)?;
        leaf::pack(self.blocks.modify(path.leaf)?, all.iter().map(Moving::entry), layout);
        let mut last = *path.last();
        let block = self.blocks.modify(last.lblk)?;
        let child = number(lblk)?;
        last.node.insert_after(block, last.at, boundary | u32::from(continued), child);
        last.node.seal(block, layout.seed);
        Ok(())
    }
}

/// Block numbers in an index have 28 bits.
fn number(lblk: u64) -> Result<u32> {
    u32::try_from(lblk).ok().filter(|n| *n < 1 << 28).ok_or(Error::Posix(libc::EFBIG))
}

/// Where to cut a leaf's entries, sorted by hash, so that an entry of `hash` and `need` bytes
/// fits its side: as near to half the bytes as the hashes allow, between two different ones
/// if one of those cuts will do.
fn split_at(all: &[Moving], hash: u32, need: usize, end: usize) -> Result<usize> {
    let bytes = total(all);
    let mut best: Option<(bool, usize, usize)> = None;
    let mut low = 0;
    for (at, (before, next)) in (1..).zip(all.iter().zip(all.iter().skip(1))) {
        low += before.len();
        let side = if hash >= next.hash { bytes - low } else { low };
        if side + need > end {
            continue;
        }
        let rank = (next.hash == before.hash, low.abs_diff(bytes - low), at);
        best = Some(best.map_or(rank, |b| b.min(rank)));
    }
    // A full leaf has many entries, and halves of it have room; only a damaged one has not.
    let (.., at) = best.ok_or_else(|| corrupt("directory block", "cannot be split"))?;
    Ok(at)
}

#[cfg(test)]
#[path = "insert_tests.rs"]
mod tests;
