//! Renaming: over another name, exchanging two, leaving a new file at the old name (a whiteout).

use crate::namespace::entries::{NewInode, check_name};
use crate::state::Log;
use crate::state::Metadata;
use crate::state::State;
use crate::state::Tree;
use crate::state::room::{MAX_REPLACING, NAMES_SPACE, OP_BLOCKS};
use crate::state::step::{Need, Step, Stop};
use siftfs_base::{InodeNr, Result, Timestamp, errno};
use siftfs_log::NameOpKind;
use siftfs_proto::RenameMode;

impl State {
    /// Renames; the reply names nothing, the displaced inode is dealt with here.
    pub fn rename(
        &mut self,
        from: (InodeNr, &[u8]),
        to: (InodeNr, &[u8]),
        mode: RenameMode,
        time: Timestamp,
    ) -> Step<()> {
        check_name(from.1).map_err(|_| errno(libc::EBUSY))?;
        check_name(to.1)
            .map_err(|e| if e.errno() == libc::EEXIST { errno(libc::EBUSY) } else { e })?;
        self.metadata.tree.require_live_dir(from.0)?;
        self.metadata.tree.require_live_dir(to.0)?;
        let ino = self.metadata.tree.lookup_node(from.0, from.1)?;
        let target = self.metadata.tree.lookup(to.0, to.1)?;
        match (mode, target) {
            (RenameMode::NoReplace | RenameMode::WhiteoutNoReplace, Some(_)) => {
                Err(errno(libc::EEXIST).into())
            }
            (RenameMode::Exchange, None) => Err(errno(libc::ENOENT).into()),
            (_, Some(t)) if t == ino => Ok(()),
            (RenameMode::Exchange, Some(other)) => {
                self.metadata.exchange(from, ino, to, other, time)
            }
            (_, target) => self.rename_replace(from, ino, to, target, time),
        }
    }

    /// As [`State::rename`], and `new` takes the old name, unless both names are one file's.
    /// Recovery never shows one without the other: a transaction has both or neither, and an fsync
    /// that carries one carries the other, because they share a name (`names.rs`).
    pub fn rename_and_create(
        &mut self,
        from: (InodeNr, &[u8]),
        to: (InodeNr, &[u8]),
        mode: RenameMode,
        new: &NewInode<'_>,
        time: Timestamp,
    ) -> Step<()> {
        self.metadata.tree.require_live_dir(from.0)?;
        self.metadata.tree.require_live_dir(to.0)?;
        self.metadata.tree.fs.xattrs_fit(new.mode, new.xattrs)?;
        // The room for the second half is checked before the first.
        let mut blocks = NAMES_SPACE;
        let mut images = 2 * OP_BLOCKS;
        for dir in [from.0, to.0] {
            let cost = self
                .metadata
                .tree
                .fs
                .layout
                .dir_insert_cost(&self.metadata.tree.node(dir).inode)?;
            blocks += u64::from(cost.appended);
            images += cost.dirtied as usize;
        }
        self.metadata.begin_many(blocks, images, 2)?;
        if self.metadata.tree.fs.available_inodes() == 0 {
            return Err(self.metadata.log.shortage());
        }
        self.rename(from, to, mode, time)?;
        if self.metadata.tree.lookup(from.0, from.1)?.is_none() {
            self.metadata.create(from.0, from.1, new, time)?;
        }
        Ok(())
    }

    fn rename_replace(
        &mut self,
        from: (InodeNr, &[u8]),
        ino: InodeNr,
        to: (InodeNr, &[u8]),
        target: Option<InodeNr>,
        time: Timestamp,
    ) -> Step<()> {
        let is_dir = self.metadata.tree.node(ino).inode.is_dir();
        if is_dir && from.0 != to.0 && self.metadata.tree.is_below(ino, to.0)? {
            return Err(errno(libc::EINVAL).into());
        }
        if let Some(t) = target {
            self.metadata.tree.check_displaced(is_dir, t)?;
            self.metadata.little_unsynced(ino)?;
        } else if is_dir && from.0 != to.0 && !self.metadata.tree.node(to.0).inode.can_link() {
            return Err(errno(libc::EMLINK).into());
        }
        self.metadata.begin_insert(to.0, 0)?;
        match target {
            Some(_) => self.metadata.tree.replace_entry(to.0, to.1, ino)?,
            None => self.metadata.tree.insert_entry(to.0, to.1, ino)?,
        }
        self.metadata.tree.remove_entry(from.0, from.1)?;
        if is_dir && from.0 != to.0 {
            self.metadata.tree.move_dotdot(ino, from.0, to.0)?;
        }
        if let Some(t) = target {
            if is_dir {
                self.metadata.tree.node_mut(to.0).inode.dec_nlink()?;
                self.metadata.kill_dir(t, time)?;
            } else {
                self.drop_link(t, time)?;
                self.metadata.tree.node_mut(ino).push_next = true;
            }
        }
        let node = self.metadata.tree.node_mut(ino);
        node.inode.ctime = time;
        node.parent = (is_dir || node.inode.nlink == 1).then_some(to.0);
        self.metadata.log.mark_inode(ino);
        self.metadata.dir_changed(from.0, time);
        self.metadata.dir_changed(to.0, time);
        let kind = NameOpKind::Rename {
            dir: from.0,
            name: from.1.to_vec(),
            new_dir: to.0,
            new_name: to.1.to_vec(),
            ino,
            displaced: target.unwrap_or(0),
        };
        self.metadata.log_name_op(time, kind, is_dir);
        Ok(())
    }
}

