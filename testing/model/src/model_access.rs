//! What a caller may do with a file, as path_resolution(7), acl(5) and chmod(2) have it.

use crate::model::Node;
use crate::model_acl;
use siftfs_proto::{Credentials, Rights};

pub(crate) const SEARCH: u16 = 1;
pub(crate) const CHANGE: u16 = 3;
pub(crate) const READ: u16 = 4;
pub(crate) const WRITE: u16 = 2;

/// Who asks, with all that the kernel would know of its thread.
#[derive(Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub cred: &'a Credentials,
    pub rights: &'a Rights,
}

impl Asker<'_> {
    pub(crate) fn is_in(&self, gid: u32) -> bool {
        self.cred.gid == gid || self.rights.groups.contains(&gid)
    }

    pub(crate) fn owns(&self, node: &Node) -> bool {
        self.cred.uid == node.uid || self.rights.owns_all
    }

    /// May it leave, or give, this group's id to a file?
    pub(crate) fn lends(&self, gid: u32) -> bool {
        self.rights.keeps_set_id || self.is_in(gid)
    }

    /// Does a new owner take set-id bits from the file?
    pub(crate) fn takes_bits(&self, node: &Node) -> bool {
        let setgid = node.perm & 0o2000 != 0 && (node.perm & 0o010 != 0 || !self.lends(node.gid));
        !node.is_dir() && (node.perm & 0o4000 != 0 || setgid)
    }

    /// EACCES unless all of `wanted` is granted.
    pub(crate) fn may(&self, node: &Node, wanted: u16) -> Result<(), i32> {
        // Linux does not look at a list whose mask, the group's bits of the mode, is empty.
        let by_list = || match node.perm & 0o070 {
            0 => None,
            _ => model_acl::grants(node, self.cred.uid, |gid| self.is_in(gid), wanted),
        };
        let granted = if self.rights.overrides_access {
            true
        } else if self.cred.uid == node.uid {
            node.perm >> 6 & wanted == wanted
        } else if let Some(granted) = by_list() {
            granted
        } else if self.is_in(node.gid) {
            node.perm >> 3 & wanted == wanted
        } else {
            node.perm & wanted == wanted
        };
        if granted { Ok(()) } else { Err(libc::EACCES) }
    }
}
