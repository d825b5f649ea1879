//! Requests about attributes, extended attributes and flags.

use super::Call;
use crate::namespace::acl::is_acl;
use siftfs_base::{InodeNr, Result, errno};
use siftfs_proto::{Reply, Request, SetAttr};

impl Call<'_> {
    /// Carries out a request about attributes.
    pub(super) fn attributes(&self, req: Request) -> Result<Reply> {
        use Request as R;
        match req {
            R::GetAttr { file } => {
                let ino = self.any_target(file)?;
                self.runtime.query(|st| st.metadata.tree.attr(ino)).map(Reply::Attr)
            }
            R::SetAttr { file, set, times } => self.set_attr(self.any_target(file)?, &set, times),
            R::GetXattr { file, name } => {
                let ino = self.any_target(file)?;
                self.runtime.query(|st| st.metadata.tree.get_xattr(ino, &name)).map(Reply::Data)
            }
            R::ListXattr { file } => {
                let ino = self.any_target(file)?;
                self.runtime.query(|st| st.metadata.tree.list_xattrs(ino)).map(Reply::Names)
            }
            R::SetXattr { file, name, value, mode, kill_setgid } => {
                let ino = self.any_target(file)?;
                self.runtime.mutate(|st| {
                    st.metadata.tree.may_set_xattr(ino, &name, false)?;
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
                self.runtime.query(|st| st.metadata.tree.flags(ino)).map(Reply::Flags)
            }
            R::SetFlags { file, flags } => {
                let ino = self.any_target(file)?;
                self.runtime.change_flags(ino, flags).map(|()| Reply::Done)
            }
            other => unreachable!("a request of another kind: {other:?}"),
        }
    }

    fn set_attr(&self, ino: InodeNr, set: &SetAttr, times: bool) -> Result<Reply> {
        let attr = self.runtime.mutate(|st| {
            st.metadata.tree.may_set_attr(ino, set)?;
            st.timed(ino, times, |st| st.set_attr(ino, set))?;
            Ok(st.metadata.tree.attr(ino)?)
        });
        attr.map(Reply::Attr)
    }

    fn remove_xattr(&self, ino: InodeNr, name: &[u8], times: bool) -> Result<Reply> {
        if is_acl(name) && !times {
            return Err(errno(libc::EINVAL));
        }
        self.runtime.mutate(|st| {
            st.metadata.tree.may_set_xattr(ino, name, true)?;
            if is_acl(name) {
                return st.metadata.remove_acl(ino, name).map(|()| Reply::Done);
            }
            st.timed(ino, times, |st| st.metadata.remove_xattr(ino, name)).map(|()| Reply::Done)
        })
    }
}
