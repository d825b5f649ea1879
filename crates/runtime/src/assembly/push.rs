//! Assembly's first stage, fetch: unsynced data that is due becomes staged transactions, or goes
//! straight to new blocks of the area, one bounded step under the state lock at a time (rule R20).

use crate::assembly::cut::{Handoff, ToPush};
use crate::data::ranges::{one_per_page, pages_of};
use crate::staging::capture::{Asked, Selection};
use crate::staging::sequencer::{Sequencer, Writer};
use crate::staging::stage::Outcome;
use crate::staging::unwritten::Staged;
use crate::state::Log;
use crate::state::Metadata;
use crate::state::State;
use crate::state::Tree;
use crate::state::room::{
    DIRECT_MAX, MUST_MAX, PATH_BLOCKS, PUSHED_RANGE_BYTES, RECORD_MAX, WHOLE_EIGHTHS,
};
use crate::state::step::{Need, Step, Stop};
use crate::state::tree::node::Node;
use crate::state::tree::overlay::Part;
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, BlockRun, Blocks, Bytes, InodeNr, RangeSet, Result};
use siftfs_ext4::Mapping;
use siftfs_wire::DirectRun;
use std::collections::BTreeSet;

/// Blocks of one direct run at most, and of one step.
pub const STEP_BLOCKS: u64 = 256;

/// Mappings that one step reads for overwrites: about a millisecond under the state lock.
const STEP_LOOKS: usize = 1024;

/// Steps after which what an inode owes is compared with what is dirty: with thousands of ranges
/// the comparison takes longer than a step.
const STEPS_COMPARED: u32 = 8;

/// Steps that one inode gets in one transaction: a writer that dirties its data again and again
/// must not hold the others' up.
const STEPS_MAX: u32 = 1024;

/// How far pushing an inode's data came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A step's worth; there may be more.
    More,
    /// Nothing that is owed is left.
    All,
    /// The rest finds no room in this transaction.
    NoRoom,
}

impl State {
    /// One step for what an inode owes: a record's worth of overwrites, or, once there are none, a
    /// step's worth of data for new blocks. On an error the records in `out` must be written all
    /// the same.
    pub fn push_step(
        &mut self,
        seq: &Sequencer,
        owed: &mut ToPush,
        out: &mut Handoff,
    ) -> Step<Progress> {
        let Some(node) = self.metadata.tree.inodes.get(&owed.ino) else { return Ok(Progress::All) };
        // Bytes that were dirty before and are clean now are owed no more, dirtied again or not.
        if owed.steps.is_multiple_of(STEPS_COMPARED) {
            owed.ranges = owed.ranges.intersection(node.data.running());
        }
        if owed.ranges.is_empty() {
            return Ok(Progress::All);
        }
        owed.steps += 1;
        if owed.steps > STEPS_MAX {
            return Ok(Progress::NoRoom);
        }
        // None if the number has become another file's meanwhile.
        let node = self.metadata.tree.node_mut(owed.ino);
        let mut unseen = node.unseen.take().unwrap_or_else(|| node.data.running().clone());
        let (overwrites, seen) =
            self.metadata.overwrites(owed.ino, &unseen, RECORD_MAX, STEP_LOOKS)?;
        let Some(part) = self.metadata.record_sized(owed.ino, &overwrites).into_iter().next()
        else {
            unseen.remove(0, seen);
            let all = unseen.is_empty();
            self.metadata.tree.node_mut(owed.ino).unseen = Some(unseen);
            return match all {
                false => Ok(Progress::More),
                true => Ok(self.push_direct(owed.ino, out.room(), out)?),
            };
        };
        let first = part.iter().next().map_or(0, |(start, _)| start);
        unseen.remove(0, first);
        // What the record names of a block in part makes the rest of it an overwrite.
        for (start, end) in pages_of(&part).iter() {
            unseen.insert(start * BLOCK_BYTES, end * BLOCK_BYTES);
        }
        self.metadata.tree.node_mut(owed.ino).unseen = Some(unseen);
        // A record of its own cannot name a file that only this transaction creates.
        if self.metadata.log.names.creates(owed.ino) {
            return Ok(Progress::NoRoom);
        }
        let done = self.stage_permissions(seq, &mut out.staged);
        match done.and_then(|()| self.stage_part(seq, owed.ino, &part, &mut out.staged)) {
            Ok(true) => Ok(Progress::More),
            Ok(false) | Err(Stop::Needs(_)) => Ok(Progress::NoRoom),
            Err(e) => Err(e),
        }
    }

