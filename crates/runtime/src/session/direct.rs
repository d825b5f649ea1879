//! What programs have of files at the storage's target: how it ends, and how it is made durable
//! (`docs/design/target.md`, "The data plane"). The target is asked without the state lock.

use crate::direct_plane::Written;
use crate::runtime::Runtime;
use crate::session::recall::LOOK;
use crate::state::direct::End;
use crate::state::step::Step;
use siftfs_base::{InodeNr, Result, errno};
use siftfs_proto::LeaseId;
use std::sync::PoisonError;

impl Runtime {
    /// Takes back what is granted of a file, if anything is. Returns when no program writes to it
    /// any more, what was written is durable, and the page cache has nothing that is older.
    pub(crate) fn take_back(&self, ino: InodeNr) {
        let Some(lease) = self.begin_to_take_back(ino) else { return };
        let plane = self.direct.as_ref().expect("something was granted");
        let taken = plane.revoke(lease).and_then(|written| self.note_written(ino, written));
        if let Err(error) = taken {
            // A program may write to what the volume believes its own (rules R21 and R29).
            self.fail(&error);
        }
        self.forget_grant(ino);
    }

    /// The lease whose grant the target is to be told to end. Waits for another thread that is at
    /// it; nothing, if nothing is granted then.
    fn begin_to_take_back(&self, ino: InodeNr) -> Option<LeaseId> {
        let mut st = self.lock();
        loop {
            match st.leases.direct.end(ino) {
                End::Nothing => return None,
                End::Revoke(lease) => return Some(lease),
                End::Wait => {
                    let woken = self.lease_ended.wait_timeout(st, LOOK);
                    st = woken.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }

    /// Nothing is granted of the file any more. Pages that were read meanwhile may be older than
    /// what was written.
    pub(crate) fn forget_grant(&self, ino: InodeNr) {
        let pages = 0..u64::MAX;
        loop {
            let mut st = self.lock();
            if st.fills.meets(ino, &pages) {
                drop(st);
                self.wait_filled(ino, &pages);
                continue;
            }
            for (first, end) in st.leases.direct.forget(ino).iter() {
                st.pages.remove_range(ino, first, end);
            }
            break;
        }
        self.lease_ended.notify_all();
    }

    fn note_written(&self, ino: InodeNr, written: Written) -> Result<()> {
        if written.lost {
            self.lock().leases.direct.note_lost(ino);
        }
        if written.some { self.move_times(ino) } else { Ok(()) }
    }

    /// A file was written without the Runtime.
    fn move_times(&self, ino: InodeNr) -> Result<()> {
        self.drive(libc::EIO, || {
            let mut st = self.lock();
            let moved: Step<()> = st.metadata.tree.load(ino).map_err(Into::into).and_then(|()| {
                st.metadata.room_in_transaction(1)?;
                let now = st.metadata.log.now();
                let node = st.metadata.tree.node_mut(ino);
                (node.inode.mtime, node.inode.ctime) = (now, now);
                node.delta.running_mut().times = true;
                st.metadata.mark_delta(ino);
                Ok(())
            });
            self.leave(st);
            moved
        })
    }

    /// What programs have written of the file at the target, and what was answered, is durable, and
    /// has moved the file's times.
    ///
    /// # Errors
    /// `EIO`, once, if some of it was lost with the target.
    pub(crate) fn settle_direct(&self, ino: InodeNr) -> Result<()> {
        self.settle_one(ino)?;
        match self.lock().leases.direct.take_lost(ino) {
            true => Err(errno(libc::EIO)),
            false => Ok(()),
        }
    }

    /// As [`Runtime::settle_direct`], of every file. What is lost the holders' own fsyncs tell:
    /// nobody else was shown anything of it.
    pub(crate) fn settle_all_direct(&self) -> Result<()> {
        let files = self.lock().leases.direct.files();
        files.into_iter().try_for_each(|ino| self.settle_one(ino))
    }

    fn settle_one(&self, ino: InodeNr) -> Result<()> {
        let Some(lease) = self.lock().leases.direct.of(ino) else { return Ok(()) };
        let plane = self.direct.as_ref().expect("something was granted");
        let written = plane.settle(lease)?;
        if written.lost {
            // The grant has ended; its end finds the same.
            self.take_back(ino);
            return Ok(());
        }
        self.note_written(ino, written)
    }
}
