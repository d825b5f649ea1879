//! What the kernel checks of each call before it asks a file system, for callers that no kernel has
//! checked: the sessions of programs, and of clients later.
//!
//! Each check is made under the same hold of the state lock as the change that it allows. The
//! errors are those of the calls on ext4, in their order. The table is in
//! `docs/design/front-ends.md`.

use crate::namespace::access::{CHANGE, Caller, Guard, READ, SEARCH, WRITE};
use crate::namespace::acl::is_acl;
use crate::namespace::attributes::drop_capabilities;
use crate::namespace::kinds::kind_of;
use crate::state::metadata::perms_changed;
use crate::state::step::Step;
use crate::state::{Metadata, Tree};
use siftfs_base::{InodeNr, Result, errno};
use siftfs_proto::compound::{Access, NewAttributes};
use siftfs_proto::{FileKind, RenameMode, SetAttr, flags};

const S_ISGID: u16 = 0o2000;
const S_ISVTX: u16 = 0o1000;
const EXECUTE: u16 = 1;
const CAPABILITY: &[u8] = b"security.capability";

/// The caller, if nobody has checked yet what it may do; none for the local kernel's session.
#[derive(Clone, Copy)]
pub struct Unchecked<'a>(pub Option<Caller<'a>>);

/// A directory and a name in it.
type Entry<'a> = (InodeNr, &'a [u8]);

