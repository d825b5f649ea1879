//! What a recovery may bring back: the durability oracle.
//!
//! The oracle follows a sequence of operations on its own copy of the model. For every inode,
//! name and attribute it keeps the value that is durable and all values since. After a power cut
//! it compares the recovered tree with them. Its clauses, each as strict as the rules of the
//! crash model justify:
//!
//! * **O1 fsynced files.** After fsync or fdatasync of an inode returned: its bytes, size, mode,
//!   owner, xattrs and the set of its names are those of the call or later ones (R2, R6, R12).
//!   fsync owes the modification time, too, fdatasync does not.
//! * **O2 names are whole.** The set of names of an inode is one that it had at one moment, and
//!   what a name is bound to is what it was bound to at one moment, neither older than the
//!   durable one. So a rename happened at both ends or at none, a name that was replaced is never
//!   free, and an old durable file is gone only if it was removed (R2). Values of different
//!   inodes may be of different moments.
//! * **O3 ancestors.** After fsync of an inode, every directory above a name that it got since its
//!   names were durable has its own names of the call or later: it can be reached under the path
//!   that the caller saw. Above a name that was durable before, an fsync of the file owes no move
//!   of a directory (clause S1 says why); nor, above one that a publish, a ticket or a compound had
//!   staged, a move that came after that. Where commits are not reported
//!   ([`Oracle::with_unreported_commits`]), the name may be durable since it was made: only the
//!   moves before that are owed then. Mode, owner and security xattrs of all ancestors are owed by
//!   any fsync (R17).
//! * **O4 directories.** fsync of a directory makes the binding of every name in it durable, as
//!   of the call, and of what a name that was not durable shows, mode, owner and security xattrs
//!   as of when it was made (R17). It owes the bytes of no file.
//! * **O5 unsynced bytes.** A byte inside the recovered size has a value that the file had there,
//!   inside its size, at some moment since the durable one. A zero is also allowed where the byte
//!   lay behind the end of file and an explicit extension (truncate, fallocate) later covered it:
//!   size may be journaled before data then, and only then (R20), or where a kernel's cache sends
//!   written pages in an order of its own ([`Oracle::came_in_pieces`]). Bytes of one unsynced
//!   write may come back in part; the size is one that the file had since then, or lies inside one
//!   write that extended it by more than 16 KiB.
//! * **O6 rename orders data.** If the recovered names of a file show that it replaced another by
//!   rename, its bytes are not older than the rename (R20, last sentence).
//! * **O7 commits.** A background commit that returned made names, modes, owners and xattrs of
//!   everything durable (R1); one that pushes, like a sync of everything, bytes and times, too.
//! * **O8 nothing else.** Every inode found is known by number and generation, with its type,
//!   device number and link target; unlinked files are gone; what the operation under way at the
//!   cut would have done may or may not be there.
//! * **O9 together.** The names that a publish changed show all of them what they were before, or
//!   all what they became, as far as they were not changed again.
//! * **O10 tickets.** A wait for an inode's ticket that returned owes what an fsync of the inode
//!   owes, one for a barrier's what fsyncs of all inodes owe that were staged before (clause S5).
//!   That is asked of waits that no change lies before. A ticket that nobody waited for owes
//!   nothing.
//!
//! * **O11 sections.** The bytes that one commit of sections brings, to one file or to several, are
//!   found all or not at all, as far as nothing changed them later. A durable commit that returned
//!   owes what fsyncs of its files owe; one that is not durable is owed as soon as bytes are that
//!   were changed after it, or a background commit came (clause A4). What was written into a
//!   section is in no version of its file before the commit begins, and never if it was aborted,
//!   refused or left open: so O5 does not allow it.
//! * **O12 compounds.** There is a number of compounds of which all is found that they changed, as
//!   far as nothing changed it later, while of the next one, and of all that came after that one,
//!   nothing is: they are staged in order, each in one record, and what is staged later never
//!   survives without them. Those that change a single thing and are only visible do not count. A
//!   durable one that returned owes what fsyncs of the files that it changed owe; any is owed as
//!   soon as something is that was staged later. What a refused one would have done is in no
//!   version of anything.
//!
//! Access times are not judged. Whether counts and structures hold together is fsck's part.

use crate::content::Content;
use crate::history::{History, Time};
use crate::model::{Effects, KnownTime, Model, Node, Outcome};
use crate::op::{Action, Op};
use crate::oracle_compounds::Unit;
pub(crate) use crate::oracle_found::Name;
use crate::oracle_sections::SectionCommit;
use siftfs_base::InodeNr;
use siftfs_proto::{FileKind, Level, Request};
use std::collections::{BTreeMap, BTreeSet};

