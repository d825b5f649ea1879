//! What a session may have been told of names.

use crate::runtime::Runtime;
use crate::state::tree::references::SessionId;
use siftfs_base::{InodeNr, Result};
use siftfs_proto::ROOT_INO;

/// Inodes, and names in directories.
type Known = (Vec<InodeNr>, Vec<(InodeNr, Vec<u8>)>);

impl Runtime {
    /// The inodes that the session has looked up, and their names in the directories among them:
    /// of others it can have been told no name. One directory at a time has the lock.
    pub(super) fn known_to(&self, session: SessionId) -> Result<Known> {
        let mut inodes = self.lock().metadata.tree.inodes.references.looked_up_by(session);
        inodes.push(ROOT_INO);
        let mut names = Vec::new();
        for dir in &inodes {
            let mut st = self.lock();
            let tree = &mut st.metadata.tree;
            // One that is no directory has no names, and one that is gone neither.
            if tree.load_dir(*dir).is_err() {
                continue;
            }
            let node = tree.inodes.get(dir).expect("just loaded");
            let (fs, references) = (&mut tree.fs, &tree.inodes.references);
            fs.dir_iterate(&mut tree.meta, &node.inode, 0, &mut |e| {
                if e.name != b"." && e.name != b".." && references.has_looked_up(session, e.ino) {
                    names.push((*dir, e.name.to_vec()));
                }
                true
            })?;
        }
        Ok((inodes, names))
    }
}