impl Tree {
    /// Would `dir` come to lie below `ino`?
    pub fn is_below(&mut self, ino: InodeNr, mut dir: InodeNr) -> Result<bool> {
        let mut depth = 0u32;
        loop {
            if dir == ino {
                return Ok(true);
            }
            if dir == siftfs_proto::ROOT_INO {
                return Ok(false);
            }
            dir = self.parent_of_dir(dir)?;
            depth += 1;
            if depth > 1_000_000 {
                return Err(siftfs_base::corrupt("directory tree", "the parents form a loop"));
            }
        }
    }

    fn check_displaced(&mut self, is_dir: bool, target: InodeNr) -> Result<()> {
        self.load(target)?;
        match (is_dir, self.node(target).inode.is_dir()) {
            (true, false) => Err(errno(libc::ENOTDIR)),
            (false, true) => Err(errno(libc::EISDIR)),
            (true, true) => self.require_empty_dir(target),
            (false, false) => Ok(()),
        }
    }

    /// A directory moved from one parent to another: `..` and both link counts follow.
    fn move_dotdot(&mut self, ino: InodeNr, old: InodeNr, new: InodeNr) -> Result<()> {
        let node = self.inodes.get(&ino).expect("loaded before use");
        self.fs.dir_set_dotdot(&mut self.meta, &node.inode, new)?;
        self.node_mut(old).inode.dec_nlink()?;
        self.node_mut(new).inode.inc_nlink();
        Ok(())
    }
}

impl Metadata {
    /// What is renamed over another file takes its data along into the next cut (rule R20); more
    /// than a cut takes at once is pushed before.
    fn little_unsynced(&mut self, ino: InodeNr) -> Step<()> {
        let much = self.tree.node(ino).data.running().total() > self.log.most_replacing();
        if self.log.is_replaying() || !much && self.log.running.replacing() < MAX_REPLACING {
            self.log.running.replaced();
            return Ok(());
        }
        self.tree.node_mut(ino).push_next = true;
        Err(Stop::Needs(Need::Commit))
    }

    fn exchange(
        &mut self,
        a: (InodeNr, &[u8]),
        a_ino: InodeNr,
        b: (InodeNr, &[u8]),
        b_ino: InodeNr,
        time: Timestamp,
    ) -> Step<()> {
        self.tree.load(b_ino)?;
        let (a_dir, b_dir) =
            (self.tree.node(a_ino).inode.is_dir(), self.tree.node(b_ino).inode.is_dir());
        if a_dir && self.tree.is_below(a_ino, b.0)? || b_dir && self.tree.is_below(b_ino, a.0)? {
            return Err(errno(libc::EINVAL).into());
        }
        self.begin(0)?;
        self.tree.replace_entry(a.0, a.1, b_ino)?;
        self.tree.replace_entry(b.0, b.1, a_ino)?;
        if a.0 != b.0 {
            if a_dir {
                self.tree.move_dotdot(a_ino, a.0, b.0)?;
            }
            if b_dir {
                self.tree.move_dotdot(b_ino, b.0, a.0)?;
            }
        }
        for (ino, parent) in [(a_ino, b.0), (b_ino, a.0)] {
            let node = self.tree.node_mut(ino);
            node.inode.ctime = time;
            node.parent = (node.inode.is_dir() || node.inode.nlink == 1).then_some(parent);
            self.log.mark_inode(ino);
        }
        self.dir_changed(a.0, time);
        self.dir_changed(b.0, time);
        let kind = NameOpKind::Exchange {
            dir: a.0,
            name: a.1.to_vec(),
            ino: a_ino,
            other_dir: b.0,
            other_name: b.1.to_vec(),
            other_ino: b_ino,
        };
        self.log_name_op(time, kind, a_dir || b_dir);
        Ok(())
    }
}

impl Log {
    /// Do that many renames over other files, each with little unsynced data, go into the next cut?
    pub fn room_for_replacing(&self, renames: usize) -> Step<()> {
        if self.running.replacing() + renames > MAX_REPLACING {
            return Err(Stop::Needs(Need::Commit));
        }
        Ok(())
    }
}
