//! Foreground staging: an inode's fsync becomes one staged transaction, and has its place in a
//! lane.
//!
//! `docs/design/persistence-path.md`, "Foreground: fsync", is followed step by step.

use crate::staging::capture::{Asked, Capture, Selection};
use crate::staging::encode::{Encoded, Plan, Range};
use crate::staging::not_staged::{Drafting, NotStaged};
use crate::staging::sequencer::{Flushed, Sequencer, Writer};
use crate::staging::unwritten::Staged;
use crate::state::Log;
use crate::state::Metadata;
use crate::state::State;
use crate::state::Tree;
use crate::state::buffers::is_bulk;
use crate::state::log::lane::{Place, RecordRef};
use crate::state::log::names::{self, Unstageable};
use crate::state::log::replies;
use crate::state::room::{EMPTY_BLOCKS, INODE_BLOCKS, NEW_INODE_BLOCKS, PERMS_PER_RECORD};
use crate::state::step::{Need, Step, Stop};
use crate::state::tree::generations::Generations;
use crate::state::tree::overlay::Source;
use siftfs_base::{BLOCK_BYTES, Error, InodeNr, Lsn};
use siftfs_log::{Item, LaneMedium, RecordLayout};
use std::sync::Arc;

/// What staging an inode came to.
pub enum Outcome {
    /// There is nothing new to stage: the inode is durable once this LSN is.
    Nothing(Lsn),
    /// There is nothing new to stage, and the inode is durable.
    Durable(Flushed),
    /// A record that must be written.
    Staged(Staged),
    /// Bulk: encode its data without the lock, and stage it with that.
    Plan(Plan),
    /// The record could not be made self-contained: a full commit is needed.
    FullCommit(Unstageable),
}

/// What a record will have of inodes that do not exist yet, and of operations that come.
#[derive(Default)]
pub struct Extra {
    /// Items as long as those that come.
    pub items: Vec<Item>,
    /// Ranges of data among them.
    pub ranges: usize,
    /// Bytes of data.
    pub bytes: u64,
    /// New inodes.
    pub files: usize,
}

/// A record that can be staged: what it carries, and where.
pub struct Draft {
    /// What it carries.
    pub(super) capture: Capture,
    /// Its sizes.
    pub(super) layout: RecordLayout,
    /// Index of its lane.
    pub(super) lane: usize,
    /// Does it leave room to small ones?
    pub(super) bulk: bool,
}

impl Draft {
    /// The record's length in bytes.
    pub fn len(&self) -> u64 {
        u64::from(self.layout.len)
    }

    /// The record's lane.
    pub fn lane(&self) -> usize {
        self.lane
    }
}

impl State {
    /// Stages what `ino` owes. Publishes the record: from here on the captured ranges lie in the
    /// lane, and the record must be written, by `writer`. `encoded` is the result of an
    /// [`Outcome::Plan`]; a call that has it does not answer with another plan.
    pub fn stage(
        &mut self,
        (seq, writer): (&Sequencer, Writer),
        ino: InodeNr,
        asked: Asked,
        selection: &Selection<'_>,
        encoded: Option<Encoded>,
    ) -> Step<Outcome> {
        self.metadata.tree.load(ino)?;
        if matches!(selection, Selection::All) {
            self.metadata.tree.node_mut(ino).fsynced = true;
        }
        let draft = match self.metadata.draft(&[ino], asked, selection) {
            Ok(Some(draft)) => draft,
            Ok(None) if asked.in_order => return Ok(Outcome::Nothing(seq.published())),
            Ok(None) => {
                // Another inode's record may carry the permission change of a directory above (R12,
                // R17).
                let others = self.metadata.tree.inodes.evicted_staged();
                let others = others.max(self.metadata.log.running.permissions.last_staged());
                let own = self.metadata.tree.node(ino).staged;
                // All that came before a record of the record area and that counts for it was
                // durable when it was published.
                let alone = if own >= others { seq.alone(own) } else { None };
                return Ok(alone.map_or(Outcome::Nothing(own.max(others)), Outcome::Durable));
            }
            Err(NotStaged::Unstageable(reason)) => return Ok(Outcome::FullCommit(reason)),
            Err(NotStaged::Stop(stop)) => return Err(stop),
        };
        let draft = match (selection, writer) {
            (Selection::All, Writer::Caller) => self.dispatch(seq, draft),
            _ => draft,
        };
        let kept = match selection {
            Selection::Only(_) => self.metadata.kept_from_push(ino),
            _ => self.metadata.log.kept_from(draft.bulk),
        };
        if !self.metadata.room_for_ranges(&draft.capture, kept)? {
            return Ok(Outcome::FullCommit(Unstageable::TooMuchData));
        }
        let place = self.metadata.log.place(&draft)?;
        if draft.bulk && encoded.is_none() && matches!(selection, Selection::All) {
            let Draft { capture, layout, lane, .. } = draft;
            return Ok(Outcome::Plan(self.plan(capture.data, layout, lane)));
        }
        let Draft { capture, layout, lane, .. } = draft;
        Ok(Outcome::Staged(self.publish((seq, writer), capture, &layout, place, lane, encoded)))
    }

