//! The reference file system: a POSIX tree in memory that carries out the file protocol.
//!
//! It shares nothing with the Runtime but the message types, and knows no disk: whatever POSIX
//! says about a call's effect and errno is here in the plainest words, so that a difference is a
//! bug of one of the two.

use crate::content::Content;
use crate::model_sections::{Committed, Section};
use siftfs_base::{InodeNr, Timestamp};
use siftfs_proto::compound::Access;
use siftfs_proto::{Attr, Credentials, FileKind, ROOT_INO, Reply, Request, Target, Ticket};
use std::collections::{BTreeMap, BTreeSet};

/// A result whose error is an errno.
pub type Outcome = Result<Reply, i32>;

/// A time as the model knows it: exactly after utimes, not at all after an operation that took
/// the clock's.
pub type KnownTime = Option<Timestamp>;

/// One inode.
#[derive(Clone, Debug)]
pub struct Node {
    /// Type.
    pub kind: FileKind,
    /// Permission bits (07777).
    pub perm: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file.
    pub rdev: u32,
    /// Links; a directory counts its entry in the parent, its `.` and its children's `..`.
    pub nlink: u32,
    /// Bytes of a regular file.
    pub content: Content,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
    /// Extended attributes by full name.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Names of a directory.
    pub entries: BTreeMap<Vec<u8>, InodeNr>,
    /// The directory above a directory.
    pub parent: InodeNr,
    /// Access time, where known.
    pub atime: KnownTime,
    /// Modification time, where known.
    pub mtime: KnownTime,
    /// References that `Entry` replies have counted.
    pub refs: u64,
    /// Open handles.
    pub opens: u32,
    /// Made without a name, and may still get one.
    pub linkable: bool,
}

impl Node {
    /// A new inode without links.
    pub fn new(kind: FileKind, perm: u16, uid: u32, gid: u32) -> Self {
        Self {
            kind,
            perm,
            uid,
            gid,
            rdev: 0,
            nlink: 0,
            content: Content::default(),
            target: Vec::new(),
            xattrs: BTreeMap::new(),
            entries: BTreeMap::new(),
            parent: 0,
            atime: None,
            mtime: None,
            refs: 0,
            opens: 0,
            linkable: false,
        }
    }

    /// Is it a directory?
    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Attributes as a reply shows them. Times that are not known, space and generation are 0: they
    /// are not compared.
    pub fn attr(&self, ino: InodeNr) -> Attr {
        let size = match self.kind {
            FileKind::Regular => self.content.size(),
            FileKind::Symlink => self.target.len() as u64,
            _ => 0,
        };
        Attr {
            ino,
            generation: 0,
            kind: self.kind,
            perm: self.perm,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            size,
            blocks: 0,
            atime: self.atime.unwrap_or_default(),
            mtime: self.mtime.unwrap_or_default(),
            ctime: Timestamp::default(),
            crtime: Timestamp::default(),
            held: false,
        }
    }
}

/// What a request changed, for callers that keep a history.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    /// Inodes whose attributes, bytes, xattrs or links changed.
    pub nodes: Vec<InodeNr>,
    /// Names that were bound or removed: directory and name.
    pub names: Vec<(InodeNr, Vec<u8>)>,
    /// An inode whose size was set upwards by truncate or fallocate, not by a write.
    pub extended: Option<InodeNr>,
    /// Inodes whose new name never shows older bytes: a rename bound it in place of another
    /// inode's, or a publish.
    pub replaced_by: Vec<InodeNr>,
    /// The names changed together: all of them or none.
    pub together: bool,
    /// Bytes of sections that this committed: all of them or none.
    pub committed: Committed,
    /// Files of a compound whose changes are there after a crash all together, or not at all.
    pub compound: Option<BTreeSet<InodeNr>>,
}

/// Numbers for what a request creates: chosen by the caller, so that a sequence keeps its
/// numbers when operations are taken out of it.
#[derive(Clone, Copy, Debug)]
pub struct Fresh {
    /// Number of a created inode.
    pub ino: InodeNr,
    /// Number of an opened handle.
    pub handle: u64,
}

