//! Operations on names: what live requests and recovery both call.

use crate::namespace::kinds::entry_type;
use crate::state::Metadata;
use crate::state::State;
use crate::state::Tree;
use crate::state::room::{OP_BLOCKS, create_space};
use crate::state::step::Step;
use siftfs_base::{InodeNr, Result, Timestamp, errno};
use siftfs_ext4::Inode;
use siftfs_ext4::format::{S_IFDIR, S_IFLNK, S_IFMT};
use siftfs_ext4::xattr::SetMode;
use siftfs_log::NameOpKind;

/// Longest name in bytes.
pub const NAME_MAX: usize = 255;

/// Is it a name an operation may bind or remove?
pub fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(errno(libc::ENAMETOOLONG));
    }
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(errno(libc::EINVAL));
    }
    if name == b"." || name == b".." {
        return Err(errno(libc::EEXIST));
    }
    Ok(())
}

/// What to create.
pub struct NewInode<'a> {
    /// `None`: allocate a number and generation.
    pub number: Option<(InodeNr, u32)>,
    /// Type and permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number.
    pub rdev: u32,
    /// Symlink target.
    pub target: &'a [u8],
    /// Extended attributes it has from the start.
    pub xattrs: &'a [(Vec<u8>, Vec<u8>)],
}

impl Tree {
    /// The inode a name is bound to, with its type from the entry.
    pub fn lookup(&mut self, dir: InodeNr, name: &[u8]) -> Result<Option<InodeNr>> {
        self.load_dir(dir)?;
        if name.len() > NAME_MAX {
            return Err(errno(libc::ENAMETOOLONG));
        }
        let node = self.inodes.get(&dir).expect("just loaded");
        let found = self.fs.dir_lookup(&mut self.meta, &node.inode, name)?;
        Ok(found.map(|f| f.ino))
    }

    /// As `lookup`, and the inode is loaded. ENOENT when unbound.
    pub fn lookup_node(&mut self, dir: InodeNr, name: &[u8]) -> Result<InodeNr> {
        let ino = self.lookup(dir, name)?.ok_or_else(|| errno(libc::ENOENT))?;
        self.load_named(ino, dir)?;
        Ok(ino)
    }

    /// Loads an inode that an entry of `dir` names.
    pub fn load_named(&mut self, ino: InodeNr, dir: InodeNr) -> Result<()> {
        self.load(ino).map_err(|e| match e {
            siftfs_base::Error::Posix(libc::ESTALE) => siftfs_base::corrupt(
                format!("directory inode {dir}"),
                format!("an entry names inode {ino}, which is not in use"),
            ),
            other => other,
        })?;
        // With several names, the parent known does not stand for all (rule R17).
        let node = self.node_mut(ino);
        node.parent = (node.inode.is_dir() || node.inode.nlink == 1).then_some(dir);
        Ok(())
    }

    /// The directory, which must have a name: ENOENT else.
    pub fn require_live_dir(&mut self, dir: InodeNr) -> Result<()> {
        self.load_dir(dir)?;
        if self.node(dir).inode.nlink == 0 {
            return Err(errno(libc::ENOENT));
        }
        Ok(())
    }

    pub(super) fn insert_entry(&mut self, dir: InodeNr, name: &[u8], ino: InodeNr) -> Result<()> {
        let ftype = entry_type(self.node(ino).inode.mode);
        let node = self.inodes.get_mut(&dir).expect("loaded before use");
        self.fs.dir_insert(&mut self.meta, &mut node.inode, name, ino, ftype)
    }

    pub(super) fn remove_entry(&mut self, dir: InodeNr, name: &[u8]) -> Result<()> {
        let node = self.inodes.get(&dir).expect("loaded before use");
        self.fs.dir_remove(&mut self.meta, &node.inode, name).map(drop)
    }

