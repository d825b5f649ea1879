//! Foreground staging: capturing what an inode's fsync owes into one staged transaction.
//!
//! `docs/design/persistence-path.md`, "Foreground: fsync", is followed step by step.

use crate::encode::{Encoded, Plan, Range};
use crate::lane::{Place, RecordRef};
use crate::names::{self, Unstageable};
use crate::node::Delta;
use crate::overlay::Source;
use crate::pause::is_bulk;
use crate::sequencer::{Published, Sequencer};
use crate::state::{NEEDS_CREDITS, NEEDS_LOG, State};
use siftfs_base::{Error, InodeNr, Lsn, RangeSet, Result};
use siftfs_device::AlignedBuf;
use siftfs_log::{InodeItem, Item, NameOpKind, RecordLayout, RecordParams};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A staged transaction whose place is fixed and whose bytes are stable (R19), to be written.
pub struct Staged {
    /// Its number, and how it must be written.
    pub published: Published,
    /// Index of its lane.
    pub lane: usize,
    /// Byte offset in the lane's region.
    pub offset: u64,
    /// The record.
    pub buf: AlignedBuf,
}

/// Inodes whose permissions a record of nothing else carries; their xattrs go along.
const PERMS_PER_RECORD: usize = 8;

/// What staging an inode came to.
pub enum Outcome {
    /// Nothing new; durable once this LSN is.
    Nothing(Lsn),
    /// Write this.
    Staged(Staged),
    /// Bulk: encode its data without the lock, and stage it with that.
    Plan(Plan),
    /// It cannot be made self-contained: a full commit is needed.
    FullCommit(Unstageable),
}

/// Which data to capture.
pub enum Selection<'a> {
    /// Everything not durable.
    All,
    /// These ranges only (pushed overwrites, rule R20).
    Only(&'a RangeSet),
}

/// What one record will carry.
#[derive(Default)]
struct Capture {
    items: Vec<Item>,
    data: Vec<Range>,
    data_len: u64,
    ops: BTreeSet<Lsn>,
    /// Inodes captured whole, with the size the record gives them.
    whole: Vec<InodeNr>,
    /// Inodes whose permissions are in the record.
    perms: Vec<InodeNr>,
}

impl State {
    /// Stages what `ino` owes. Publishes the record: from here on the captured ranges lie in the
    /// lane, and the record must be written. `encoded` is what came of an [`Outcome::Plan`]; with it
    /// there is no other.
    pub fn stage(
        &mut self,
        seq: &Sequencer,
        ino: InodeNr,
        datasync: bool,
        selection: &Selection<'_>,
        encoded: Option<Encoded>,
    ) -> Result<Outcome> {
        self.load(ino)?;
        if matches!(selection, Selection::All) {
            self.node_mut(ino).fsynced = true;
        }
        let capture = match self.capture(ino, datasync, selection)? {
            Ok(Some(capture)) => capture,
            Ok(None) => {
                // Somebody else's record may carry the permission change of a directory above (R12, R17).
                let others = self.evicted_staged.max(self.perms_staged);
                let lsn = self.node(ino).staged.max(others);
                return Ok(Outcome::Nothing(lsn));
            }
            Err(reason) => return Ok(Outcome::FullCommit(reason)),
        };
        let lane_index = ino as usize % self.lanes.len();
        let most_ranges = self.max_transaction_blocks() / 4 + 1;
        let Some(layout) = RecordLayout::new(&capture.items, capture.data_len)
            .filter(|_| capture.data.len() <= most_ranges)
            .filter(|l| u64::from(l.len) <= self.lanes[lane_index].max_record())
        else {
            return Ok(Outcome::FullCommit(Unstageable::TooMuchData));
        };
        let bulk = match selection {
            Selection::Only(_) => !self.node(ino).push_next,
            Selection::All => is_bulk(layout.len.into()),
        };
        let kept = match selection {
            Selection::Only(_) => self.kept_from_push(ino),
            Selection::All if bulk => self.max_transaction_blocks() / 4,
            Selection::All => 0,
        };
        if !self.room_for_ranges(&capture, kept)? {
            return Ok(Outcome::FullCommit(Unstageable::TooMuchData));
        }
        let lane = &self.lanes[lane_index];
        let place = lane.place(u64::from(layout.len));
        let place = match bulk {
            true => place.filter(|place| !lane.would_crowd(place.end())),
            false => place,
        };
        let why = if bulk { NEEDS_CREDITS } else { NEEDS_LOG };
        let place = place.ok_or(Error::NeedsProgress(why))?;
        if bulk && encoded.is_none() && matches!(selection, Selection::All) {
            return Ok(Outcome::Plan(self.plan(capture.data, layout, lane_index)));
        }
        Ok(Outcome::Staged(self.publish(seq, capture, &layout, place, lane_index, encoded)))
    }

