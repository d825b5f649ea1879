//! Recovery's half of the one apply path: staged transactions become operations of the code that
//! live requests run (rules R1, R2, R18).

use crate::data::file::Input;
use crate::runtime::Runtime;
use crate::session::Doing;
use crate::state::Log;
use crate::state::Tree;
use crate::state::log::lane::RecordRef;
use crate::state::log::recovery::{Made, RecoveryCut};
use crate::state::log::running::Push;
use crate::state::step::Step;
use crate::state::tree::overlay::Source;
use crate::state::{Recovery, State};
use siftfs_base::{Epoch, Error, InodeNr, Lsn, Result, Timestamp, corrupt, errno};
use siftfs_ext4::format::S_IFMT;
use siftfs_log::{InodeItem, Item, LaneMedium, NameOp, NameOpKind, RecordHead};
use siftfs_proto::{Allocate, Carried, Recovered, RenameMode};
use siftfs_wire::Urgency;
use std::cmp::Ordering;
use std::sync::Arc;

/// More LSNs than two commit intervals draw. Those that were drawn and lost are not known; they are
/// left out, so that none of them, and no inode's generation, comes again: clients of another
/// machine remember both (rule R53).
const LOST_MOST: u64 = 1 << 24;

/// A validated staged transaction found in a lane.
pub struct FoundRecord {
    /// Where the record lies.
    pub record: RecordRef,
    /// LSN of the record before it on its medium, 0 for the first of its epoch.
    pub prev_lsn: Lsn,
    /// Of a record on block storage: LSN of the record of the record area before it, 0 if there is
    /// none.
    pub prev_compact: Lsn,
    /// What its lane lies on.
    pub medium: LaneMedium,
    /// The record's items.
    pub items: Vec<Item>,
}

/// Bytes that a program wrote to a file under a lease and made durable in a log of its own.
pub struct LoggedWrite<'a> {
    /// The file.
    pub ino: InodeNr,
    /// Its inode's generation.
    pub generation: u32,
    /// Where in it, in bytes.
    pub offset: u64,
    /// When the program wrote them.
    pub time: Timestamp,
    /// The bytes.
    pub data: &'a [u8],
}

impl LoggedWrite<'_> {
    /// Writes them as a holder of the file's write lease writes them, in an ordinary epoch: durable
    /// with whatever makes the file durable next. The file's mtime is then the time of the write,
    /// but not before the file was changed last, and not after now (rule R54).
    ///
    /// # Errors
    /// `ESTALE` if the inode is another file by now, or none; those of a write.
    pub fn write_to(&self, runtime: &Runtime) -> Result<()> {
        let Self { ino, offset, data, .. } = *self;
        runtime.mutate(&Doing::background(), |st| {
            let tree = &mut st.metadata.tree;
            tree.load_regular(ino)?;
            if tree.node(ino).inode.generation != self.generation || tree.node(ino).is_dead() {
                return Err(errno(libc::ESTALE).into());
            }
            tree.may_write(ino, offset)?;
            let changed = tree.attr(ino)?.mtime;
            let time = self.time.min(st.metadata.log.now()).max(changed);
            st.write(ino, offset, Input::Bytes(data), true, time)
        })
    }
}

impl From<RecordHead> for FoundRecord {
    fn from(head: RecordHead) -> Self {
        let record = RecordRef::found(&head);
        let (params, medium) = (head.header.params, head.header.layout.medium);
        let (prev_lsn, prev_compact) = (params.prev_lsn, params.prev_compact);
        Self { record, prev_lsn, prev_compact, medium, items: head.items }
    }
}

impl Runtime {
    /// Enters recovery: what is applied from here on is already durable in the lanes.
    pub fn begin_recovery(&self, base: RecoveryCut) {
        let mut st = self.lock();
        st.metadata.log.recovery = Some(Recovery::new(base));
    }

    /// Applies one staged transaction; records come in LSN order. Returns false if the base
    /// contains it already.
    pub fn apply(&self, found: FoundRecord) -> Result<bool> {
        let (lsn, lane) = (found.record.lsn, usize::from(found.record.lane.0));
        let end = found.record.pos + u64::from(found.record.len);
        let full = self.lock().metadata.is_beyond(4);
        if full {
            self.commit(&Push::All)?;
            self.checkpoint(Urgency::Emergency)?;
        }
        let mut st = self.lock();
        let cut = st.metadata.log.recovering().cut().clone();
        let newer = lsn > cut.staged_cut;
        if newer {
            let data = found.items.iter().map(|item| match item {
                Item::Data { len, .. } => u64::from(*len),
                _ => 0,
            });
            // No mount of this volume stages more (rule R10).
            if data.sum::<u64>() > st.metadata.log.most_staged() {
                let what = format!("staged transaction {}", lsn.0);
                return Err(corrupt(what, "it carries more data than the journal can repeat"));
            }
            let record = Arc::new(found.record);
            for item in &found.items {
                st.apply_item(item, &record, cut.ops_cut)
                    .map_err(|stop| explain(stop.into_error(), lsn))?;
            }
        }
        st.metadata.log.recovering().applied(lsn, lane, end);
        st.metadata.log.staging.draw_above(lsn);
        Ok(newer)
    }

