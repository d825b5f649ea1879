//! Requests about names: they find, make, move and remove entries of directories.

use super::Call;
use crate::namespace::entries::NewInode;
use crate::namespace::kinds::{kind_of, mode_of};
use crate::namespace::unchecked::{New, Unchecked};
use crate::operations::is_plain;
use crate::state::Metadata;
use crate::state::State;
use crate::state::step::Step;
use siftfs_base::{BLOCK_BYTES, InodeNr, Result, Timestamp, errno};
use siftfs_proto::compound::Access;
use siftfs_proto::{Credentials, FileKind, ROOT_INO, RenameMode, Reply, Request};

/// Longest symbolic link target in bytes: one block with its terminator.
const TARGET_MAX: usize = BLOCK_BYTES as usize - 1;

impl Call<'_> {
    /// Carries out a request about names.
    pub(super) fn names(&self, req: Request) -> Result<Reply> {
        use Request as R;
        let Self { runtime: _, cred, .. } = *self;
        match req {
            R::Lookup { parent, name } => self.look_up(parent, &name),
            R::Forget { ino, count } => self.forget(ino, count),
            R::ReadLink { ino } => self.read_link(ino),
            R::MakeNode { parent, name, kind, perm, rdev } => {
                self.make(parent, &name, mode_of(kind) | perm & 0o7777, rdev, &[])
            }
            R::MakeDir { parent, name, perm } => {
                let mode = mode_of(FileKind::Directory) | perm & 0o7777;
                self.make(parent, &name, mode, 0, &[])
            }
            R::Symlink { parent, name, target } => self.symlink(parent, &name, &target),
            R::Link { ino, parent, name } => self.runtime.mutate(&self.doing, |st| {
                let time = st.metadata.log.now();
                self.who().may_name(&mut st.metadata.tree, ino, (parent, &name))?;
                st.metadata.tree.may_link(ino, parent)?;
                st.metadata.link(ino, parent, &name, time)?;
                Ok(st.metadata.tree.entry(self.session.id, ino)?)
            }),
            R::Unlink { parent, name } => self.runtime.mutate(&self.doing, |st| {
                let time = st.metadata.log.now();
                self.may_remove(st, parent, &name)?;
                st.metadata.tree.may_take(parent, &name)?;
                self.doing.touch_name(st, (parent, &name))?;
                st.unlink(parent, &name, time).map(|_| Reply::Done)
            }),
            R::RemoveDir { parent, name } => self.runtime.mutate(&self.doing, |st| {
                let time = st.metadata.log.now();
                self.may_remove(st, parent, &name)?;
                st.metadata.tree.may_take(parent, &name)?;
                st.metadata.remove_dir(parent, &name, time).map(|_| Reply::Done)
            }),
            R::Rename { parent, name, new_parent, new_name, mode } => {
                self.runtime.mutate(&self.doing, |st| {
                    let time = st.metadata.log.now();
                    let (from, to) = ((parent, &*name), (new_parent, &*new_name));
                    match self.who() {
                        Unchecked(None) => st.metadata.tree.may_rename(cred, from, to)?,
                        who if !who.may_rename_by(&mut st.metadata.tree, from, to, mode)? => {
                            return Ok(Reply::Done);
                        }
                        _ => {}
                    }
                    st.metadata.tree.may_move(from, to)?;
                    self.doing.touch_name(st, from)?;
                    self.doing.touch_name(st, to)?;
                    match mode {
                        RenameMode::Whiteout | RenameMode::WhiteoutNoReplace => {
                            st.rename_leaving_whiteout(cred, from, to, mode, time)?;
                        }
                        _ => st.rename(from, to, mode, time)?,
                    }
                    Ok(Reply::Done)
                })
            }
            R::Create { parent, name, perm } => self.create_open(parent, &name, perm),
            R::TmpFile { parent, perm, exclusive } => self.create_unnamed(parent, perm, exclusive),
            other => unreachable!("a request of another kind: {other:?}"),
        }
    }

    /// May the name be taken away, as far as the directory's rights go? The kernel has checked that
    /// by the attributes that it knows; of its callers only the sticky bit is looked at once more.
    fn may_remove(&self, st: &mut State, parent: InodeNr, name: &[u8]) -> Result<()> {
        match self.who() {
            Unchecked(None) => st.metadata.tree.may_remove(self.cred, parent, name),
            who => who.may_take_name(&mut st.metadata.tree, (parent, name)),
        }
    }

    fn look_up(&self, parent: InodeNr, name: &[u8]) -> Result<Reply> {
        self.query_step(|st| {
            self.who().may_search(&mut st.metadata.tree, parent)?;
            let ino = match name {
                b"." => parent,
                b".." => st.metadata.tree.parent_of_dir(parent)?,
                _ => st.metadata.tree.lookup_node(parent, name)?,
            };
            let shown = self.doing.look(st, ino)?;
            let attr = st.metadata.tree.counted(self.session.id, ino)?;
            Ok(Reply::Entry(self.doing.show(st, attr, shown)))
        })
    }

    /// The directory of a path from the root, for a session that is bounded to it. Nobody is asked
    /// what the caller may search: the way there is the server's own.
    pub(super) fn enter(&self, path: &[u8]) -> Result<InodeNr> {
        self.query_step(|st| {
            let tree = &mut st.metadata.tree;
            let mut dir = ROOT_INO;
            for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
                is_plain(name)?;
                dir = tree.lookup_node(dir, name)?;
                match kind_of(tree.node(dir).inode.mode) {
                    FileKind::Directory => {}
                    FileKind::Symlink => return Err(errno(libc::ELOOP).into()),
                    _ => return Err(errno(libc::ENOTDIR).into()),
                }
            }
            Ok(tree.counted(self.session.id, dir)?.ino)
        })
    }

    fn forget(&self, ino: InodeNr, count: u64) -> Result<Reply> {
        // No request names an inode meanwhile that this one gives up.
        let _naming = match self.session.is_kernel() {
            true => None,
            false => Some(self.session.life.forget()),
        };
        let orphan = {
            let mut st = self.runtime.lock();
            st.metadata.tree.inodes.forget(self.session.id, ino, count);
            st.metadata.tree.inodes.has_to_free()
        };
        if orphan { self.runtime.run_evictions() } else { Ok(Reply::Done) }
    }

    fn read_link(&self, ino: InodeNr) -> Result<Reply> {
        self.query(|st| {
            let tree = &mut st.metadata.tree;
            tree.load(ino)?;
            let node = tree.inodes.get(&ino).expect("just loaded");
            if !node.inode.is_symlink() {
                return Err(errno(libc::EINVAL));
            }
            tree.fs.layout.symlink_read(&mut tree.meta, &node.inode).map(Reply::Data)
        })
    }

    fn make(
        &self,
        parent: InodeNr,
        name: &[u8],
        mode: u16,
        rdev: u32,
        target: &[u8],
    ) -> Result<Reply> {
        self.runtime.mutate(&self.doing, |st| {
            self.who().may_make(&mut st.metadata.tree, (parent, name), New::of(mode, rdev))?;
            let mode = self.who().mode_in(&mut st.metadata.tree, parent, mode)?;
            let ino = st.metadata.make(self.cred, parent, name, mode, rdev, target)?;
            Ok(st.metadata.tree.entry(self.session.id, ino)?)
        })
    }

    fn symlink(&self, parent: InodeNr, name: &[u8], target: &[u8]) -> Result<Reply> {
        if target.is_empty() {
            return Err(errno(libc::ENOENT));
        }
        if target.len() > TARGET_MAX || target.contains(&0) {
            return Err(errno(libc::ENAMETOOLONG));
        }
        self.make(parent, name, mode_of(FileKind::Symlink) | 0o777, 0, target)
    }

    fn create_open(&self, parent: InodeNr, name: &[u8], perm: u16) -> Result<Reply> {
        self.runtime.mutate(&self.doing, |st| {
            self.who().may_make(&mut st.metadata.tree, (parent, name), New::Other)?;
            let mode = mode_of(FileKind::Regular) | perm & 0o7777;
            let mode = self.who().mode_in(&mut st.metadata.tree, parent, mode)?;
            let ino = st.metadata.make(self.cred, parent, name, mode, 0, &[])?;
            let handle = st.metadata.tree.open(ino, self.session.id, Access::Both);
            let attr = st.metadata.tree.counted(self.session.id, ino)?;
            Ok(Reply::Created { attr, handle })
        })
    }

    /// A file without a name (O_TMPFILE).
    fn create_unnamed(&self, parent: InodeNr, perm: u16, exclusive: bool) -> Result<Reply> {
        self.runtime.mutate(&self.doing, |st| {
            st.metadata.tree.load_dir(parent)?;
            self.who().may_make_unnamed(&mut st.metadata.tree, parent)?;
            st.metadata.tree.may_insert(parent)?;
            let mode = mode_of(FileKind::Regular) | perm & 0o7777;
            let mode = self.who().mode_in(&mut st.metadata.tree, parent, mode)?;
            let (mode, gid) = st.metadata.tree.inherit(parent, mode, self.cred.gid, false);
            let (mode, xattrs) = st.metadata.tree.inherit_acls(parent, mode, self.cred.umask)?;
            let time = st.metadata.log.now();
            let (uid, xattrs) = (self.cred.uid, xattrs.as_slice());
            let number = number_again(&mut st.metadata)?;
            let new = NewInode { number, mode, uid, gid, rdev: 0, target: &[], xattrs };
            let ino = st.create_unnamed(parent, &new, time)?;
            st.metadata.tree.node_mut(ino).linkable = !exclusive;
            let handle = st.metadata.tree.open(ino, self.session.id, Access::Both);
            let attr = st.metadata.tree.counted(self.session.id, ino)?;
            Ok(Reply::Created { attr, handle })
        })
    }
}