    /// Pushed overwrites of blocks that have a home, or whose home a record names, become staged
    /// transactions (rule R20). What cannot be staged now stays dirty; what must not stay behind
    /// is answered separately, to be written elsewhere.
    pub fn stage_overwrites(
        &mut self,
        seq: &Sequencer,
        due: &[InodeNr],
        left: &mut BTreeSet<InodeNr>,
        staged: &mut Vec<Staged>,
    ) -> Step<Vec<InodeNr>> {
        let mut elsewhere = Vec::new();
        for &ino in due {
            let (overwrites, _) = self.metadata.overwrites(
                ino,
                &self.metadata.tree.node(ino).data.running().clone(),
                u64::MAX,
                usize::MAX,
            )?;
            if overwrites.is_empty() {
                continue;
            }
            let done = if self.metadata.log.names.creates(ino) {
                Err(Stop::Needs(Need::Commit))
            } else {
                self.stage_permissions(seq, staged)
            };
            match done.and_then(|()| self.stage_parts(seq, ino, &overwrites, staged)) {
                Ok(true) => {}
                Ok(false) | Err(Stop::Needs(_)) => {
                    if self.metadata.tree.node(ino).push_next {
                        elsewhere.push(ino);
                    } else {
                        left.insert(ino);
                    }
                }
                Err(e) => return Err(e),
            }
        }
        Ok(elsewhere)
    }

