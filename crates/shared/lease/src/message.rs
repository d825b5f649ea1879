//! What holder and grantor say on their socket. A packet is 64 bytes, and the bytes of what is
//! read. The version comes first. What a message has no use for is zero: each message has one form.

use crate::batch::LogShape;
use crate::granted::{Granted, GrantedRun, encode_runs, runs_of};
use crate::medium::LogMedium;
use crate::words::Held;
use siftfs_base::{Result, corrupt};
use zerocopy::little_endian::{I32, I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute};

/// The version of messages and memories.
pub const VERSION: u32 = 5;
/// Bytes of a token.
pub const TOKEN: usize = 16;
/// Stands for a handle, a user and a process.
pub type Token = [u8; TOKEN];
/// Bytes of a packet without what was read.
pub const HEADER: usize = 64;
/// Most bytes of one read.
pub const MOST_DATA: usize = 64 << 10;

/// What a holder asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// The first packet: a session, for the process that the token stands for. Answer: `Entered`.
    Enter(Token),
    /// A lease of the file that the token stands for. Answer: `Leased`.
    Lease(Token),
    /// Bytes of the file, with all that was published; short only at its end. Answer: `Data`.
    Read {
        /// The file's lease.
        held: Held,
        /// Where.
        offset: u64,
        /// How many, [`MOST_DATA`] at most.
        len: u32,
    },
    /// All that was published of the file is durable, as by fsync(2), or fdatasync(2). Of a lease
    /// that has ended, what could not be written is told. Answer: `Done`.
    Fsync {
        /// The file's lease.
        held: Held,
        /// As by fdatasync(2).
        datasync: bool,
        /// Where the newest batch of the session's file log ends, so that the log is forgotten up
        /// to there; 0 without one.
        log: u64,
    },
    /// A log of the session's own. Answer: `Log`.
    Log,
    /// Forget that log up to here, once all in it is durable otherwise. No answer.
    Forget(u64),
    /// Take in what is published, and answer then: `Done`.
    Ingest,
    /// Take in what is published. No answer.
    Nudge,
    /// The lease ends, if it has not, and its slot may be used again: no thread has it any more.
    /// What could not be written is told. Answer: `Done`.
    Return(Held),
    /// Blocks of the leased file, to be read and written at the target, in place of those that were
    /// granted before. Answer: `Granted`.
    Direct {
        /// The file's lease.
        held: Held,
        /// Bytes behind the file's end for which there is to be room, as far as there is space.
        room: u64,
    },
    /// More blocks of the leased file, by the grant that there is, which stays: those that are not
    /// granted yet from the file's block `first` on, and room. Answer: `Extended`.
    Extend {
        /// The file's lease.
        held: Held,
        /// The first block of the file that is of interest.
        first: u64,
        /// Up to this byte of the file there is to be room, as far as there is space.
        end: u64,
    },
}

