//! The paper's manual checkpoint workloads (§5.1.3, Table 4) in proportion, and temporary files.

use crate::volume::{Sizes, Volume};
use siftfs_base::{BLOCK_BYTES, BLOCK_SIZE, BlockRun, Result, SharedBlock};
use siftfs_log::JournalData;
use siftfs_log::{CopyTag, Transaction};
use siftfs_service::InodeTables;

/// Files written side by side.
const FILES: u64 = 4;
/// The inode table, and another metadata block that each transaction changes.
const INODES: u64 = 1;
const BITMAP: u64 = 2;
/// First block of file data.
const DATA: u64 = 64;
/// A prime larger than any number of blocks: steps of this many meet each block once.
const SCATTER: u64 = 2_654_435_761;
const MIB: u64 = 1 << 20;

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Uniform random 4 KiB writes in a hot region per file; 80 times its size in all.
    HighOverlap,
    /// Each block once, in order.
    Sequential,
    /// Each block once, each far from the one before.
    Scattered,
    /// Files written, fsynced and deleted before the checkpoint.
    Temporary,
    /// Nothing twice, and as much to keep in mind per byte as can be: rounds of new images, and
    /// rounds of short tags, of which each block has several.
    Hoard,
}

/// Images of a hoard's even rounds.
const IMAGES: u64 = 256;
/// Tags of its odd rounds, of this many bytes, with gaps of the same length between them.
const TAGS: u64 = 4096;
const TAG: u64 = 256;

/// A workload with its sizes.
#[derive(Clone, Copy)]
pub struct Backlog {
    pub kind: Kind,
    /// What the journal holds of staged data.
    form: JournalData,
    /// 4 KiB writes per fsync.
    writes: u64,
    /// fsyncs per file.
    pub fsyncs: u64,
    /// Blocks per file.
    blocks: u64,
}

impl Backlog {
    /// A backlog over a journal of references.
    pub fn new(kind: Kind, scale: u64) -> Self {
        let form = JournalData::Ref;
        match kind {
            // 2 MiB of hot region per file.
            Kind::HighOverlap => {
                Self { kind, form, writes: 32, fsyncs: 1280 * scale, blocks: 512 * scale }
            }
            Kind::Sequential => {
                Self { kind, form, writes: 256, fsyncs: 96 * scale, blocks: 256 * 96 * scale }
            }
            Kind::Scattered => {
                Self { kind, form, writes: 32, fsyncs: 256 * scale, blocks: 32 * 256 * scale }
            }
            // Each fsync is a file of its own.
            Kind::Temporary => {
                Self { kind, form, writes: 16, fsyncs: 512 * scale, blocks: 16 * 512 * scale }
            }
            Kind::Hoard => {
                let fsyncs = 200 * scale;
                let tagged = TAGS * 2 * TAG / BLOCK_BYTES;
                Self {
                    kind,
                    form,
                    writes: 32,
                    fsyncs,
                    blocks: fsyncs / 2 * (IMAGES + tagged) / FILES,
                }
            }
        }
    }

    /// The same over a journal that holds `form` of staged data.
    pub fn journaled(self, form: JournalData) -> Self {
        Self { form, ..self }
    }

    /// Bytes that programs wrote.
    pub fn useful(&self) -> u64 {
        FILES * self.fsyncs * self.writes * BLOCK_BYTES
    }

    pub fn sizes(&self) -> Sizes {
        let area = (DATA + FILES * self.blocks) * BLOCK_BYTES;
        let records = FILES * self.fsyncs;
        let lane = self.useful() + records * 4 * BLOCK_BYTES + 64 * MIB;
        let each = match self.kind {
            Kind::Hoard => (IMAGES + 2) * BLOCK_BYTES,
            _ => self.writes * FILES * 24 + 8 * BLOCK_BYTES,
        };
        let mut journal = self.fsyncs * each + 64 * MIB;
        // Both forms of the journal on volumes of the same sizes.
        if self.kind == Kind::Sequential {
            journal += self.useful() + self.useful() / 512;
        }
        Sizes {
            form: self.form,
            area: area.next_multiple_of(MIB),
            journal: journal.next_multiple_of(MIB),
            lane: lane.next_multiple_of(MIB),
        }
    }

    pub fn inode_tables(&self) -> InodeTables {
        InodeTables { runs: vec![BlockRun { start: INODES, len: 1 }], inode_size: 256 }
    }

