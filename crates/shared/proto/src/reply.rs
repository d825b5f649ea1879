//! What a Runtime answers, and the answers as values.

use crate::compound::Compounded;
use crate::{
    Attr, Blocks, DirEntry, Direct, DirectRun, Handle, HeldLock, LeaseId, SectionId, StatFs, Ticket,
};
use siftfs_base::{InodeNr, Result, corrupt};
use siftfs_status::{CheckpointReport, RuntimeStatus, Trimmed};
use std::time::Duration;

/// Names of directories that changed, each with its directory, and the files concerned.
pub type Changed = (Vec<(InodeNr, Vec<u8>)>, Vec<InodeNr>);

/// A file-protocol reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// It is done, and nothing more is to be said.
    Done,
    /// A name was found or given. One reference is counted for [`crate::Request::Forget`].
    Entry(Attr),
    /// Attributes as they are now; no reference is counted.
    Attr(Attr),
    /// A regular file was made and opened. One reference is counted.
    Created {
        /// The file's attributes.
        attr: Attr,
        /// The open file.
        handle: Handle,
    },
    /// A file or directory was opened.
    Opened {
        /// The open file.
        handle: Handle,
    },
    /// Bytes.
    Data(Vec<u8>),
    /// As `Data`, without a copy.
    Blocks(Blocks),
    /// Bytes were written.
    Written {
        /// The number of bytes.
        len: u32,
    },
    /// As `Written`, of a `LeaseWrite` for which there was no space but what the session has set
    /// aside. All its leases are recalled, and it answers no write any more before they have
    /// ended: there is space for [`LENT_WRITES`](crate::LENT_WRITES) more.
    WrittenLast {
        /// The number of bytes.
        len: u32,
    },
    /// Blocks that are in storage and not in memory: bit `i` stands for the block `first + i` of a
    /// `LeaseLocate`, as it was before.
    Located {
        /// The bits.
        cold: u64,
    },
    /// A place in a file, in bytes.
    Offset(u64),
    /// Entries of a directory, in its order; none at its end.
    Dir(Vec<DirEntry>),
    /// Names, each as getxattr takes it.
    Names(Vec<Vec<u8>>),
    /// Space and inodes.
    Statfs(StatFs),
    /// The inode's flags.
    Flags(u32),
    /// The names that changed, those taken away and those given, and the files whose attributes
    /// did: those that have other names now, and those that lost one.
    Published {
        /// Directories and names in them.
        names: Vec<(InodeNr, Vec<u8>)>,
        /// Files.
        files: Vec<InodeNr>,
    },
    /// A ticket was drawn.
    Ticket(Ticket),
    /// Is a ticket durable?
    Durable(bool),
    /// An atomic section that was started.
    Section(SectionId),
    /// A write lease that was granted.
    Leased {
        /// The lease.
        lease: LeaseId,
        /// How long it lasts without a use, and once it is recalled.
        term: Duration,
        /// The file's size in bytes.
        size: u64,
        /// The blocks that were granted with it.
        granted: Option<Box<Direct>>,
    },
    /// Blocks that were granted.
    Direct(Direct),
    /// Blocks that were granted besides, in the order of the file.
    Extended(Vec<DirectRun>),
    /// Inodes that are not there any more.
    Gone(Vec<InodeNr>),
    /// The lock that is in the way, if there is one.
    Lock(Option<HeldLock>),
    /// What a compound came to.
    Compounded(Compounded),
    /// What the checkpoint did.
    Checkpoint(Box<CheckpointReport>),
    /// What the trim did.
    Trimmed(Trimmed),
    /// The status document, as far as there is one without a daemon.
    Status(Box<RuntimeStatus>),
}

/// Conversions into what each request is answered with.
///
/// Errors: Corrupt if the reply is the answer to another question: the other side broke the
/// protocol.
macro_rules! answers {
    ($($(#[$doc:meta])* $name:ident: $($pattern:pat => $value:expr),+; $type:ty)+) => {
        impl Reply {
            $($(#[$doc])*
            ///
            /// # Errors
            /// Corrupt if this is the answer to another question.
            pub fn $name(self) -> Result<$type> {
                match self {
                    $($pattern => Ok($value),)+
                    other => Err(other.unexpected(stringify!($name))),
                }
            })+
        }
    };
}

answers! {
    /// Nothing but that it is done.
    done: Self::Done => (); ()
    /// The attributes of an entry, which counts a reference, or of an inode, which does not.
    attr: Self::Entry(attr) | Self::Attr(attr) => attr; Attr
    /// A file that was made and opened.
    created: Self::Created { attr, handle } => (attr, handle); (Attr, Handle)
    /// An open file or directory.
    opened: Self::Opened { handle } => handle; Handle
    /// Bytes, in either form.
    data: Self::Data(bytes) => bytes, Self::Blocks(blocks) => blocks.to_vec(); Vec<u8>
    /// A number of bytes.
    written: Self::Written { len } | Self::WrittenLast { len } => len; u32
    /// Bits of blocks.
    located: Self::Located { cold } => cold; u64
    /// A place in a file.
    offset: Self::Offset(at) => at; u64
    /// Entries of a directory.
    entries: Self::Dir(entries) => entries; Vec<DirEntry>
    /// Names of extended attributes.
    names: Self::Names(names) => names; Vec<Vec<u8>>
    /// Space and inodes.
    space: Self::Statfs(space) => space; StatFs
    /// The inode's flags.
    flags: Self::Flags(flags) => flags; u32
    /// What a publish changed.
    published: Self::Published { names, files } => (names, files); Changed
    /// A ticket.
    ticket: Self::Ticket(ticket) => ticket; Ticket
    /// Whether a ticket is durable.
    durable: Self::Durable(durable) => durable; bool
    /// An atomic section.
    section: Self::Section(section) => section; SectionId
    /// A write lease, and its term.
    leased: Self::Leased { lease, term, .. } => (lease, term); (LeaseId, Duration)
    /// Blocks that were granted.
    direct: Self::Direct(direct) => direct; Direct
    /// Blocks that were granted besides.
    extended: Self::Extended(runs) => runs; Vec<DirectRun>
    /// Inodes that are not there any more.
    gone: Self::Gone(inodes) => inodes; Vec<InodeNr>
    /// A lock that is in the way.
    lock: Self::Lock(lock) => lock; Option<HeldLock>
    /// What a compound came to.
    compounded: Self::Compounded(compounded) => compounded; Compounded
    /// What a checkpoint did.
    checkpointed: Self::Checkpoint(report) => *report; CheckpointReport
    /// What a trim did.
    trimmed: Self::Trimmed(trimmed) => trimmed; Trimmed
    /// The status document.
    status: Self::Status(status) => *status; RuntimeStatus
}

impl Reply {
    fn unexpected(&self, wanted: &str) -> siftfs_base::Error {
        corrupt("file protocol", format!("an answer to another question ({wanted}): {self:?}"))
    }
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