    /// Stages what `inodes` owe in one record, for which [`Metadata::has_room`] has found room.
    ///
    /// # Panics
    /// If there is no room: the check was another one's.
    pub fn stage_draft(&mut self, seq: &Sequencer, draft: Draft, writer: Writer) -> Staged {
        let Ok(place) = self.metadata.log.place(&draft) else {
            panic!("room was found under this lock")
        };
        let Draft { capture, layout, lane, .. } = draft;
        let staged = self.publish((seq, writer), capture, &layout, place, lane, None);
        self.metadata.log.staging.note_ordered(staged.published.lsn());
        staged
    }

    /// Stages every pending permission change of what exists in the last durable state, before data
    /// is pushed whose records may be durable when the transaction is not (rule R17). Records
    /// that are in `out` when an error comes must be written all the same.
    pub fn stage_permissions(&mut self, seq: &Sequencer, out: &mut Vec<Staged>) -> Step<()> {
        let pending = self.metadata.log.running.permissions.pending();
        let pending: Vec<InodeNr> =
            pending.filter(|i| !self.metadata.log.names.creates(*i)).collect();
        for some in pending.chunks(PERMS_PER_RECORD) {
            let mut capture = Capture::default();
            for &ino in some {
                match self.metadata.tree.load(ino) {
                    Err(Error::Posix(libc::ESTALE)) => continue,
                    other => other?,
                }
                if self.metadata.tree.node(ino).inode.nlink > 0 {
                    let item = self.metadata.tree.inode_item(ino, None);
                    capture.items.push(Item::Inode(item));
                    self.metadata.tree.capture_xattrs(ino, &mut capture)?;
                    capture.perms.push(ino);
                }
            }
            if capture.items.is_empty() {
                continue;
            }
            let layout = RecordLayout::new(&capture.items, 0).expect("a few inodes fit a record");
            let place = self.metadata.log.staging.lanes()[0].place(u64::from(layout.len));
            let place = place.ok_or(Stop::Needs(Need::Log))?;
            let seq = (seq, Writer::Background);
            out.push(self.publish(seq, capture, &layout, place, 0, None));
        }
        Ok(())
    }

    /// Fixes the record's place, encodes it, and makes it the source of what it captured.
    fn publish(
        &mut self,
        (seq, writer): (&Sequencer, Writer),
        capture: Capture,
        layout: &RecordLayout,
        place: Place,
        lane_index: usize,
        encoded: Option<Encoded>,
    ) -> Staged {
        let lsn = self.metadata.log.staging.draw();
        let durable_lsn = seq.durable();
        let builder = self.metadata.log.builder(lane_index);
        let params = self.metadata.log.staging.next_record(lane_index, &place, lsn, durable_lsn);
        // A write to a page meanwhile makes what was encoded stale.
        let encoded = encoded.filter(|e| self.still_holds(e, &capture.data, layout));
        let encoded = encoded.unwrap_or_else(|| {
            self.plan(capture.data.clone(), *layout, lane_index)
                .encode(self.metadata.log.staging.record_buffers())
        });
        let mut buf = encoded.into_buf();
        let crc = builder.encode_head(&params, layout, &capture.items, &mut buf);
        let (offset, record) =
            self.metadata.log.staging.fix(place, builder.lane, lsn, crc, layout.data_offset);
        let compact = layout.medium == LaneMedium::Bytes;
        let many = !capture.ops.is_empty() || !capture.perms.is_empty() || capture.whole.len() > 1;
        if !compact && (many || writer == Writer::Ticket) {
            self.metadata.log.staging.note_ordered(lsn);
        }
        let published =
            if compact { seq.publish_compact(&record) } else { seq.publish(&record, writer) };
        self.metadata.captured(&capture, &Arc::new(record));
        self.stats.staged(layout, &capture.items);
        Staged { published, lane: lane_index, offset, buf }
    }
}

