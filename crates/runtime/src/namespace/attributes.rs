//! Attributes and extended attributes.

use crate::namespace::kinds::kind_of;
use crate::state::Metadata;
use crate::state::State;
use crate::state::Tree;
use crate::state::metadata::perms_changed;
use crate::state::room::ATTRIBUTE_SPACE;
use crate::state::step::Step;
use siftfs_base::{InodeNr, Result, errno};
use siftfs_ext4::format::S_IFMT;
use siftfs_ext4::xattr::SetMode;
use siftfs_proto::{Attr, Credentials, FileKind, SetAttr, SetTime, StatFs, XattrMode};

const S_ISUID: u16 = 0o4000;
const S_ISGID: u16 = 0o2000;
const S_ISVTX: u16 = 0o1000;
const S_IXGRP: u16 = 0o0010;
const CAPABILITY: &[u8] = b"security.capability";

impl Tree {
    /// The inode's attributes as an application sees them.
    pub fn attr(&mut self, ino: InodeNr) -> Result<Attr> {
        self.load(ino)?;
        let node = self.node(ino);
        let inode = &node.inode;
        let kind = kind_of(inode.mode);
        let device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        Ok(Attr {
            ino,
            generation: inode.generation,
            kind,
            perm: inode.mode & 0o7777,
            nlink: inode.nlink,
            uid: inode.uid,
            gid: inode.gid,
            rdev: if device { inode.rdev() } else { 0 },
            size: if inode.is_reg() { node.size } else { inode.size },
            blocks: inode.blocks + node.reserved.total() * 8,
            atime: inode.atime,
            mtime: inode.mtime,
            ctime: inode.ctime,
            crtime: inode.crtime,
            held: false,
        })
    }

    /// Does `set` say nothing but the times that the inode has? The kernel that owns them sends
    /// them more often than they change, and what changes nothing must not make an fsync write.
    fn has_times(&self, ino: InodeNr, set: &SetAttr) -> bool {
        let (Some(SetTime::At(mtime)), Some(ctime)) = (set.mtime, set.ctime) else { return false };
        let others = SetAttr { mtime: None, ctime: None, ..set.clone() };
        let inode = &self.node(ino).inode;
        others == SetAttr::default()
            && inode.storable_time(mtime) == inode.mtime
            && inode.storable_time(ctime) == inode.ctime
    }

    /// Is it a file with capabilities? It is loaded.
    pub fn has_capabilities(&mut self, ino: InodeNr) -> Result<bool> {
        let node = self.inodes.get(&ino).expect("loaded before use");
        Ok(node.inode.is_reg()
            && self
                .fs
                .layout
                .xattr_list(&mut self.meta, &node.inode)?
                .iter()
                .any(|n| n == CAPABILITY))
    }

    /// getxattr; ENODATA when absent.
    pub fn get_xattr(&mut self, ino: InodeNr, name: &[u8]) -> Result<Vec<u8>> {
        self.load(ino)?;
        let node = self.inodes.get(&ino).expect("just loaded");
        self.fs.layout.xattr_get(&mut self.meta, &node.inode, name)
    }

    /// listxattr.
    pub fn list_xattrs(&mut self, ino: InodeNr) -> Result<Vec<Vec<u8>>> {
        self.load(ino)?;
        let node = self.inodes.get(&ino).expect("just loaded");
        self.fs.layout.xattr_list(&mut self.meta, &node.inode)
    }

    /// In a sticky directory, only root, its owner and the file's owner may remove or rename a
    /// name (EPERM); a name that is not there is for the operation itself to judge.
    pub fn may_remove(&mut self, cred: &Credentials, dir: InodeNr, name: &[u8]) -> Result<()> {
        self.load_dir(dir)?;
        let inode = &self.node(dir).inode;
        if cred.uid == 0 || inode.mode & S_ISVTX == 0 || inode.uid == cred.uid {
            return Ok(());
        }
        let Some(ino) = self.lookup(dir, name)? else { return Ok(()) };
        self.load(ino)?;
        if self.node(ino).inode.uid == cred.uid { Ok(()) } else { Err(errno(libc::EPERM)) }
    }