    /// Stages one inode's overwrites in records of a size; false if not all of them found room.
    fn stage_parts(
        &mut self,
        seq: &Sequencer,
        ino: InodeNr,
        overwrites: &RangeSet<Bytes>,
        staged: &mut Vec<Staged>,
    ) -> Step<bool> {
        for part in self.metadata.record_sized(ino, overwrites) {
            if !self.stage_part(seq, ino, &part, staged)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Stages one record's worth; false if it cannot be.
    fn stage_part(
        &mut self,
        seq: &Sequencer,
        ino: InodeNr,
        part: &RangeSet<Bytes>,
        staged: &mut Vec<Staged>,
    ) -> Step<bool> {
        let by = (seq, Writer::Background);
        match self.stage(by, ino, Asked::default(), &Selection::Only(part), None)? {
            Outcome::Staged(s) => staged.push(s),
            Outcome::Nothing(_) | Outcome::Durable(_) => {}
            Outcome::FullCommit(_) => return Ok(false),
            Outcome::Plan(_) => unreachable!("a part is encoded at once"),
        }
        Ok(true)
    }

    /// Pushes at most `most` blocks of the inode's data that may be written in place. What of it
    /// has to be staged was staged before, or has found no room.
    pub fn push_direct(&mut self, ino: InodeNr, most: u64, out: &mut Handoff) -> Result<Progress> {
        if !self.metadata.tree.inodes.contains(ino) {
            return Ok(Progress::All);
        }
        let mut left = most;
        for (start, end) in self.metadata.tree.direct_blocks(ino, most)?.iter() {
            let mut block = start;
            while block < end {
                let room = self.metadata.direct_room(ino);
                if room == 0 {
                    self.metadata.reached(ino, block, left < most);
                    return Ok(Progress::NoRoom);
                }
                let want = (end - block).min(room).min(STEP_BLOCKS);
                let run = self.metadata.direct_home(ino, block, want)?;
                self.hand_direct(ino, block, run, out);
                block += run.len;
                left -= run.len;
            }
            if left == 0 {
                self.metadata.reached(ino, block, true);
                return Ok(Progress::More);
            }
        }
        let node = self.metadata.tree.node_mut(ino);
        if !node.data.running().is_empty() {
            return Ok(Progress::NoRoom);
        }
        node.pushed_size = node.size;
        self.metadata.log.mark_inode(ino);
        Ok(Progress::All)
    }

    /// The pages of one run leave with this step; the cache keeps them until the transaction is
    /// durable.
    fn hand_direct(&mut self, ino: InodeNr, block: u64, run: BlockRun, out: &mut Handoff) {
        let page = |i| self.pages.peek(ino, i).expect("dirty pages stay cached").data.clone();
        let data: Vec<_> = (block..block + run.len).map(page).collect();
        let (start, end) = (block * BLOCK_BYTES, (block + run.len) * BLOCK_BYTES);
        let node = self.metadata.tree.node_mut(ino);
        node.sent.insert(block, block + run.len);
        node.data.send(start, end);
        self.metadata.forget_dirty(ino, start, end);
        let joins = |last: &&mut DirectRun| {
            last.run.end() == run.start && last.run.len + run.len <= STEP_BLOCKS
        };
        let last = out.direct.last_mut().filter(joins);
        self.metadata.log.running.push(ino, run, last.is_some());
        match last {
            Some(last) => {
                last.run.len += run.len;
                last.data.extend(data);
            }
            None => out.direct.push(DirectRun { run, data }),
        }
    }
}

impl Metadata {
    /// Overwrites that found no room in a lane but must be in this cut lose their old home: their
    /// blocks, complete in the cache, go straight to new ones (rule R20), and the old ones are
    /// freed by the same transaction. False if there is no space for that.
    pub fn move_home(&mut self, ino: InodeNr) -> Result<bool> {
        let mut blocks = pages_of(self.tree.node(ino).data.running());
        for (s, e) in self.tree.direct_blocks(ino, u64::MAX)?.iter() {
            blocks.remove(s, e);
        }
        if self.spendable() < blocks.total() + PATH_BLOCKS {
            return Ok(false);
        }
        for (s, e) in blocks.iter() {
            self.tree.node_mut(ino).overlay.remove(s * BLOCK_BYTES, e * BLOCK_BYTES);
            let node = self.tree.inodes.get_mut(&ino).expect("checked by the caller");
            while !self.tree.fs.remove(&mut self.tree.meta, &mut node.inode, s, e, 1024)?.done {}
            self.remapped(ino);
        }
        Ok(true)
    }

    /// Cuts ranges of an inode into parts that one record, and the running transaction, can hold.
    /// Ranges that extend the file are cut at sizes that it had, where what lies between two of
    /// them fits a record.
    fn record_sized(&self, ino: InodeNr, ranges: &RangeSet<Bytes>) -> Vec<RangeSet<Bytes>> {
        let most_ranges = self.log.quarter_of_transaction().max(1);
        let mut parts = Parts::new(self.log.record_max(), most_ranges);
        let node = self.tree.node(ino);
        if ranges.max_end().is_none_or(|end| end <= node.inode.size) {
            parts.add(ranges);
            return parts.finish();
        }
        for (i, group) in node.sizes.split(ranges, node.inode.size).iter().enumerate() {
            if i > 0 && !parts.has_room(group) {
                parts.close();
            }
            parts.add(group);
        }
        parts.finish()
    }

    /// Returns the first `most` of the inode's dirty bytes in `among` that may not go straight to
    /// the area, and the byte up to which the result is complete: at most `looks` mappings are
    /// read. A record of these bytes may be durable while the transaction is not, and it extends
    /// the file: so the result includes whatever is not durable between the journaled size and the
    /// record's own end.
    fn overwrites(
        &mut self,
        ino: InodeNr,
        among: &RangeSet<Bytes>,
        most: u64,
        looks: usize,
    ) -> Result<(RangeSet<Bytes>, u64)> {
        let (mut out, mut seen) = (RangeSet::new(), u64::MAX);
        let (mut room, mut looks) = (most, looks);
        let node = self.tree.inodes.get(&ino).expect("dirty inodes stay in memory");
        let dirty =
            among.iter().flat_map(|(start, end)| node.data.running().overlapping(start, end));
        'dirty: for (start, end) in dirty {
            let (mut block, last) = (start / BLOCK_BYTES, end.div_ceil(BLOCK_BYTES));
            while block < last {
                if room == 0 || looks == 0 {
                    seen = start.max(block * BLOCK_BYTES);
                    break 'dirty;
                }
                looks -= 1;
                let (direct, len) = match self.tree.fs.layout.map(
                    &mut self.tree.meta,
                    &node.inode,
                    block,
                    last - block,
                )? {
                    Mapping::Mapped { unwritten, len, .. } => (unwritten, len),
                    Mapping::Hole { len } => (true, len),
                };
                let stop = block + len.clamp(1, last - block);
                let here = (start.max(block * BLOCK_BYTES), end.min(stop * BLOCK_BYTES));
                if direct {
                    for (s, e) in named_blocks(node, here) {
                        take(&mut out, s, e, &mut room);
                    }
                } else {
                    take(&mut out, here.0, here.1, &mut room);
                }
                block = stop;
            }
        }
        let node = self.tree.node(ino);
        let from = node.inode.size / BLOCK_BYTES * BLOCK_BYTES;
        if let Some(end) = out.max_end().filter(|end| *end > node.inode.size) {
            let both =
                |to| node.data.each().into_iter().flat_map(move |set| set.overlapping(from, to));
            // Up to a size that the file had, if a record has room for that.
            let whole = node.sizes.from(end, node.size);
            let bytes: u64 = both(whole).map(|(s, e)| e - s).sum();
            let to = if bytes <= self.log.record_max() / 8 * WHOLE_EIGHTHS { whole } else { end };
            for (s, e) in both(to) {
                out.insert(s, e);
            }
        }
        Ok((one_per_page(out), seen))
    }

    /// Blocks of the inode's data that this transaction still takes.
    fn direct_room(&mut self, ino: InodeNr) -> u64 {
        let must = self.tree.node(ino).push_next;
        if !must && self.room_in_transaction(16 + self.kept_from_push(ino)).is_err() {
            return 0;
        }
        let most = if must { MUST_MAX } else { DIRECT_MAX };
        (most.saturating_sub(self.log.running.pushed_bytes()) / BLOCK_SIZE) as u64
    }

    /// Blocks of the running transaction that pushing this inode's data leaves to callers, which
    /// would have to wait for its cut: none if the data must not stay behind, or has waited for
    /// twice the commit interval because callers had filled every transaction so far.
    pub fn kept_from_push(&self, ino: InodeNr) -> usize {
        let node = self.tree.node(ino);
        let age = self.log.time.mono_ns().saturating_sub(node.dirty_since.unwrap_or(u64::MAX));
        let overdue = u128::from(age) >= 2 * self.log.config.commit_age.as_nanos();
        if node.push_next || overdue { 0 } else { self.log.quarter_of_transaction() }
    }

    /// Pushing stops before `block`. Blocks come in order, so all below it is as durable as the
    /// transaction.
    fn reached(&mut self, ino: InodeNr, block: u64, progress: bool) {
        if progress {
            let node = self.tree.node_mut(ino);
            node.pushed_size = node.pushed_size.max(node.size.min(block * BLOCK_BYTES));
            self.log.mark_inode(ino);
        }
    }

    fn direct_home(&mut self, ino: InodeNr, block: u64, want: u64) -> Result<BlockRun> {
        let node = self.tree.inodes.get(&ino).expect("checked by the caller");
        let run = match self.tree.fs.layout.map(&mut self.tree.meta, &node.inode, block, want)? {
            Mapping::Hole { len } => self.allocate_written(ino, block, len.clamp(1, want))?,
            Mapping::Mapped { pblk, len, unwritten } => {
                assert!(unwritten, "written blocks are staged, not pushed");
                let len = len.clamp(1, want);
                let node = self.tree.inodes.get_mut(&ino).expect("checked by the caller");
                self.tree.fs.mark_written(&mut self.tree.meta, &mut node.inode, block, len)?;
                BlockRun { start: pblk, len }
            }
        };
        self.remapped(ino);
        self.tree.note_tree(ino);
        Ok(run)
    }
}

impl Log {
    /// Bytes of pushed overwrites that one record carries.
    fn record_max(&self) -> u64 {
        self.half_record().min(RECORD_MAX)
    }
}

impl Tree {
    /// The inode's first dirty file blocks whose data may go straight to the area, `most` of them:
    /// no record names the block, and it has no home or an unwritten one.
    fn direct_blocks(&mut self, ino: InodeNr, most: u64) -> Result<RangeSet<Blocks>> {
        let node = self.inodes.get(&ino).expect("dirty inodes stay in memory");
        let (mut out, mut found, mut done) = (RangeSet::new(), 0, 0);
        for (start, end) in node.data.running().iter() {
            // Two ranges of one page are one block.
            let (mut block, end) = (done.max(start / BLOCK_BYTES), end.div_ceil(BLOCK_BYTES));
            while block < end && found < most {
                let want = (end - block).min(most - found);
                let (direct, len) =
                    match self.fs.layout.map(&mut self.meta, &node.inode, block, want)? {
                        Mapping::Mapped { unwritten, len, .. } => (unwritten, len),
                        Mapping::Hole { len } => (true, len),
                    };
                let stop = block + len.clamp(1, want);
                if direct {
                    let mut blocks = RangeSet::new();
                    blocks.insert(block, stop);
                    for (s, e) in named_blocks(node, (block * BLOCK_BYTES, stop * BLOCK_BYTES)) {
                        blocks.remove(s / BLOCK_BYTES, e.div_ceil(BLOCK_BYTES));
                    }
                    found += blocks.total();
                    out.union(&blocks);
                }
                block = stop;
            }
            done = done.max(end);
            if found >= most {
                break;
            }
        }
        Ok(out)
    }
}

/// Parts of a size.
struct Parts {
    /// Bytes of one, ranges included.
    max: u64,
    /// Ranges of one.
    most_ranges: usize,
    done: Vec<RangeSet<Bytes>>,
    part: RangeSet<Bytes>,
    room: u64,
}

impl Parts {
    fn new(max: u64, most_ranges: usize) -> Self {
        Self { max, most_ranges, done: Vec::new(), part: RangeSet::new(), room: max }
    }

