//! Publish: the names of several files change together, in one group ("The group" in
//! `docs/design/operations.md`): check, apply, and, if the caller asks for it, stage.

use crate::endpoint::Call;
use crate::namespace::access::{CHANGE, Caller, SEARCH};
use crate::operations::group::{Checked, Group, Hindrance};
use crate::operations::{ends_with_slash, is_plain};
use crate::staging::capture::Asked;
use crate::state::Metadata;
use crate::state::State;
use crate::state::Tree;
use crate::state::leases::{Does, Touch};
use crate::state::log::names::Unstageable;
use crate::state::room::{EMPTY_BLOCKS, ENTRIES_MAX, NAMES_SPACE, OP_BLOCKS, PUBLISH_BLOCKS};
use crate::state::step::Step;
use crate::state::tree::references::SessionId;
use siftfs_base::{InodeNr, Lsn, Result, Timestamp, errno};
use siftfs_ext4::LINK_MAX;
use siftfs_proto::{FileKind, Level, PublishEntry, PublishSource, RenameMode, Reply, Rights};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

/// A name in a directory.
type Name = (InodeNr, Vec<u8>);

/// One entry, resolved: nothing changes while the state lock is held.
struct Change {
    /// The name that the file loses.
    from: Option<Name>,
    file: InodeNr,
    to: Name,
    /// The file that has the name now.
    displaced: Option<InodeNr>,
}

/// A publish, and whose it is.
struct Publish<'a> {
    session: SessionId,
    caller: Caller<'a>,
    base: InodeNr,
    entries: &'a [PublishEntry],
}

/// A publish that is applied.
struct Published {
    /// A file that has another name now: its fsync carries the group.
    file: InodeNr,
    names: Vec<Name>,
    /// Files that got a name, and files that lost one.
    files: Vec<InodeNr>,
    /// Is there an inode to free?
    orphan: bool,
}

impl Call<'_> {
    /// Gives files new names, all of them or none, also after a crash. See [`Level`] for what else
    /// has happened when it returns.
    ///
    /// # Errors
    /// As the page's table has them; nothing has changed then, unless the group is visible and
    /// could not be made durable (EIO).
    pub(crate) fn publish(
        &self,
        rights: &Rights,
        base: InodeNr,
        entries: &[PublishEntry],
        level: Level,
    ) -> Result<Reply> {
        let Self { runtime, session, cred, ref doing } = *self;
        let caller = Caller { cred, rights };
        let mut publish = Publish { session: session.id, caller, base, entries };
        let done = runtime.drive_group(doing, &mut publish)?;
        let Published { file, names, files, orphan } = done;
        match level {
            Level::Visible => {}
            Level::Atomic => runtime.stage_for_ticket(file, false).map(|_| ())?,
            Level::Durable => drop(runtime.fsync(file, Asked::default())?),
        }
        if orphan {
            runtime.run_evictions()?;
        }
        Ok(Reply::Published { names, files })
    }
}

impl Group for Publish<'_> {
    const NAME: &'static str = "publish";
    type Ready<'a>
        = Vec<Change>
    where
        Self: 'a;
    type Done = Published;
    type Job = Infallible;

    fn check(&self, st: &mut State) -> std::result::Result<Checked<Self, Vec<Change>>, Hindrance> {
        st.metadata.log.may_change()?;
        if self.entries.is_empty() {
            return Err(errno(libc::EINVAL).into());
        }
        if self.entries.len() > ENTRIES_MAX {
            return Err(errno(libc::E2BIG).into());
        }
        let tree = &mut st.metadata.tree;
        let resolved =
            self.entries.iter().map(|e| tree.resolve(self.caller, (self.session, self.base), e));
        let changes: Vec<Change> = resolved.collect::<Result<_>>()?;
        let names = names_of(&changes);
        if names.iter().collect::<BTreeSet<_>>().len() < names.len() {
            return Err(errno(libc::EINVAL).into());
        }
        tree.count_links(&changes)?;
        for file in changes.iter().flat_map(|c| std::iter::once(c.file).chain(c.displaced)) {
            st.leases.touch(Touch { session: self.session, does: Does::Anything }, file)?;
        }
        st.metadata.in_the_way(&changes, &names)?;
        st.metadata.reserve_group(&changes)?;
        Ok(Checked::Ready(changes))
    }

    fn apply(&self, st: &mut State, changes: Vec<Change>) -> Step<Published> {
        let time = st.metadata.log.now();
        st.apply_group(&changes, time)?;
        let changed = |c: &&Change| c.displaced != Some(c.file);
        let file = changes.iter().find(changed).unwrap_or(&changes[0]).file;
        let files =
            changes.iter().flat_map(|c| std::iter::once(c.file).chain(c.displaced)).collect();
        let orphan = st.metadata.tree.inodes.has_to_free();
        Ok(Published { file, names: names_of(&changes), files, orphan })
    }

    fn compute(&mut self, job: Infallible) {
        match job {}
    }
}