impl Metadata {
    fn make(
        &mut self,
        cred: &Credentials,
        parent: InodeNr,
        name: &[u8],
        mode: u16,
        rdev: u32,
        target: &[u8],
    ) -> Step<InodeNr> {
        self.tree.load_dir(parent)?;
        self.tree.may_insert(parent)?;
        let is_dir = kind_of(mode) == FileKind::Directory;
        let (mode, gid) = self.tree.inherit(parent, mode, cred.gid, is_dir);
        let (mode, xattrs) = self.tree.inherit_acls(parent, mode, cred.umask)?;
        let time = self.log.now();
        let uid = cred.uid;
        let number = number_again(self)?;
        let new = NewInode { number, mode, uid, gid, rdev, target, xattrs: &xattrs };
        self.create(parent, name, &new, time)
    }
}

/// Number and generation of what the call makes, if it makes it once more (rule R53).
///
/// # Errors
/// `ESTALE` if the number cannot be had: another file has it, or had it until now.
fn number_again(metadata: &mut Metadata) -> Result<Option<(InodeNr, u32)>> {
    let Some((ino, generation)) = metadata.log.replies.again() else { return Ok(None) };
    if generation == 0 || !metadata.tree.fs.may_alloc_inode_at(&mut metadata.tree.meta, ino)? {
        return Err(errno(libc::ESTALE));
    }
    Ok(Some((ino, generation)))
}

impl State {
    fn rename_leaving_whiteout(
        &mut self,
        cred: &Credentials,
        from: (InodeNr, &[u8]),
        to: (InodeNr, &[u8]),
        mode: RenameMode,
        time: Timestamp,
    ) -> Step<()> {
        self.metadata.tree.load_dir(from.0)?;
        let whiteout = mode_of(FileKind::CharDevice);
        let (whiteout, gid) = self.metadata.tree.inherit(from.0, whiteout, cred.gid, false);
        let (whiteout, xattrs) = self.metadata.tree.inherit_acls(from.0, whiteout, cred.umask)?;
        let (uid, xattrs) = (cred.uid, xattrs.as_slice());
        let new = NewInode { number: None, mode: whiteout, uid, gid, rdev: 0, target: &[], xattrs };
        self.rename_and_create(from, to, mode, &new, time)
    }
}
