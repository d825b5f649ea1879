//! Inode flags (chattr(1)): which can be set, and what immutable and append-only files refuse.
//!
//! Requests are judged here, before they become calls on the state: recovery calls the same
//! functions, and carries out what was done before a file became immutable.

use crate::state::Metadata;
use crate::state::Tree;
use crate::state::step::Step;
use siftfs_base::{InodeNr, Result, errno};
use siftfs_proto::{Allocate, SetAttr, SetTime, flags};

/// A request refused by either kind.
const FIXED: u32 = flags::IMMUTABLE | flags::APPEND;

impl Tree {
    /// `EPERM` if `ino` has one of these flags.
    fn refuse(&mut self, ino: InodeNr, flags: u32) -> Result<()> {
        self.load(ino)?;
        if self.node(ino).inode.flags & flags == 0 { Ok(()) } else { Err(errno(libc::EPERM)) }
    }

    /// May names be made in `dir`?
    pub fn may_insert(&mut self, dir: InodeNr) -> Result<()> {
        self.refuse(dir, flags::IMMUTABLE)
    }

    /// May this name be taken away? One that is not there is for the operation itself to judge.
    pub fn may_take(&mut self, dir: InodeNr, name: &[u8]) -> Result<()> {
        self.refuse(dir, FIXED)?;
        match self.lookup(dir, name)? {
            Some(ino) => self.refuse(ino, FIXED),
            None => Ok(()),
        }
    }

    /// May a file be renamed so? Both names lose what they have.
    pub fn may_move(&mut self, from: (InodeNr, &[u8]), to: (InodeNr, &[u8])) -> Result<()> {
        self.may_take(from.0, from.1)?;
        self.may_insert(to.0)?;
        if self.lookup(to.0, to.1)?.is_some() { self.may_take(to.0, to.1) } else { Ok(()) }
    }

    /// May `ino` get another name, in `dir`?
    pub fn may_link(&mut self, ino: InodeNr, dir: InodeNr) -> Result<()> {
        self.may_insert(dir)?;
        self.refuse(ino, FIXED)
    }

    /// May the file be opened for writing, or truncated by that? That an append-only file is opened
    /// to append the Frontend sees to.
    pub fn may_open(&mut self, ino: InodeNr, write: bool, truncate: bool) -> Result<()> {
        match (write, truncate) {
            (_, true) => self.refuse(ino, FIXED),
            (true, false) => self.refuse(ino, flags::IMMUTABLE),
            (false, false) => Ok(()),
        }
    }

    /// May data be written at `offset`? To an append-only file at its end, and beyond.
    pub fn may_write(&mut self, ino: InodeNr, offset: u64) -> Result<()> {
        self.load(ino)?;
        let inside = offset < self.node(ino).size;
        self.refuse(ino, if inside { FIXED } else { flags::IMMUTABLE })
    }

    /// fallocate(2).
    pub fn may_allocate(&mut self, ino: InodeNr, mode: Allocate) -> Result<()> {
        let adds = matches!(mode, Allocate::Grow | Allocate::KeepSize);
        self.refuse(ino, if adds { flags::IMMUTABLE } else { FIXED })
    }

    /// Changes of attributes. An append-only file may be touched.
    pub fn may_set_attr(&mut self, ino: InodeNr, set: &SetAttr) -> Result<()> {
        let owner = set.perm.is_some() || set.uid.is_some() || set.gid.is_some();
        if owner || set.size.is_some() {
            return self.refuse(ino, FIXED);
        }
        match (set.atime, set.mtime) {
            (None, None) | (Some(SetTime::Now), Some(SetTime::Now)) => {
                self.refuse(ino, flags::IMMUTABLE)
            }
            // The kernel that owns the times says the present one itself, as the ctime as well.
            (Some(SetTime::Now), Some(SetTime::At(mtime))) if set.ctime == Some(mtime) => {
                self.refuse(ino, flags::IMMUTABLE)
            }
            // mtime together with ctime: the kernel writes its own times back. No program's
            // utimes(2) sends both.
            (None, Some(_)) if set.ctime.is_some() => Ok(()),
            _ => self.refuse(ino, FIXED),
        }
    }

    /// Extended attributes and access control lists. Capabilities go with a write, too.
    pub fn may_set_xattr(&mut self, ino: InodeNr, name: &[u8], removes: bool) -> Result<()> {
        let with_write = removes && name == b"security.capability";
        self.refuse(ino, if with_write { flags::IMMUTABLE } else { FIXED })
    }

    /// The flags that the user sees.
    pub fn flags(&mut self, ino: InodeNr) -> Result<u32> {
        self.load(ino)?;
        Ok(self.node(ino).inode.flags & flags::VISIBLE)
    }
}

impl Metadata {
    /// Sets flags; true if one changed. Those that cannot be set stay as they are when they are
    /// given as they are, as chattr(1) does, and are refused else (`EOPNOTSUPP`).
    pub fn set_flags(&mut self, ino: InodeNr, wanted: u32) -> Step<bool> {
        let old = self.tree.flags(ino)?;
        let changed = old ^ wanted;
        let fixed = !(flags::SETTABLE | flags::KEPT);
        if changed & fixed & flags::MODIFIABLE != 0 || wanted & !flags::VISIBLE != 0 {
            return Err(errno(libc::EOPNOTSUPP).into());
        }
        let inode = &self.tree.node(ino).inode;
        let other = !inode.is_reg() && !inode.is_dir();
        if other && wanted & FIXED != 0 {
            return Err(errno(libc::EOPNOTSUPP).into());
        }
        let changed = changed & flags::SETTABLE;
        if old & wanted & flags::IMMUTABLE != 0 && changed != 0 {
            return Err(errno(libc::EPERM).into());
        }
        if changed == 0 {
            return Ok(false);
        }
        self.begin(0)?;
        let now = self.log.now();
        let node = self.tree.node_mut(ino);
        node.inode.flags ^= changed;
        node.inode.ctime = now;
        if node.inode.is_dir() {
            self.log.changes.ordered();
        }
        self.log.mark_inode(ino);
        Ok(true)
    }
}