/// Stages what is known of clients' calls directly behind a cut (rule R53), for which
/// [`Log::room_for_replies`] has found room under the same hold of the lock. The cut does not
/// contain the record, so it stays until the next cut is reclaimed, which stages another.
pub fn stage_replies(state: &mut State, seq: &Sequencer) -> Option<Staged> {
    let items = state.metadata.log.replies.items();
    state.metadata.log.replies.cut(!items.is_empty());
    if items.is_empty() {
        return None;
    }
    let layout = state.metadata.log.layout_of_replies();
    let Ok(place) = state.metadata.log.place_of_replies(&layout) else {
        panic!("room was found under this lock")
    };
    let (capture, seq) = (Capture { items, ..Capture::default() }, (seq, Writer::Background));
    let staged = state.publish(seq, capture, &layout, place, replies::LANE, None);
    state.metadata.log.staging.is_of_cut(replies::LANE);
    Some(staged)
}

/// Blocks that the captured inodes add to a transaction at worst: a close bound if a coarse one
/// is beyond `most`. Where an extent tree is deep and the journal is small it matters that what
/// has a home changes no tree.
fn whole_blocks(tree: &mut Tree, capture: &Capture, most: usize) -> usize {
    let ranges = |ino| capture.data.iter().filter(move |range| range.ino == ino).count();
    let coarse = |ino: &InodeNr| tree.inode_blocks(*ino, ranges(*ino));
    let blocks = capture.whole.iter().map(coarse).sum();
    match blocks <= most {
        true => blocks,
        false => capture.whole.iter().map(|i| blocks_without_homes(tree, *i, capture)).sum(),
    }
}

/// As [`Tree::inode_blocks`], of the inode's ranges that are not mapped yet.
fn blocks_without_homes(tree: &mut Tree, ino: InodeNr, capture: &Capture) -> usize {
    let own = capture.data.iter().filter(|range| range.ino == ino);
    let lacks = |range: &&Range| {
        let (first, end) = (range.start / BLOCK_BYTES, range.end.div_ceil(BLOCK_BYTES));
        !tree.has_home(ino, first, end)
    };
    match own.filter(lacks).count() {
        0 => INODE_BLOCKS,
        lacking => tree.inode_blocks(ino, lacking),
    }
}

impl Metadata {
    /// What one record of `inodes`, which are loaded, would be; `None` if there is nothing to
    /// stage. It lies in the first one's lane.
    pub fn draft(
        &mut self,
        inodes: &[InodeNr],
        asked: Asked,
        selection: &Selection<'_>,
    ) -> Drafting<Option<Draft>> {
        self.draft_in(self.log.staging.lane_of(inodes[0]), inodes, asked, selection)
    }

    /// As [`Metadata::draft`], of a record in `lane`.
    pub fn draft_in(
        &mut self,
        lane: usize,
        inodes: &[InodeNr],
        asked: Asked,
        selection: &Selection<'_>,
    ) -> Drafting<Option<Draft>> {
        let Some(capture) = self.capture(inodes, asked, selection)? else { return Ok(None) };
        let Some(layout) = RecordLayout::new(&capture.items, capture.data_len)
            .filter(|_| capture.data.len() <= self.log.most_ranges())
            .filter(|l| u64::from(l.len) <= self.log.staging.lanes()[lane].max_record())
        else {
            return Err(Unstageable::TooMuchData.into());
        };
        let bulk = match selection {
            Selection::Only(_) => !self.tree.node(inodes[0]).push_next,
            _ => is_bulk(layout.len.into()),
        };
        Ok(Some(Draft { capture, layout, lane, bulk }))
    }

