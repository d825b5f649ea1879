//! Requests about attributes, extended attributes and flags.

use crate::namespace::acl::is_acl;
use crate::runtime::Runtime;
use siftfs_base::{InodeNr, Result};
use siftfs_proto::{Reply, Request, SetAttr};

impl Runtime {
    /// Carries out a request about attributes.
    pub(super) fn call_attributes(&self, req: Request) -> Result<Reply> {
        use Request as R;
        match req {
            R::GetAttr { ino } => self.query(|st| st.metadata.tree.attr(ino)).map(Reply::Attr),
            R::SetAttr { ino, set } => self.set_attr(ino, &set, true),
            R::GetXattr { ino, name } => {
                self.query(|st| st.metadata.tree.get_xattr(ino, &name)).map(Reply::Data)
            }
            R::ListXattr { ino } => {
                self.query(|st| st.metadata.tree.list_xattrs(ino)).map(Reply::Names)
            }
            R::SetXattr { ino, name, value, kill_setgid, .. } if is_acl(&name) => {
                self.mutate(|st| {
                    st.metadata.tree.may_set_xattr(ino, &name, false)?;
                    st.metadata.set_acl(ino, &name, &value, kill_setgid).map(|()| Reply::Done)
                })
            }
            R::SetXattr { ino, name, value, mode, .. } => self.mutate(|st| {
                st.metadata.tree.may_set_xattr(ino, &name, false)?;
                st.metadata.set_xattr(ino, &name, &value, mode).map(|()| Reply::Done)
            }),
            R::RemoveXattr { ino, name } if is_acl(&name) => self.mutate(|st| {
                st.metadata.tree.may_set_xattr(ino, &name, true)?;
                st.metadata.remove_acl(ino, &name).map(|()| Reply::Done)
            }),
            R::RemoveXattr { ino, name } => self.remove_xattr(ino, &name, true),
            R::GetFlags { ino } => self.query(|st| st.metadata.tree.flags(ino)).map(Reply::Flags),
            R::SetFlags { ino, flags } => self.change_flags(ino, flags).map(|()| Reply::Done),
            other => unreachable!("a request of another kind: {other:?}"),
        }
    }

    pub(super) fn set_attr(&self, ino: InodeNr, set: &SetAttr, times: bool) -> Result<Reply> {
        let attr = self.mutate(|st| {
            st.metadata.tree.may_set_attr(ino, set)?;
            st.timed(ino, times, |st| st.set_attr(ino, set))?;
            Ok(st.metadata.tree.attr(ino)?)
        });
        attr.map(Reply::Attr)
    }

    pub(super) fn remove_xattr(&self, ino: InodeNr, name: &[u8], times: bool) -> Result<Reply> {
        self.mutate(|st| {
            st.metadata.tree.may_set_xattr(ino, name, true)?;
            st.timed(ino, times, |st| st.metadata.remove_xattr(ino, name)).map(|()| Reply::Done)
        })
    }
}
