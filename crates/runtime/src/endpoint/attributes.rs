//! Requests about attributes, extended attributes and flags.

use super::Call;
use crate::namespace::acl::is_acl;
use crate::namespace::unchecked::known_to;
use crate::state::{State, Tree};
use siftfs_base::{InodeNr, Result, errno};
use siftfs_proto::compound::Access;
use siftfs_proto::{Reply, Request, SetAttr, Target};

/// What gives a program capabilities.
const CAPABILITY: &[u8] = b"security.capability";

impl Call<'_> {
    /// Carries out a request about attributes.
    pub(super) fn attributes(&self, req: Request) -> Result<Reply> {
        use Request as R;
        match req {
            R::GetAttr { file } => {
                let ino = self.any_target(file)?;
                let told = |st: &mut State| {
                    let shown = self.doing.look(st, ino)?;
                    let attr = st.metadata.tree.attr(ino)?;
                    Ok(self.doing.show(st, attr, shown))
                };
                self.query_step(told).map(Reply::Attr)
            }
            R::SetAttr { file, set, times } => self.set_attr(file, set, times),
            R::GetXattr { file, name } => {
                let ino = self.any_target(file)?;
                let get = |st: &mut State| {
                    self.who().may_get_xattr(&mut st.metadata.tree, ino, &name)?;
                    st.metadata.tree.get_xattr(ino, &name)
                };
                self.query(get).map(Reply::Data)
            }
            R::ListXattr { file } => {
                let ino = self.any_target(file)?;
                let names = self.query(|st| st.metadata.tree.list_xattrs(ino))?;
                Ok(Reply::Names(known_to(self.who(), names)))
            }
            R::SetXattr { file, name, value, mode, kill_setgid } => {
                let ino = self.any_target(file)?;
                self.runtime.mutate(&self.doing, |st| {
                    st.metadata.tree.may_set_xattr(ino, &name, false)?;
                    let taken = self.who().may_change_xattr(&mut st.metadata.tree, ino, &name)?;
                    let kill_setgid = if self.session.is_kernel() { kill_setgid } else { taken };
                    match is_acl(&name) {
                        true => st.metadata.set_acl(ino, &name, &value, kill_setgid)?,
                        false => st.metadata.set_xattr(ino, &name, &value, mode)?,
                    }
                    Ok(Reply::Done)
                })
            }
            R::RemoveXattr { file, name, times } => {
                self.remove_xattr(self.any_target(file)?, &name, times)
            }
            R::GetFlags { file } => {
                let ino = self.any_target(file)?;
                self.query(|st| st.metadata.tree.flags(ino)).map(Reply::Flags)
            }
            R::SetFlags { file, flags } => {
                let ino = self.any_target(file)?;
                self.query(|st| self.who().may_flag(&mut st.metadata.tree, ino, flags))?;
                self.change_flags(ino, flags).map(|()| Reply::Done)
            }
            other => unreachable!("a request of another kind: {other:?}"),
        }
    }

    /// chattr(1). Staged records carry no flags: what changed is journaled when this returns.
    ///
    /// # Errors
    /// `EOPNOTSUPP`, `EPERM` (of an immutable file only that flag changes), and what a full commit
    /// says.
    fn change_flags(&self, ino: InodeNr, wanted: u32) -> Result<()> {
        if self.runtime.mutate(&self.doing, |st| st.metadata.set_flags(ino, wanted))? {
            let _journaled = self.runtime.full_commit(ino)?;
        }
        Ok(())
    }

    fn set_attr(&self, file: Target, set: SetAttr, times: bool) -> Result<Reply> {
        let attr = self.runtime.mutate(&self.doing, |st| {
            let tree = &mut st.metadata.tree;
            let ino = tree.target_for((self.session.id, file), |_| true)?;
            let writable = tree.target((self.session.id, file), Access::Write).is_ok();
            if set.size.is_none() {
                tree.may_set_attr(ino, &set)?;
            }
            let asked = set.clone();
            let mut set = self.who().may_set_by(tree, (ino, writable), asked.clone())?;
            if self.session.is_machine() {
                // Another machine's kernel says so before a write.
                set.kill_priv |= writable && asked.kill_priv;
                set.kill_setgid |= writable && asked.kill_setgid;
                set.keep_priv = asked.keep_priv && self.who().may_give_all();
            }
            tree.may_set_attr(ino, &set)?;
            st.timed(ino, self.moves(times), |st| st.set_attr(ino, &set))?;
            if set.size.is_some() && self.session.is_kernel() {
                self.take_privileges(st, ino, false)?;
            }
            Ok(st.metadata.tree.attr(ino)?)
        });
        attr.map(Reply::Attr)
    }

    /// May a caller of another machine's kernel take the file's capabilities away because it writes
    /// the file, or gives it away?
    fn goes_with_write(&self, tree: &mut Tree, ino: InodeNr) -> Result<bool> {
        if !self.session.is_machine() {
            return Ok(false);
        }
        let written = tree.target((self.session.id, ino.into()), Access::Write).is_ok();
        Ok(written || self.who().is_owner(tree, ino)?)
    }

    fn remove_xattr(&self, ino: InodeNr, name: &[u8], times: bool) -> Result<Reply> {
        if is_acl(name) && !times {
            return Err(errno(libc::EINVAL));
        }
        self.runtime.mutate(&self.doing, |st| {
            // Capabilities that a kernel removes go with a write.
            let tree = &mut st.metadata.tree;
            tree.may_set_xattr(ino, name, self.session.has_pages())?;
            if !(name == CAPABILITY && self.goes_with_write(tree, ino)?) {
                self.who().may_change_xattr(tree, ino, name)?;
            }
            if is_acl(name) {
                return st.metadata.remove_acl(ino, name).map(|()| Reply::Done);
            }
            st.timed(ino, self.moves(times), |st| st.metadata.remove_xattr(ino, name))
                .map(|()| Reply::Done)
        })
    }
}