    /// Do all of these fit the part that is being filled?
    fn has_room(&self, ranges: &RangeSet<Bytes>) -> bool {
        ranges.total() + ranges.ranges() as u64 * PUSHED_RANGE_BYTES < self.room
            && self.part.ranges() + ranges.ranges() < self.most_ranges
    }

    /// The next range begins another part.
    fn close(&mut self) {
        if !self.part.is_empty() {
            self.done.push(std::mem::take(&mut self.part));
        }
        self.room = self.max;
    }

    fn add(&mut self, ranges: &RangeSet<Bytes>) {
        for (start, end) in ranges.iter() {
            let mut at = start;
            while at < end {
                let take = (end - at).min(self.room);
                self.part.insert(at, at + take);
                at += take;
                self.room = (self.room - take).saturating_sub(PUSHED_RANGE_BYTES);
                if self.room == 0 || self.part.ranges() >= self.most_ranges {
                    self.close();
                }
            }
        }
    }

    fn finish(mut self) -> Vec<RangeSet<Bytes>> {
        self.close();
        self.done
    }
}

/// The bytes of a range whose blocks a record names: no write of the area may overtake that one.
fn named_blocks(node: &Node, (start, end): (u64, u64)) -> Vec<(u64, u64)> {
    let first = start / BLOCK_BYTES * BLOCK_BYTES;
    let mut named = RangeSet::<Bytes>::new();
    for Part { start: s, end: e, .. } in
        node.overlay.overlapping(first, end.next_multiple_of(BLOCK_BYTES))
    {
        named.insert(s / BLOCK_BYTES * BLOCK_BYTES, e.next_multiple_of(BLOCK_BYTES));
    }
    named.overlapping(start, end).collect()
}

/// Inserts as much of a range as there is room for.
fn take(out: &mut RangeSet<Bytes>, start: u64, end: u64, room: &mut u64) {
    let len = (end - start).min(*room);
    if len > 0 {
        out.insert(start, start + len);
        *room -= len;
    }
}