    /// [`Tree::may_remove`] at both ends, unless they are one file, where a rename does nothing.
    pub fn may_rename(
        &mut self,
        cred: &Credentials,
        from: (InodeNr, &[u8]),
        to: (InodeNr, &[u8]),
    ) -> Result<()> {
        if cred.uid == 0 {
            return Ok(());
        }
        let ino = self.lookup(from.0, from.1)?;
        if ino.is_some() && ino == self.lookup(to.0, to.1)? {
            return Ok(());
        }
        self.may_remove(cred, from.0, from.1)?;
        self.may_remove(cred, to.0, to.1)
    }

    /// Mode and group of a new inode: group and setgid from a setgid directory.
    pub fn inherit(&self, dir: InodeNr, mode: u16, gid: u32, is_dir: bool) -> (u16, u32) {
        let parent = &self.node(dir).inode;
        if parent.mode & S_ISGID == 0 {
            return (mode, gid);
        }
        let mode = if is_dir { mode | S_ISGID } else { mode };
        (mode, parent.gid)
    }
}

impl State {
    /// A change of the data of `ino`. Without `times` its mtime and ctime stay what they are: the
    /// kernel owns them then, and sends its own if the change moved them.
    pub fn timed<T>(
        &mut self,
        ino: InodeNr,
        times: bool,
        change: impl FnOnce(&mut Self) -> Step<T>,
    ) -> Step<T> {
        if times {
            return change(self);
        }
        self.metadata.tree.load(ino)?;
        let inode = &self.metadata.tree.node(ino).inode;
        let old = (inode.mtime, inode.ctime);
        let changed = change(self);
        let inode = &mut self.metadata.tree.node_mut(ino).inode;
        (inode.mtime, inode.ctime) = old;
        changed
    }

    /// setattr: chmod, chown, truncate, utimes, and the kill-privilege rules.
    pub fn set_attr(&mut self, ino: InodeNr, set: &SetAttr) -> Step<Attr> {
        self.metadata.tree.load(ino)?;
        if self.metadata.tree.has_times(ino, set) {
            return Ok(self.metadata.tree.attr(ino)?);
        }
        let now = self.metadata.log.now();
        if let Some(size) = set.size {
            if self.metadata.tree.node(ino).inode.is_dir() {
                return Err(errno(libc::EISDIR).into());
            }
            self.set_size(ino, size, now)?;
        }
        let acl = match set.perm {
            Some(perm) => self.metadata.tree.acl_of_mode(ino, perm)?,
            None => None,
        };
        self.metadata.begin(if acl.is_some() { ATTRIBUTE_SPACE } else { 0 })?;
        if let Some(acl) = acl {
            self.metadata.put_xattr(ino, crate::namespace::acl::ACCESS, &acl, SetMode::Any)?;
        }
        if set.kill_priv {
            self.metadata.kill_privileges(ino)?;
        }
        let chown = set.uid.is_some() || set.gid.is_some();
        if chown && !set.keep_priv && !self.metadata.tree.node(ino).inode.is_dir() {
            self.metadata.kill_privileges(ino)?;
        }
        let setgid = set.kill_setgid && !self.metadata.tree.node(ino).inode.is_dir();
        let inode = &mut self.metadata.tree.node_mut(ino).inode;
        if setgid {
            inode.mode &= !S_ISGID;
        }
        if let Some(perm) = set.perm {
            inode.mode = inode.mode & S_IFMT | perm & 0o7777;
        }
        inode.uid = set.uid.unwrap_or(inode.uid);
        inode.gid = set.gid.unwrap_or(inode.gid);
        let at = |t: SetTime| match t {
            SetTime::Now => now,
            SetTime::At(t) => inode.storable_time(t),
        };
        let (atime, mtime) = (set.atime.map(at), set.mtime.map(at));
        let ctime = set.ctime.map(|t| inode.storable_time(t));
        inode.atime = atime.unwrap_or(inode.atime);
        inode.mtime = mtime.unwrap_or(inode.mtime);
        inode.ctime = ctime.unwrap_or(now);
        let perms = set.perm.is_some() || chown || set.kill_priv || setgid;
        let delta = self.metadata.tree.node_mut(ino).delta.running_mut();
        delta.attrs |= perms;
        delta.times = true;
        if perms {
            perms_changed(&mut self.metadata, ino);
        }
        self.metadata.mark_delta(ino);
        Ok(self.metadata.tree.attr(ino)?)
    }
}

