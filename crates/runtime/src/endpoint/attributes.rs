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
            R::GetAttr { ino } => {
                self.runtime.query(|st| st.metadata.tree.attr(ino)).map(Reply::Attr)
            }
            R::SetAttr { ino, set, times } => self.set_attr(ino, &set, times),
            R::GetXattr { ino, name } => {
                self.runtime.query(|st| st.metadata.tree.get_xattr(ino, &name)).map(Reply::Data)
            }
            R::ListXattr { ino } => {
                self.runtime.query(|st| st.metadata.tree.list_xattrs(ino)).map(Reply::Names)
            }
            R::SetXattr { ino, name, value, kill_setgid, .. } if is_acl(&name) => {
                self.runtime.mutate(|st| {
                    st.metadata.tree.may_set_xattr(ino, &name, false)?;
                    st.metadata.set_acl(ino, &name, &value, kill_setgid).map(|()| Reply::Done)
                })
            }
            R::SetXattr { ino, name, value, mode, .. } => self.runtime.mutate(|st| {
                st.metadata.tree.may_set_xattr(ino, &name, false)?;
                st.metadata.set_xattr(ino, &name, &value, mode).map(|()| Reply::Done)
            }),
            R::RemoveXattr { ino, name, times: true } if is_acl(&name) => {
                self.runtime.mutate(|st| {
                    st.metadata.tree.may_set_xattr(ino, &name, true)?;
                    st.metadata.remove_acl(ino, &name).map(|()| Reply::Done)
                })
            }
            R::RemoveXattr { name, times: false, .. } if is_acl(&name) => Err(errno(libc::EINVAL)),
            R::RemoveXattr { ino, name, times } => self.remove_xattr(ino, &name, times),
            R::GetFlags { ino } => {
                self.runtime.query(|st| st.metadata.tree.flags(ino)).map(Reply::Flags)
            }
            R::SetFlags { ino, flags } => {
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
        self.runtime.mutate(|st| {
            st.metadata.tree.may_set_xattr(ino, name, true)?;
            st.timed(ino, times, |st| st.metadata.remove_xattr(ino, name)).map(|()| Reply::Done)
        })
    }
}
