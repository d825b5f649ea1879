//! Background assembly: one atomic cut (rule R1) as a pipeline of fetch, locate and merge
//! (`docs/design/persistence-path.md`, "Background: journaling").

use crate::capture::{Outcome, Selection, Staged};
use crate::overlay::{RecordRef, Source};
use crate::sequencer::Sequencer;
use crate::state::{NEEDS_LOG, State, TxnInfo};
use siftfs_base::{
    BLOCK_BYTES, BLOCK_SIZE, BlockRun, Error, InodeNr, Lsn, RangeSet, Result, TxnSeq,
};
use siftfs_ext4::Mapping;
use siftfs_wire::{CopyTag, StagedRef, Transaction, ZeroTag};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Bytes one transaction writes straight to the area at most; bounds the snapshot.
const DIRECT_MAX: usize = 16 << 20;

/// ... and with what must not stay behind (rule R20; `little_unsynced` bounds that).
const MUST_MAX: usize = 4 * DIRECT_MAX;

/// Whose unsynced data a transaction pushes besides what it must.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Push {
    /// Data older than the commit interval.
    Aged,
    /// This inode's data too.
    Inode(InodeNr),
    /// Everything.
    All,
}

/// A cut that has been made: what to write, then what to submit.
pub struct Cut {
    /// Staged transactions of pushed overwrites, to be written first.
    pub staged: Vec<Staged>,
    /// Everything up to here must be durable before the transaction is submitted (rule R4).
    pub durable: Lsn,
    /// The transaction.
    pub txn: Transaction,
    /// Inodes with pushed data left for the next cut (no room).
    pub left: BTreeSet<InodeNr>,
}

/// Tags under construction.
#[derive(Default)]
struct Tags {
    staged: Vec<StagedRef>,
    index: HashMap<(u16, u64), u32>,
    zeros: Vec<ZeroTag>,
    copies: Vec<CopyTag>,
}

/// A run that goes straight to the area, and whose file range it is.
struct Direct {
    runs: Vec<BlockRun>,
    data: Vec<u8>,
}

impl State {
    /// Is there anything a transaction would carry?
    pub fn has_work(&self, push: &Push) -> bool {
        self.meta.has_changes()
            || !self.inode_dirty.is_empty()
            || !self.overlay_dirty.is_empty()
            || !self.evict_queue.is_empty()
            || self.lanes.iter().any(|l| l.head != l.cut_head)
            || self.data_dirty.iter().any(|i| self.is_due(*i, push))
    }

    /// Must the next transaction push this inode's data?
    fn is_due(&self, ino: InodeNr, push: &Push) -> bool {
        let Some(node) = self.nodes.get(&ino) else { return false };
        let age = self.clock.mono_ns().saturating_sub(node.dirty_since.unwrap_or(u64::MAX));
        let aged = u128::from(age) >= self.config.commit_age.as_nanos();
        let pressed = self.dirty_bytes > self.dirty_limit() / 2;
        // The bytes of an unlinked file are nobody's concern after a crash: only memory pushes them.
        if node.inode.nlink == 0 {
            return pressed;
        }
        aged || pressed || node.push_next || *push == Push::All || *push == Push::Inode(ino)
    }

