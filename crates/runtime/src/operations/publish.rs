//! Publish: the names of several files change together, in one group ("The group" in
//! `docs/design/operations.md`): check, apply, and, if the caller asks for it, stage.

use crate::namespace::access::{CHANGE, Caller, SEARCH};
use crate::operations::{ROUNDS, ends_with_slash, is_plain};
use crate::runtime::Runtime;
use crate::state::Metadata;
use crate::state::State;
use crate::state::Tree;
use crate::state::log::running::Push;
use crate::state::room::{EMPTY_BLOCKS, NAMES_SPACE, OP_BLOCKS, PUBLISH_BLOCKS};
use crate::state::step::{Step, Stop};
use siftfs_base::{InodeNr, Lsn, Result, Timestamp, corrupt, errno};
use siftfs_device::Origin;
use siftfs_proto::{
    Credentials, FileKind, Level, PublishEntry, PublishSource, RenameMode, Reply, Rights, SessionId,
};
use std::collections::BTreeSet;

/// Most entries of a publish. Each may have to take its file's creation along, and one record
/// carries twice as many operations.
const ENTRIES_MAX: usize = 64;

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

/// What one try came to.
enum Tried {
    /// The group is applied.
    Applied {
        /// A file that has another name now: its fsync carries the group.
        file: InodeNr,
        names: Vec<Name>,
        /// Files that got a name, and files that lost one.
        files: Vec<InodeNr>,
    },
    /// Names or permissions above would keep the group out of a record: commit them first.
    Commit,
    /// The files have more unsynced data than a record takes: sync them first.
    Sync(Vec<InodeNr>),
}

impl Runtime {
    /// Gives files new names, all of them or none, also after a crash. See [`Level`] for what else
    /// has happened when it returns.
    ///
    /// # Errors
    /// As the page's table has them; nothing has changed then, unless the group is visible and
    /// could not be made durable (EIO).
    pub(crate) fn publish(
        &self,
        session: SessionId,
        caller: (&Credentials, &Rights),
        base: InodeNr,
        entries: &[PublishEntry],
        level: Level,
    ) -> Result<Reply> {
        let caller = Caller { cred: caller.0, rights: caller.1 };
        let entries = (session, entries);
        for _ in 0..ROUNDS {
            match self.mutate(|st| st.try_publish(caller, base, entries))? {
                Tried::Applied { file, names, files } => {
                    match level {
                        Level::Visible => {}
                        Level::Atomic => self.stage_for_ticket(file, false).map(|_| ())?,
                        Level::Durable => drop(self.fsync(file, false)?),
                    }
                    return Ok(Reply::Published { names, files });
                }
                Tried::Commit => drop(self.commit_for(&Push::Aged, Origin::Foreground)?),
                Tried::Sync(files) => {
                    for file in files {
                        drop(self.fsync(file, false)?);
                    }
                }
            }
        }
        Err(errno(libc::EAGAIN))
    }
}

impl State {
    fn try_publish(
        &mut self,
        caller: Caller<'_>,
        base: InodeNr,
        (session, entries): (SessionId, &[PublishEntry]),
    ) -> Step<Tried> {
        if entries.is_empty() {
            return Err(errno(libc::EINVAL).into());
        }
        if entries.len() > ENTRIES_MAX {
            return Err(errno(libc::E2BIG).into());
        }
        let changes: Vec<Change> = entries
            .iter()
            .map(|e| self.metadata.tree.resolve(caller, (session, base), e))
            .collect::<Result<_>>()?;
        let names: Vec<Name> =
            changes.iter().flat_map(|c| c.from.iter().chain([&c.to])).cloned().collect();
        if names.iter().collect::<BTreeSet<_>>().len() < names.len() {
            return Err(errno(libc::EINVAL).into());
        }
        if let Some(first) = self.metadata.in_the_way(&changes, &names)? {
            return Ok(first);
        }
        self.metadata.reserve_group(&changes)?;
        let time = self.metadata.log.now();
        // Every check is behind: what stops now is our own mistake, and half a group must not stay.
        self.apply_group(&changes, time).map_err(|stop| match stop {
            Stop::Failed(error) => Stop::Failed(error),
            _ => corrupt("publish", "a step that was checked needs more than was reserved").into(),
        })?;
        let changed = |c: &&Change| c.displaced != Some(c.file);
        let file = changes.iter().find(changed).unwrap_or(&changes[0]).file;
        let files =
            changes.iter().flat_map(|c| std::iter::once(c.file).chain(c.displaced)).collect();
        Ok(Tried::Applied { file, names, files })
    }

    fn apply_group(&mut self, changes: &[Change], time: Timestamp) -> Step<()> {
        let before = self.metadata.log.staging.last_drawn();
        for Change { from, file, to, displaced } in changes {
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
                self.inodes.opened(handle.0, session).ok_or(errno(libc::EBADF))?.ino
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
    fn in_the_way(&mut self, changes: &[Change], names: &[Name]) -> Result<Option<Tried>> {
        let files: Vec<InodeNr> =
            changes.iter().flat_map(|c| [Some(c.file), c.displaced]).flatten().collect();
        let most = self.log.closure_max();
        // An unnamed file that replaces another is two operations.
        let own = changes.len() + changes.iter().filter(|c| c.from.is_none()).count();
        if own > most {
            return Err(errno(libc::E2BIG));
        }
        let dirs: Vec<InodeNr> = names.iter().map(|(dir, _)| *dir).collect();
        if self.log.names.closure_of(&files, names, most - own).is_err() || self.any_moved(dirs)? {
            return Ok(Some(Tried::Commit));
        }
        // Of a file with several names it is not known which directories guard it.
        let many = |c: &Change| self.tree.node(c.file).inode.nlink > 1;
        if self.log.has_many_guards() && changes.iter().any(many) {
            return Ok(Some(Tried::Commit));
        }
        let unsynced = |c: &Change| self.tree.node(c.file).undurable();
        let (mut bytes, mut ranges) = (0, 0);
        for data in changes.iter().map(unsynced) {
            bytes += data.total();
            ranges += data.iter().count();
        }
        if bytes > self.log.half_record() || ranges > self.log.eighth_of_transaction() {
            let dirty = changes.iter().filter(|c| !unsynced(c).is_empty());
            return Ok(Some(Tried::Sync(dirty.map(|c| c.file).collect())));
        }
        Ok(None)
    }

    /// Room in the running transaction, and space, for all entries at their worst.
    fn reserve_group(&mut self, changes: &[Change]) -> Step<()> {
        let (mut blocks, mut images, mut spare) = (NAMES_SPACE, OP_BLOCKS, 0);
        for change in changes {
            let cost = self.tree.fs.dir_insert_cost(&self.tree.node(change.to.0).inode)?;
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