    pub(super) fn replace_entry(&mut self, dir: InodeNr, name: &[u8], ino: InodeNr) -> Result<()> {
        let ftype = entry_type(self.node(ino).inode.mode);
        let node = self.inodes.get(&dir).expect("loaded before use");
        self.fs.dir_replace(&mut self.meta, &node.inode, name, ino, ftype).map(drop)
    }

    fn build_inode(
        &mut self,
        ino: InodeNr,
        generation: u32,
        new: &NewInode<'_>,
        time: Timestamp,
        dir: InodeNr,
        is_dir: bool,
    ) -> Result<Inode> {
        let mut inode = self.fs.new_inode(ino, generation, new.mode, time);
        inode.flags |= self.node(dir).inode.flags & siftfs_proto::flags::INHERITED;
        inode.uid = new.uid;
        inode.gid = new.gid;
        inode.nlink = 1;
        match new.mode & S_IFMT {
            S_IFDIR => {
                inode.nlink = 2;
                self.fs.dir_init(&mut self.meta, &mut inode, dir)?;
            }
            // A long target is metadata here, as in ext4's own journaling.
            S_IFLNK => self.fs.symlink_init(&mut self.meta, &mut inode, new.target)?,
            _ if !is_dir && new.rdev != 0 => inode.set_rdev(new.rdev),
            _ => {}
        }
        Ok(inode)
    }

    pub(super) fn require_empty_dir(&mut self, ino: InodeNr) -> Result<()> {
        self.load_dir(ino)?;
        let node = self.inodes.get(&ino).expect("just loaded");
        if !self.fs.dir_is_empty(&mut self.meta, &node.inode)? {
            return Err(errno(libc::ENOTEMPTY));
        }
        Ok(())
    }

    /// The directory's `..`.
    pub fn parent_of_dir(&mut self, dir: InodeNr) -> Result<InodeNr> {
        self.load_dir(dir)?;
        let node = self.inodes.get(&dir).expect("just loaded");
        self.fs.dir_dotdot(&mut self.meta, &node.inode)
    }

    /// A number that nobody refers to.
    fn alloc_inode(&mut self, dir: InodeNr, is_dir: bool) -> Result<InodeNr> {
        for ino in self.inodes.references.take_free_numbers() {
            self.fs.end_withholding(ino);
        }
        self.fs.alloc_inode(&mut self.meta, dir, is_dir)
    }
}

impl Metadata {
    pub(super) fn dir_changed(&mut self, dir: InodeNr, time: Timestamp) {
        let node = self.tree.node_mut(dir);
        node.inode.mtime = time;
        node.inode.ctime = time;
        node.size = node.inode.size;
        self.log.mark_inode(dir);
    }

    /// Makes an inode and binds its first name.
    pub fn create(
        &mut self,
        dir: InodeNr,
        name: &[u8],
        new: &NewInode<'_>,
        time: Timestamp,
    ) -> Step<InodeNr> {
        check_name(name)?;
        self.tree.require_live_dir(dir)?;
        if self.tree.lookup(dir, name)?.is_some() {
            return Err(errno(libc::EEXIST).into());
        }
        let is_dir = new.mode & S_IFMT == S_IFDIR;
        if is_dir && !self.tree.node(dir).inode.can_link() {
            return Err(errno(libc::EMLINK).into());
        }
        self.tree.fs.xattrs_fit(new.mode, new.xattrs)?;
        self.begin_insert(dir, create_space(!new.xattrs.is_empty()))?;
        if new.number.is_none() && self.tree.fs.available_inodes() == 0 {
            return Err(self.log.shortage());
        }
        let (ino, generation) = match new.number {
            Some((ino, generation)) => {
                self.tree.fs.alloc_inode_at(&mut self.tree.meta, ino, is_dir)?;
                (ino, generation)
            }
            None => {
                let ino = self.tree.alloc_inode(dir, is_dir)?;
                // LSNs never repeat, so neither does (number, generation) in practice (R5).
                (ino, (self.log.staging.last_drawn().0 as u32).wrapping_add(0x5146_5301).max(1))
            }
        };
        self.tree.inodes.not_orphaned(ino);
        let mut inode = self.tree.build_inode(ino, generation, new, time, dir, is_dir)?;
        for (name, value) in new.xattrs {
            self.tree.fs.xattr_set(&mut self.tree.meta, &mut inode, name, value, SetMode::Any)?;
        }
        let version = self.tree.inodes.next_version();
        let mut node = crate::state::tree::node::Node::new(inode, version);
        node.parent = Some(dir);
        self.tree.inodes.add(ino, node);
        self.tree.insert_entry(dir, name, ino)?;
        if is_dir {
            self.tree.node_mut(dir).inode.inc_nlink();
        }
        self.log.mark_inode(ino);
        if !new.xattrs.is_empty() {
            // What the operation in the log does not say.
            self.tree.node_mut(ino).delta.running_mut().xattrs = true;
            self.log.mark_perms(ino);
            self.mark_delta(ino);
        }
        self.dir_changed(dir, time);
        self.log_name_op(
            time,
            NameOpKind::Create {
                dir,
                name: name.to_vec(),
                ino,
                generation,
                mode: u32::from(new.mode),
                uid: new.uid,
                gid: new.gid,
                rdev: new.rdev,
                target: new.target.to_vec(),
            },
            false,
        );
        Ok(ino)
    }