    /// Stages and journals everything: a transaction for each round of fsyncs, one per file.
    pub fn build(&self, volume: &mut Volume) -> Result<()> {
        let mut state =
            Writer { rng: siftfs_base::Rng::new(1), inodes: [0; BLOCK_SIZE], bitmap: 0 };
        let mut data = vec![0; (self.writes * BLOCK_BYTES) as usize];
        for round in 0..self.fsyncs {
            let mut txn = Transaction::default();
            for file in 0..FILES {
                data.iter_mut().step_by(512).for_each(|b| *b = (round * 5 + file) as u8);
                txn.staged.push(volume.stage(&data)?);
                if self.kind == Kind::Hoard {
                    break;
                }
                self.tags(&mut state, &mut txn, file, round);
            }
            if self.kind == Kind::Temporary && round > 0 {
                txn.drops = (0..FILES).map(|f| self.file_of(f, round - 1)).collect();
            }
            match self.kind {
                Kind::Hoard => self.hoard(&mut txn, round),
                _ => state.images(&mut txn, round),
            }
            volume.submit(txn)?;
        }
        if self.kind == Kind::Temporary {
            let drops = (0..FILES).map(|f| self.file_of(f, self.fsyncs - 1)).collect();
            let mut txn = Transaction { drops, ..Transaction::default() };
            state.images(&mut txn, self.fsyncs);
            volume.submit(txn)?;
        }
        Ok(())
    }

    /// Blocks of the temporary file that `file` is in `round`; of a sequential one, what the
    /// round's fsync appends.
    fn file_of(&self, file: u64, round: u64) -> BlockRun {
        BlockRun { start: DATA + file * self.blocks + round * self.writes, len: self.writes }
    }

    /// A round's images, or its tags, in blocks that no other round names.
    fn hoard(&self, txn: &mut Transaction, round: u64) {
        let tagged = TAGS * 2 * TAG / BLOCK_BYTES;
        let first = DATA + round / 2 * (IMAGES + tagged);
        if round.is_multiple_of(2) {
            txn.images = (first..first + IMAGES).collect();
            txn.image_data = vec![SharedBlock::from([round as u8; BLOCK_SIZE]); IMAGES as usize];
            return;
        }
        let tag = |i: u64| CopyTag {
            source: 0,
            data_offset: (i * TAG % (self.writes * BLOCK_BYTES)) as u32,
            dst: (first + IMAGES) * BLOCK_BYTES + i * 2 * TAG,
            len: TAG as u32,
        };
        txn.copies = (0..TAGS).map(tag).collect();
    }

    fn tags(&self, state: &mut Writer, txn: &mut Transaction, file: u64, round: u64) {
        let source = txn.staged.len() as u32 - 1;
        if matches!(self.kind, Kind::Sequential | Kind::Temporary) {
            let run = self.file_of(file, round);
            let len = (run.len * BLOCK_BYTES) as u32;
            let dst = run.start * BLOCK_BYTES;
            return txn.copies.push(CopyTag { source, data_offset: 0, dst, len });
        }
        for i in 0..self.writes {
            let block = match self.kind {
                // Far apart, one after the other.
                Kind::Scattered => (round * self.writes + i) * SCATTER % self.blocks,
                _ => state.rng.below(self.blocks),
            };
            let dst = (DATA + file * self.blocks + block) * BLOCK_BYTES;
            let data_offset = (i * BLOCK_BYTES) as u32;
            txn.copies.push(CopyTag { source, data_offset, dst, len: BLOCK_SIZE as u32 });
        }
    }
}

/// What changes from round to round.
struct Writer {
    rng: siftfs_base::Rng,
    inodes: [u8; BLOCK_SIZE],
    bitmap: u64,
}

impl Writer {
    /// Images of the inode table, where all files' inodes change, and of one other block.
    fn images(&mut self, txn: &mut Transaction, round: u64) {
        for file in 0..FILES as usize {
            self.inodes[file * 256..][..8].copy_from_slice(&(round + 1).to_le_bytes());
        }
        self.bitmap += 1;
        let other = [self.bitmap as u8; BLOCK_SIZE];
        txn.images = vec![INODES, BITMAP];
        txn.image_data = vec![SharedBlock::from(self.inodes), SharedBlock::from(other)];
    }
}
