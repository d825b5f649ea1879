//! Files that are made without a name (O_TMPFILE).

use crate::namespace::entries::NewInode;
use crate::namespace::kinds::mode_of;
use crate::runtime::Runtime;
use siftfs_base::{InodeNr, Result};
use siftfs_proto::compound::Access;
use siftfs_proto::{Credentials, FileKind, Reply, SessionId};

impl Runtime {
    pub(crate) fn create_unnamed(
        &self,
        session: SessionId,
        cred: &Credentials,
        parent: InodeNr,
        (perm, exclusive): (u16, bool),
    ) -> Result<Reply> {
        self.mutate(|st| {
            st.metadata.tree.load_dir(parent)?;
            st.metadata.tree.may_insert(parent)?;
            let mode = mode_of(FileKind::Regular) | perm & 0o7777;
            let (mode, gid) = st.metadata.tree.inherit(parent, mode, cred.gid, false);
            let (mode, xattrs) = st.metadata.tree.inherit_acls(parent, mode, cred.umask)?;
            let time = st.metadata.log.now();
            let (uid, xattrs) = (cred.uid, xattrs.as_slice());
            let new = NewInode { number: None, mode, uid, gid, rdev: 0, target: &[], xattrs };
            let ino = st.create_unnamed(parent, &new, time)?;
            st.metadata.tree.node_mut(ino).linkable = !exclusive;
            let handle = st.metadata.tree.open(ino, session, Access::Both);
            let Reply::Entry(attr) = st.metadata.tree.entry(ino)? else {
                unreachable!("entry answers Entry")
            };
            Ok(Reply::Created { attr, handle })
        })
    }
}