/// Names.
impl Unchecked<'_> {
    /// May names be looked up in `dir`?
    ///
    /// # Errors
    /// EACCES, ENOTDIR.
    pub fn may_search(self, tree: &mut Tree, dir: InodeNr) -> Result<()> {
        self.0.map_or(Ok(()), |caller| tree.may_access(caller, dir, SEARCH))
    }

    /// May the name be made?
    ///
    /// # Errors
    /// EEXIST, EACCES, ENOTDIR; EPERM for a device.
    pub fn may_make(self, tree: &mut Tree, (dir, name): Entry<'_>, new: New) -> Result<()> {
        let Some(caller) = self.0 else { return Ok(()) };
        tree.may_access(caller, dir, SEARCH)?;
        if tree.lookup(dir, name)?.is_some() {
            return Err(errno(libc::EEXIST));
        }
        tree.may_insert(dir)?;
        tree.may_access(caller, dir, CHANGE)?;
        match new {
            New::Device if !caller.rights.makes_devices => Err(errno(libc::EPERM)),
            _ => Ok(()),
        }
    }

    /// The mode that an inode made in `dir` may have.
    pub fn mode_in(self, tree: &mut Tree, dir: InodeNr, mode: u16) -> Result<u16> {
        let Some(caller) = self.0 else { return Ok(mode) };
        tree.load_dir(dir)?;
        let Guard { mode: dir_mode, gid, .. } = tree.guard_without_list(dir);
        Ok(caller.mode_in((dir_mode, gid), mode))
    }

    /// May a file without a name be made in `dir`?
    ///
    /// # Errors
    /// EACCES, ENOTDIR.
    pub fn may_make_unnamed(self, tree: &mut Tree, dir: InodeNr) -> Result<()> {
        let Some(caller) = self.0 else { return Ok(()) };
        tree.may_insert(dir)?;
        tree.may_access(caller, dir, CHANGE)
    }

    /// May the inode get this name, too?
    ///
    /// # Errors
    /// EPERM where files are protected against links; EEXIST, EACCES, ENOTDIR.
    pub fn may_name(self, tree: &mut Tree, ino: InodeNr, name: Entry<'_>) -> Result<()> {
        let Some(caller) = self.0 else { return Ok(()) };
        tree.may_access(caller, name.0, SEARCH)?;
        if tree.lookup(name.0, name.1)?.is_some() {
            return Err(errno(libc::EEXIST));
        }
        let guard = guarded(tree, ino)?;
        caller.may_link(&guard)?;
        // Nobody may write it, so it is protected against all but its owner.
        let fixed = tree.node(ino).inode.flags & flags::IMMUTABLE != 0;
        if fixed && !caller.rights.links_all && !caller.owns(&guard) {
            return Err(errno(libc::EPERM));
        }
        self.may_make(tree, name, New::Other)
    }

    /// May the name be taken away?
    ///
    /// # Errors
    /// ENOENT, EACCES, ENOTDIR; EPERM in a sticky directory.
    pub fn may_take_name(self, tree: &mut Tree, (dir, name): Entry<'_>) -> Result<()> {
        let Some(caller) = self.0 else { return Ok(()) };
        tree.may_access(caller, dir, SEARCH)?;
        let ino = tree.lookup(dir, name)?.ok_or_else(|| errno(libc::ENOENT))?;
        tree.may_insert(dir)?;
        tree.may_access(caller, dir, CHANGE)?;
        tree.may_take(dir, name)?;
        let (above, own) = (tree.guard_without_list(dir), tree.guard_without_list(ino));
        let uid = caller.cred.uid;
        let free = above.mode & S_ISVTX == 0 || uid == above.uid || uid == own.uid;
        if free || caller.rights.owns_all { Ok(()) } else { Err(errno(libc::EPERM)) }
    }

    /// May the caller rename so? False for a rename of a file to a name of its own, which does
    /// nothing.
    ///
    /// # Errors
    /// ENOENT, EEXIST, ENOTDIR; EINVAL and ENOTEMPTY for a directory that would lie below itself;
    /// EACCES, EPERM, also for a directory that gets another parent and may not be written.
    pub fn may_rename_by(
        self,
        tree: &mut Tree,
        from: Entry<'_>,
        to: Entry<'_>,
        mode: RenameMode,
    ) -> Result<bool> {
        let Some(caller) = self.0 else { return Ok(true) };
        tree.may_access(caller, from.0, SEARCH)?;
        tree.may_access(caller, to.0, SEARCH)?;
        let (source, target) = (tree.lookup(from.0, from.1)?, tree.lookup(to.0, to.1)?);
        let source = source.ok_or_else(|| errno(libc::ENOENT))?;
        let refused = matches!(mode, RenameMode::NoReplace | RenameMode::WhiteoutNoReplace);
        if refused && target.is_some() {
            return Err(errno(libc::EEXIST));
        }
        if mode == RenameMode::Exchange && target.is_none() {
            return Err(errno(libc::ENOENT));
        }
        if Some(source) == target {
            return Ok(false);
        }
        refuse_loop(tree, (source, from.0), (target, to.0), mode)?;
        self.may_take_name(tree, from)?;
        match target {
            Some(target) => {
                self.may_take_name(tree, to)?;
                let exchange = mode == RenameMode::Exchange;
                match (is_dir(tree, source)?, is_dir(tree, target)?) {
                    (true, false) if !exchange => return Err(errno(libc::ENOTDIR)),
                    (false, true) if !exchange => return Err(errno(libc::EISDIR)),
                    _ => {}
                }
            }
            None => self.may_make(tree, to, New::Other)?,
        }
        if matches!(mode, RenameMode::Whiteout | RenameMode::WhiteoutNoReplace) {
            may_make_whiteout(tree, caller, from.0)?;
        }
        if from.0 == to.0 {
            return Ok(true);
        }
        let exchanged = target.filter(|_| mode == RenameMode::Exchange);
        for ino in [Some(source), exchanged].into_iter().flatten() {
            if is_dir(tree, ino)? {
                tree.may_access(caller, ino, WRITE)?;
            }
        }
        Ok(true)
    }
}

/// What is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum New {
    /// A device file, which gives access to the machine.
    Device,
    /// Anything else.
    Other,
}

impl New {
    /// What an inode with this mode and device number is. Whiteouts have no device behind them.
    pub fn of(mode: u16, rdev: u32) -> Self {
        match kind_of(mode) {
            FileKind::BlockDevice => Self::Device,
            FileKind::CharDevice if rdev != 0 => Self::Device,
            _ => Self::Other,
        }
    }
}

