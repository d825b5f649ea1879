//! The file protocol on a wire: its calls and answers as messages between two processes.
//!
//! A client opens one session per connection ([`ToServer::Open`]) and calls in slots; the server
//! answers, and tells a session that caches what others change. `docs/design/network.md` is the
//! page for all of it.

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::indexing_slicing, clippy::unwrap_used))]

mod checks;
mod forms;

#[cfg(test)]
mod samples;

#[cfg(test)]
extern crate self as siftfs_calls;

pub use checks::{check, check_kernels, data_of};

use siftfs_base::{Error, InodeNr, SharedBlock, Timestamp};
use siftfs_codec::{Party, Protocol};
use siftfs_proto::compound::Access;
use siftfs_proto::{Credentials, LeaseId, Reply, Request, Rights};

/// Version of this message set. It goes up with every change of a message or of its bytes; a test
/// holds it to that.
pub const VERSION: u32 = 11;

/// Longest message in bytes: a compound with all the data and results that it may have.
pub const MAX_MESSAGE: u64 = 20 << 20;

/// Calls that a session may have under way at a time.
pub const SLOTS: u32 = 64;

/// The file protocol on a wire.
#[derive(Clone, Copy, Debug)]
pub struct FileProtocol;

impl Protocol for FileProtocol {
    const NAME: &'static str = "file protocol";
    const VERSION: u32 = VERSION;
    const OLDEST: u32 = VERSION;
    const CALLER: Party = Party { number: 3, name: "client", magic: *b"SFc>" };
    const SERVER: Party = Party { number: 4, name: "server", magic: *b"SF<s" };
    const SERVER_LENDS: bool = true;
    type ToServer = ToServer;
    type FromServer = FromServer;
}

/// For whom a client would like its session to speak. The server decides by the channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The kernel of this machine.
    Kernel,
    /// The process that has the volume open: root, and an administrator.
    Owner,
    /// One user.
    User {
        /// File-system user id.
        uid: u32,
        /// File-system group id.
        gid: u32,
        /// Groups and capabilities.
        rights: Rights,
    },
}

/// How a client opens its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The volume's name or UUID; empty for the one that the server has.
    pub volume: String,
    /// For whom.
    pub claim: Claim,
    /// It keeps what it is told, and takes back what others change.
    pub caches: bool,
    /// What it does with write leases.
    pub leases: Leases,
    /// It waits for a server that is lost, and comes back (`docs/design/lost-server.md`).
    pub returning: Option<Returning>,
}

/// What a session does with write leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leases {
    /// It has none.
    None,
    /// It holds them for itself: for a program that reads and writes files at the storage's target.
    Held,
    /// It lends: it grants its leases on to programs of its machine, and gives what these write.
    Lent,
}

/// A client that comes back to a server that it has lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returning {
    /// Its number, drawn at random, the same for all its connections.
    pub client: u64,
    /// The server that it knows; 0 for none.
    pub instance: u64,
}

/// Where a client that keeps what it changes stands with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Back {
    /// The server does not know it, and it keeps nothing that concerns this server.
    New,
    /// It is the server that the client knows: all that was answered is there.
    Same,
    /// The server that the client knows has died: the client repeats what it has kept.
    Again,
    /// The server that the client knows is gone, and nothing is known of what it has done: what the
    /// client keeps is lost.
    Unknown,
    /// The server that the client knows has ended in order: all that was answered is durable, and
    /// what was not answered was not carried out.
    Clean,
}

/// A call of a client that comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A change that cannot be repeated blindly. It has a place of its own among those of the
    /// client, in which no other is under way, and the place's next number; or the number that it
    /// had, if it was not answered.
    Once {
        /// The client's place for it.
        place: u32,
        /// The number in it.
        number: u64,
    },
    /// A change that may be made twice, such as a write at an offset, if nobody has changed the
    /// same in between: by the server that has carried it out it is not, but by one after that.
    Absolute {
        /// The client's place for it.
        place: u32,
        /// The number in it.
        number: u64,
    },
    /// A change that is neither repeated nor durable when it is answered: a compound of a program.
    /// Its client notes which files it has changed.
    Loose,
    /// A change that was answered by a server that has died.
    Kept(Kept),
    /// What the client had open, referred to or locked.
    Reclaim,
}

/// Servers at most that die one after the other before one of them answers the same repetition.
pub const TRIES: usize = 8;

/// A change that a server answered which has died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The server that answered it.
    pub instance: u64,
    /// Its place in the order of all changes of that server.
    pub order: u64,
    /// LSN of its name operation; 0 for a change that is no name operation.
    pub lsn: u64,
    /// The inode that it made, or whose bytes or attributes it changed, and its generation.
    pub inode: Option<(InodeNr, u32)>,
    /// The client's place for what it repeats.
    pub place: u32,
    /// The number in that place.
    pub number: u64,
    /// The numbers by which it was repeated at servers that died before they answered; 0 where
    /// there were fewer.
    pub tried: [u64; TRIES],
}

/// What a server has let a client do with an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// It has looked the inode up.
    Reference,
    /// It has opened the file.
    Open(Access),
    /// It has opened the directory.
    Directory,
    /// It holds the inode open for nothing but its attributes.
    Held,
}

/// A server's code for a grant. It means something to that server, and to those after it, alone.
pub type Proof = [u8; 16];

/// A grant as a client shows it to a server again that checks its callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proven {
    /// The inode.
    pub ino: InodeNr,
    /// Its generation.
    pub generation: u32,
    /// What was granted.
    pub grant: Grant,
    /// The code that the server gave for it.
    pub proof: Proof,
}

