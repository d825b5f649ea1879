//! Access control lists: what setting one means for the mode, what a change of the mode means for
//! it, and what new files inherit.

use crate::namespace::kinds::kind_of;
use crate::state::Metadata;
use crate::state::Tree;
use crate::state::metadata::perms_changed;
use crate::state::room::ATTRIBUTE_SPACE;
use crate::state::step::Step;
use siftfs_base::{Error, InodeNr, Result, errno};
use siftfs_ext4::xattr::{Acl, SetMode};
use siftfs_proto::FileKind;

/// The attribute whose list controls the access to a file.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute of a directory whose list is inherited by what is made in it.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

const S_ISGID: u16 = 0o2000;
const PERMISSIONS: u16 = 0o777;

/// Is it the name of one of the two lists?
pub fn is_acl(name: &[u8]) -> bool {
    name == ACCESS || name == DEFAULT
}

/// Extended attributes of an inode to be made.
pub type Inherited = Vec<(Vec<u8>, Vec<u8>)>;

impl Tree {
    fn acl(&mut self, ino: InodeNr, name: &[u8]) -> Result<Option<Acl>> {
        match self.get_xattr(ino, name) {
            Ok(value) => Acl::from_xattr(&value).map(Some),
            Err(Error::Posix(libc::ENODATA)) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The access list that goes with new permission bits, if there is one: for
    /// [`Metadata::put_xattr`].
    pub fn acl_of_mode(&mut self, ino: InodeNr, perm: u16) -> Result<Option<Vec<u8>>> {
        if kind_of(self.node(ino).inode.mode) == FileKind::Symlink {
            return Ok(None);
        }
        let acl = self.acl(ino, ACCESS)?;
        Ok(acl.map(|mut acl| {
            acl.set_mode(perm);
            acl.to_xattr()
        }))
    }

    /// What an access list becomes with new permission bits.
    pub fn list_of_mode(&self, list: &[u8], perm: u16) -> Result<Vec<u8>> {
        let mut acl = Acl::from_xattr(list)?;
        acl.set_mode(perm);
        Ok(acl.to_xattr())
    }

    /// Mode and lists of what is made in `dir` with this mode: by the directory's default list, or
    /// without one by the umask.
    pub fn inherit_acls(
        &mut self,
        dir: InodeNr,
        mode: u16,
        umask: u16,
    ) -> Result<(u16, Inherited)> {
        let kind = kind_of(mode);
        if kind == FileKind::Symlink {
            return Ok((mode, Vec::new()));
        }
        let Some(default) = self.acl(dir, DEFAULT)? else {
            return Ok((mode & !(umask & PERMISSIONS), Vec::new()));
        };
        let (access, mode) = default.inherit(mode);
        let mut lists = Vec::new();
        if !access.is_minimal() {
            lists.push((ACCESS.to_vec(), access.to_xattr()));
        }
        if kind == FileKind::Directory {
            lists.push((DEFAULT.to_vec(), default.to_xattr()));
        }
        Ok((mode, lists))
    }
}

impl Metadata {
    /// Sets one of the lists, `name`, to `value` (Linux's form). An access list becomes the mode's
    /// permission bits too, and is not kept if they say all of it; `kill_setgid` takes setgid away
    /// then.
    ///
    /// # Errors
    /// EINVAL or EOPNOTSUPP for a value that is no list; EOPNOTSUPP for a symbolic link; EACCES for
    /// a default list of anything but a directory; ENOSPC if the attributes do not fit.
    pub fn set_acl(
        &mut self,
        ino: InodeNr,
        name: &[u8],
        value: &[u8],
        kill_setgid: bool,
    ) -> Step<()> {
        let acl = Acl::from_xattr(value)?;
        self.tree.load(ino)?;
        let kind = kind_of(self.tree.node(ino).inode.mode);
        if kind == FileKind::Symlink {
            return Err(errno(libc::EOPNOTSUPP).into());
        }
        if name == DEFAULT && kind != FileKind::Directory {
            return Err(errno(libc::EACCES).into());
        }
        self.begin(ATTRIBUTE_SPACE)?;
        if name == DEFAULT {
            return Ok(self.put_xattr(ino, name, value, SetMode::Any)?);
        }
        if acl.is_minimal() {
            self.drop_acl(ino, name)?;
        } else {
            self.put_xattr(ino, name, value, SetMode::Any)?;
        }
        let now = self.log.now();
        let node = self.tree.node_mut(ino);
        node.inode.mode = node.inode.mode & !PERMISSIONS | acl.mode();
        if kill_setgid {
            node.inode.mode &= !S_ISGID;
        }
        node.inode.ctime = now;
        node.delta.running_mut().attrs = true;
        node.delta.running_mut().times = true;
        perms_changed(self, ino);
        self.mark_delta(ino);
        Ok(())
    }

    /// Removes one of the lists; the mode stays as it is. A missing list is no error.
    pub fn remove_acl(&mut self, ino: InodeNr, name: &[u8]) -> Step<()> {
        self.tree.load(ino)?;
        self.begin(ATTRIBUTE_SPACE)?;
        Ok(self.drop_acl(ino, name)?)
    }

    fn drop_acl(&mut self, ino: InodeNr, name: &[u8]) -> Result<()> {
        match self.drop_xattr(ino, name) {
            Err(Error::Posix(libc::ENODATA)) => Ok(()),
            other => other,
        }
    }
}
