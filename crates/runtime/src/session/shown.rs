//! What a session is told of a file that another one has the write lease of: what the holder shows,
//! as far as it may.

use crate::session::Doing;
use crate::state::State;
use crate::state::step::Step;
use siftfs_base::{InodeNr, Timestamp};
use siftfs_proto::{Attr, DirEntry, MAX_FILE_SIZE, Shown};

const NSEC_MAX: u32 = 999_999_999;

impl Doing {
    /// The request is about to tell attributes of an inode: what the holder of its write lease
    /// shows, if another session has one. [`Doing::show`] follows.
    ///
    /// # Errors
    /// Stops if that lease has to end before.
    pub(crate) fn look(&self, st: &mut State, ino: InodeNr) -> Step<Option<Shown>> {
        match self.session {
            Some(session) if !st.leases.is_empty() => {
                let now = st.metadata.log.time.boot_ns();
                st.leases.look(session, ino, now)
            }
            _ => Ok(None),
        }
    }

    /// The attributes that the session is told: those that are there, with what a holder shows.
    ///
    /// The size is no less than what is there, and the time is between what is there and now (rule
    /// R54): a holder may write the file, but it may not date it back, nor ahead. Its ctime moves
    /// along, as with the write that is to come.
    pub(crate) fn show(&self, st: &mut State, mut attr: Attr, shown: Option<Shown>) -> Attr {
        let Some(Shown { size, mtime }) = shown else { return attr };
        let written = Timestamp { nsec: mtime.nsec.min(NSEC_MAX), ..mtime };
        let written = written.min(st.metadata.log.now());
        if written > attr.mtime {
            attr.mtime = written;
            attr.ctime = attr.ctime.max(written);
        }
        attr.size = attr.size.max(size.min(MAX_FILE_SIZE));
        attr.held = true;
        st.leases.note_told(attr.ino, attr.size);
        // The session's kernel may append at this end (rule R50).
        let inodes = &mut st.metadata.tree.inodes;
        if let Some(session) = self.session
            && inodes.references.has_looked_up(session, attr.ino)
        {
            inodes.ends.changed(session, attr.ino, attr.size);
        }
        attr
    }

    /// As [`Doing::show`], of entries of a directory and what is shown of them, in their order.
    pub(crate) fn show_entries(
        &self,
        st: &mut State,
        entries: &mut [DirEntry],
        shown: &[(InodeNr, Shown)],
    ) {
        let mut shown = shown.iter().peekable();
        for entry in entries {
            if let Some((_, shown)) = shown.next_if(|(ino, _)| *ino == entry.ino) {
                let attr = entry.attr.take();
                entry.attr = attr.map(|attr| self.show(st, attr, Some(*shown)));
            }
        }
    }
}
