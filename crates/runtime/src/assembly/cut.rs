//! Background assembly: one transaction at a time, made by a pipeline of three stages with bounded
//! hand-offs (`docs/design/persistence-path.md`, "Background: journaling").
//!
//! *Fetch* and *locate* work ahead of the cut, one bounded step under the state lock at a time;
//! between two steps the lock is free, and what the step produced is written. *Merge* is the
//! atomic cut (rule R1): it repeats the two for the little that came meanwhile, and takes
//! references to the blocks instead of copies.

use crate::assembly::locate::Tags;
use crate::assembly::push::{Progress, STEP_BLOCKS};
use crate::staging::sequencer::{Flushed, Sequencer};
use crate::staging::stage::stage_replies;
use crate::staging::unwritten::Staged;
use crate::state::Log;
use crate::state::Metadata;
use crate::state::log::recovery::RecoveryCut;
use crate::state::log::running::Push;
use crate::state::room::journal_room;
use crate::state::step::{Need, Step, Stop};
use crate::state::{State, TxnInfo};
use siftfs_base::{BLOCK_BYTES, Bytes, InodeNr, Lsn, RangeSet, Result, TxnSeq};
use siftfs_log::Transaction;
use siftfs_wire::DirectRun;
use std::collections::{BTreeSet, VecDeque};

/// What a step made: to be written before the next step.
#[derive(Default)]
pub struct Handoff {
    /// Staged transactions of pushed overwrites.
    pub staged: Vec<Staged>,
    /// Data for new blocks, to be sent ahead of the transaction.
    pub direct: Vec<DirectRun>,
}

/// Small files whose data one step takes together.
const STEP_FILES: u32 = 64;

impl Handoff {
    fn is_empty(&self) -> bool {
        self.staged.is_empty() && self.direct.is_empty()
    }

    /// Is the hand-off as large as one step makes it: a record, or blocks for the area?
    fn is_full(&self) -> bool {
        !self.staged.is_empty() || self.room() == 0
    }

    /// Blocks for the area that the step may still add.
    pub fn room(&self) -> u64 {
        let blocks: u64 = self.direct.iter().map(|direct| direct.run.len).sum();
        STEP_BLOCKS.saturating_sub(blocks)
    }
}

/// Unsynced bytes of one inode that the transaction under assembly owes.
pub struct ToPush {
    /// Inode.
    pub ino: InodeNr,
    /// What was dirty when the assembly began and has been since.
    pub ranges: RangeSet<Bytes>,
    /// Steps taken.
    pub steps: u32,
}

/// A transaction under assembly, before its cut.
pub struct Assembly {
    queue: VecDeque<ToPush>,
    /// Inodes whose staged ranges may lack homes, and from which block on.
    homeless: Option<VecDeque<(InodeNr, u64)>>,
    /// Metadata blocks that homes have changed first.
    changed: usize,
    left: BTreeSet<InodeNr>,
    /// What is to be written once the lock is free, whatever the step's result.
    pub out: Handoff,
}

/// A cut that has been made: what to submit once the assembly's hand-off is written and durable.
pub struct Cut {
    durable: Lsn,
    txn: Transaction,
    /// Inodes with pushed data left for the next cut (no room).
    pub left: BTreeSet<InodeNr>,
}

impl Cut {
    /// Everything staged up to here must be durable before the transaction is submitted (rule R4).
    pub fn sources(&self) -> Lsn {
        self.durable
    }

    /// Gives out the transaction, against the proof that its sources are durable.
    ///
    /// # Panics
    /// If `sources` does not cover [`Cut::sources`].
    pub fn release(self, sources: &Flushed) -> Transaction {
        assert!(sources.covers(self.durable), "a transaction is submitted after its sources");
        self.txn
    }
}

impl State {
    /// Inodes whose data is to be pushed. First come those whose rename or truncation must not be
    /// exposed without their data, then the oldest, so that no inode waits for ever.
    fn due(&self, wanted: impl Fn(&State, InodeNr) -> bool) -> Vec<InodeNr> {
        let mut due: Vec<InodeNr> =
            self.metadata.log.running.data.inodes().filter(|i| wanted(self, *i)).collect();
        due.sort_by_key(|i| {
            (!self.metadata.tree.node(*i).push_next, self.metadata.tree.node(*i).dirty_since)
        });
        due
    }