/// A file's bytes at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Bytes {
    pub content: Content,
    /// Truncate or fallocate had just set the size upwards, or a write whose pages come in any
    /// order had.
    pub extended: bool,
}

/// Mode and owner.
pub(crate) type Rights = (u16, u32, u32);

/// All that may be found of one inode.
#[derive(Clone, Debug)]
pub(crate) struct InodePast {
    pub kind: FileKind,
    pub rdev: u32,
    pub target: Vec<u8>,
    pub bytes: History<Bytes>,
    pub rights: History<Rights>,
    pub mtime: History<KnownTime>,
    pub xattrs: BTreeMap<Vec<u8>, History<Option<Vec<u8>>>>,
    pub names: History<BTreeSet<Name>>,
    /// Until when its names are durable.
    pub names_durable: Time,
    /// Renames that put it in place of another file (O6).
    pub replaced_at: Vec<Time>,
    /// When it was made.
    pub made: Time,
    /// When its names were staged last, by a publish, a ticket or a compound.
    pub names_staged: Time,
}

/// Follows a sequence; see the module's page for what it allows.
#[derive(Clone, Debug)]
pub struct Oracle {
    pub(crate) model: Model,
    pub(crate) now: Time,
    pub(crate) inodes: BTreeMap<InodeNr, InodePast>,
    pub(crate) names: BTreeMap<Name, History<Option<InodeNr>>>,
    /// Names that changed together, and when (O9).
    pub(crate) groups: Vec<(Time, BTreeSet<Name>)>,
    /// Sections that were committed (O11).
    pub(crate) commits: Vec<SectionCommit>,
    /// Compounds that changed more than one thing, or were to be ordered (O12).
    pub(crate) units: Vec<Unit>,
    /// Background commits happen that the oracle is not told of.
    unreported: bool,
    /// What was staged since the last operation of another kind.
    staged: Vec<Staged>,
}

/// An inode that was staged.
#[derive(Clone, Copy, Debug)]
struct Staged {
    ticket: u64,
    ino: InodeNr,
    datasync: bool,
}

fn rights(node: &Node) -> Rights {
    (node.perm, node.uid, node.gid)
}

impl InodePast {
    fn new(node: &Node, time: Time, names: BTreeSet<Name>) -> Self {
        let xattrs = node.xattrs.iter();
        Self {
            kind: node.kind,
            rdev: node.rdev,
            target: node.target.clone(),
            bytes: History::new(time, Bytes { content: node.content.clone(), extended: false }),
            rights: History::new(time, rights(node)),
            mtime: History::new(time, node.mtime),
            xattrs: xattrs.map(|(n, v)| (n.clone(), History::new(time, Some(v.clone())))).collect(),
            names: History::new(time, names),
            names_durable: time,
            replaced_at: Vec::new(),
            made: time,
            names_staged: 0,
        }
    }

    /// Notes the state after an operation.
    fn note(&mut self, node: &Node, time: Time, names: BTreeSet<Name>, extended: bool) {
        // A value that is the one before is no change: nothing is staged for it.
        let last = self.bytes.last();
        if extended || last.content.first_difference(&node.content).is_some() {
            self.bytes.push(time, Bytes { content: node.content.clone(), extended });
        }
        if *self.rights.last() != rights(node) {
            self.rights.push(time, rights(node));
        }
        if *self.mtime.last() != node.mtime {
            self.mtime.push(time, node.mtime);
        }
        if *self.names.last() != names {
            self.names.push(time, names);
        }
        let known: BTreeSet<_> = node.xattrs.keys().chain(self.xattrs.keys()).cloned().collect();
        for name in known {
            let value = node.xattrs.get(&name).cloned();
            let past = self.xattrs.entry(name).or_insert_with(|| History::new(0, None));
            if *past.last() != value {
                past.push(time, value);
            }
        }
    }

    pub(crate) fn raise_names(&mut self, time: Time) {
        self.names.raise(time);
        self.names_durable = self.names_durable.max(time);
    }

    /// Mode, owner and the xattrs for which `which` holds.
    pub(crate) fn raise_rights(&mut self, time: Time, which: impl Fn(&[u8]) -> bool) {
        self.rights.raise(time);
        for (_, past) in self.xattrs.iter_mut().filter(|(n, _)| which(n)) {
            past.raise(time);
        }
    }
}