    /// One record of `inodes` with what is coming, and of `extra`, in `lane`: how long it may be in
    /// bytes, and how many blocks of the running transaction it takes beside `more` others. There
    /// is room for it, in the lane and in the transaction, until the lock is let go of.
    pub fn room_for_coming(
        &mut self,
        lane: usize,
        inodes: &[InodeNr],
        selection: &Selection<'_>,
        extra: &Extra,
        more: usize,
    ) -> Drafting<(u64, usize)> {
        let mut capture = self.capture(inodes, Asked::default(), selection)?.unwrap_or_default();
        capture.items.extend(extra.items.iter().cloned());
        capture.items.extend(self.log.replies.coming());
        let ranges = capture.data.len() + extra.ranges;
        let bytes = capture.data_len + extra.bytes;
        let layout = RecordLayout::new(&capture.items, bytes)
            .filter(|_| ranges <= self.log.most_ranges() && bytes <= self.log.most_staged())
            .filter(|l| u64::from(l.len) <= self.log.staging.lanes()[lane].max_record());
        let layout = layout.ok_or(Unstageable::TooMuchData)?;
        let mut blocks = self.log.range_blocks(ranges, bytes) + extra.files * NEW_INODE_BLOCKS;
        blocks += whole_blocks(
            &mut self.tree,
            &capture,
            self.log.half_transaction().saturating_sub(blocks),
        );
        let most = self.log.max_transaction_blocks();
        if blocks > self.log.half_transaction() || blocks + more + EMPTY_BLOCKS > most {
            return Err(Unstageable::TooMuchData.into());
        }
        let bulk = is_bulk(layout.len.into());
        let draft = Draft { capture, layout, lane, bulk };
        blocks += self.log.kept_from(draft.bulk);
        self.room_in_transaction(blocks + more)?;
        self.log.place(&draft)?;
        Ok((draft.len(), blocks))
    }

    /// Is there room for such a record, in its lane and in the running transaction, when the
    /// operation that it belongs to adds `more` blocks to that one? False if not even an empty
    /// transaction has it. Nothing is taken: under the same hold of the lock
    /// [`State::stage_draft`] finds the same room.
    pub fn has_room(&mut self, draft: &Draft, more: usize) -> Step<bool> {
        let kept = self.log.kept_from(draft.bulk) + more;
        if !self.room_for_ranges(&draft.capture, kept)? {
            return Ok(false);
        }
        self.log.place(draft).map(|_| true)
    }

    /// What is staged now must find room in the next transaction (rule R10); false if not even an
    /// empty one holds it. Bulk leaves its last quarter, `kept`, to small fsyncs and to writes,
    /// which would have to wait until the transaction before it is in the journal.
    fn room_for_ranges(&mut self, capture: &Capture, kept: usize) -> Step<bool> {
        let ranges = self.log.range_blocks(capture.data.len(), capture.data_len);
        let most = self.log.half_transaction().saturating_sub(ranges);
        let blocks = whole_blocks(&mut self.tree, capture, most);
        if blocks > most {
            return Ok(false);
        }
        self.room_in_transaction(ranges + blocks + kept).map(|()| true)
    }

    /// What the record carries is no longer pending; its ranges lie in the lane.
    fn captured(&mut self, capture: &Capture, record: &Arc<RecordRef>) {
        let txn = self.log.next_txn();
        for &Range { ino, start, end, data_offset: offset, home } in &capture.data {
            self.forget_dirty(ino, start, end);
            let source = Source::Staged { record: record.clone(), offset };
            let node = self.tree.node_mut(ino);
            node.data.each_mut().into_iter().for_each(|bytes| bytes.remove(start, end));
            if home.is_some() {
                node.overlay.insert_physical(start, end, source, txn);
                self.log.running.overlay.note_physical(ino);
            } else {
                node.overlay.insert(start, end, source);
                self.note_overlay(ino, (start, end), end - start);
            }
        }
        for &ino in &capture.whole {
            let size = capture.items.iter().rev().find_map(|item| match item {
                Item::Inode(i) if i.ino == ino => i.size,
                _ => None,
            });
            let node = self.tree.node_mut(ino);
            node.delta = Generations::default();
            if let Some(size) = size {
                node.inode.size = size;
            }
            node.staged = record.lsn;
            self.log.mark_inode(ino);
        }
        self.log.running.permissions.staged(&capture.perms, record.lsn);
        for ino in &capture.perms {
            self.tree.inodes.staged(*ino, record.lsn);
        }
        for lsn in &capture.ops {
            if let Some(op) = self.log.names.get(*lsn) {
                let mut touched = names::inodes(op);
                touched.extend(names::keys(op).iter().map(|(dir, _)| *dir));
                for ino in touched {
                    self.tree.inodes.staged(ino, record.lsn);
                }
            }
            self.log.names.remove(*lsn);
        }
    }
}

impl Log {
    /// The record's place in its lane, where bulk leaves the last quarter free.
    fn place(&self, draft: &Draft) -> Step<Place> {
        let lane = &self.staging.lanes()[draft.lane];
        let place = lane.place(draft.len());
        let place = match draft.bulk {
            true => place.filter(|place| !lane.would_crowd(place.end())),
            false => place,
        };
        place.ok_or(Stop::Needs(if draft.bulk { Need::Credits } else { Need::Log }))
    }
}