/// Files.
impl Unchecked<'_> {
    /// May the file be opened so? A truncation is a write.
    ///
    /// # Errors
    /// EACCES.
    pub fn may_open_by(
        self,
        tree: &mut Tree,
        ino: InodeNr,
        access: Access,
        truncate: bool,
    ) -> Result<()> {
        let Some(caller) = self.0 else { return Ok(()) };
        let reads = if access.reads() { READ } else { 0 };
        let writes = if access.writes() || truncate { WRITE } else { 0 };
        may_use(tree, caller, ino, reads | writes)
    }

    /// May the file be executed?
    ///
    /// # Errors
    /// EACCES.
    pub fn may_execute(self, tree: &mut Tree, ino: InodeNr) -> Result<()> {
        self.0.map_or(Ok(()), |caller| may_use(tree, caller, ino, EXECUTE))
    }

    /// May the entries of a directory be read?
    ///
    /// # Errors
    /// EACCES, ENOTDIR.
    pub fn may_list(self, tree: &mut Tree, dir: InodeNr) -> Result<()> {
        self.0.map_or(Ok(()), |caller| tree.may_access(caller, dir, READ))
    }

    /// The change of attributes as it is to be made. It is what was asked for if a kernel asks.
    /// Otherwise what set-id bits and capabilities are left is decided here. `writable`: the file
    /// is open for writing.
    ///
    /// # Errors
    /// EPERM, EACCES; EOPNOTSUPP for the mode of a symbolic link.
    pub fn may_set_by(
        self,
        tree: &mut Tree,
        (ino, writable): (InodeNr, bool),
        asked: SetAttr,
    ) -> Result<SetAttr> {
        let Some(caller) = self.0 else { return Ok(asked) };
        let guard = guarded(tree, ino)?;
        let SetAttr { perm, uid, gid, atime, mtime, size, .. } = asked;
        let new = NewAttributes { perm, uid, gid, atime, mtime };
        caller.may_set(&guard, &new)?;
        let mut set = caller.setting(&guard, &new);
        if size.is_some() {
            if !writable {
                may_use(tree, caller, ino, WRITE)?;
            }
            set.size = size;
            (set.kill_priv, set.kill_setgid) = match caller.rights.keeps_set_id {
                true => (set.kill_priv, set.kill_setgid),
                false => (true, !caller.is_in(guard.gid)),
            };
        }
        Ok(set)
    }

    /// May the value of this attribute be read?
    ///
    /// # Errors
    /// EACCES; ENODATA for one that the caller must not know of.
    pub fn may_get_xattr(self, tree: &mut Tree, ino: InodeNr, name: &[u8]) -> Result<()> {
        let Some(caller) = self.0 else { return Ok(()) };
        match Space::of(name) {
            Space::Trusted if !caller.rights.administers => Err(errno(libc::ENODATA)),
            Space::User => {
                let guard = guarded(tree, ino)?;
                match has_user_attributes(&guard) {
                    true => caller.may(&guard, READ),
                    false => Err(errno(libc::ENODATA)),
                }
            }
            _ => Ok(()),
        }
    }

    /// May this attribute be set, or removed? Also says whether setgid goes with the new list.
    ///
    /// # Errors
    /// EPERM, EACCES; EOPNOTSUPP for the list of a symbolic link.
    pub fn may_change_xattr(self, tree: &mut Tree, ino: InodeNr, name: &[u8]) -> Result<bool> {
        let Some(caller) = self.0 else { return Ok(false) };
        let guard = guarded(tree, ino)?;
        let may = match Space::of(name) {
            Space::Lists if kind_of(guard.mode) == FileKind::Symlink => {
                return Err(errno(libc::EOPNOTSUPP));
            }
            Space::Lists => caller.owns(&guard),
            Space::Capability => caller.rights.sets_capabilities,
            Space::Security | Space::Trusted => caller.rights.administers,
            Space::User => {
                let sticky =
                    guard.mode & S_ISVTX != 0 && kind_of(guard.mode) == FileKind::Directory;
                if !has_user_attributes(&guard) || sticky && !caller.owns(&guard) {
                    return Err(errno(libc::EPERM));
                }
                caller.may(&guard, WRITE)?;
                true
            }
            Space::Other => true,
        };
        match may {
            true => Ok(!caller.rights.keeps_set_id && !caller.is_in(guard.gid)),
            false => Err(errno(libc::EPERM)),
        }
    }

    /// Could the caller give back to a file what chown(2) takes away?
    pub fn may_give_all(self) -> bool {
        self.0.is_none_or(|Caller { rights, .. }| {
            rights.owns_all && rights.keeps_set_id && rights.sets_capabilities
        })
    }

    /// Does the caller own the inode, or may it do as if?
    pub fn is_owner(self, tree: &mut Tree, ino: InodeNr) -> Result<bool> {
        let guard = guarded(tree, ino)?;
        Ok(self.0.is_none_or(|caller| caller.owns(&guard)))
    }

    /// May the inode's flags become these?
    ///
    /// # Errors
    /// EPERM.
    pub fn may_flag(self, tree: &mut Tree, ino: InodeNr, wanted: u32) -> Result<()> {
        let Some(caller) = self.0 else { return Ok(()) };
        let guard = guarded(tree, ino)?;
        let changed = tree.node(ino).inode.flags ^ wanted;
        let fixed = changed & (flags::IMMUTABLE | flags::APPEND) != 0;
        match caller.owns(&guard) && (!fixed || caller.rights.sets_fixed) {
            true => Ok(()),
            false => Err(errno(libc::EPERM)),
        }
    }
}