/// The changes as they are made one after the other: first those that give a name to a file that
/// another one replaces, so that the file keeps one wherever its entry stands.
fn in_order(changes: &[Change]) -> impl Iterator<Item = &Change> {
    let replaced: BTreeSet<InodeNr> = changes.iter().filter_map(|c| c.displaced).collect();
    let keeps = move |c: &&Change| c.from.is_none() && replaced.contains(&c.file);
    let (first, then): (Vec<&Change>, Vec<&Change>) = changes.iter().partition(keeps);
    first.into_iter().chain(then)
}

/// All names that the changes take or give.
fn names_of(changes: &[Change]) -> Vec<Name> {
    changes.iter().flat_map(|c| c.from.iter().chain([&c.to])).cloned().collect()
}

impl State {
    fn apply_group(&mut self, changes: &[Change], time: Timestamp) -> Step<()> {
        let before = self.metadata.log.staging.last_drawn();
        for Change { from, file, to, displaced } in in_order(changes) {
            let target = (to.0, &*to.1);
            match (from, displaced) {
                (Some(from), _) => {
                    self.rename((from.0, &from.1), target, RenameMode::Replace, time)?;
                }
                (None, Some(old)) if old == file => continue,
                (None, displaced) => {
                    if displaced.is_some() {
                        self.unlink(to.0, &to.1, time)?;
                    }
                    self.metadata.link(*file, to.0, &to.1, time)?;
                }
            }
            // With the next cut, as for a rename over another file (rule R20).
            self.metadata.tree.node_mut(*file).push_next = true;
        }
        // None, if every name was its file's already.
        let last = self.metadata.log.staging.last_drawn();
        if last > before {
            self.metadata.log.names.group(Lsn(before.0 + 1), last);
        }
        Ok(())
    }
}

impl Tree {
    /// Finds what an entry names, and checks what the caller may do.
    fn resolve(
        &mut self,
        caller: Caller<'_>,
        (session, base): (SessionId, InodeNr),
        entry: &PublishEntry,
    ) -> Result<Change> {
        let mut slash = ends_with_slash(&entry.to);
        let from = match &entry.source {
            PublishSource::Path(path) => {
                slash |= ends_with_slash(path);
                Some(self.walk(caller, base, path)?)
            }
            PublishSource::Open(_) => None,
        };
        let to = self.walk(caller, base, &entry.to)?;
        let file = match (&entry.source, &from) {
            (PublishSource::Open(handle), _) => {
                self.inodes.references.opened(session, handle.0).ok_or(errno(libc::EBADF))?.ino
            }
            (_, Some((dir, name))) => self.lookup_node(*dir, name)?,
            _ => return Err(errno(libc::EINVAL)),
        };
        self.load(file)?;
        let displaced = self.lookup(to.0, &to.1)?;
        if let Some(ino) = displaced {
            self.load(ino)?;
            if !entry.replace {
                return Err(errno(libc::EEXIST));
            }
        }
        if slash {
            // As rename(2), and as linkat(2) for what has no name there.
            let none = from.is_none() && displaced.is_none();
            return Err(errno(if none { libc::ENOENT } else { libc::ENOTDIR }));
        }
        let is_dir = |st: &Self, ino: InodeNr| st.node(ino).inode.is_dir();
        if is_dir(self, file) {
            return Err(errno(libc::EISDIR));
        }
        match &from {
            Some(from) => {
                self.may_access(caller, from.0, CHANGE)?;
                if !caller.rights.owns_all {
                    self.may_remove(caller.cred, from.0, &from.1)?;
                }
            }
            None => {
                let guard = self.guard(file)?;
                caller.may_link(&guard)?;
            }
        }
        self.may_access(caller, to.0, CHANGE)?;
        self.require_live_dir(to.0)?;
        let change = Change { from, file, to, displaced };
        self.may_change(caller, &change)?;
        if displaced.is_some_and(|ino| is_dir(self, ino)) {
            return Err(errno(libc::EISDIR));
        }
        Ok(change)
    }

    /// The directory and the last name of a path.
    fn walk(&mut self, caller: Caller<'_>, base: InodeNr, path: &[u8]) -> Result<Name> {
        if path.is_empty() || path.first() == Some(&b'/') {
            return Err(errno(libc::EINVAL));
        }
        let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        let mut last = names.next().ok_or(errno(libc::EINVAL))?;
        let mut dir = base;
        self.may_access(caller, dir, SEARCH)?;
        for next in names {
            is_plain(last)?;
            dir = self.lookup_node(dir, last)?;
            if crate::namespace::kinds::kind_of(self.node(dir).inode.mode) == FileKind::Symlink {
                return Err(errno(libc::ELOOP));
            }
            self.may_access(caller, dir, SEARCH)?;
            last = next;
        }
        is_plain(last)?;
        Ok((dir, last.to_vec()))
    }