    /// What is staged now must find room in the next transaction (rule R10); false if not even an
    /// empty one holds it. Bulk leaves its last quarter, `kept`, to small fsyncs and to writes, which
    /// would have to wait until the transaction before it is in the journal.
    fn room_for_ranges(&mut self, capture: &Capture, kept: usize) -> Result<bool> {
        let mut blocks = capture.data.len() / 24 + 2 + self.repeated_blocks(capture.data_len);
        for &ino in &capture.whole {
            let tree = self.fs.worst_case_touched(&self.node(ino).inode).unwrap_or(1);
            blocks += usize::try_from(tree).unwrap_or(usize::MAX) + 2;
            if tree > 1 {
                blocks += capture.data.iter().filter(|d| d.0 == ino).count();
            }
        }
        if blocks > self.max_transaction_blocks() / 2 {
            return Ok(false);
        }
        self.room_in_transaction(blocks + kept).map(|()| true)
    }

    /// Is there anything that a staged transaction of `ino` would carry?
    fn capture(
        &mut self,
        ino: InodeNr,
        datasync: bool,
        selection: &Selection<'_>,
    ) -> Result<std::result::Result<Option<Capture>, Unstageable>> {
        let is_dir = self.node(ino).inode.is_dir();
        let own = match selection {
            Selection::All => self.owes(ino, datasync),
            Selection::Only(ranges) => !ranges.is_empty(),
        };
        // Pushed overwrites bind no name, and must not: the rest of the data that a name may have to
        // wait for (rule R20) goes straight to the area with the same transaction.
        let ops = match selection {
            Selection::Only(_) => BTreeSet::new(),
            Selection::All => match self.closure(ino, is_dir, own)? {
                Ok(ops) => ops,
                Err(reason) => return Ok(Err(reason)),
            },
        };
        let perms = match selection {
            // They went ahead in records of their own.
            Selection::Only(_) => Vec::new(),
            Selection::All => match self.pending_permissions(ino, &ops)? {
                Ok(perms) => perms,
                Err(reason) => return Ok(Err(reason)),
            },
        };
        let node = self.node(ino);
        // Nobody's fsync owes the bytes of an unlinked file, but memory may have to be freed of them.
        // A file that may still get a name is none of these.
        let dead = node.inode.nlink == 0 && !node.linkable && matches!(selection, Selection::All);
        if ops.is_empty() && perms.is_empty() && (dead || !own) {
            return Ok(Ok(None));
        }
        let mut capture = Capture::default();
        self.capture_names(ino, &ops, &perms, &mut capture)?;
        for other in self.replacing(ino, &ops) {
            self.capture_whole(other, &Selection::All, &mut capture)?;
        }
        if !dead {
            self.capture_whole(ino, selection, &mut capture)?;
        }
        for i in perms {
            if !capture.whole.contains(&i) {
                let item = self.inode_item(i, None);
                capture.items.push(Item::Inode(item));
                self.capture_xattrs(i, &mut capture)?;
            }
            capture.perms.push(i);
        }
        capture.ops = ops;
        Ok(Ok(Some(capture)))
    }

    /// Has the inode itself anything that an fsync makes durable?
    fn owes(&self, ino: InodeNr, datasync: bool) -> bool {
        let node = self.node(ino);
        let quiet = |d: &Delta| if datasync { d.is_empty_for_datasync() } else { d.is_empty() };
        let changed = !quiet(&node.delta) || !quiet(&node.delta_in_flight);
        changed || !node.dirty.is_empty() || !node.pushing.is_empty()
    }