    fn unused_name(&mut self, dir: InodeNr) -> Result<Vec<u8>> {
        let mut number = self.log.staging.last_drawn().0;
        loop {
            let name = format!(".siftfs-unnamed-{number:x}").into_bytes();
            if self.tree.lookup(dir, &name)?.is_none() {
                return Ok(name);
            }
            number += 1;
        }
    }

    /// Binds one more name.
    pub fn link(&mut self, ino: InodeNr, dir: InodeNr, name: &[u8], time: Timestamp) -> Step<()> {
        check_name(name)?;
        self.tree.require_live_dir(dir)?;
        self.tree.load(ino)?;
        let inode = &self.tree.node(ino).inode;
        if inode.is_dir() {
            return Err(errno(libc::EPERM).into());
        }
        let first = inode.nlink == 0;
        if first && !self.log.is_replaying() && !self.tree.node(ino).linkable {
            return Err(errno(libc::ENOENT).into());
        }
        if self.tree.lookup(dir, name)?.is_some() {
            return Err(errno(libc::EEXIST).into());
        }
        if !self.tree.node(ino).inode.can_link() {
            return Err(errno(libc::EMLINK).into());
        }
        self.begin_insert(dir, 0)?;
        self.tree.insert_entry(dir, name, ino)?;
        let node = self.tree.node_mut(ino);
        node.inode.inc_nlink();
        node.inode.ctime = time;
        // Several parents from now on: the one known no longer stands for all (rule R17).
        node.parent = first.then_some(dir);
        self.log.mark_inode(ino);
        if first {
            self.no_orphan(ino)?;
        }
        self.dir_changed(dir, time);
        self.log_name_op(time, NameOpKind::Link { dir, name: name.to_vec(), ino }, false);
        Ok(())
    }

    /// Removes an empty directory.
    pub fn remove_dir(&mut self, dir: InodeNr, name: &[u8], time: Timestamp) -> Step<InodeNr> {
        if name == b"." {
            return Err(errno(libc::EINVAL).into());
        }
        if name == b".." {
            return Err(errno(libc::ENOTEMPTY).into());
        }
        let ino = self.tree.lookup_node(dir, name)?;
        self.tree.require_empty_dir(ino)?;
        self.begin(0)?;
        self.tree.remove_entry(dir, name)?;
        self.tree.node_mut(dir).inode.dec_nlink()?;
        self.dir_changed(dir, time);
        self.kill_dir(ino, time)?;
        self.log_name_op(time, NameOpKind::RemoveDir { dir, name: name.to_vec(), ino }, false);
        Ok(ino)
    }