    /// Ends recovery once everything is applied: journals and checkpoints the rest, removes the
    /// orphans, and returns their number. The log is empty afterwards.
    pub fn finish_recovery(&self, floor: Lsn) -> Result<u64> {
        let orphans = {
            let mut st = self.lock();
            let upto = st.metadata.log.staging.draw_above(floor);
            st.metadata.log.recovering().all_applied(upto);
            st.metadata.tree.inodes.unnamed_orphans() as u64
        };
        self.settle()?;
        let mut st = self.lock();
        let upto = st.metadata.log.staging.last_drawn();
        st.metadata.log.staging.draw_above(Lsn(upto.0 + LOST_MOST));
        Ok(orphans)
    }
}

/// What lies in the log of clients' calls of the epoch `ended` (rule R53): which changes of names
/// are there when `found` is applied to a base that has all up to `ops_cut`. The records come in
/// LSN order. Nothing has to be applied to know it, so it can be written down before.
///
/// A reply whose operation is not there by its record is none: its transaction was not committed,
/// and no record has the operation. A record behind it that has the operation says so itself.
pub fn recovered(ended: Epoch, ops_cut: Lsn, found: &[FoundRecord]) -> Recovered {
    let mut there = Recovered { epoch: ended.0, ops_cut, ..Recovered::default() };
    for item in found.iter().flat_map(|record| &record.items) {
        match item {
            Item::NameOp(op) if op.lsn > ops_cut => {
                there.ops.insert(op.lsn);
            }
            Item::Reply(reply) if there.holds(reply.lsn) => {
                let (number, lsn, ino) = (reply.number, reply.lsn, reply.ino);
                there.note(reply.client, reply.slot, Carried { number, lsn, ino });
            }
            _ => {}
        }
    }
    there
}

fn explain(e: Error, lsn: Lsn) -> Error {
    match e {
        Error::Io { .. } | Error::Latched(_) => e,
        other => corrupt(
            format!("staged transaction {}", lsn.0),
            format!("it cannot be applied to the file system as it is: {other}"),
        ),
    }
}

impl Log {
    fn recovering(&mut self) -> &mut Recovery {
        self.recovery.as_mut().expect("begin_recovery comes first")
    }
}

impl State {
    fn apply_item(&mut self, item: &Item, record: &Arc<RecordRef>, ops_cut: Lsn) -> Step<()> {
        match item {
            Item::NameOp(op) if op.lsn <= ops_cut => Ok(()),
            Item::NameOp(op) => self.apply_name_op(op),
            // It changes nothing.
            Item::Reply(_) => Ok(()),
            Item::Inode(i) => self.apply_inode(i),
            Item::Data { ino, generation, offset, len, data_offset, .. } => {
                self.metadata.tree.expect(*ino, *generation)?;
                Ok(self.apply_data(*ino, *offset, u64::from(*len), record, *data_offset)?)
            }
            Item::Zero { ino, generation, offset, len } => {
                self.metadata.tree.expect(*ino, *generation)?;
                self.punch(*ino, *offset, offset.saturating_add(*len))
            }
            Item::Truncate { ino, generation, size } => {
                self.metadata.tree.expect(*ino, *generation)?;
                let (time, now) =
                    (self.metadata.tree.node(*ino).inode.mtime, self.metadata.tree.node(*ino).size);
                match size.cmp(&now) {
                    Ordering::Less => self.set_size(*ino, *size, time),
                    // The transaction in which a long truncation began is the base.
                    Ordering::Equal => self.metadata.free_behind_end(*ino),
                    Ordering::Greater => Ok(()),
                }
            }
            Item::Allocate { ino, generation, offset, len, keep_size } => {
                self.metadata.tree.expect(*ino, *generation)?;
                let mode = if *keep_size { Allocate::KeepSize } else { Allocate::Grow };
                let time = self.metadata.tree.node(*ino).inode.mtime;
                self.allocate(*ino, mode, *offset, *len, true, time)
            }
            Item::Xattrs { ino, generation, list } => {
                self.metadata.tree.expect(*ino, *generation)?;
                self.metadata.replace_xattrs(*ino, list)
            }
        }
    }

    fn apply_data(
        &mut self,
        ino: InodeNr,
        offset: u64,
        len: u64,
        record: &Arc<RecordRef>,
        data_offset: u32,
    ) -> Result<()> {
        let end = offset.checked_add(len).ok_or_else(|| corrupt("staged data", "beyond 2^64"))?;
        self.zero_gap(ino, offset)?;
        let source = Source::Staged { record: record.clone(), offset: data_offset };
        let node = self.metadata.tree.node_mut(ino);
        node.overlay.insert(offset, end, source);
        node.size = node.size.max(end);
        node.inode.size = node.size;
        self.metadata.note_overlay(ino, (offset, end), len);
        self.metadata.log.mark_inode(ino);
        Ok(())
    }