/// What the grantor answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A session. The packet brings two descriptors: the grantor's memory and the holder's.
    Entered {
        /// What the grantor's memory says of itself.
        epoch: u64,
        /// Largest size of a file, in bytes.
        largest: u64,
    },
    /// A lease was granted.
    Leased {
        /// The lease.
        held: Held,
        /// The file's size, in bytes.
        size: u64,
        /// Its mtime, in nanoseconds since 1970.
        mtime: i64,
        /// Its inode's number.
        ino: u64,
    },
    /// A log of the session's own. The packet brings its descriptor.
    Log(LogShape),
    /// What was read.
    Data(Vec<u8>),
    /// Blocks of the leased file.
    Granted(Granted),
    /// Blocks that are granted besides, in the order of the file.
    Extended(Vec<GrantedRun>),
    /// It is done.
    Done,
    /// The lease has ended. What was asked is to be asked of the kernel.
    Ended,
    /// It failed with this errno.
    Failed(i32),
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawAsk {
    version: U32,
    kind: U32,
    slot: U32,
    len: U32,
    number: U64,
    offset: U64,
    token: Token,
    end: U64,
    rest: [u8; 8],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawAnswer {
    version: U32,
    kind: U32,
    slot: U32,
    errno: I32,
    number: U64,
    size: U64,
    mtime: I64,
    ino: U64,
    rest: [u8; 16],
}

const _: () = assert!(size_of::<RawAsk>() == HEADER && size_of::<RawAnswer>() == HEADER);

fn wrong(detail: String) -> siftfs_base::Error {
    corrupt("message of a private log", detail)
}

/// A packet's version is the first thing that is looked at.
fn version(version: U32) -> Result<()> {
    match version.get() {
        VERSION => Ok(()),
        other => Err(wrong(format!("it is of version {other} instead of {VERSION}"))),
    }
}

impl Ask {
    fn raw(self) -> RawAsk {
        let (mut slot, mut len, mut number, mut offset, mut end) = (0, 0, 0, 0, 0);
        let mut token = [0; TOKEN];
        let mut of = |held: Held| (slot, number) = (held.slot, held.number);
        let kind = match self {
            Self::Enter(own) => {
                token = own;
                1
            }
            Self::Lease(own) => {
                token = own;
                2
            }
            Self::Read { held, offset: at, len: bytes } => {
                of(held);
                (offset, len) = (at, bytes);
                3
            }
            Self::Fsync { held, datasync, log } => {
                of(held);
                offset = log;
                if datasync { 5 } else { 4 }
            }
            Self::Ingest => 6,
            Self::Nudge => 7,
            Self::Return(held) => {
                of(held);
                8
            }
            Self::Log => 9,
            Self::Forget(log) => {
                offset = log;
                10
            }
            Self::Direct { held, room } => {
                of(held);
                offset = room;
                11
            }
            Self::Extend { held, first, end: to } => {
                of(held);
                (offset, end) = (first, to);
                12
            }
        };
        RawAsk {
            version: VERSION.into(),
            kind: kind.into(),
            slot: slot.into(),
            len: len.into(),
            number: number.into(),
            offset: offset.into(),
            token,
            end: end.into(),
            rest: [0; 8],
        }
    }

    /// As a packet.
    pub fn encode(self) -> [u8; HEADER] {
        transmute!(self.raw())
    }

    /// Reads a packet.
    ///
    /// # Errors
    /// Corrupt: it is of another version or kind, has another length, or says more than its kind
    /// has.
    pub fn decode(packet: &[u8]) -> Result<Self> {
        let length = || wrong(format!("a packet has {} bytes", packet.len()));
        let raw = RawAsk::read_from_bytes(packet).map_err(|_| length())?;
        version(raw.version)?;
        let held = Held { slot: raw.slot.get(), number: raw.number.get() };
        let (offset, len) = (raw.offset.get(), raw.len.get());
        let ask = match raw.kind.get() {
            1 => Self::Enter(raw.token),
            2 => Self::Lease(raw.token),
            3 => Self::Read { held, offset, len },
            kind @ (4 | 5) => Self::Fsync { held, datasync: kind == 5, log: offset },
            6 => Self::Ingest,
            7 => Self::Nudge,
            8 => Self::Return(held),
            9 => Self::Log,
            10 => Self::Forget(offset),
            11 => Self::Direct { held, room: offset },
            12 => Self::Extend { held, first: offset, end: raw.end.get() },
            kind => return Err(wrong(format!("there is no question {kind}"))),
        };
        if len as usize > MOST_DATA {
            return Err(wrong(format!("{len} bytes are asked for at once")));
        }
        match ask.encode() == packet {
            true => Ok(ask),
            false => Err(wrong(format!("question {} says more than it has", raw.kind))),
        }
    }
}

impl Answer {
    fn raw(&self) -> RawAnswer {
        let mut raw = RawAnswer {
            version: VERSION.into(),
            kind: 0.into(),
            slot: 0.into(),
            errno: 0.into(),
            number: 0.into(),
            size: 0.into(),
            mtime: 0.into(),
            ino: 0.into(),
            rest: [0; 16],
        };
        let kind: u32 = match self {
            Self::Entered { epoch, largest } => {
                (raw.number, raw.size) = ((*epoch).into(), (*largest).into());
                1
            }
            Self::Leased { held, size, mtime, ino } => {
                (raw.slot, raw.number) = (held.slot.into(), held.number.into());
                (raw.size, raw.mtime, raw.ino) = ((*size).into(), (*mtime).into(), (*ino).into());
                2
            }
            Self::Data(_) => 3,
            Self::Done => 4,
            Self::Ended => 5,
            Self::Failed(errno) => {
                raw.errno = (*errno).into();
                6
            }
            Self::Log(LogShape { len, key, medium }) => {
                (raw.size, raw.number) = ((*len).into(), (*key).into());
                raw.slot = medium.number().into();
                7
            }
            Self::Granted(Granted { target, runs, .. }) => {
                (raw.number, raw.size) = ((target.len() as u64).into(), (runs.len() as u64).into());
                8
            }
            Self::Extended(runs) => {
                raw.size = (runs.len() as u64).into();
                9
            }
        };
        raw.kind = kind.into();
        raw
    }

    /// As a packet.
    ///
    /// # Panics
    /// For more data, or runs, than one packet has.
    pub fn encode(&self) -> Vec<u8> {
        let header: [u8; HEADER] = transmute!(self.raw());
        let mut packet = header.to_vec();
        if let Self::Data(bytes) = self {
            assert!(bytes.len() <= MOST_DATA, "no more is asked for");
            packet.extend_from_slice(bytes);
        }
        if let Self::Granted(granted) = self {
            packet.extend(granted.encode());
        }
        if let Self::Extended(runs) = self {
            packet.extend(encode_runs(runs));
        }
        packet
    }

    /// Reads a packet.
    ///
    /// # Errors
    /// As [`Ask::decode`].
    pub fn decode(packet: &[u8]) -> Result<Self> {
        let length = || wrong(format!("a packet has {} bytes", packet.len()));
        let (raw, data) = RawAnswer::read_from_prefix(packet).map_err(|_| length())?;
        version(raw.version)?;
        let answer = match raw.kind.get() {
            1 => Self::Entered { epoch: raw.number.get(), largest: raw.size.get() },
            2 => Self::Leased {
                held: Held { slot: raw.slot.get(), number: raw.number.get() },
                size: raw.size.get(),
                mtime: raw.mtime.get(),
                ino: raw.ino.get(),
            },
            3 if data.len() <= MOST_DATA => Self::Data(data.to_vec()),
            4 => Self::Done,
            5 => Self::Ended,
            6 => Self::Failed(raw.errno.get()),
            7 => {
                let medium = LogMedium::of(raw.slot.get());
                let medium = medium.ok_or_else(|| wrong("a log lies in nothing known".into()))?;
                Self::Log(LogShape { len: raw.size.get(), key: raw.number.get(), medium })
            }
            8 => Self::Granted(Granted::decode(data, (raw.number.get(), raw.size.get()))?),
            9 => Self::Extended(runs_of(data, raw.size.get())?),
            kind => {
                return Err(wrong(format!("there is no answer {kind} of {} bytes", data.len())));
            }
        };
        match answer.encode() == packet {
            true => Ok(answer),
            false => Err(wrong(format!("answer {} says more than it has", raw.kind))),
        }
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