/// No directory comes to lie below itself.
fn refuse_loop(
    tree: &mut Tree,
    (source, from): (InodeNr, InodeNr),
    (target, to): (Option<InodeNr>, InodeNr),
    mode: RenameMode,
) -> Result<()> {
    if is_dir(tree, source)? && tree.is_below(source, to)? {
        return Err(errno(libc::EINVAL));
    }
    match target {
        Some(target) if is_dir(tree, target)? && tree.is_below(target, from)? => {
            let exchange = mode == RenameMode::Exchange;
            Err(errno(if exchange { libc::EINVAL } else { libc::ENOTEMPTY }))
        }
        _ => Ok(()),
    }
}

fn is_dir(tree: &mut Tree, ino: InodeNr) -> Result<bool> {
    tree.load(ino)?;
    Ok(tree.node(ino).inode.is_dir())
}

fn may_make_whiteout(tree: &mut Tree, caller: Caller<'_>, dir: InodeNr) -> Result<()> {
    tree.may_access(caller, dir, CHANGE)?;
    if caller.rights.makes_devices { Ok(()) } else { Err(errno(libc::EPERM)) }
}

fn guarded(tree: &mut Tree, ino: InodeNr) -> Result<Guard> {
    tree.load(ino)?;
    tree.guard(ino)
}

/// Has the caller these rights? Nobody writes an immutable file.
fn may_use(tree: &mut Tree, caller: Caller<'_>, ino: InodeNr, wanted: u16) -> Result<()> {
    let guard = guarded(tree, ino)?;
    if wanted & WRITE != 0 && tree.node(ino).inode.flags & flags::IMMUTABLE != 0 {
        return Err(errno(libc::EPERM));
    }
    caller.may(&guard, wanted)
}

/// Takes from a file what a change of its bytes by this caller takes away.
///
/// # Errors
/// What the storage reports.
pub fn take_privileges(metadata: &mut Metadata, caller: Caller<'_>, ino: InodeNr) -> Step<()> {
    if caller.rights.keeps_set_id {
        return drop_capabilities(metadata, ino);
    }
    metadata.kill_privileges(ino)?;
    let inode = &mut metadata.tree.node_mut(ino).inode;
    if inode.mode & S_ISGID != 0 && inode.is_reg() && !caller.is_in(inode.gid) {
        inode.mode &= !S_ISGID;
        metadata.tree.node_mut(ino).delta.running_mut().attrs = true;
        perms_changed(metadata, ino);
        metadata.mark_delta(ino);
    }
    Ok(())
}

/// The names of attributes that the caller may know of.
pub fn known_to(who: Unchecked<'_>, mut names: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    if who.0.is_some_and(|caller| !caller.rights.administers) {
        names.retain(|name| Space::of(name) != Space::Trusted);
    }
    names
}

fn has_user_attributes(guard: &Guard) -> bool {
    matches!(kind_of(guard.mode), FileKind::Regular | FileKind::Directory)
}

/// Who may see and change an extended attribute, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Space {
    User,
    Trusted,
    Capability,
    Security,
    Lists,
    Other,
}

impl Space {
    fn of(name: &[u8]) -> Self {
        match name {
            CAPABILITY => Self::Capability,
            _ if is_acl(name) => Self::Lists,
            _ if name.starts_with(b"user.") => Self::User,
            _ if name.starts_with(b"trusted.") => Self::Trusted,
            _ if name.starts_with(b"security.") => Self::Security,
            _ => Self::Other,
        }
    }
}
