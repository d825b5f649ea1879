//! What a caller may do with directories and files that the kernel has not checked: by mode, access
//! control list and groups, as the kernel would.

use crate::namespace::acl::ACCESS;
use crate::namespace::kinds::kind_of;
use crate::state::Tree;
use siftfs_base::{Error, InodeNr, Result, errno};
use siftfs_ext4::xattr::{Acl, AclTag};
use siftfs_proto::compound::NewAttributes;
use siftfs_proto::{Credentials, FileKind, Rights, SetAttr, SetTime};

/// The right to look names up in a directory.
pub const SEARCH: u16 = 1;
/// The right to change names in a directory, which includes to look them up.
pub const CHANGE: u16 = 3;

const S_ISUID: u16 = 0o4000;
const S_ISGID: u16 = 0o2000;
const S_IXGRP: u16 = 0o0010;

/// The right to read a file.
pub const READ: u16 = 4;
/// The right to write a file.
pub const WRITE: u16 = 2;

/// Of a file, what decides who may use it.
#[derive(Clone, Debug)]
pub struct Guard {
    /// Type and permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The access control list, in Linux's form.
    pub acl: Option<Vec<u8>>,
}

/// The caller, as far as rights go.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// Its ids.
    pub cred: &'a Credentials,
    /// Its groups and capabilities.
    pub rights: &'a Rights,
}