    /// Is there anything a transaction would carry?
    pub fn has_work(&self, push: &Push) -> bool {
        self.metadata.tree.meta.has_changes()
            || self.metadata.log.running.inodes_owed() > 0
            || !self.metadata.log.running.overlay.is_empty()
            || self.metadata.tree.inodes.has_to_free()
            || self.metadata.log.staging.is_uncut()
            || self.metadata.log.replies.is_stale()
            || self.metadata.log.running.data.inodes().any(|i| self.is_due(i, push))
    }

    /// Must the next transaction push this inode's data?
    fn is_due(&self, ino: InodeNr, push: &Push) -> bool {
        let Some(node) = self.metadata.tree.inodes.get(&ino) else { return false };
        let age =
            self.metadata.log.time.mono_ns().saturating_sub(node.dirty_since.unwrap_or(u64::MAX));
        let aged = u128::from(age) >= self.metadata.log.config.commit_age.as_nanos();
        let pressed = self.metadata.log.running.data.bytes() > self.dirty_limit() / 2;
        // No fsync owes the bytes of a dead file: only full memory pushes them.
        if node.is_dead() {
            return pressed;
        }
        // A file that may still get a name does not age, because it may never get one. Its bytes
        // are as old as they are when it does.
        let aged = aged && node.inode.nlink > 0;
        aged || pressed || node.push_next || push.asks_for(ino)
    }

    /// Begins a transaction's assembly. Nothing is in flight when this is called.
    pub fn begin_assembly(&mut self, push: &Push) -> Step<Assembly> {
        let bound =
            self.metadata.log.max_transaction_blocks().max(self.metadata.transaction_blocks());
        let bound = bound as u64 * BLOCK_BYTES;
        if self.metadata.log.ledger.journal_used() + journal_room(bound)
            > self.metadata.log.ledger.journal_len()
        {
            return Err(Stop::Needs(Need::Log));
        }
        self.metadata.log.running.begin_assembly();
        self.run_evictions()?;
        let due = self.due(|st, ino| st.is_due(ino, push));
        let mut queue = VecDeque::with_capacity(due.len());
        for ino in due {
            let node = self.metadata.tree.node_mut(ino);
            node.unseen = Some(node.data.running().clone());
            queue.push_back(ToPush { ino, ranges: node.data.running().clone(), steps: 0 });
        }
        let (left, out) = (BTreeSet::new(), Handoff::default());
        Ok(Assembly { queue, homeless: None, changed: 0, left, out })
    }

    /// Runs one step of fetch or locate; false when the cut is next.
    pub fn assembly_step(&mut self, seq: &Sequencer, a: &mut Assembly) -> Step<bool> {
        let mut files = 0;
        while let Some(owed) = a.queue.front_mut() {
            files += 1;
            let (ino, progress) = (owed.ino, self.push_step(seq, owed, &mut a.out)?);
            if progress == Progress::More {
                return Ok(true);
            }
            if progress == Progress::NoRoom {
                // One whose data must not stay behind is the cut's business.
                a.left.insert(ino);
            }
            a.queue.pop_front();
            if let Some(node) = self.metadata.tree.inodes.get_mut(&ino) {
                node.unseen = None;
            }
            if a.out.is_full() || files == STEP_FILES {
                return Ok(true);
            }
        }
        if !a.out.is_empty() {
            return Ok(true);
        }
        let overlays = &self.metadata.log.running.overlay;
        let homeless =
            a.homeless.get_or_insert_with(|| overlays.inodes().map(|ino| (ino, 0)).collect());
        let Some((ino, from)) = homeless.pop_front() else { return Ok(false) };
        if let Some(next) = self.metadata.bounded_home_step(ino, from, &mut a.changed)? {
            homeless.push_front((ino, next));
        }
        Ok(true)
    }

    /// Makes the cut. What may find no room comes first: once a range is tagged, nothing asks for
    /// another round.
    pub fn cut(&mut self, seq: &Sequencer, a: &mut Assembly) -> Step<Cut> {
        self.metadata.log.room_for_replies()?;
        let mut left = std::mem::take(&mut a.left);
        let due = self.due(|st, ino| st.metadata.tree.node(ino).push_next);
        for ino in &due {
            left.remove(ino);
        }
        let elsewhere = self.stage_overwrites(seq, &due, &mut left, &mut a.out.staged)?;
        let overlays: Vec<InodeNr> = self.metadata.log.running.overlay.inodes().collect();
        for ino in &overlays {
            let mut from = Some(0);
            while let Some(block) = from {
                from = self.metadata.bounded_home_step(*ino, block, &mut a.changed)?;
            }
        }
        for ino in elsewhere {
            if !self.metadata.move_home(ino)? {
                tracing::warn!(ino, "no space to write replaced data before its new name");
                left.insert(ino);
            }
        }
        for ino in due {
            // What could not be staged must not be overtaken by what lies behind it.
            if !left.contains(&ino) && self.push_direct(ino, u64::MAX, &mut a.out)? != Progress::All
            {
                left.insert(ino);
            }
        }
        let mut tags = Tags::default();
        for ino in &overlays {
            self.metadata.tree.tag(*ino, self.metadata.log.next_txn(), &mut tags)?;
        }
        self.metadata.log.running.overlay.tagged();
        self.metadata.write_back_inodes()?;
        let txn = self.merge(tags, overlays);
        a.out.staged.extend(stage_replies(self, seq));
        Ok(Cut { durable: seq.published(), txn, left })
    }

