//! Assembly's second stage, locate: staged ranges get their homes in the area, and the tags that
//! say which staged bytes belong where.

use crate::state::Metadata;
use crate::state::Tree;
use crate::state::log::lane::RecordRef;
use crate::state::tree::overlay::Part;
use crate::state::tree::overlay::Source;
use siftfs_base::{BLOCK_BYTES, BlockRun, Blocks, Bytes, InodeNr, RangeSet, Result, TxnSeq};
use siftfs_ext4::Mapping;
use siftfs_log::{CopyTag, ZeroTag};
use std::collections::HashMap;
use std::sync::Arc;

/// Runs of blocks that one step gives homes to.
const STEP_RUNS: usize = 128;

/// Tags under construction.
#[derive(Default)]
pub struct Tags {
    /// Records that copy tags refer to.
    pub records: Vec<Arc<RecordRef>>,
    index: HashMap<(u16, u64), u32>,
    /// Zero tags.
    pub zeros: Vec<ZeroTag>,
    /// Copy tags.
    pub copies: Vec<CopyTag>,
}

impl Metadata {
    /// Gives homes to the inode's unjournaled overlay ranges from block `from` on, as far as one
    /// step goes. Returns the block to continue at, if there is more. The cut repeats this for what
    /// changed meanwhile, which makes the cut a little longer and has no other effect.
    pub fn home_step(&mut self, ino: InodeNr, from: u64) -> Result<Option<u64>> {
        if !self.tree.inodes.contains(ino) {
            return Ok(None);
        }
        let runs: Vec<(u64, u64)> = self.tree.unjournaled_blocks(ino, from).iter().collect();
        for &(start, end) in runs.iter().take(STEP_RUNS) {
            self.give_home(ino, start, end)?;
        }
        Ok(runs.get(STEP_RUNS).map(|(start, _)| *start))
    }

    /// After this, every file block of `[first, end)` that overlay bytes touch is mapped and
    /// written; bytes of a new block that nothing covers are zero ranges of the overlay (rule R13).
    fn give_home(&mut self, ino: InodeNr, first: u64, end: u64) -> Result<()> {
        let mut block = first;
        while block < end {
            let node = self.tree.inodes.get(&ino).expect("checked by the caller");
            let rest = end - block;
            let fresh =
                match self.tree.fs.layout.map(&mut self.tree.meta, &node.inode, block, rest)? {
                    Mapping::Mapped { len, unwritten: false, .. } => {
                        block += len.clamp(1, rest);
                        continue;
                    }
                    Mapping::Mapped { len, unwritten: true, .. } => {
                        let len = len.clamp(1, rest);
                        let node = self.tree.inodes.get_mut(&ino).expect("checked by the caller");
                        self.tree.fs.mark_written(
                            &mut self.tree.meta,
                            &mut node.inode,
                            block,
                            len,
                        )?;
                        len
                    }
                    Mapping::Hole { len } => {
                        self.allocate_written(ino, block, len.clamp(1, rest))?.len
                    }
                };
            self.tree.note_tree(ino);
            self.remapped(ino);
            let node = self.tree.node_mut(ino);
            let (start, stop) = (block * BLOCK_BYTES, (block + fresh) * BLOCK_BYTES);
            let mut covered = RangeSet::<Bytes>::new();
            for part in node.overlay.overlapping(start, stop) {
                covered.insert(part.start, part.end);
            }
            for (s, e) in covered.gaps(start, stop) {
                node.overlay.insert(s, e, Source::Zero);
            }
            self.log.mark_inode(ino);
            block += fresh;
        }
        Ok(())
    }

    pub fn allocate_written(&mut self, ino: InodeNr, block: u64, want: u64) -> Result<BlockRun> {
        let run = self.tree.allocate_run(ino, block, want)?;
        let node = self.tree.inodes.get_mut(&ino).expect("checked by the caller");
        self.tree.fs.insert(&mut self.tree.meta, &mut node.inode, block, run, false)?;
        self.unreserve(ino, block, block + run.len);
        Ok(run)
    }
}

impl Tree {
    /// File blocks from `from` on that the inode's unjournaled overlay ranges touch: a step's runs
    /// of them, and the beginning of one more. A step that looked at all of them would make an
    /// assembly quadratic.
    fn unjournaled_blocks(&self, ino: InodeNr, from: u64) -> RangeSet<Blocks> {
        let mut blocks = RangeSet::new();
        for (start, end) in self.node(ino).overlay.unjournaled_from(from * BLOCK_BYTES) {
            blocks.insert(from.max(start / BLOCK_BYTES), end.div_ceil(BLOCK_BYTES));
            if blocks.ranges() > STEP_RUNS {
                break;
            }
        }
        blocks
    }

    /// Makes the tags of the inode's unjournaled overlay ranges, all of which have homes; the
    /// transaction `seq` has them from here on.
    pub fn tag(&mut self, ino: InodeNr, seq: TxnSeq, tags: &mut Tags) -> Result<()> {
        if !self.inodes.contains(ino) {
            return Ok(());
        }
        for Part { start, end, source } in self.node(ino).overlay.unjournaled_ranges() {
            self.make_tags(ino, start, end, &source, tags)?;
        }
        self.node_mut(ino).overlay.mark_journaled(seq);
        Ok(())
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
            let node = self.inodes.get(&ino).expect("checked by the caller");
            let Mapping::Mapped { pblk, len, unwritten: false } =
                self.fs.layout.map(&mut self.meta, &node.inode, block, rest)?
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
}

impl Tags {
    fn source(&mut self, record: &Arc<RecordRef>) -> u32 {
        *self.index.entry((record.lane.0, record.pos)).or_insert_with(|| {
            self.records.push(record.clone());
            u32::try_from(self.records.len() - 1).expect("bounded by the lanes")
        })
    }
}