    /// Counts the links of each file as the changes are made: an entry may take the last name of a
    /// file that a later one names, or the last link that it can have.
    fn count_links(&self, changes: &[Change]) -> Result<()> {
        let mut links: BTreeMap<InodeNr, u32> = BTreeMap::new();
        for Change { from, file, displaced, .. } in in_order(changes) {
            if displaced.is_some_and(|ino| ino == *file) {
                continue;
            }
            if let Some(old) = displaced {
                let count = links.entry(*old).or_insert(self.node(*old).inode.nlink);
                *count = count.saturating_sub(1);
            }
            if from.is_none() {
                let node = self.node(*file);
                let count = links.entry(*file).or_insert(node.inode.nlink);
                if *count == 0 && !node.linkable {
                    return Err(errno(libc::ENOENT));
                }
                if *count >= LINK_MAX {
                    return Err(errno(libc::EMLINK));
                }
                *count += 1;
            }
        }
        Ok(())
    }

    /// Sticky directories, and flags of files and directories.
    fn may_change(&mut self, caller: Caller<'_>, change: &Change) -> Result<()> {
        let Change { from, file, to, displaced } = change;
        if !caller.rights.owns_all && displaced.is_some_and(|ino| ino != *file) {
            self.may_remove(caller.cred, to.0, &to.1)?;
        }
        match from {
            Some(from) => self.may_move((from.0, &from.1), (to.0, &to.1)),
            None => {
                let node = self.node(*file);
                if node.is_dead() {
                    return Err(errno(libc::ENOENT));
                }
                if !node.inode.can_link() {
                    return Err(errno(libc::EMLINK));
                }
                self.may_link(*file, to.0)?;
                if displaced.is_some() { self.may_take(to.0, &to.1) } else { Ok(()) }
            }
        }
    }
}

impl Metadata {
    /// What would keep the group out of one record (rule R25).
    fn in_the_way(
        &mut self,
        changes: &[Change],
        names: &[Name],
    ) -> std::result::Result<(), Hindrance> {
        let files: Vec<InodeNr> =
            changes.iter().flat_map(|c| [Some(c.file), c.displaced]).flatten().collect();
        let most = self.log.closure_max();
        // An unnamed file that replaces another is two operations.
        let own = changes.len() + changes.iter().filter(|c| c.from.is_none()).count();
        if own > most {
            return Err(errno(libc::E2BIG).into());
        }
        let dirs: Vec<InodeNr> = names.iter().map(|(dir, _)| *dir).collect();
        if let Err(reason) = self.log.names.closure_of(&files, names, most - own) {
            return Err(Hindrance::Pending(reason));
        }
        if self.any_moved(dirs)? {
            return Err(Hindrance::Pending(Unstageable::DirectoryMove));
        }
        // Of a file with several names it is not known which directories guard it.
        let many = |c: &Change| self.tree.node(c.file).inode.nlink > 1;
        if self.log.has_many_guards() && changes.iter().any(many) {
            return Err(Hindrance::Pending(Unstageable::UnknownAncestors));
        }
        let unsynced = |c: &Change| self.tree.node(c.file).undurable();
        let (mut bytes, mut ranges) = (0, 0);
        for data in changes.iter().map(unsynced) {
            bytes += data.total();
            ranges += data.iter().count();
        }
        if bytes > self.log.half_record() || ranges > self.log.eighth_of_transaction() {
            let dirty = changes.iter().filter(|c| !unsynced(c).is_empty());
            return Err(Hindrance::Unsynced(dirty.map(|c| c.file).collect()));
        }
        Ok(())
    }

    /// Room in the running transaction, and space, for all entries at their worst.
    fn reserve_group(&mut self, changes: &[Change]) -> Step<()> {
        let (mut blocks, mut images, mut spare) = (NAMES_SPACE, OP_BLOCKS, 0);
        for change in changes {
            let cost = self.tree.fs.layout.dir_insert_cost(&self.tree.node(change.to.0).inode)?;
            images += PUBLISH_BLOCKS;
            if change.displaced.is_some() && change.from.is_some() {
                // The entry is changed where it is; but each rename asks for room to insert one.
                images += 1;
                spare = spare.max(cost.dirtied as usize);
            } else {
                images += cost.dirtied as usize;
                blocks += u64::from(cost.appended);
            }
        }
        let dirs = changes.iter().flat_map(|c| c.from.iter().chain([&c.to])).map(|name| name.0);
        images += spare + dirs.collect::<BTreeSet<_>>().len();
        if images + EMPTY_BLOCKS > self.log.max_transaction_blocks() {
            return Err(errno(libc::E2BIG).into());
        }
        self.log.room_for_replacing(changes.len())?;
        self.begin_many(blocks, images, 2 * changes.len())
    }
}
