//! What a staged transaction carries of the inodes that are in it.

use crate::data::ranges::one_per_page;
use crate::staging::encode::Range;
use crate::staging::not_staged::Drafting;
use crate::state::Metadata;
use crate::state::Tree;
use crate::state::tree::node::Delta;
use siftfs_base::{Bytes, InodeNr, Lsn, RangeSet, Result};
use siftfs_log::{InodeItem, Item, NameOpKind};
use std::collections::{BTreeMap, BTreeSet};

/// What is about to be changed.
#[derive(Default)]
pub struct Coming {
    /// Bytes of files; of a file without any, something else changes.
    pub bytes: BTreeMap<InodeNr, RangeSet<Bytes>>,
    /// Names.
    pub names: Vec<(InodeNr, Vec<u8>)>,
    /// Operations that change them.
    pub own: usize,
    /// They leave a file with ancestors that are not known.
    pub hides_ancestors: bool,
}

/// What an fsync is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Times alone may stay behind: fdatasync.
    pub datasync: bool,
    /// What an fsync of a file that was just written would take along goes along, also if the
    /// file owes nothing: what publishes files, and all that was staged before. A session that
    /// lends answers later fsyncs of the file by its own log, which must not overtake that (rules
    /// R38 and R46).
    pub in_order: bool,
}