    fn apply_inode(&mut self, item: &InodeItem) -> Step<()> {
        self.metadata.tree.expect(item.ino, item.generation)?;
        if let Some(size) = item.size
            && size != self.metadata.tree.node(item.ino).size
        {
            self.set_size(item.ino, size, item.mtime)?;
        }
        let inode = &mut self.metadata.tree.node_mut(item.ino).inode;
        let mode = u16::try_from(item.mode).map_err(|_| corrupt("inode mode", "too large"))?;
        if mode & S_IFMT != inode.mode & S_IFMT {
            return Err(
                corrupt(format!("inode {}", item.ino), "the record gives it another type").into()
            );
        }
        inode.mode = mode;
        (inode.uid, inode.gid) = (item.uid, item.gid);
        (inode.atime, inode.mtime, inode.ctime) = (item.atime, item.mtime, item.ctime);
        self.metadata.log.mark_inode(item.ino);
        Ok(())
    }

    /// Applies one name operation. A file made without a name was made with one that was taken away
    /// at once: the next operation, at the same time. No program saw that name, so the directory's
    /// times stay.
    fn apply_name_op(&mut self, op: &NameOp) -> Step<()> {
        let made = self.metadata.log.recovering().take_made();
        match &op.kind {
            NameOpKind::Create { dir, name, ino, .. } => {
                self.metadata.tree.load(*dir)?;
                let inode = &self.metadata.tree.node(*dir).inode;
                let times = (inode.mtime, inode.ctime);
                let made = Made::new(op, (*dir, name.clone(), *ino), times);
                self.change_names(op)?;
                self.metadata.log.recovering().made(made);
                Ok(())
            }
            NameOpKind::Unlink { dir, name, ino } => {
                self.change_names(op)?;
                let bound = (*dir, name.clone(), *ino);
                if let Some(times) = made.and_then(|made| made.undone_by(op, &bound)) {
                    let inode = &mut self.metadata.tree.node_mut(*dir).inode;
                    (inode.mtime, inode.ctime) = times;
                    self.metadata.log.mark_inode(*dir);
                }
                Ok(())
            }
            _ => self.change_names(op),
        }
    }

    fn change_names(&mut self, op: &NameOp) -> Step<()> {
        let time = op.time;
        match &op.kind {
            NameOpKind::Create { dir, name, ino, generation, mode, uid, gid, rdev, target } => {
                let new = crate::namespace::entries::NewInode {
                    number: Some((*ino, *generation)),
                    mode: u16::try_from(*mode).map_err(|_| corrupt("mode", "too large"))?,
                    uid: *uid,
                    gid: *gid,
                    rdev: *rdev,
                    target,
                    // They come in an item of their own.
                    xattrs: &[],
                };
                self.metadata.create(*dir, name, &new, time).map(drop)
            }
            NameOpKind::Link { dir, name, ino } => self.metadata.link(*ino, *dir, name, time),
            NameOpKind::Unlink { dir, name, ino } => {
                self.metadata.tree.bound(*dir, name, *ino)?;
                self.unlink(*dir, name, time).map(drop)
            }
            NameOpKind::RemoveDir { dir, name, ino } => {
                self.metadata.tree.bound(*dir, name, *ino)?;
                self.metadata.remove_dir(*dir, name, time).map(drop)
            }
            NameOpKind::Rename { dir, name, new_dir, new_name, ino, displaced } => {
                self.metadata.tree.bound(*dir, name, *ino)?;
                if *displaced != 0 {
                    self.metadata.tree.bound(*new_dir, new_name, *displaced)?;
                }
                let mode =
                    if *displaced == 0 { RenameMode::NoReplace } else { RenameMode::Replace };
                self.rename((*dir, name), (*new_dir, new_name), mode, time)
            }
            NameOpKind::Exchange { dir, name, ino, other_dir, other_name, other_ino } => {
                self.metadata.tree.bound(*dir, name, *ino)?;
                self.metadata.tree.bound(*other_dir, other_name, *other_ino)?;
                self.rename((*dir, name), (*other_dir, other_name), RenameMode::Exchange, time)
            }
        }
    }
}

impl Tree {
    /// The inode must be the one the record meant.
    fn expect(&mut self, ino: InodeNr, generation: u32) -> Result<()> {
        self.load(ino)?;
        let found = self.node(ino).inode.generation;
        if found != generation {
            return Err(corrupt(
                format!("inode {ino}"),
                format!("generation {found}, the record speaks of {generation}"),
            ));
        }
        Ok(())
    }

    /// The name must be bound to the inode the record meant.
    fn bound(&mut self, dir: InodeNr, name: &[u8], ino: InodeNr) -> Result<()> {
        let found = self.lookup(dir, name)?;
        if found != Some(ino) {
            let name = String::from_utf8_lossy(name);
            return Err(corrupt(
                format!("name {name:?} in directory inode {dir}"),
                format!("bound to inode {found:?}, the record speaks of inode {ino}"),
            ));
        }
        Ok(())
    }
}