/// Takes a file's capabilities away, if it has any.
pub fn drop_capabilities(metadata: &mut Metadata, ino: InodeNr) -> Step<()> {
    metadata.tree.load(ino)?;
    match metadata.tree.has_capabilities(ino)? {
        true => metadata.remove_xattr(ino, CAPABILITY),
        false => Ok(()),
    }
}

impl Metadata {
    /// Clears setuid, setgid (if group-executable) and the file's capabilities.
    pub fn kill_privileges(&mut self, ino: InodeNr) -> Step<()> {
        self.tree.load(ino)?;
        let inode = &mut self.tree.node_mut(ino).inode;
        let mut kill = inode.mode & S_ISUID;
        if inode.mode & S_IXGRP != 0 {
            kill |= inode.mode & S_ISGID;
        }
        if kill != 0 {
            inode.mode &= !kill;
            self.tree.node_mut(ino).delta.running_mut().attrs = true;
            perms_changed(self, ino);
            self.mark_delta(ino);
        }
        drop_capabilities(self, ino)
    }

    fn xattrs_changed(&mut self, ino: InodeNr, name: &[u8]) {
        let now = self.log.now();
        let node = self.tree.node_mut(ino);
        node.inode.ctime = now;
        node.delta.running_mut().xattrs = true;
        node.delta.running_mut().times = true;
        if name.starts_with(b"security.") || name.starts_with(b"system.posix_acl_") {
            perms_changed(self, ino);
        }
        self.mark_delta(ino);
    }

    /// setxattr, of anything but an access control list ([`Metadata::set_acl`]).
    pub fn set_xattr(
        &mut self,
        ino: InodeNr,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Step<()> {
        self.tree.load(ino)?;
        self.begin(ATTRIBUTE_SPACE)?;
        let mode = match mode {
            XattrMode::Set => SetMode::Any,
            XattrMode::Create => SetMode::Create,
            XattrMode::Replace => SetMode::Replace,
        };
        Ok(self.put_xattr(ino, name, value, mode)?)
    }

    /// Sets an attribute, whatever its name; the caller has called `begin`.
    pub fn put_xattr(
        &mut self,
        ino: InodeNr,
        name: &[u8],
        value: &[u8],
        mode: SetMode,
    ) -> Result<()> {
        let node = self.tree.inodes.get_mut(&ino).expect("loaded before use");
        self.tree.fs.xattr_set(&mut self.tree.meta, &mut node.inode, name, value, mode)?;
        self.xattrs_changed(ino, name);
        Ok(())
    }

    /// removexattr; ENODATA when absent.
    pub fn remove_xattr(&mut self, ino: InodeNr, name: &[u8]) -> Step<()> {
        self.tree.load(ino)?;
        self.begin(ATTRIBUTE_SPACE)?;
        Ok(self.drop_xattr(ino, name)?)
    }

    /// Removes an attribute, whatever its name; the caller has called `begin`.
    pub fn drop_xattr(&mut self, ino: InodeNr, name: &[u8]) -> Result<()> {
        let node = self.tree.inodes.get_mut(&ino).expect("loaded before use");
        self.tree.fs.xattr_remove(&mut self.tree.meta, &mut node.inode, name)?;
        self.xattrs_changed(ino, name);
        Ok(())
    }

    /// The inode has exactly these extended attributes afterwards (recovery).
    pub fn replace_xattrs(&mut self, ino: InodeNr, list: &[(Vec<u8>, Vec<u8>)]) -> Step<()> {
        for name in self.tree.list_xattrs(ino)? {
            if !list.iter().any(|(n, _)| *n == name) {
                self.remove_xattr(ino, &name)?;
            }
        }
        for (name, value) in list {
            self.set_xattr(ino, name, value, XattrMode::Set)?;
        }
        Ok(())
    }

    /// statfs as ext4 answers it: overhead is not counted as blocks.
    pub fn stat_fs(&self) -> StatFs {
        let blocks = self.tree.fs.layout.block_count() - self.tree.fs.layout.overhead_blocks();
        let free = self.tree.fs.free_blocks().saturating_sub(self.log.running.data.reserved());
        StatFs {
            block_size: 4096,
            blocks,
            free,
            available: free
                .saturating_sub(self.tree.fs.reserved_blocks() + self.log.reserves.kept()),
            files: u64::from(self.tree.fs.layout.inode_count()),
            files_free: self.tree.fs.free_inodes(),
            name_max: 255,
        }
    }
}