    /// Makes the cut. Nothing is in flight when this is called.
    pub fn cut(&mut self, seq: &Sequencer, push: &Push) -> Result<Cut> {
        let bound = self.max_transaction_blocks() as u64 * BLOCK_BYTES;
        if self.journal_used() + 2 * bound > self.journal_len {
            return Err(Error::NeedsProgress(NEEDS_LOG));
        }
        self.run_evictions()?;
        let mut due: Vec<InodeNr> =
            self.data_dirty.iter().copied().filter(|i| self.is_due(*i, push)).collect();
        // What a rename or truncation of this cut must not expose without its data goes first.
        // Then the oldest, so that nobody waits for ever.
        due.sort_by_key(|i| (!self.node(*i).push_next, self.node(*i).dirty_since));
        let mut left = BTreeSet::new();
        let (staged, elsewhere) = self.stage_overwrites(seq, &due, &mut left)?;
        let txn_seq = TxnSeq(self.txn_seq.0 + 1);
        let mut tags = Tags::default();
        let overlays: Vec<InodeNr> = std::mem::take(&mut self.overlay_dirty).into_iter().collect();
        for ino in &overlays {
            self.locate(*ino, txn_seq, &mut tags)?;
        }
        let mut direct = Direct { runs: Vec::new(), data: Vec::new() };
        for ino in elsewhere {
            if !self.move_home(ino)? {
                tracing::warn!(ino, "no space to write replaced data before its new name");
                left.insert(ino);
            }
        }
        for ino in due {
            // What could not be staged must not be overtaken by what lies behind it.
            if left.contains(&ino) {
                continue;
            }
            if !self.push_direct(ino, &mut direct)? {
                left.insert(ino);
            }
        }
        self.write_back_inodes()?;
        let txn = self.merge(txn_seq, tags, direct, overlays);
        Ok(Cut { staged, durable: seq.published(), txn, left })
    }

    /// Pushed overwrites of blocks that have a home, or whose home a record names, become staged
    /// transactions (rule R20). What cannot be staged now stays dirty; what must not stay behind
    /// is answered separately, to be written elsewhere.
    fn stage_overwrites(
        &mut self,
        seq: &Sequencer,
        due: &[InodeNr],
        left: &mut BTreeSet<InodeNr>,
    ) -> Result<(Vec<Staged>, Vec<InodeNr>)> {
        let (mut staged, mut elsewhere) = (Vec::new(), Vec::new());
        for &ino in due {
            let overwrites = self.overwrites(ino)?;
            if overwrites.is_empty() {
                continue;
            }
            let done = self.stage_permissions(seq, &mut staged);
            match done.and_then(|()| self.stage_parts(seq, ino, &overwrites, &mut staged)) {
                Ok(true) => {}
                Ok(false) | Err(Error::NeedsProgress(_)) => {
                    if self.node(ino).push_next {
                        elsewhere.push(ino);
                    } else {
                        left.insert(ino);
                    }
                }
                Err(e) => return Err(e),
            }
        }
        Ok((staged, elsewhere))
    }