/// Xattrs that decide about access.
fn is_security(name: &[u8]) -> bool {
    name.starts_with(b"security.") || name.starts_with(b"system.")
}

impl Oracle {
    /// Everything in `model` is durable.
    pub fn new(model: Model) -> Self {
        let (mut inodes, mut names) = (BTreeMap::new(), BTreeMap::new());
        for (ino, node) in model.nodes() {
            let own = model.names_of(ino).into_iter().collect();
            inodes.insert(ino, InodePast::new(node, 0, own));
            for (name, child) in &node.entries {
                names.insert((ino, name.clone()), History::new(0, Some(*child)));
            }
        }
        let (groups, commits, units, staged) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { model, now: 0, inodes, names, groups, commits, units, unreported: false, staged }
    }

    /// The same, where the product commits in the background without a report.
    pub fn with_unreported_commits(self) -> Self {
        Self { unreported: true, ..self }
    }

    /// The model's present state.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Something read files behind the model's back.
    pub fn forget_access_times(&mut self) {
        self.model.forget_access_times();
    }

    /// `op` begins: from here on its effects may be found.
    pub fn begin(&mut self, op: &Op) -> Outcome {
        self.now += 1;
        use Request::{Barrier, Stage, Wait};
        if !matches!(&op.action, Action::Call(_, Stage { .. } | Wait { .. } | Barrier)) {
            self.staged.clear();
        }
        let Action::Call(cred, req) = &op.action else { return Ok(siftfs_proto::Reply::Done) };
        let before = self.model.clone();
        let (outcome, fx) = self.model.exec(cred, req, op.fresh());
        self.note(&before, &fx);
        outcome
    }

    /// The write to `ino` that began last, and those before it that nothing made durable, reach the
    /// product page by page in an order that a kernel's cache chooses. A later page makes the file
    /// longer then before the bytes of an earlier one are there, as an explicit extension does.
    pub fn came_in_pieces(&mut self, ino: InodeNr) {
        let Some(past) = self.inodes.get_mut(&ino) else { return };
        let sizes = past.bytes.iter().rev().map(|(_, bytes)| bytes.content.size());
        let sizes: Vec<u64> = sizes.take(2).collect();
        if sizes.get(1).is_some_and(|before| *before < sizes[0]) {
            past.bytes.last_mut().extended = true;
        }
    }

    fn note(&mut self, before: &Model, fx: &Effects) {
        let now = self.now;
        for ino in fx.nodes.iter().collect::<BTreeSet<_>>() {
            // An inode whose last link went while nothing held it left the model at once.
            let gone = before.node(*ino).map(|n| Node { nlink: 0, ..n.clone() });
            let Some(node) = self.model.node(*ino).cloned().or(gone) else { continue };
            let names: BTreeSet<Name> = self.model.names_of(*ino).into_iter().collect();
            let extended = fx.extended == Some(*ino);
            match self.inodes.get_mut(ino) {
                Some(past) => past.note(&node, now, names, extended),
                None => {
                    // Before its creation it had no name and was nowhere.
                    let mut past = InodePast::new(&node, now, BTreeSet::new());
                    past.names_durable = now - 1;
                    past.names.push(now, names);
                    self.inodes.insert(*ino, past);
                }
            }
        }
        for (dir, name) in &fx.names {
            let bound = self.model.child(*dir, name);
            let past =
                self.names.entry((*dir, name.clone())).or_insert_with(|| History::new(0, None));
            if *past.last() != bound {
                past.push(now, bound);
            }
        }
        for ino in &fx.replaced_by {
            if let Some(past) = self.inodes.get_mut(ino) {
                past.replaced_at.push(now);
            }
        }
        if fx.together {
            self.groups.push((now, fx.names.iter().cloned().collect()));
        }
        if !fx.committed.is_empty() {
            self.commits.push(SectionCommit::new(now, &fx.committed));
        }
        self.note_compound(fx);
    }