/// What a server says of a change that it has carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Its place in the order of all changes of this server, from 1 on; 0 if the change was there
    /// already.
    pub order: u64,
    /// LSN of its name operation; 0 for a change that is no name operation.
    pub lsn: u64,
    /// Of an append: where the bytes are.
    pub at: Option<u64>,
}

/// Client to server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToServer {
    /// First message of a connection. Answered by `Opened` or `Refused`.
    Open(Box<Opening>),
    /// A request. Answered by `Answer` with the same slot and number.
    Call {
        /// One of the session's slots, in which no call is under way.
        slot: u32,
        /// The slot's next number, from 0.
        number: u64,
        /// Who asks.
        credentials: Credentials,
        /// What for.
        request: Box<Request>,
        /// Of a client that comes back: what kind of change it is, if it is one.
        change: Option<Change>,
        /// Of a client that comes back to a server that checks its callers: what was granted of the
        /// inodes that a kept change names, or of those that it wants back, in their order.
        proofs: Option<Vec<Proven>>,
    },
    /// As a `Call` of [`Request::LeaseWrite`], in a session that lends. The data lie in whole
    /// blocks, each byte where the file's own block has it, so that they need not be in the
    /// message.
    Lent {
        /// As of `Call`.
        slot: u32,
        /// As of `Call`.
        number: u64,
        /// As of `Call`.
        credentials: Credentials,
        /// The lease.
        lease: LeaseId,
        /// Where in the file the data begin.
        offset: u64,
        /// How many bytes they are; at least one.
        len: u32,
        /// When the file was written, if its holder says so.
        time: Option<Timestamp>,
        /// The blocks, one for each of the file's own that the data touch. What is no data in them
        /// means nothing.
        blocks: Vec<SharedBlock>,
    },
    /// A notice was taken back: nothing of it is shown any more.
    Taken {
        /// The notice's number.
        notice: u64,
    },
    /// The session ends. Nothing follows.
    Bye,
    /// A client that came back has repeated and reclaimed all that it wanted to.
    Returned,
    /// The client may keep no more changes: they are to be made durable.
    Full,
    /// Asks whether the session is there. Answered by `Pong` at once, before calls that wait.
    Ping {
        /// The question's number, which the answer repeats.
        number: u64,
    },
}

/// What other sessions changed of inodes that this one has looked up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Inodes whose attributes changed.
    pub attributes: Vec<InodeNr>,
    /// Inodes whose size changed.
    pub sizes: Vec<InodeNr>,
    /// Files and the range of bytes that changed, `[start, end)`.
    pub data: Vec<(InodeNr, (u64, u64))>,
    /// Directories and names in them that appeared, vanished or name something else.
    pub names: Vec<(InodeNr, Vec<u8>)>,
}

/// Server to client.
#[derive(Clone, Debug, PartialEq)]
pub enum FromServer {
    /// The session is open.
    Opened {
        /// The volume's UUID.
        volume: [u8; 16],
        /// Calls that it may have under way.
        slots: u32,
        /// Bytes of data that these may carry or ask for together; more is `EAGAIN`.
        bytes: u64,
        /// The server checks what callers may do: calls of the kernel that the session speaks for
        /// are to carry their callers' rights.
        checks: bool,
        /// The server's number, drawn at random when it starts.
        instance: u64,
        /// Where a client that comes back stands with it.
        back: Back,
    },
    /// It is not, and the connection ends.
    Refused {
        /// Why, for people.
        reason: String,
    },
    /// What a call came to.
    Answer {
        /// The call's slot.
        slot: u32,
        /// The call's number in it.
        number: u64,
        /// Its reply, or why it failed.
        result: Result<Box<Reply>, Error>,
        /// Of a change of a client that comes back, which succeeded.
        done: Option<Done>,
        /// Codes for what was granted by this, in the order of the reply, to a client that comes
        /// back and whose callers are checked.
        proofs: Option<Vec<Proof>>,
    },
    /// As `Answer`, of a change in a session that caches: it is made, and other sessions still show
    /// what was before. The slot is free. `Settled` follows, and before that the client tells
    /// nobody that it is made.
    Owing {
        /// The call's slot.
        slot: u32,
        /// The call's number in it.
        number: u64,
        /// Its reply, or why it failed.
        result: Result<Box<Reply>, Error>,
        /// Of a change of a client that comes back, which succeeded.
        done: Option<Done>,
        /// Codes for what was granted by this, in the order of the reply, to a client that comes
        /// back and whose callers are checked.
        proofs: Option<Vec<Proof>>,
    },
    /// No session shows any more what was before a change that was answered by `Owing`.
    Settled {
        /// The call's slot.
        slot: u32,
        /// The call's number in it.
        number: u64,
    },
    /// What others changed. Answered by `Taken`.
    Notice {
        /// Its number, from 0 on.
        notice: u64,
        /// It is about all that the session may have been told while it was alone.
        all: bool,
        /// What changed.
        told: Told,
    },
    /// Another session that may change files is open, or no such session any more. Without one,
    /// what is told need not run out.
    Shares {
        /// One is open.
        others: bool,
    },
    /// To a session that holds leases: another session wants the file of a lease, which is to be
    /// returned.
    Recall {
        /// The lease.
        lease: LeaseId,
    },
    /// The server has ended the session.
    Ended {
        /// Why, for people.
        reason: String,
        /// All calls that were begun have been answered: the others were not carried out.
        all_answered: bool,
    },
    /// To a client that comes back: all changes up to this one in the server's order are durable.
    Durable {
        /// The last one.
        order: u64,
    },
    /// The session was there when this question came. What its client knew then counts for a term
    /// from the moment when it asked.
    Pong {
        /// The question's number.
        number: u64,
    },
}