impl Fresh {
    /// Numbers of the n-th of several things that one request creates; those of the first are its
    /// own. No sequence is so long that they are another request's.
    pub fn nth(self, n: u32) -> Self {
        assert!(n < 128, "a request creates few things");
        Self { ino: self.ino + (n << 24), handle: self.handle + (u64::from(n) << 32) }
    }
}

/// The whole file system.
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) nodes: BTreeMap<InodeNr, Node>,
    pub(crate) handles: BTreeMap<u64, InodeNr>,
    /// How handles were opened that were not to read and to write.
    pub(crate) accesses: BTreeMap<u64, Access>,
    pub(crate) sections: BTreeMap<u64, Section>,
}

impl Default for Model {
    fn default() -> Self {
        let mut root = Node::new(FileKind::Directory, 0o755, 0, 0);
        root.nlink = 2;
        root.parent = ROOT_INO;
        let nodes = BTreeMap::from([(ROOT_INO, root)]);
        let (handles, accesses, sections) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { nodes, handles, accesses, sections }
    }
}

impl Model {
    /// The inode `ino`, if it exists (an unlinked one does while it is open or referenced).
    pub fn node(&self, ino: InodeNr) -> Option<&Node> {
        self.nodes.get(&ino)
    }

    /// All inodes in order of their numbers.
    pub fn nodes(&self) -> impl Iterator<Item = (InodeNr, &Node)> {
        self.nodes.iter().map(|(ino, node)| (*ino, node))
    }

    /// Open handles and their inodes.
    pub fn handles(&self) -> impl Iterator<Item = (u64, InodeNr)> {
        self.handles.iter().map(|(h, ino)| (*h, *ino))
    }

    /// What `name` in directory `dir` is bound to.
    pub fn child(&self, dir: InodeNr, name: &[u8]) -> Option<InodeNr> {
        self.node(dir)?.entries.get(name).copied()
    }

    /// Every name of `ino`, as directory and name.
    pub fn names_of(&self, ino: InodeNr) -> Vec<(InodeNr, Vec<u8>)> {
        let mut out = Vec::new();
        for (dir, node) in &self.nodes {
            out.extend(
                node.entries.iter().filter(|(_, i)| **i == ino).map(|(n, _)| (*dir, n.clone())),
            );
        }
        out
    }

    /// The directories from `dir`'s parent up to the root.
    pub fn ancestors(&self, dir: InodeNr) -> Vec<InodeNr> {
        let mut out = Vec::new();
        let mut at = dir;
        while at != ROOT_INO {
            let Some(node) = self.node(at) else { break };
            at = node.parent;
            out.push(at);
        }
        out
    }

    /// Does directory `dir` lie in `top`, or is it `top` itself?
    pub fn is_inside(&self, dir: InodeNr, top: InodeNr) -> bool {
        dir == top || self.ancestors(dir).contains(&top)
    }

    /// Carries out `req`. `fresh` numbers what it creates.
    pub fn exec(&mut self, cred: &Credentials, req: &Request, fresh: Fresh) -> (Outcome, Effects) {
        let mut fx = Effects::default();
        let result = self.dispatch(cred, req, fresh, &mut fx);
        if result.is_err() {
            fx = Effects::default();
        }
        self.drop_dead();
        self.void_what_was_removed();
        (result, fx)
    }