impl Caller<'_> {
    /// Does it own the file, or may it do as if?
    pub fn owns(&self, guard: &Guard) -> bool {
        self.cred.uid == guard.uid || self.rights.owns_all
    }

    /// Has it the rights `wanted` to the file?
    ///
    /// # Errors
    /// EACCES if not; EINVAL for bytes that are no list.
    pub fn may(&self, guard: &Guard, wanted: u16) -> Result<()> {
        if self.may_always(kind_of(guard.mode), wanted) {
            return Ok(());
        }
        let &Guard { mode, uid, gid, ref acl } = guard;
        let granted = match acl {
            _ if uid == self.cred.uid => mode >> 6 & wanted == wanted,
            // With a mask that lets nothing through, Linux does not look at the list.
            Some(list) if mode & 0o070 != 0 => {
                self.granted_by(&Acl::from_xattr(list)?, gid, wanted)
            }
            _ if self.is_in(gid) => mode >> 3 & wanted == wanted,
            _ => mode & wanted == wanted,
        };
        if granted { Ok(()) } else { Err(errno(libc::EACCES)) }
    }

    /// Has it these rights to every file of this kind?
    fn may_always(&self, kind: FileKind, wanted: u16) -> bool {
        let reads = if kind == FileKind::Directory { READ | SEARCH } else { READ };
        self.rights.overrides_access || self.rights.reads_all && wanted & !reads == 0
    }

    /// May the caller change these attributes, as chmod(2), chown(2) and utimensat(2) have it? What
    /// an immutable file refuses is not looked at.
    ///
    /// # Errors
    /// EPERM or EACCES if not; EOPNOTSUPP for the mode of a symbolic link.
    pub fn may_set(&self, guard: &Guard, new: &NewAttributes) -> Result<()> {
        let owns = self.owns(guard);
        if kind_of(guard.mode) == FileKind::Symlink && new.perm.is_some() {
            return Err(errno(libc::EOPNOTSUPP));
        }
        let own_uid = self.cred.uid == guard.uid;
        let own_group = |gid: u32| own_uid && (gid == guard.gid || self.is_in(gid));
        let keeps = |uid: u32| own_uid && uid == guard.uid;
        let chown = new.uid.is_none_or(keeps) && new.gid.is_none_or(own_group);
        if !self.rights.gives_away && !chown || new.perm.is_some() && !owns {
            return Err(errno(libc::EPERM));
        }
        // To take set-id bits away is a change of the mode.
        let chown = new.uid.is_some() || new.gid.is_some();
        if chown && !owns && self.loses_set_id(guard) {
            return Err(errno(libc::EPERM));
        }
        let at = |time: Option<SetTime>| matches!(time, Some(SetTime::At(_)));
        if (at(new.atime) || at(new.mtime)) && !owns {
            return Err(errno(libc::EPERM));
        }
        match (new.atime.is_some() || new.mtime.is_some()) && !owns {
            true => self.may(guard, WRITE),
            false => Ok(()),
        }
    }

    /// Does a new owner take set-id bits away?
    fn loses_set_id(&self, guard: &Guard) -> bool {
        let foreign = !self.rights.keeps_set_id && !self.is_in(guard.gid);
        let setgid = guard.mode & S_ISGID != 0 && (guard.mode & S_IXGRP != 0 || foreign);
        kind_of(guard.mode) != FileKind::Directory && (guard.mode & S_ISUID != 0 || setgid)
    }

    /// The mode of a file that the caller makes in a directory with this mode and group. It would
    /// get the directory's group: an executable that gives that group's id to everybody is not the
    /// caller's to make, unless it is in the group.
    pub fn mode_in(&self, (dir_mode, dir_gid): (u16, u32), mode: u16) -> u16 {
        let executable = mode & (S_ISGID | S_IXGRP) == S_ISGID | S_IXGRP;
        let foreign = !self.rights.keeps_set_id && !self.is_in(dir_gid);
        let file = kind_of(mode) != FileKind::Directory;
        if file && dir_mode & S_ISGID != 0 && executable && foreign {
            mode & !S_ISGID
        } else {
            mode
        }
    }

    /// The change that these new attributes are, with the set-id bits that the caller may not
    /// leave.
    pub fn setting(&self, guard: &Guard, new: &NewAttributes) -> SetAttr {
        let &NewAttributes { perm, uid, gid, atime, mtime } = new;
        let foreign = |gid: u32| !self.rights.keeps_set_id && !self.is_in(gid);
        let chown = uid.is_some() || gid.is_some();
        // Of a group that the caller is not in nobody gets the id by a new mode.
        let setgid = if foreign(gid.unwrap_or(guard.gid)) { S_ISGID } else { 0 };
        SetAttr {
            perm: perm.map(|perm| perm & 0o7777 & !setgid),
            uid,
            gid,
            atime,
            mtime,
            // As chown(2): setgid also where the group may not execute, unless it is the caller's.
            kill_setgid: chown && foreign(guard.gid),
            ..SetAttr::default()
        }
    }

    /// May the caller give the file one more name? As Linux protects files against links that their
    /// owners know nothing of.
    ///
    /// # Errors
    /// EPERM if not.
    pub fn may_link(&self, guard: &Guard) -> Result<()> {
        if self.rights.links_all || self.owns(guard) {
            return Ok(());
        }
        let privileged = guard.mode & 0o4000 != 0 || guard.mode & 0o2010 == 0o2010;
        let regular = kind_of(guard.mode) == FileKind::Regular;
        match regular && !privileged && self.may(guard, READ | WRITE).is_ok() {
            true => Ok(()),
            false => Err(errno(libc::EPERM)),
        }
    }

    /// Is the caller in this group?
    pub fn is_in(&self, gid: u32) -> bool {
        self.cred.gid == gid || self.rights.groups.contains(&gid)
    }

    /// Does the list grant all of `wanted` to this caller, who does not own the file? The mask
    /// bounds what named users and all groups get; a caller whom any group entry is about is not
    /// one of the others.
    fn granted_by(&self, acl: &Acl, gid: u32, wanted: u16) -> bool {
        let entries = acl.entries();
        let mask = entries.iter().find(|e| e.tag == AclTag::Mask).map_or(7, |e| e.perm);
        let grants = |perm: u16| perm & wanted == wanted;
        if let Some(user) = entries.iter().find(|e| e.tag == AclTag::User && e.id == self.cred.uid)
        {
            return grants(user.perm & mask);
        }
        let about = |tag: AclTag, id: u32| match tag {
            AclTag::GroupObj => self.is_in(gid),
            AclTag::Group => self.is_in(id),
            _ => false,
        };
        let mut groups = entries.iter().filter(|e| about(e.tag, e.id)).peekable();
        if groups.peek().is_some() {
            return groups.any(|e| grants(e.perm & mask));
        }
        entries.iter().any(|e| e.tag == AclTag::Other && grants(e.perm))
    }
}

impl Tree {
    /// Has the caller the right `wanted` to this directory?
    ///
    /// # Errors
    /// EACCES if not, ENOTDIR if it is no directory.
    pub fn may_access(&mut self, caller: Caller<'_>, dir: InodeNr, wanted: u16) -> Result<()> {
        self.load_dir(dir)?;
        if caller.may_always(FileKind::Directory, wanted) {
            return Ok(());
        }
        let guard = self.guard(dir)?;
        caller.may(&guard, wanted)
    }

    /// What decides who may use the inode, which is loaded.
    pub fn guard(&mut self, ino: InodeNr) -> Result<Guard> {
        let acl = match self.get_xattr(ino, ACCESS) {
            Ok(list) => Some(list),
            Err(Error::Posix(libc::ENODATA)) => None,
            Err(e) => return Err(e),
        };
        Ok(Guard { acl, ..self.guard_without_list(ino) })
    }

    /// As [`Tree::guard`], for a caller whom no list keeps from anything.
    pub fn guard_without_list(&self, ino: InodeNr) -> Guard {
        let inode = &self.node(ino).inode;
        Guard { mode: inode.mode, uid: inode.uid, gid: inode.gid, acl: None }
    }
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