    /// Stages one inode's overwrites in records of a size; false if not all of them found room.
    fn stage_parts(
        &mut self,
        seq: &Sequencer,
        ino: InodeNr,
        overwrites: &RangeSet,
        staged: &mut Vec<Staged>,
    ) -> Result<bool> {
        for part in self.record_sized(overwrites) {
            match self.stage(seq, ino, false, &Selection::Only(&part))? {
                Outcome::Staged(s) => staged.push(s),
                Outcome::Nothing(_) => {}
                Outcome::FullCommit(_) => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Overwrites that found no room in a lane but must be in this cut lose their old home: their
    /// blocks, complete in the cache, go straight to new ones (rule R20), and the old ones are
    /// freed by the same transaction. False if there is no space for that.
    fn move_home(&mut self, ino: InodeNr) -> Result<bool> {
        let mut blocks = crate::file::pages_of(&self.node(ino).dirty);
        for (s, e) in self.direct_blocks(ino)?.iter() {
            blocks.remove(s, e);
        }
        if self.spendable() < blocks.total() + 2 {
            return Ok(false);
        }
        for (s, e) in blocks.iter() {
            self.node_mut(ino).overlay.remove(s * BLOCK_BYTES, e * BLOCK_BYTES);
            let node = self.nodes.get_mut(&ino).expect("checked by the caller");
            while !self.fs.remove(&mut self.meta, &mut node.inode, s, e, 1024)?.done {}
            self.remapped(ino);
        }
        Ok(true)
    }

    /// Cuts ranges into parts that one record, and the running transaction, can hold.
    fn record_sized(&self, ranges: &RangeSet) -> Vec<RangeSet> {
        let max = self.lanes[0].max_record() / 2;
        let most_ranges = (self.max_transaction_blocks() / 4).max(1);
        let mut parts = Vec::new();
        let mut part = RangeSet::new();
        let mut room = max;
        for (start, end) in ranges.iter() {
            let mut at = start;
            while at < end {
                let take = (end - at).min(room);
                part.insert(at, at + take);
                at += take;
                room -= take;
                // Every range costs an item and perhaps a checksum.
                room = room.saturating_sub(64);
                if room == 0 || part.ranges() >= most_ranges {
                    parts.push(std::mem::take(&mut part));
                    room = max;
                }
            }
        }
        if !part.is_empty() {
            parts.push(part);
        }
        parts
    }

    /// The inode's dirty bytes that may not go straight to the area. A record of them may be
    /// durable while the transaction is not, and it extends the file: so it takes along whatever is
    /// dirty between the journaled size and its own end.
    fn overwrites(&mut self, ino: InodeNr) -> Result<RangeSet> {
        let mut out = self.node(ino).dirty.clone();
        for (start, end) in self.direct_blocks(ino)?.iter() {
            out.remove(start * BLOCK_BYTES, end * BLOCK_BYTES);
        }
        let node = self.node(ino);
        let from = node.inode.size / BLOCK_BYTES * BLOCK_BYTES;
        if let Some(end) = out.max_end().filter(|end| *end > node.inode.size) {
            for (s, e) in node.dirty.overlapping(from, end) {
                out.insert(s, e);
            }
        }
        Ok(one_per_page(&out))
    }

    /// Dirty file blocks whose data may go straight to the area: no record names the block, and it
    /// has no home or an unwritten one.
    fn direct_blocks(&mut self, ino: InodeNr) -> Result<RangeSet> {
        let node = self.nodes.get(&ino).expect("dirty inodes stay in memory");
        let mut out = RangeSet::new();
        for (start, end) in crate::file::pages_of(&node.dirty).iter() {
            let mut block = start;
            while block < end {
                let (ok, len) =
                    match self.fs.map(&mut self.meta, &node.inode, block, end - block)? {
                        Mapping::Mapped { unwritten, len, .. } => (unwritten, len),
                        Mapping::Hole { len } => (true, len),
                    };
                let stop = block + len.clamp(1, end - block);
                if ok {
                    out.insert(block, stop);
                }
                block = stop;
            }
        }
        let taken: Vec<(u64, u64)> = out
            .iter()
            .flat_map(|(s, e)| node.overlay.overlapping(s * BLOCK_BYTES, e * BLOCK_BYTES))
            .map(|(s, e, _, _)| (s / BLOCK_BYTES, e.div_ceil(BLOCK_BYTES)))
            .collect();
        for (s, e) in taken {
            out.remove(s, e);
        }
        Ok(out)
    }

    /// Gives the inode's unjournaled overlay ranges their homes, and makes their tags.
    fn locate(&mut self, ino: InodeNr, seq: TxnSeq, tags: &mut Tags) -> Result<()> {
        if !self.nodes.contains_key(&ino) {
            return Ok(());
        }
        let mut blocks = RangeSet::new();
        for (start, end, _) in self.node(ino).overlay.unjournaled_ranges() {
            blocks.insert(start / BLOCK_BYTES, end.div_ceil(BLOCK_BYTES));
        }
        for (start, end) in blocks.iter() {
            self.give_home(ino, start, end)?;
        }
        for (start, end, source) in self.node(ino).overlay.unjournaled_ranges() {
            self.make_tags(ino, start, end, &source, tags)?;
        }
        self.node_mut(ino).overlay.mark_journaled(seq);
        Ok(())
    }

    /// After this, every file block of `[first, end)` that overlay bytes touch is mapped and written;
    /// bytes of a new block that nothing covers are zero ranges of the overlay (rule R13).
    fn give_home(&mut self, ino: InodeNr, first: u64, end: u64) -> Result<()> {
        let mut block = first;
        while block < end {
            let node = self.nodes.get(&ino).expect("checked by the caller");
            let rest = end - block;
            let fresh = match self.fs.map(&mut self.meta, &node.inode, block, rest)? {
                Mapping::Mapped { len, unwritten: false, .. } => {
                    block += len.clamp(1, rest);
                    continue;
                }
                Mapping::Mapped { len, unwritten: true, .. } => {
                    let len = len.clamp(1, rest);
                    let node = self.nodes.get_mut(&ino).expect("checked by the caller");
                    self.fs.mark_written(&mut self.meta, &mut node.inode, block, len)?;
                    len
                }
                Mapping::Hole { len } => self.allocate_written(ino, block, len.clamp(1, rest))?.len,
            };
            self.note_tree(ino);
            self.remapped(ino);
            let node = self.node_mut(ino);
            let (start, stop) = (block * BLOCK_BYTES, (block + fresh) * BLOCK_BYTES);
            let mut covered = RangeSet::new();
            for (s, e, _, _) in node.overlay.overlapping(start, stop) {
                covered.insert(s, e);
            }
            for (s, e) in covered.gaps(start, stop) {
                node.overlay.insert(s, e, Source::Zero);
            }
            self.mark_inode(ino);
            block += fresh;
        }
        Ok(())
    }

    fn allocate_written(&mut self, ino: InodeNr, block: u64, want: u64) -> Result<BlockRun> {
        let run = self.allocate_run(ino, block, want)?;
        let node = self.nodes.get_mut(&ino).expect("checked by the caller");
        self.fs.insert(&mut self.meta, &mut node.inode, block, run, false)?;
        self.unreserve(ino, block, block + run.len);
        Ok(run)
    }

    /// Tags for one overlay range, one per contiguous run of area blocks.
    fn make_tags(
        &mut self,
        ino: InodeNr,
        start: u64,
        end: u64,
        source: &Source,
        tags: &mut Tags,
    ) -> Result<()> {
        let mut at = start;
        while at < end {
            let block = at / BLOCK_BYTES;
            let rest = end.div_ceil(BLOCK_BYTES) - block;
            let node = self.nodes.get(&ino).expect("checked by the caller");
            let Mapping::Mapped { pblk, len, unwritten: false } =
                self.fs.map(&mut self.meta, &node.inode, block, rest)?
            else {
                panic!("inode {ino}: overlay byte {at} was given a home");
            };
            let stop = end.min((block + len.clamp(1, rest)) * BLOCK_BYTES);
            let dst = pblk * BLOCK_BYTES + at % BLOCK_BYTES;
            let len = u32::try_from(stop - at).expect("entries fit a record");
            match source {
                Source::Zero => tags.zeros.push(ZeroTag { dst, len }),
                Source::Staged { record, offset } => {
                    let skip = u32::try_from(at - start).expect("entries fit a record");
                    let source = tags.source(record);
                    tags.copies.push(CopyTag { source, data_offset: offset + skip, dst, len });
                }
            }
            at = stop;
        }
        Ok(())
    }

    /// Pushes the inode's data whose blocks may be written in place; false if some must wait.
    fn push_direct(&mut self, ino: InodeNr, direct: &mut Direct) -> Result<bool> {
        if !self.nodes.contains_key(&ino) {
            return Ok(true);
        }
        let blocks = self.direct_blocks(ino)?;
        let first = blocks.iter().next().map_or(0, |(start, _)| start);
        for (start, end) in blocks.iter() {
            let mut block = start;
            while block < end {
                let must = self.node(ino).push_next;
                let most = if must { MUST_MAX } else { DIRECT_MAX };
                let room = (most - direct.data.len().min(most)) / BLOCK_SIZE;
                if room == 0 || !must && self.room_in_transaction(16).is_err() {
                    // Blocks come in order: all below this one is as durable as the transaction.
                    let node = self.node_mut(ino);
                    let reached = node.size.min(block * BLOCK_BYTES);
                    if block > start || start > first {
                        node.inode.size = node.inode.size.max(reached);
                        self.mark_inode(ino);
                    }
                    return Ok(false);
                }
                let want = (end - block).min(room as u64);
                let run = self.direct_home(ino, block, want)?;
                self.copy_direct(ino, block, run, direct);
                block += run.len;
            }
        }
        let node = self.node_mut(ino);
        if !node.dirty.is_empty() {
            return Ok(false);
        }
        node.inode.size = node.inode.size.max(node.size);
        self.mark_inode(ino);
        Ok(true)
    }

    fn direct_home(&mut self, ino: InodeNr, block: u64, want: u64) -> Result<BlockRun> {
        let node = self.nodes.get(&ino).expect("checked by the caller");
        let run = match self.fs.map(&mut self.meta, &node.inode, block, want)? {
            Mapping::Hole { len } => self.allocate_written(ino, block, len.clamp(1, want))?,
            Mapping::Mapped { pblk, len, unwritten } => {
                assert!(unwritten, "written blocks are staged, not pushed");
                let len = len.clamp(1, want);
                let node = self.nodes.get_mut(&ino).expect("checked by the caller");
                self.fs.mark_written(&mut self.meta, &mut node.inode, block, len)?;
                BlockRun { start: pblk, len }
            }
        };
        self.remapped(ino);
        self.note_tree(ino);
        Ok(run)
    }

    fn copy_direct(&mut self, ino: InodeNr, block: u64, run: BlockRun, direct: &mut Direct) {
        for i in block..block + run.len {
            let page = self.pages.peek(ino, i).expect("dirty pages stay cached");
            direct.data.extend_from_slice(&page.data[..]);
        }
        let (start, end) = (block * BLOCK_BYTES, (block + run.len) * BLOCK_BYTES);
        let node = self.node_mut(ino);
        let moved: Vec<(u64, u64)> = node.dirty.overlapping(start, end).collect();
        for &(s, e) in &moved {
            node.pushing.insert(s, e);
        }
        self.forget_dirty(ino, start, end);
        self.in_flight.push(ino);
        match direct.runs.last_mut() {
            Some(last) if last.end() == run.start => last.len += run.len,
            _ => direct.runs.push(run),
        }
    }

    /// Writes dirty inodes and the superblock into their cached blocks.
    fn write_back_inodes(&mut self) -> Result<()> {
        for ino in std::mem::take(&mut self.inode_dirty) {
            if let Some(node) = self.nodes.get_mut(&ino) {
                // With no dirty byte left (truncated, punched), nothing is ahead of its data.
                if node.inode.is_reg() && node.dirty.is_empty() {
                    node.inode.size = node.size;
                }
                self.fs.write_inode(&mut self.meta, &node.inode)?;
            }
        }
        self.fs.sync_super(&mut self.meta)
    }

    /// Takes the snapshot and starts the next running transaction.
    fn merge(
        &mut self,
        seq: TxnSeq,
        tags: Tags,
        direct: Direct,
        overlays: Vec<InodeNr>,
    ) -> Transaction {
        let snapshot = self.meta.snapshot(seq);
        let live = crate::recover::RecoveryCut {
            ops_cut: Lsn(self.lsn),
            staged_cut: Lsn(self.lsn),
            lane_upto: self.lanes.iter().map(|l| l.head).collect(),
            applied: true,
        };
        let cut = self.recovery.clone().unwrap_or(live);
        for ino in std::mem::take(&mut self.delta_dirty) {
            if let Some(node) = self.nodes.get_mut(&ino) {
                node.delta_in_flight = std::mem::take(&mut node.delta);
                self.in_flight.push(ino);
            }
        }
        self.perms_in_flight = std::mem::take(&mut self.perms);
        for lane in &mut self.lanes {
            lane.cut_head = lane.head;
        }
        (self.overlay_added, self.overlay_blocks) = (0, 0);
        self.replacing = 0;
        self.unjournaled_since = (!self.data_dirty.is_empty()).then(|| self.clock.mono_ns());
        let txn = Transaction {
            seq,
            ops_cut: cut.ops_cut,
            staged_cut: cut.staged_cut,
            lane_upto: cut.lane_upto,
            staged: tags.staged,
            zeros: tags.zeros,
            copies: tags.copies,
            images: snapshot.blocks.clone(),
            image_data: snapshot.data,
            direct: direct.runs,
            direct_data: direct.data,
            drops: snapshot.drops.clone(),
        };
        let journal_bytes = siftfs_log::encoded_len(&txn).expect("bounded by room_in_transaction");
        self.txn_seq = seq;
        let info = TxnInfo {
            images: snapshot.blocks,
            overlays,
            freed: snapshot.drops,
            freed_inodes: std::mem::take(&mut self.freed_inodes),
            ops_cut: cut.ops_cut,
            journal_bytes: journal_bytes * 2,
            journaled: false,
        };
        self.txns.insert(seq, info);
        self.stats.cut(&txn);
        txn
    }

    /// The transaction's commit is durable: what it took is durable now.
    pub fn on_journaled(&mut self, seq: TxnSeq, bytes: u64, image_pos: u64) {
        let Some(info) = self.txns.get_mut(&seq) else { return };
        info.journaled = true;
        info.journal_bytes = bytes;
        let images = std::mem::take(&mut info.images);
        let cut = info.ops_cut;
        self.meta.journaled(seq, &images, image_pos);
        self.names.journaled(cut);
        self.perms_in_flight.clear();
        for ino in std::mem::take(&mut self.in_flight) {
            if let Some(node) = self.nodes.get_mut(&ino) {
                node.delta_in_flight = Default::default();
                node.pushing.clear();
            }
        }
    }

    /// Credits: everything up to `seq` is in the area.
    pub fn on_reclaimed(&mut self, seq: TxnSeq, lane_tails: &[u64]) {
        let later = self.txns.split_off(&TxnSeq(seq.0 + 1));
        for info in std::mem::replace(&mut self.txns, later).into_values() {
            assert!(info.journaled, "only journaled transactions are reclaimed");
            for ino in info.overlays {
                self.versions += 1;
                if let Some(node) = self.nodes.get_mut(&ino) {
                    node.overlay.reclaimed(seq);
                    node.map_version = self.versions;
                }
            }
            for run in info.freed {
                self.fs.release_blocks(run);
            }
            for ino in info.freed_inodes {
                self.fs.release_inode(ino);
            }
        }
        self.meta.reclaimed(seq);
        self.reclaimed = self.reclaimed.max(seq);
        for (lane, tail) in self.lanes.iter_mut().zip(lane_tails) {
            lane.reclaim(*tail);
        }
    }
}

/// At most one range per page: what lies between two dirty ranges of a page is in the cache and
/// current, and carrying it costs less than describing the gaps.
pub fn one_per_page(ranges: &RangeSet) -> RangeSet {
    let mut out = ranges.clone();
    let mut last: Option<u64> = None;
    for (start, end) in ranges.iter() {
        if let Some(before) = last.filter(|b| (b - 1) / BLOCK_BYTES == start / BLOCK_BYTES) {
            out.insert(before, start);
        }
        last = Some(end);
    }
    out
}

impl Tags {
    fn source(&mut self, record: &Arc<RecordRef>) -> u32 {
        *self.index.entry((record.lane.0, record.pos)).or_insert_with(|| {
            self.staged.push(StagedRef {
                lane: record.lane,
                pos: record.pos,
                len: record.len,
                lsn: record.lsn,
                crc: record.crc,
            });
            u32::try_from(self.staged.len() - 1).expect("bounded by the lanes")
        })
    }
}