    fn dispatch(
        &mut self,
        cred: &Credentials,
        req: &Request,
        fresh: Fresh,
        fx: &mut Effects,
    ) -> Outcome {
        use Request as R;
        match req {
            R::Lookup { .. }
            | R::Forget { .. }
            | R::ReadLink { .. }
            | R::MakeNode { .. }
            | R::MakeDir { .. }
            | R::Symlink { .. }
            | R::Link { .. }
            | R::Unlink { .. }
            | R::RemoveDir { .. }
            | R::Rename { .. }
            | R::Create { .. }
            | R::TmpFile { .. }
            | R::OpenDir { .. }
            | R::ReadDir { .. } => self.exec_name(cred, req, fresh, fx),
            R::Open { .. }
            | R::Hold { .. }
            | R::Release { .. }
            | R::Read { .. }
            | R::Write { .. }
            | R::Append { .. }
            | R::WriteBack { .. }
            | R::Fsync { .. }
            | R::Stage { .. }
            | R::Allocate { .. }
            | R::Seek { .. } => self.exec_data(req, fresh, fx),
            R::GetAttr { .. }
            | R::SetAttr { .. }
            | R::GetXattr { .. }
            | R::ListXattr { .. }
            | R::SetXattr { .. }
            | R::RemoveXattr { .. } => self.exec_attr(req, fx),
            // Files have no flags here, and no program of the generator sets any.
            R::GetFlags { .. } | R::SetFlags { .. } => Err(libc::EOPNOTSUPP),
            R::GetLock { .. } | R::SetLock { .. } | R::CloseLocks { .. } => Err(libc::EOPNOTSUPP),
            R::CancelLock { .. }
            | R::Lease { .. }
            | R::LeaseWrite { .. }
            | R::LeaseLocate { .. }
            | R::LeaseKeep { .. }
            | R::LeaseReturn { .. }
            | R::LeaseDirect { .. }
            | R::LeaseExtend { .. }
            | R::ReadDirect { .. }
            | R::HoldMany { .. } => Err(libc::EOPNOTSUPP),
            R::Publish { base, entries: e, rights, .. } => self.publish(cred, rights, *base, e, fx),
            R::SectionStart { .. }
            | R::SectionWrite { .. }
            | R::SectionRead { .. }
            | R::SectionCommit { .. }
            | R::SectionAbort { .. } => self.exec_section(req, fresh, fx),
            R::Compound(compound) => self.compound(cred, compound, fresh, fx),
            R::StatFs => Ok(Reply::Statfs(siftfs_proto::StatFs::default())),
            R::SyncAll | R::Wait { .. } | R::EndSession => Ok(Reply::Done),
            R::Barrier => Ok(Reply::Ticket(Ticket(fresh.handle))),
            R::Poll { .. } => Ok(Reply::Durable(true)),
            R::Checkpoint => Ok(Reply::Checkpoint(Box::default())),
            R::Trim { .. } => Ok(Reply::Trimmed(Default::default())),
            R::Status => Ok(Reply::Status(Box::default())),
        }
    }

    /// Removes inodes that nothing names, opens or references.
    fn drop_dead(&mut self) {
        self.nodes.retain(|_, n| n.nlink > 0 || n.opens > 0 || n.refs > 0);
    }

    /// The inode of a request for data.
    ///
    /// # Errors
    /// EBADF for a handle that is not open.
    pub fn target(&self, file: Target) -> Result<InodeNr, i32> {
        match file {
            Target::Inode(ino) => Ok(ino),
            Target::Open(handle) => self.handles.get(&handle.0).copied().ok_or(libc::EBADF),
        }
    }

    pub(crate) fn get(&self, ino: InodeNr) -> Result<&Node, i32> {
        self.nodes.get(&ino).ok_or(libc::ESTALE)
    }

    pub(crate) fn get_mut(&mut self, ino: InodeNr) -> Result<&mut Node, i32> {
        self.nodes.get_mut(&ino).ok_or(libc::ESTALE)
    }

    /// The inode if it is a directory.
    pub(crate) fn dir(&self, ino: InodeNr) -> Result<&Node, i32> {
        let node = self.get(ino)?;
        if node.is_dir() { Ok(node) } else { Err(libc::ENOTDIR) }
    }

    /// Counts one reference and shows the entry.
    pub(crate) fn entry(&mut self, ino: InodeNr) -> Result<Attr, i32> {
        let node = self.get_mut(ino)?;
        node.refs += 1;
        Ok(node.attr(ino))
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