    /// The name operations of an fsync. If there is anything to make durable, what publishes
    /// files goes along: on its own it costs no fsync a write.
    fn closure(
        &mut self,
        ino: InodeNr,
        is_dir: bool,
        own: bool,
    ) -> Result<std::result::Result<BTreeSet<Lsn>, Unstageable>> {
        let most = self.closure_max();
        let mut ops = self.names.closure(ino, is_dir, false, most);
        if self.names.publishes() && ops.as_ref().is_ok_and(|ops| own || !ops.is_empty()) {
            ops = self.names.closure(ino, is_dir, true, most);
        }
        match ops {
            Ok(ops) if self.moved_above(&ops)? => Ok(Err(Unstageable::DirectoryMove)),
            other => Ok(other),
        }
    }

    /// Was a directory moved anywhere above a name of `ops`? The name is to be found where the caller
    /// saw it, however far up the move was (rule R2).
    fn moved_above(&mut self, ops: &BTreeSet<Lsn>) -> Result<bool> {
        let mut dirs: Vec<InodeNr> = Vec::new();
        for op in ops.iter().filter_map(|l| self.names.get(*l)) {
            dirs.extend(names::keys(op).iter().map(|(dir, _)| *dir));
        }
        let mut seen: BTreeSet<InodeNr> = BTreeSet::from([siftfs_proto::ROOT_INO]);
        while let Some(dir) = dirs.pop() {
            if !seen.insert(dir) {
                continue;
            }
            if self.names.moves(dir) {
                return Ok(true);
            }
            match self.load(dir) {
                // A directory that was left and removed meanwhile leads nowhere.
                Err(Error::Posix(libc::ESTALE)) => {}
                other => {
                    other?;
                    if self.node(dir).inode.nlink > 0 {
                        dirs.push(self.parent_of_dir(dir)?);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Stages every pending permission change of what exists in the last durable state, before data
    /// is pushed whose records may be durable when the transaction is not (rule R17). Records
    /// that are in `out` when an error comes must be written all the same.
    pub fn stage_permissions(&mut self, seq: &Sequencer, out: &mut Vec<Staged>) -> Result<()> {
        let all: Vec<InodeNr> = self.perms.union(&self.perms_in_flight).copied().collect();
        let pending: Vec<InodeNr> = all.into_iter().filter(|i| !self.names.creates(*i)).collect();
        for some in pending.chunks(PERMS_PER_RECORD) {
            let mut capture = Capture::default();
            for &ino in some {
                match self.load(ino) {
                    Err(Error::Posix(libc::ESTALE)) => continue,
                    other => other?,
                }
                if self.node(ino).inode.nlink > 0 {
                    let item = self.inode_item(ino, None);
                    capture.items.push(Item::Inode(item));
                    self.capture_xattrs(ino, &mut capture)?;
                    capture.perms.push(ino);
                }
            }
            if capture.items.is_empty() {
                continue;
            }
            let layout = RecordLayout::new(&capture.items, 0).expect("a few inodes fit a record");
            let place = self.lanes[0].place(u64::from(layout.len));
            let place = place.ok_or(Error::NeedsProgress(NEEDS_LOG))?;
            out.push(self.publish(seq, capture, &layout, place, 0, None));
        }
        Ok(())
    }

    /// Inodes with a permission change that is not durable among `ino`, its ancestors, what the
    /// closure names and the ancestors of each of its names (rule R17).
    fn pending_permissions(
        &mut self,
        ino: InodeNr,
        ops: &BTreeSet<Lsn>,
    ) -> Result<std::result::Result<Vec<InodeNr>, Unstageable>> {
        let mut found = Vec::new();
        if self.perms.is_empty() && self.perms_in_flight.is_empty() {
            return Ok(Ok(found));
        }
        let pending =
            |st: &State, i: &InodeNr| st.perms.contains(i) || st.perms_in_flight.contains(i);
        let mut dirs: BTreeSet<InodeNr> = BTreeSet::new();
        for op in ops.iter().filter_map(|l| self.names.get(*l)) {
            dirs.extend(names::keys(op).iter().map(|(dir, _)| *dir));
            // A name must not show its file as it was before somebody was shut out.
            let named = names::inodes(op).into_iter().filter(|i| *i != ino && pending(self, i));
            found.extend(named);
        }
        let node = self.node(ino);
        if node.inode.is_dir() {
            dirs.insert(ino);
        } else if let Some(parent) = node.parent {
            dirs.insert(parent);
        } else if node.inode.nlink > 0 {
            return Ok(Err(Unstageable::UnknownAncestors));
        }
        if pending(self, &ino) {
            found.push(ino);
        }
        let mut seen: BTreeSet<InodeNr> = BTreeSet::from([ino]);
        seen.extend(found.iter().copied());
        for start in dirs {
            let mut dir = start;
            let mut path = BTreeSet::new();
            loop {
                if seen.insert(dir) && pending(self, &dir) {
                    found.push(dir);
                }
                if dir == siftfs_proto::ROOT_INO {
                    break;
                }
                if !path.insert(dir) {
                    return Err(siftfs_base::corrupt("directory tree", "the parents form a loop"));
                }
                // A directory that was left and removed meanwhile guards nothing any more.
                match self.load(dir) {
                    Err(Error::Posix(libc::ESTALE)) => break,
                    other => other?,
                }
                if self.node(dir).inode.nlink == 0 {
                    break;
                }
                dir = self.parent_of_dir(dir)?;
            }
        }
        // What has no name any more guards nothing, and recovery may not find it. Nor does what was
        // freed while its change was on its way.
        let mut named = Vec::new();
        for i in found {
            match self.load(i) {
                Err(Error::Posix(libc::ESTALE)) => continue,
                other => other?,
            }
            if self.node(i).inode.nlink > 0 {
                named.push(i);
            }
        }
        Ok(Ok(named))
    }

    /// The closure's operations in order, and the attributes of what they created if they changed.
    /// Those of `perms` are captured by the caller.
    fn capture_names(
        &mut self,
        ino: InodeNr,
        ops: &BTreeSet<Lsn>,
        perms: &[InodeNr],
        capture: &mut Capture,
    ) -> Result<()> {
        let mut created = Vec::new();
        for op in ops.iter().filter_map(|l| self.names.get(*l)) {
            if let NameOpKind::Create { ino: made, .. } = op.kind
                && made != ino
                && !perms.contains(&made)
            {
                created.push(made);
            }
            capture.items.push(Item::NameOp(op.clone()));
        }
        for made in created {
            let Some(node) = self.nodes.get(&made).filter(|n| n.inode.nlink > 0) else { continue };
            if node.whole_delta().attrs {
                let item = self.inode_item(made, None);
                capture.items.push(Item::Inode(item));
            }
            // Access control lists it inherited: without them its mode would grant too much.
            self.capture_xattrs(made, capture)?;
        }
        Ok(())
    }

    /// Inodes that the closure renames over others: their data goes along (rule R20).
    fn replacing(&self, ino: InodeNr, ops: &BTreeSet<Lsn>) -> Vec<InodeNr> {
        let moved: BTreeSet<InodeNr> = ops
            .iter()
            .filter_map(|l| self.names.get(*l))
            .filter_map(|op| match op.kind {
                NameOpKind::Rename { ino, displaced, .. } if displaced != 0 => Some(ino),
                _ => None,
            })
            .filter(|i| *i != ino)
            .collect();
        let live =
            |i: &InodeNr| self.nodes.get(i).is_some_and(|n| n.inode.is_reg() && n.inode.nlink > 0);
        moved.into_iter().filter(live).collect()
    }

    fn inode_item(&self, ino: InodeNr, size: Option<u64>) -> InodeItem {
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
        let ranges = match selection {
            Selection::All => crate::push::one_per_page(node.undurable()),
            Selection::Only(ranges) => (*ranges).clone(),
        };
        let size = match selection {
            Selection::All => node.size,
            Selection::Only(_) => node.inode.size.max(ranges.max_end().unwrap_or(0)),
        };
        capture_shape(ino, generation, &delta, &mut capture.items);
        for (start, end) in ranges.iter() {
            self.capture_range(ino, generation, start, end, capture);
        }
        if delta.xattrs {
            self.capture_xattrs(ino, capture)?;
        }
        let item = self.inode_item(ino, is_reg.then_some(size));
        capture.items.push(Item::Inode(item));
        capture.whole.push(ino);
        Ok(())
    }

    fn capture_range(
        &self,
        ino: InodeNr,
        generation: u32,
        start: u64,
        end: u64,
        capture: &mut Capture,
    ) {
        let data_offset = u32::try_from(capture.data_len).unwrap_or(u32::MAX);
        let len = u32::try_from(end - start).unwrap_or(u32::MAX);
        capture.items.push(Item::Data { ino, generation, offset: start, len, data_offset });
        capture.data.push((ino, start, end, data_offset));
        capture.data_len += end - start;
    }

    fn capture_xattrs(&mut self, ino: InodeNr, capture: &mut Capture) -> Result<()> {
        let node = self.nodes.get(&ino).expect("loaded before use");
        if node.whole_delta().xattrs {
            let mut list = Vec::new();
            for name in self.fs.xattr_list(&mut self.meta, &node.inode)? {
                let value = self.fs.xattr_get(&mut self.meta, &node.inode, &name)?;
                list.push((name, value));
            }
            let generation = node.inode.generation;
            capture.items.push(Item::Xattrs { ino, generation, list });
        }
        Ok(())
    }

    /// Fixes the record's place, encodes it, and makes it the source of what it captured.
    fn publish(
        &mut self,
        seq: &Sequencer,
        capture: Capture,
        layout: &RecordLayout,
        place: Place,
        lane_index: usize,
        encoded: Option<Encoded>,
    ) -> Staged {
        let lsn = self.draw();
        let durable_lsn = seq.durable();
        let builder = self.builder(lane_index);
        let lane = &mut self.lanes[lane_index];
        lane.note_durable(durable_lsn);
        let params = RecordParams {
            lsn,
            prev_lsn: std::mem::replace(&mut self.last_staged, lsn),
            durable_lsn,
            durable_pos: lane.durable_pos,
            pos: place.pos(),
            prev_end: lane.head,
            prev_crc: lane.prev_crc,
        };
        // Whoever wrote to a page meanwhile has left what was encoded behind.
        let encoded = encoded.filter(|e| self.still_holds(e, &capture.data, layout));
        let encoded = encoded.unwrap_or_else(|| {
            self.plan(capture.data.clone(), *layout, lane_index).encode(&self.record_buffers)
        });
        let mut buf = encoded.into_buf();
        let crc = builder.encode_head(&params, layout, &capture.items, &mut buf);
        let lane = &mut self.lanes[lane_index];
        let offset = place.pos() % lane.len;
        let record = lane.fix(place, builder.lane, lsn, crc, layout.data_offset);
        let published = seq.publish(&record);
        self.captured(&capture, &Arc::new(record));
        self.stats.staged(layout, &capture.items);
        Staged { published, lane: lane_index, offset, buf }
    }

    /// What the record carries is no longer pending; its ranges lie in the lane.
    fn captured(&mut self, capture: &Capture, record: &Arc<RecordRef>) {
        for &(ino, start, end, offset) in &capture.data {
            self.forget_dirty(ino, start, end);
            let source = Source::Staged { record: record.clone(), offset };
            let node = self.node_mut(ino);
            node.pushing.remove(start, end);
            node.overlay.insert(start, end, source);
            self.overlay_bytes += end - start;
            self.note_overlay(ino);
        }
        for &ino in &capture.whole {
            let size = capture.items.iter().rev().find_map(|item| match item {
                Item::Inode(i) if i.ino == ino => i.size,
                _ => None,
            });
            let node = self.node_mut(ino);
            node.delta = Delta::default();
            node.delta_in_flight = Delta::default();
            if let Some(size) = size {
                node.inode.size = size;
            }
            node.staged = record.lsn;
            self.mark_inode(ino);
        }
        if !capture.perms.is_empty() {
            self.perms_staged = record.lsn;
        }
        for ino in &capture.perms {
            self.perms.remove(ino);
            self.perms_in_flight.remove(ino);
            self.note_staged(*ino, record.lsn);
        }
        for lsn in &capture.ops {
            if let Some(op) = self.names.get(*lsn) {
                let mut touched = names::inodes(op);
                touched.extend(names::keys(op).iter().map(|(dir, _)| *dir));
                for ino in touched {
                    self.note_staged(ino, record.lsn);
                }
            }
            self.names.remove(*lsn);
        }
    }

    fn note_staged(&mut self, ino: InodeNr, lsn: Lsn) {
        match self.nodes.get_mut(&ino) {
            Some(node) => node.staged = lsn,
            None => self.evicted_staged = lsn,
        }
    }
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