/// Which data to capture.
pub enum Selection<'a> {
    /// Everything not durable.
    All,
    /// What will be not durable once these changes are made: to find out whether that could be
    /// staged (rule R25). No record is made of it.
    With(&'a Coming),
    /// These ranges only (pushed overwrites, rule R20).
    Only(&'a RangeSet<Bytes>),
}

/// What one record will carry.
#[derive(Default)]
pub struct Capture {
    /// Items of the record, in the order in which recovery applies them.
    pub items: Vec<Item>,
    /// File data, as it lies in the record.
    pub data: Vec<Range>,
    /// Bytes of `data`.
    pub data_len: u64,
    /// Name operations.
    pub ops: BTreeSet<Lsn>,
    /// Inodes captured whole, with the size the record gives them.
    pub whole: Vec<InodeNr>,
    /// Inodes whose permissions are in the record.
    pub perms: Vec<InodeNr>,
}

impl Metadata {
    /// Is there anything that one staged transaction of `inodes` would carry? They are loaded.
    pub fn capture(
        &mut self,
        inodes: &[InodeNr],
        asked: Asked,
        selection: &Selection<'_>,
    ) -> Drafting<Option<Capture>> {
        let whole = !matches!(selection, Selection::Only(_));
        let owes = |ino: &InodeNr| match selection {
            Selection::All => self.tree.owes(*ino, asked.datasync),
            Selection::With(coming) => {
                coming.bytes.contains_key(ino) || self.tree.owes(*ino, asked.datasync)
            }
            Selection::Only(ranges) => !ranges.is_empty(),
        };
        let own = inodes.iter().any(owes);
        // Pushed overwrites bind no name, and must not: the rest of the data that a name may have
        // to wait for (rule R20) goes straight to the area with the same transaction.
        let ops = match selection {
            Selection::Only(_) => BTreeSet::new(),
            Selection::With(coming) if !coming.names.is_empty() => {
                self.closure_with(inodes, &coming.names, coming.own)?
            }
            Selection::All | Selection::With(_) => self.closure(inodes, own || asked.in_order)?,
        };
        let (dirs, every): (Vec<InodeNr>, bool) = match selection {
            Selection::With(coming) => {
                (coming.names.iter().map(|(dir, _)| *dir).collect(), coming.hides_ancestors)
            }
            _ => (Vec::new(), false),
        };
        let perms = match selection {
            // They went ahead in records of their own.
            Selection::Only(_) => Vec::new(),
            Selection::All | Selection::With(_) => {
                self.pending_permissions(inodes, &dirs, &ops, every)?
            }
        };
        // An fsync does not owe the bytes of a dead file, but memory may have to be freed of them.
        let owed = |ino: &InodeNr| !(whole && self.tree.node(*ino).is_dead());
        let owed: Vec<InodeNr> = inodes.iter().copied().filter(owed).collect();
        if ops.is_empty() && perms.is_empty() && (owed.is_empty() || !own) {
            return Ok(None);
        }
        let mut capture = Capture::default();
        self.capture_names(inodes, &ops, &perms, &mut capture)?;
        for other in self.replacing(inodes, &ops) {
            self.tree.capture_whole(other, &Selection::All, &mut capture)?;
        }
        for ino in owed {
            self.tree.capture_whole(ino, selection, &mut capture)?;
        }
        for i in perms {
            if !capture.whole.contains(&i) {
                let item = self.tree.inode_item(i, None);
                capture.items.push(Item::Inode(item));
                self.tree.capture_xattrs(i, &mut capture)?;
            }
            capture.perms.push(i);
        }
        capture.ops = ops;
        Ok(Some(capture))
    }

    /// The closure's operations in order, and the attributes of what they created if they changed.
    /// Those of `perms` are captured by the caller.
    fn capture_names(
        &mut self,
        inodes: &[InodeNr],
        ops: &BTreeSet<Lsn>,
        perms: &[InodeNr],
        capture: &mut Capture,
    ) -> Result<()> {
        let mut created = Vec::new();
        for op in ops.iter().filter_map(|l| self.log.names.get(*l)) {
            if let NameOpKind::Create { ino: made, .. } = op.kind
                && !inodes.contains(&made)
                && !perms.contains(&made)
            {
                created.push(made);
            }
            capture.items.push(Item::NameOp(op.clone()));
            capture.items.extend(self.log.replies.of(op.lsn));
        }
        for made in created {
            let Some(node) = self.tree.inodes.get(&made).filter(|n| n.inode.nlink > 0) else {
                continue;
            };
            if node.whole_delta().attrs {
                let item = self.tree.inode_item(made, None);
                capture.items.push(Item::Inode(item));
            }
            // Access control lists it inherited: without them its mode would grant too much.
            self.tree.capture_xattrs(made, capture)?;
        }
        Ok(())
    }
}

impl Tree {
    /// Has the inode itself anything that an fsync makes durable?
    fn owes(&self, ino: InodeNr, datasync: bool) -> bool {
        let node = self.node(ino);
        let quiet = |d: &Delta| if datasync { d.is_empty_for_datasync() } else { d.is_empty() };
        let changed = node.delta.each().into_iter().any(|delta| !quiet(delta));
        changed || node.data.each().iter().any(|bytes| !bytes.is_empty())
    }

    /// Ranges, sizes, data, xattrs and attributes of one inode.
    fn capture_whole(
        &mut self,
        ino: InodeNr,
        selection: &Selection<'_>,
        capture: &mut Capture,
    ) -> Result<()> {
        self.load(ino)?;
        let node = self.node(ino);
        let generation = node.inode.generation;
        let delta = node.whole_delta();
        let is_reg = node.inode.is_reg();
        let mut gaps = Vec::new();
        let (ranges, size) = match selection {
            Selection::All => (one_per_page(node.undurable()), node.size),
            Selection::With(coming) => {
                let mut ranges = node.undurable();
                let none = RangeSet::new();
                let coming = coming.bytes.get(&ino).unwrap_or(&none);
                ranges.union(coming);
                gaps = gaps_before(coming, node.size, &delta);
                let size = coming.max_end().map_or(node.size, |end| end.max(node.size));
                (one_per_page(ranges), size)
            }
            Selection::Only(ranges) => ((*ranges).clone(), node.size_with(ranges)),
        };
        capture_shape(ino, generation, &delta, &mut capture.items);
        let zero = |(offset, len)| Item::Zero { ino, generation, offset, len };
        capture.items.extend(gaps.into_iter().map(zero));
        for (start, end) in ranges.iter() {
            capture.add(Range::of(ino, start, end), generation);
        }
        if delta.xattrs {
            self.capture_xattrs(ino, capture)?;
        }
        let item = self.inode_item(ino, is_reg.then_some(size));
        capture.items.push(Item::Inode(item));
        capture.whole.push(ino);
        Ok(())
    }

    pub fn capture_xattrs(&mut self, ino: InodeNr, capture: &mut Capture) -> Result<()> {
        let node = self.node(ino);
        if node.whole_delta().xattrs {
            let generation = node.inode.generation;
            let list = self.whole_xattrs(ino)?;
            capture.items.push(Item::Xattrs { ino, generation, list });
        }
        Ok(())
    }

    /// All extended attributes, with their values.
    pub fn whole_xattrs(&mut self, ino: InodeNr) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let node = self.inodes.get(&ino).expect("loaded before use");
        let mut list = Vec::new();
        for name in self.fs.layout.xattr_list(&mut self.meta, &node.inode)? {
            let value = self.fs.layout.xattr_get(&mut self.meta, &node.inode, &name)?;
            list.push((name, value));
        }
        Ok(list)
    }

    /// The inode's attributes now; a regular file's with the size that the record gives it, in
    /// bytes.
    pub fn inode_item(&self, ino: InodeNr, size: Option<u64>) -> InodeItem {
        let inode = &self.node(ino).inode;
        InodeItem {
            ino,
            generation: inode.generation,
            mode: u32::from(inode.mode),
            uid: inode.uid,
            gid: inode.gid,
            rdev: 0,
            size,
            flags: 0,
            atime: inode.atime,
            mtime: inode.mtime,
            ctime: inode.ctime,
            crtime: inode.crtime,
        }
    }
}

/// Zeroed ranges, as offset and length, that writing `coming` to a file of `size` bytes may add to
/// those of `delta`: gaps behind the end of the file, and what is left of a range in two parts.
fn gaps_before(coming: &RangeSet<Bytes>, mut size: u64, delta: &Delta) -> Vec<(u64, u64)> {
    let mut gaps = Vec::new();
    for (start, end) in coming.iter() {
        if start > size || delta.zeros.overlaps(start, end) {
            gaps.push((start, 1));
        }
        size = size.max(end);
    }
    gaps
}

/// Truncation, zeroed ranges and preallocations, in the order in which recovery applies them.
fn capture_shape(ino: InodeNr, generation: u32, delta: &Delta, items: &mut Vec<Item>) {
    if let Some(size) = delta.min_size {
        items.push(Item::Truncate { ino, generation, size });
    }
    for (start, end) in delta.zeros.iter() {
        items.push(Item::Zero { ino, generation, offset: start, len: end - start });
    }
    for &(offset, len, keep_size) in &delta.allocs {
        items.push(Item::Allocate { ino, generation, offset, len, keep_size });
    }
}