    /// An emptied directory lost its name.
    pub(super) fn kill_dir(&mut self, ino: InodeNr, time: Timestamp) -> Result<()> {
        let node = self.tree.node_mut(ino);
        node.inode.nlink = 0;
        node.inode.ctime = time;
        self.became_orphan(ino)
    }

    fn became_orphan(&mut self, ino: InodeNr) -> Result<()> {
        self.tree.inodes.orphaned(ino);
        let node = self.tree.inodes.get(&ino).expect("loaded before use");
        self.tree.fs.orphan_add(&mut self.tree.meta, &node.inode)?;
        self.log.mark_inode(ino);
        self.tree.inodes.queue_if_unreferenced(ino);
        Ok(())
    }

    /// An inode without a name got one.
    fn no_orphan(&mut self, ino: InodeNr) -> Result<()> {
        self.tree.node_mut(ino).linkable = false;
        // A truncation that is not finished keeps the inode on the list. Recovery does not know
        // whether there is one: it leaves the inode there until its end, when that is checked.
        if self.log.is_replaying() || self.tree.node(ino).trunc_pending {
            return Ok(());
        }
        self.tree.inodes.not_orphaned(ino);
        let node = self.tree.inodes.get(&ino).expect("loaded before use");
        self.tree.fs.orphan_remove(&mut self.tree.meta, &node.inode)
    }
}

impl State {
    /// Makes an inode without a name. Whether [`Metadata::link`] may give it one is the caller's to
    /// say. In the log it is what
    /// recovery knows: a file made and removed in one step, under a name that no program sees.
    pub fn create_unnamed(
        &mut self,
        dir: InodeNr,
        new: &NewInode<'_>,
        time: Timestamp,
    ) -> Step<InodeNr> {
        self.metadata.tree.require_live_dir(dir)?;
        // Both halves or none: the room for the second is checked before the first.
        let cost =
            self.metadata.tree.fs.layout.dir_insert_cost(&self.metadata.tree.node(dir).inode)?;
        self.metadata.room_in_transaction(2 * OP_BLOCKS + cost.dirtied as usize)?;
        let name = self.metadata.unused_name(dir)?;
        let inode = &self.metadata.tree.node(dir).inode;
        let (mtime, ctime) = (inode.mtime, inode.ctime);
        let ino = self.metadata.create(dir, &name, new, time)?;
        self.unlink_found(dir, &name, ino, time)?;
        let inode = &mut self.metadata.tree.node_mut(dir).inode;
        (inode.mtime, inode.ctime) = (mtime, ctime);
        Ok(ino)
    }

    /// Removes a name of anything but a directory.
    pub fn unlink(&mut self, dir: InodeNr, name: &[u8], time: Timestamp) -> Step<InodeNr> {
        let ino = self.metadata.tree.lookup_node(dir, name)?;
        if self.metadata.tree.node(ino).inode.is_dir() {
            return Err(errno(libc::EISDIR).into());
        }
        self.metadata.begin(0)?;
        self.unlink_found(dir, name, ino, time)?;
        Ok(ino)
    }

    fn unlink_found(
        &mut self,
        dir: InodeNr,
        name: &[u8],
        ino: InodeNr,
        time: Timestamp,
    ) -> Result<()> {
        self.metadata.tree.remove_entry(dir, name)?;
        self.metadata.dir_changed(dir, time);
        self.drop_link(ino, time)?;
        self.metadata.log_name_op(
            time,
            NameOpKind::Unlink { dir, name: name.to_vec(), ino },
            false,
        );
        Ok(())
    }

    pub(super) fn drop_link(&mut self, ino: InodeNr, time: Timestamp) -> Result<()> {
        let node = self.metadata.tree.node_mut(ino);
        node.inode.dec_nlink()?;
        node.inode.ctime = time;
        // Which of several names is left is not known here.
        node.parent = None;
        if node.inode.nlink == 0 {
            self.sections.removed(ino);
            return self.metadata.became_orphan(ino);
        }
        self.metadata.log.mark_inode(ino);
        Ok(())
    }
}
