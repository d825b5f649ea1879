//! A kernel's references, counted again: after the death of a server its clients' kernels still
//! refer to what they had looked up.

use super::Call;
use crate::state::Tree;
use crate::state::tree::references::SessionId;
use siftfs_base::{Error, InodeNr, Result, errno};
use siftfs_proto::{HOLD_MOST, Held, Identity, Reply};

/// Inodes under one hold of the state lock.
const AT_ONCE: usize = 64;

impl Call<'_> {
    /// Counts references to inodes by their numbers and generations, all of them, and answers with
    /// those that are not there any more. Their numbers are not given to others until the session
    /// has given back what it says to refer to.
    ///
    /// # Errors
    /// `EPERM` for a session that may not name inodes that it has not looked up, `E2BIG` for too
    /// many of them, `EINVAL` for a count that cannot be.
    pub(super) fn hold_many(&self, inodes: &[Held]) -> Result<Reply> {
        let opening = &self.session.opening;
        let owner = |uid: u32| opening.administrator && uid == 0;
        match opening.identity {
            // Of another machine's kernel, and of a program, it is the server that asks, for inodes
            // which these have shown to be their own.
            Identity::Kernel | Identity::Machine | Identity::Program => {}
            Identity::User { uid, .. } if owner(uid) => {}
            Identity::User { .. } => return Err(errno(libc::EPERM)),
        }
        if inodes.len() > HOLD_MOST {
            return Err(errno(libc::E2BIG));
        }
        if inodes.iter().any(|held| held.count == 0) {
            return Err(errno(libc::EINVAL));
        }
        let mut gone = Vec::new();
        for some in inodes.chunks(AT_ONCE) {
            let session = self.session.id;
            gone.extend(self.query(|st| st.metadata.tree.hold_some(session, some))?);
        }
        Ok(Reply::Gone(gone))
    }
}

impl Tree {
    /// Counts references to those of `inodes` that are there; the others are returned. Nothing is
    /// counted if there is an error.
    fn hold_some(&mut self, session: SessionId, inodes: &[Held]) -> Result<Vec<InodeNr>> {
        let (mut here, mut gone) = (Vec::new(), Vec::new());
        for held in inodes {
            // What is not in use has no record that could be read.
            if !self.fs.is_in_use(&mut self.meta, held.ino)? {
                gone.push(held);
                continue;
            }
            match self.load(held.ino) {
                Ok(()) if self.is_this(held) => here.push(held),
                Ok(()) | Err(Error::Posix(libc::ESTALE)) => gone.push(held),
                Err(error) => return Err(error),
            }
        }
        let references = &mut self.inodes.references;
        for held in here {
            references.looked_up_often(session, held.ino, u64::from(held.count));
            // What another session has told its kernel, this one does not know.
            self.inodes.ends.unknown(session, held.ino);
        }
        for held in &gone {
            if references.looked_up_before(session, held.ino, held.count) {
                self.fs.withhold_inode(held.ino);
            }
        }
        Ok(gone.into_iter().map(|held| held.ino).collect())
    }

    /// One without a name is as good as gone, unless a session still refers to it or has it open:
    /// it is freed as soon as no session does.
    fn is_this(&self, held: &Held) -> bool {
        let inode = &self.node(held.ino).inode;
        let stays = inode.nlink > 0 || self.inodes.is_referenced(held.ino);
        inode.generation == held.generation && stays
    }
}
