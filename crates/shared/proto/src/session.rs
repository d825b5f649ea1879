//! Sessions: for whom a Frontend speaks, and how much it may have.

use crate::Rights;

/// For whom a session speaks. This comes from the session's channel, never from its requests (rule
/// R31).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The local kernel. It speaks for every user of the machine and has checked what the user may
    /// do. Only it may name an inode by a number that it has not looked up.
    Kernel,
    /// The kernel of another machine. It speaks for every user of that machine, and each call
    /// brings its caller's ids and rights, which the Runtime checks. It names what it has looked up
    /// by number, and may read and write by number what it has had open for that.
    Machine,
    /// A program that comes back when it has lost its server. It names what it has looked up and
    /// opened as [`Identity::Machine`] does, so that the server can open that again for it. It has
    /// no pages. The server sets ids and rights of each call.
    Program,
    /// One user. Its requests act with these ids and rights, whatever credentials they carry;
    /// process id and umask are taken from those.
    User {
        /// File-system user id.
        uid: u32,
        /// File-system group id.
        gid: u32,
        /// Groups and capabilities.
        rights: Rights,
    },
}

/// How much a session may have at a time. A request beyond one of these fails, and no other session
/// notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open handles; one more is ENFILE.
    pub handles: u64,
    /// Inodes that it has looked up and not forgotten; one more is ENFILE.
    pub inodes: u64,
    /// Tickets that are not durable; one more is EAGAIN. The Runtime has a bound of its own.
    pub tickets: u64,
    /// Atomic sections; one more is EAGAIN.
    pub sections: u64,
    /// Write leases; one more is EAGAIN. The Runtime has a bound of its own.
    pub leases: u64,
    /// Locks on files, and waits for such; one more is ENOLCK. The Runtime has bounds of its own.
    pub locks: u64,
    /// Bytes of data in requests that are being carried out; more is EAGAIN.
    pub bytes: u64,
}

impl Limits {
    /// None but those that the Runtime has for all sessions together.
    pub const NONE: Self = Self {
        handles: u64::MAX,
        inodes: u64::MAX,
        tickets: u64::MAX,
        sections: u64::MAX,
        leases: u64::MAX,
        locks: u64::MAX,
        bytes: u64::MAX,
    };
}

impl Default for Limits {
    /// Those of one program.
    fn default() -> Self {
        Self {
            handles: 64 << 10,
            inodes: 1 << 20,
            tickets: 16 << 10,
            sections: 256,
            leases: 1 << 10,
            locks: 4 << 10,
            bytes: 256 << 20,
        }
    }
}

/// How a session is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// For whom it speaks.
    pub identity: Identity,
    /// It may ask for status, a checkpoint, a sync of everything and a trim.
    pub administrator: bool,
    /// How much it may have.
    pub limits: Limits,
    /// The client whose session it is, if that comes back when its connection is lost: a session
    /// takes over locks that an earlier one of the same client has.
    pub client: Option<u64>,
}

impl Opening {
    /// A session of the local kernel. It passes on what root asks for, so it is an administrator's.
    pub fn kernel() -> Self {
        Self { identity: Identity::Kernel, administrator: true, limits: Limits::NONE, client: None }
    }

    /// A session of another machine's kernel. It may not ask for what an administrator may.
    pub fn machine() -> Self {
        let limits = Limits::default();
        Self { identity: Identity::Machine, administrator: false, limits, client: None }
    }

    /// A session of the process that has the volume open, which could do anything to it.
    pub fn owner() -> Self {
        let identity = Identity::User { uid: 0, gid: 0, rights: Rights::all() };
        Self { identity, administrator: true, limits: Limits::NONE, client: None }
    }

    /// A session of one user. It may not ask for what an administrator may.
    pub fn user(uid: u32, gid: u32, rights: Rights) -> Self {
        let identity = Identity::User { uid, gid, rights };
        Self { identity, administrator: false, limits: Limits::default(), client: None }
    }
}