    /// The operation that began last has returned without an error.
    pub fn returned(&mut self, op: &Op) {
        let action = match &op.action {
            Action::Call(_, req) => req,
            Action::Commit { push } => return self.everything(*push),
            Action::Checkpoint | Action::Advance(_) => return,
        };
        match action {
            Request::SyncAll | Request::Checkpoint => self.everything(true),
            Request::Fsync { file, datasync } => {
                if let Ok(ino) = self.model().target(*file) {
                    self.synced(ino, *datasync);
                }
            }
            Request::Publish { level: Level::Durable, .. } => self.published(),
            Request::Publish { level: Level::Atomic, .. } => {
                self.group_of_now().into_iter().for_each(|ino| self.names_are_staged(ino));
            }
            Request::SectionCommit { durable, .. } => self.committed(*durable),
            Request::Compound(compound) => self.compounded(compound.level == Level::Durable),
            Request::Stage { file, datasync } => {
                let ticket = op.fresh().handle;
                let Ok(ino) = self.model().target(*file) else { return };
                self.names_are_staged(ino);
                self.staged.push(Staged { ticket, ino, datasync: *datasync });
            }
            Request::Wait { ticket, .. } => {
                let own = self.staged.iter().copied().find(|staged| staged.ticket == ticket.0);
                let barrier = || std::mem::take(&mut self.staged);
                for Staged { ino, datasync, .. } in own.map_or_else(barrier, |own| vec![own]) {
                    self.synced(ino, datasync);
                }
            }
            _ => {}
        }
    }

    /// O1 and O3 for every file of the publish that has just returned.
    fn published(&mut self) {
        self.group_of_now().into_iter().for_each(|ino| self.synced(ino, true));
    }

    /// The files of the publish that began last.
    fn group_of_now(&self) -> BTreeSet<InodeNr> {
        let group = self.groups.last().filter(|(time, _)| *time == self.now);
        let names = group.into_iter().flat_map(|(_, names)| names);
        names.filter_map(|(dir, name)| self.model.child(*dir, name)).collect()
    }

    /// A record has the names of `ino`: its next fsync has nothing to add to that.
    pub(crate) fn names_are_staged(&mut self, ino: InodeNr) {
        let now = self.now;
        self.inodes.entry(ino).and_modify(|past| past.names_staged = now);
    }

    /// O7.
    fn everything(&mut self, bytes: bool) {
        let now = self.now;
        self.owe_commits_before(now);
        self.owe_compounds_before(now);
        self.names.values_mut().for_each(|past| past.raise(now));
        for past in self.inodes.values_mut() {
            past.raise_names(now);
            past.raise_rights(now, |_| true);
            if bytes {
                past.bytes.raise(now);
                past.mtime.raise(now);
            }
        }
    }

    /// O1, O3, O4.
    pub(crate) fn synced(&mut self, ino: InodeNr, datasync: bool) {
        let now = self.now;
        self.owe_commits_before_changes_of(ino);
        let Some(past) = self.inodes.get_mut(&ino) else { return };
        let (durable, staged) = (past.names_durable, past.names_staged);
        past.bytes.raise(now);
        past.raise_rights(now, |_| true);
        past.raise_names(now);
        if !datasync {
            past.mtime.raise(now);
        }
        let names: Vec<Name> = past.names.last().iter().cloned().collect();
        let is_dir = past.kind == FileKind::Directory;
        for name in &names {
            let bound = self.names.get(name).map_or(0, History::changed);
            self.names.entry(name.clone()).and_modify(|past| past.raise(now));
            let since = match self.unreported {
                true => bound,
                false if staged >= bound => staged,
                false => now,
            };
            self.reachable(name.0, (bound > durable).then_some(since));
        }
        if is_dir {
            for (_, past) in self.names.iter_mut().filter(|((dir, _), _)| *dir == ino) {
                past.raise(now);
            }
            // Nothing is pending of a name that its directory's fsync made durable.
            let entries = self.model.node(ino).map(|n| n.entries.clone()).unwrap_or_default();
            for (name, child) in entries {
                let bound = self.names.get(&(ino, name)).map_or(0, History::changed);
                if let Some(past) = self.inodes.get_mut(&child) {
                    if bound > past.names_durable {
                        past.raise_rights(bound, is_security);
                    }
                    past.names_durable = past.names_durable.max(now);
                }
            }
        }
    }

    /// O3 for directory `dir` and all above it: rights as of now, names as of `names`.
    fn reachable(&mut self, dir: InodeNr, names: Option<Time>) {
        let now = self.now;
        let above = self.model.ancestors(dir);
        for ino in std::iter::once(dir).chain(above) {
            let Some(past) = self.inodes.get_mut(&ino) else { continue };
            past.raise_rights(now, is_security);
            if let Some(time) = names {
                past.raise_names(time);
            }
        }
    }
}

#[cfg(test)]
#[path = "oracle_tests.rs"]
mod tests;