    /// Takes the snapshot and starts the next running transaction.
    fn merge(&mut self, tags: Tags, overlays: Vec<InodeNr>) -> Transaction {
        let seq = self.metadata.log.next_txn();
        let snapshot = self.metadata.tree.meta.snapshot(seq);
        let drawn = self.metadata.log.staging.last_drawn();
        let lane_upto = self.metadata.log.staging.heads();
        let live = RecoveryCut { ops_cut: drawn, staged_cut: drawn, lane_upto };
        let cut =
            self.metadata.log.recovery.as_ref().map_or(live, |recovery| recovery.cut().clone());
        let digest = self.metadata.log.staging.cut(self.metadata.log.running.overlay.physical());
        let mut overlays: BTreeSet<InodeNr> = overlays.into_iter().collect();
        overlays.extend(self.metadata.log.running.overlay.physical_inodes());
        let taken =
            self.metadata.log.running.cut(&mut self.metadata.tree.inodes, &self.metadata.log.time);
        let pushed_bytes = taken.pushed.bytes() as u64;
        let txn = Transaction {
            seq,
            ops_cut: cut.ops_cut,
            staged_cut: cut.staged_cut,
            lane_upto: cut.lane_upto,
            digest,
            staged: tags.records.iter().map(|record| record.named()).collect(),
            zeros: tags.zeros,
            copies: tags.copies,
            images: snapshot.blocks.clone(),
            image_data: snapshot.data,
            direct: taken.pushed.into_runs(),
            drops: snapshot.drops.clone(),
        };
        let journal_bytes = siftfs_log::encoded_len(&txn, self.metadata.log.ledger.journal_data())
            .expect("bounded by room_in_transaction");
        let info = TxnInfo {
            images: snapshot.blocks,
            overlays: overlays.into_iter().collect(),
            freed: snapshot.drops,
            freed_inodes: taken.freed_inodes,
            ops_cut: cut.ops_cut,
            journal_bytes: journal_room(journal_bytes),
            lane_upto: txn.lane_upto.clone(),
        };
        self.metadata.log.ledger.cut(seq, info);
        self.stats.cut(&txn, pushed_bytes);
        txn
    }
}

impl Log {
    /// Sequence number of the transaction under assembly.
    pub fn next_txn(&self) -> TxnSeq {
        TxnSeq(self.ledger.last_cut().0 + 1)
    }
}

impl Metadata {
    /// A step of giving homes, which changes no more metadata than ranges that were counted as
    /// homeless can (rule R10).
    fn bounded_home_step(
        &mut self,
        ino: InodeNr,
        from: u64,
        changed: &mut usize,
    ) -> Result<Option<u64>> {
        let before = self.tree.meta.dirty_len();
        let next = self.home_step(ino, from)?;
        *changed += self.tree.meta.dirty_len().saturating_sub(before);
        let most = self.log.running.overlay.most_for_homes(self.tree.groups());
        assert!(*changed <= most, "homes changed {changed} blocks, and {most} were counted");
        Ok(next)
    }

    /// Writes dirty inodes and the superblock into their cached blocks.
    fn write_back_inodes(&mut self) -> Result<()> {
        for ino in self.log.running.in_flight() {
            if let Some(node) = self.tree.inodes.get_mut(ino) {
                node.inode.size = node.inode.size.max(std::mem::take(&mut node.pushed_size));
            }
        }
        for ino in self.log.running.take_inodes() {
            if let Some(node) = self.tree.inodes.get_mut(&ino) {
                // With no dirty byte left (truncated, punched), nothing is ahead of its data.
                if node.inode.is_reg() && node.data.running().is_empty() {
                    node.inode.size = node.size;
                }
                self.tree.fs.write_inode(&mut self.tree.meta, &node.inode)?;
            }
        }
        self.tree.fs.sync_super(&mut self.tree.meta)
    }
}
