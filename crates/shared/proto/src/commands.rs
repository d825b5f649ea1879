//! The commands of a mount's ioctls ("Bytes of the ioctls" in `docs/design/operations.md`), as
//! programs send them and as the mount knows them. Publish has a file of its own.

use crate::Level;
use siftfs_base::{Result, errno};

/// The type of SiftFS's own.
const KIND: u8 = 0xE5;

const WRITE: u32 = 1;
const READ: u32 = 2;

/// Bytes of a ticket.
const TICKET: usize = size_of::<u64>();

/// Stages a file: a ticket comes back.
pub const STAGE: u32 = command(READ, 1, TICKET);
/// Is a ticket durable? 1 or 0 comes back in its place.
pub const POLL: u32 = command(READ | WRITE, 2, TICKET);
/// Waits for a ticket: ticket, and time in nanoseconds or [`NO_TIMEOUT`].
pub const WAIT: u32 = command(WRITE, 3, TICKET + size_of::<u64>());
/// A ticket of all that is staged so far comes back.
pub const BARRIER: u32 = command(READ, 4, TICKET);

/// A token of a file that is open to be written comes back, as [`GrantOut`] has it.
pub const GRANT: u32 = command(READ, 5, GRANTED);

/// Bytes of a token.
pub const TOKEN_BYTES: usize = 16;
/// Bytes of a socket's path, with the NUL that ends it.
pub const SOCKET_BYTES: usize = 108;
/// Bytes of what comes back.
const GRANTED: usize = TOKEN_BYTES + SOCKET_BYTES;

/// What [`GRANT`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantOut {
    /// It stands for the open file, the caller's user and process, for two seconds and one use.
    pub token: [u8; TOKEN_BYTES],
    /// Where it is shown: the path of a socket, and NUL up to the end.
    pub path: [u8; SOCKET_BYTES],
}

impl GrantOut {
    /// As the ioctl gives it back.
    pub fn encode(&self) -> Vec<u8> {
        [&self.token[..], &self.path[..]].concat()
    }

    /// Reads what the ioctl gave back.
    ///
    /// # Errors
    /// EPROTO for bytes that are no such answer.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let parts = bytes.split_first_chunk().filter(|_| bytes.len() == GRANTED);
        let parts = parts.and_then(|(token, rest)| Some((*token, *rest.first_chunk()?)));
        let (token, path) = parts.ok_or(errno(libc::EPROTO))?;
        Ok(Self { token, path })
    }
}

/// As [`WAIT`]'s time: none.
pub const NO_TIMEOUT: u64 = u64::MAX;

/// F2FS's, as SQLite sends them: what is offered comes back, 4 bytes.
pub const FEATURES: u32 = 0x8004_f50c;
/// Starts an atomic section.
pub const START: u32 = 0xf501;
/// Commits it.
pub const COMMIT: u32 = 0xf502;
/// Aborts it.
pub const ABORT: u32 = 0xf505;

/// Is this command one of SiftFS's own?
pub const fn is_own(command: u32) -> bool {
    command >> 8 & 0xFF == KIND as u32
}

/// The number of an ioctl(2), the same on every machine that the kernel serves.
const fn command(direction: u32, number: u8, size: usize) -> u32 {
    direction << 30 | (size as u32) << 16 | (KIND as u32) << 8 | number as u32
}

/// Number of the ioctl that commits sections together. Its size is the argument's.
const COMMIT_ALL: u8 = 17;
/// Most files of one commit: the most sections of a session.
const MOST: usize = 1024;
/// Bytes of count and level, and of each descriptor.
const FIELD: usize = size_of::<u32>();

/// Is it the ioctl that commits sections together?
pub fn is_commit_all(command: u32) -> bool {
    let size = command >> 16 & 0x3FFF;
    command == self::command(WRITE, COMMIT_ALL, size as usize)
}

/// The argument of the ioctl that commits sections of several open files together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitAll {
    /// The caller's descriptors of the files.
    pub descriptors: Vec<u32>,
    /// How far they are when the call returns.
    pub level: Level,
}

impl CommitAll {
    /// Command and argument.
    ///
    /// # Errors
    /// E2BIG for more than 1,024 files.
    pub fn encode(&self) -> Result<(u32, Vec<u8>)> {
        let Self { descriptors, level } = self;
        let count = u32::try_from(descriptors.len()).ok().filter(|_| descriptors.len() <= MOST);
        let count = count.ok_or(errno(libc::E2BIG))?;
        let fields = [count, level.number()].into_iter().chain(descriptors.iter().copied());
        let argument: Vec<u8> = fields.flat_map(u32::to_le_bytes).collect();
        Ok((command(WRITE, COMMIT_ALL, argument.len()), argument))
    }

    /// Reads what any program may have sent.
    ///
    /// # Errors
    /// EINVAL for bytes that are no argument; E2BIG as [`CommitAll::encode`].
    pub fn decode(argument: &[u8]) -> Result<Self> {
        let invalid = || errno(libc::EINVAL);
        let (fields, []) = argument.as_chunks::<FIELD>() else { return Err(invalid()) };
        let [count, level, descriptors @ ..] = fields else { return Err(invalid()) };
        let level = Level::from_number(u32::from_le_bytes(*level))?;
        if u32::from_le_bytes(*count) as usize != descriptors.len() {
            return Err(invalid());
        }
        if descriptors.len() > MOST {
            return Err(errno(libc::E2BIG));
        }
        let descriptors = descriptors.iter().map(|field| u32::from_le_bytes(*field)).collect();
        Ok(Self { descriptors, level })
    }
}

impl Level {
    /// As an ioctl's argument has it.
    pub fn number(self) -> u32 {
        match self {
            Self::Visible => 0,
            Self::Atomic => 1,
            Self::Durable => 2,
        }
    }

    /// The level of this number.
    ///
    /// # Errors
    /// EINVAL if there is none.
    pub fn from_number(number: u32) -> Result<Self> {
        match number {
            0 => Ok(Self::Visible),
            1 => Ok(Self::Atomic),
            2 => Ok(Self::Durable),
            _ => Err(errno(libc::EINVAL)),
        }
    }
}

#[cfg(test)]
#[path = "commands_tests.rs"]
mod tests;
