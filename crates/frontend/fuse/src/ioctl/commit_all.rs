//! The ioctl that commits sections of several open files together.

use crate::ioctl::descriptors::Descriptors;
use crate::mount::mountinfo::MountEntry;
use crate::serve::caller::thread_group;
use crate::serve::open_files::reads_and_writes;
use crate::serve::server::Server;
use siftfs_base::{InodeNr, Result, errno};
use siftfs_proto::commands::CommitAll;
use siftfs_proto::{Completion, Credentials, Level, SectionId};
use std::sync::Arc;

impl Server {
    /// Commits the sections of the files that the argument names, all of them or none.
    pub(crate) fn commit_all(
        self: &Arc<Self>,
        cred: &Credentials,
        mount: &MountEntry,
        argument: &[u8],
        answer: Completion,
    ) {
        match self.sections_named(cred, mount, argument) {
            Err(e) => answer(Err(e)),
            // A commit has its record in the log whatever the level is: it is never less than
            // atomic.
            Ok((sections, level)) => {
                self.commit_sections(cred, sections, level == Level::Durable, answer);
            }
        }
    }

    /// What the kernel tells of a descriptor is the file, and not the open file that a section
    /// belongs to. So it is enough that the process which started the section asks, and has the
    /// file open to read and write.
    fn sections_named(
        &self,
        cred: &Credentials,
        mount: &MountEntry,
        argument: &[u8],
    ) -> Result<(Vec<(InodeNr, SectionId)>, Level)> {
        let CommitAll { descriptors, level } = CommitAll::decode(argument)?;
        let (open, none) = (Descriptors::of(cred, mount)?, || errno(libc::EINVAL));
        let process = thread_group(cred.pid).ok_or_else(none)?;
        let mut sections: Vec<(InodeNr, SectionId)> = Vec::new();
        for number in descriptors {
            let ino = open.opened(number, reads_and_writes)?.ino;
            let id = self.sections.started_by(ino, process).ok_or_else(none)?;
            sections.push((ino, id));
        }
        // The Runtime refuses one that is named twice.
        if sections.is_empty() { Err(none()) } else { Ok((sections, level)) }
    }
}
