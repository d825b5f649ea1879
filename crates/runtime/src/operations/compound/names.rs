//! What steps do to names.

use crate::namespace::access::{CHANGE, Guard, READ, SEARCH, WRITE};
use crate::namespace::kinds::mode_of;
use crate::namespace::unchecked::Unchecked;
use crate::operations::compound::file::{File, FileNr, Made};
use crate::operations::compound::plan::{Change, Name, Outcome, Plan, Tried, Use, refused};
use crate::operations::{ends_with_slash, is_plain};
use crate::state::State;
use siftfs_base::{InodeNr, errno};
use siftfs_proto::compound::Access;
use siftfs_proto::{FileKind, flags};

const S_ISVTX: u16 = 0o1000;
const FIXED: u32 = flags::IMMUTABLE | flags::APPEND;

impl Plan<'_> {
    /// The directory and the last name of a path. No step changes a directory, so only the last
    /// name may be one that the steps bound; one on the way that they bound is a file's.
    pub fn walk(&mut self, st: &mut State, path: &[u8]) -> Tried<Name> {
        if path.is_empty() || path.first() == Some(&b'/') {
            return refused(libc::EINVAL);
        }
        let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        let Some(mut last) = names.next() else { return refused(libc::EINVAL) };
        let mut dir = self.base;
        st.metadata.tree.may_access(self.caller, dir, SEARCH)?;
        for next in names {
            is_plain(last)?;
            dir = self.step_into(st, dir, last)?;
            st.metadata.tree.may_access(self.caller, dir, SEARCH)?;
            last = next;
        }
        is_plain(last)?;
        Ok((dir, last.to_vec()))
    }

    fn step_into(&mut self, st: &mut State, dir: InodeNr, name: &[u8]) -> Tried<InodeNr> {
        // Most compounds change no name before they walk.
        let changed = match self.names.is_empty() {
            true => None,
            false => self.names.get(&(dir, name.to_vec())),
        };
        let kind = match changed {
            Some(None) => return refused(libc::ENOENT),
            Some(Some(file)) => self.files[*file].kind(),
            None => {
                let ino = st.metadata.tree.lookup_node(dir, name)?;
                match st.metadata.tree.node(ino).inode.is_symlink() {
                    true => FileKind::Symlink,
                    false => return Ok(ino),
                }
            }
        };
        refused(if kind == FileKind::Symlink { libc::ELOOP } else { libc::ENOTDIR })
    }

    /// The file that has the name for the steps.
    fn bound(&mut self, st: &mut State, name: &Name) -> Tried<Option<FileNr>> {
        if let Some(file) = self.names.get(name) {
            return Ok(*file);
        }
        match st.metadata.tree.lookup(name.0, &name.1)? {
            None => Ok(None),
            Some(ino) => {
                st.metadata.tree.load_named(ino, name.0)?;
                self.of_inode(st, ino).map(Some)
            }
        }
    }

    /// The file that a path names.
    fn found(&mut self, st: &mut State, path: &[u8]) -> Tried<(Name, FileNr)> {
        let name = self.walk(st, path)?;
        let file = self.bound(st, &name)?.ok_or_else(|| errno(libc::ENOENT))?;
        if ends_with_slash(path) { refused(libc::ENOTDIR) } else { Ok((name, file)) }
    }

    pub fn look_up(&mut self, st: &mut State, path: &[u8]) -> Tried<Outcome> {
        let (_, file) = self.found(st, path)?;
        Ok(Outcome::File(file, Use::Found))
    }

    pub fn open(
        &mut self,
        st: &mut State,
        path: &[u8],
        access: Access,
        truncate: bool,
    ) -> Tried<Outcome> {
        let (_, nr) = self.found(st, path)?;
        let file = &self.files[nr];
        if !file.is_regular() {
            let symlink = file.kind() == FileKind::Symlink;
            return refused(if symlink { libc::ELOOP } else { libc::EINVAL });
        }
        if truncate && !access.writes() {
            return refused(libc::EINVAL);
        }
        let reads = if access.reads() { READ } else { 0 };
        let writes = if access.writes() { WRITE } else { 0 };
        self.caller.may(&file.guard, reads | writes)?;
        if access.writes() && file.flags & flags::IMMUTABLE != 0 {
            return refused(libc::EPERM);
        }
        if access.writes() {
            self.may_begin_to_write(nr)?;
        }
        if truncate {
            self.set_size(st, nr, 0)?;
        }
        Ok(Outcome::File(nr, Use::Open(access)))
    }

    pub fn create(&mut self, st: &mut State, path: &[u8], perm: u16) -> Tried<Outcome> {
        let name = self.walk(st, path)?;
        if ends_with_slash(path) {
            return refused(libc::EISDIR);
        }
        if self.bound_at_all(st, &name)? {
            return refused(libc::EEXIST);
        }
        self.may_insert_into(st, name.0)?;
        let cred = self.caller.cred;
        let mode = mode_of(FileKind::Regular) | perm & 0o7777;
        let mode = Unchecked(Some(self.caller)).mode_in(&mut st.metadata.tree, name.0, mode)?;
        let (mode, gid) = st.metadata.tree.inherit(name.0, mode, cred.gid, false);
        let (mode, xattrs) = st.metadata.tree.inherit_acls(name.0, mode, cred.umask)?;
        st.metadata.tree.fs.xattrs_fit(mode, &xattrs)?;
        let acl = xattrs.iter().find(|(name, _)| name == crate::namespace::acl::ACCESS);
        let acl = acl.map(|(_, list)| list.clone());
        let guard = Guard { mode, uid: cred.uid, gid, acl };
        self.files.push(File::new(guard, Made { mode, gid, xattrs }));
        let file = self.files.len() - 1;
        self.names.insert(name.clone(), Some(file));
        self.changes.push(Change::Create(file, name));
        self.changing += 1;
        Ok(Outcome::File(file, Use::Open(Access::Both)))
    }

    /// Is the name bound, to a file or to a directory?
    fn bound_at_all(&mut self, st: &mut State, name: &Name) -> Tried<bool> {
        match self.names.get(name) {
            Some(file) => Ok(file.is_some()),
            None => Ok(st.metadata.tree.lookup(name.0, &name.1)?.is_some()),
        }
    }

    /// May the caller make names in the directory?
    fn may_insert_into(&mut self, st: &mut State, dir: InodeNr) -> Tried<()> {
        st.metadata.tree.may_access(self.caller, dir, CHANGE)?;
        st.metadata.tree.require_live_dir(dir)?;
        Ok(st.metadata.tree.may_insert(dir)?)
    }

    /// May the caller take this name of the file away? Sticky directories, and flags.
    fn may_take(&mut self, st: &mut State, dir: InodeNr, nr: FileNr) -> Tried<()> {
        let file = &self.files[nr];
        self.may_take_from(st, dir, (&file.guard, file.flags))
    }

    fn may_take_from(
        &self,
        st: &mut State,
        dir: InodeNr,
        (guard, flags): (&Guard, u32),
    ) -> Tried<()> {
        st.metadata.tree.may_access(self.caller, dir, CHANGE)?;
        let inode = &st.metadata.tree.node(dir).inode;
        let uid = self.caller.cred.uid;
        let sticky = inode.mode & S_ISVTX != 0 && inode.uid != uid;
        if sticky && !self.caller.owns(guard) || (inode.flags | flags) & FIXED != 0 {
            return refused(libc::EPERM);
        }
        Ok(())
    }

    /// A name that is to be taken away is no directory's. As for the calls, a caller that may not
    /// take it away is told that first.
    fn is_no_directory(&self, st: &mut State, name: &Name) -> Tried<()> {
        if self.names.contains_key(name) {
            return Ok(());
        }
        let Some(ino) = st.metadata.tree.lookup(name.0, &name.1)? else { return Ok(()) };
        st.metadata.tree.load(ino)?;
        let inode = &st.metadata.tree.node(ino).inode;
        if !inode.is_dir() {
            return Ok(());
        }
        let flags = inode.flags;
        let guard = st.metadata.tree.guard_without_list(ino);
        self.may_take_from(st, name.0, (&guard, flags))?;
        refused(libc::EISDIR)
    }

    pub fn rename(
        &mut self,
        st: &mut State,
        from: &[u8],
        to: &[u8],
        replace: bool,
    ) -> Tried<Outcome> {
        let slash = ends_with_slash(from) || ends_with_slash(to);
        let (from, to) = (self.walk(st, from)?, self.walk(st, to)?);
        let file = self.bound(st, &from)?.ok_or_else(|| errno(libc::ENOENT))?;
        if !replace && self.bound_at_all(st, &to)? {
            return refused(libc::EEXIST);
        }
        if slash {
            return refused(libc::ENOTDIR);
        }
        if self.is_no_directory(st, &to).is_err() {
            self.may_take(st, from.0, file)?;
            self.is_no_directory(st, &to)?;
        }
        let displaced = self.bound(st, &to)?;
        if from == to {
            return Ok(Outcome::None);
        }
        // Two names of one file: rename(2) does nothing, and asks for no right.
        if displaced == Some(file) {
            return Ok(Outcome::None);
        }
        self.may_take(st, from.0, file)?;
        self.may_insert_into(st, to.0)?;
        if let Some(displaced) = displaced {
            self.may_take(st, to.0, displaced)?;
            self.files[displaced].nlink -= 1;
            self.files[displaced].can_link = self.files[displaced].nlink > 0;
        }
        self.names.insert(from.clone(), None);
        self.names.insert(to.clone(), Some(file));
        self.changes.push(Change::Rename { file, from, to, displaced });
        self.changing += 1;
        Ok(Outcome::None)
    }

    pub fn link(&mut self, st: &mut State, nr: FileNr, to: &[u8]) -> Tried<Outcome> {
        let slash = ends_with_slash(to);
        let to = self.walk(st, to)?;
        if self.bound_at_all(st, &to)? {
            return refused(libc::EEXIST);
        }
        if slash {
            return refused(libc::ENOENT);
        }
        self.caller.may_link(&self.files[nr].guard)?;
        self.may_insert_into(st, to.0)?;
        let file = &self.files[nr];
        if file.flags & FIXED != 0 {
            return refused(libc::EPERM);
        }
        if !file.can_link {
            return refused(libc::ENOENT);
        }
        if file.nlink >= siftfs_ext4::LINK_MAX {
            return refused(libc::EMLINK);
        }
        self.files[nr].nlink += 1;
        self.names.insert(to.clone(), Some(nr));
        self.changes.push(Change::Link(nr, to));
        self.changing += 1;
        Ok(Outcome::None)
    }

    pub fn unlink(&mut self, st: &mut State, path: &[u8]) -> Tried<Outcome> {
        let name = self.walk(st, path)?;
        self.is_no_directory(st, &name)?;
        let (name, nr) = self.found(st, path)?;
        self.may_take(st, name.0, nr)?;
        let file = &mut self.files[nr];
        file.nlink -= 1;
        file.can_link = file.nlink > 0;
        self.names.insert(name.clone(), None);
        self.changes.push(Change::Unlink(name));
        self.unlinked.push(nr);
        self.changing += 1;
        Ok(Outcome::None)
    }
}
