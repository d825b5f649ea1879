//! Compounds: many steps, whose results later steps may use, that change all they change together
//! ("Compounds" in `docs/design/operations.md`).

use crate::{Handle, Level, Rights, SetTime};
use siftfs_base::InodeNr;

/// Most steps of a compound.
pub const MOST_STEPS: usize = 4096;
/// Most bytes of results that a compound makes, in all.
pub const MOST_RESULTS: usize = 16 << 20;

/// The number of an earlier step, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct StepNr(pub u32);

/// The file that a step is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileArg {
    /// One that the session has open, as it was opened.
    Open(Handle),
    /// The one that an earlier `Lookup`, `Open` or `Create` found. What the caller may do with a
    /// file that was only looked up is checked by each step.
    Step(StepNr),
}

/// Bytes that a step works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BytesArg {
    /// These.
    Given(Vec<u8>),
    /// The result of an earlier step; of a number its bytes, little endian, 4 or 8 of them.
    Step(StepNr),
    /// `len` bytes of the result of an earlier step, from byte `start` on. They must be there.
    Part {
        /// The step.
        step: StepNr,
        /// First byte.
        start: u32,
        /// Number of bytes.
        len: u32,
    },
}

/// A number that a step works with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NumberArg {
    /// This one.
    Given(u64),
    /// The result of an earlier step: a number, or how many bytes it has.
    Step(StepNr),
}

/// Algorithms of checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// CRC-32C (Castagnoli), 4 bytes.
    Crc32c,
    /// CRC-32C as LevelDB and RocksDB store it: rotated right by 15 bits, plus 0xA282EAD8.
    MaskedCrc32c,
    /// XXH3 of 64 bits without a seed, 8 bytes.
    Xxh3,
}

/// Formats of compressed data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// One LZ4 frame.
    Lz4Frame,
    /// One Zstandard frame.
    Zstd,
}

/// How wide a number in a file is. It is little endian there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 4 bytes.
    U32,
    /// 8 bytes.
    U64,
}

impl Width {
    /// Bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::U32 => 4,
            Self::U64 => 8,
        }
    }
}

/// What an open file may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To read.
    Read,
    /// To write.
    Write,
    /// Both.
    Both,
}

impl Access {
    /// May it be read?
    pub fn reads(self) -> bool {
        self != Self::Write
    }

    /// May it be written?
    pub fn writes(self) -> bool {
        self != Self::Read
    }
}

/// Attributes that a step changes; `None` leaves one alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewAttributes {
    /// Permission bits (07777).
    pub perm: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
}

/// One step; `F` names a file. Paths are relative to the compound's directory, of names with `/`
/// between; no symbolic link in them is followed, and directories are only walked through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<F = FileArg> {
    /// Find a file. Result: the file.
    Lookup {
        /// Its name.
        path: Vec<u8>,
    },
    /// Open a regular file. Result: the file, and a handle of the session's unless a later step
    /// closes it.
    Open {
        /// Its name.
        path: Vec<u8>,
        /// For what.
        access: Access,
        /// Its size becomes 0.
        truncate: bool,
    },
    /// Create a regular file and open it to read and write. Result: as of `Open`.
    Create {
        /// Its name, which no file has.
        path: Vec<u8>,
        /// Permission bits before the umask.
        perm: u16,
    },
    /// Read. Result: the bytes, fewer only at the end of the file.
    Read {
        /// The file.
        file: F,
        /// First byte.
        offset: NumberArg,
        /// Bytes at most.
        len: u32,
    },
    /// Write. Result: the number of bytes.
    Write {
        /// The file.
        file: F,
        /// First byte.
        offset: NumberArg,
        /// The bytes.
        data: BytesArg,
    },
    /// Write at the end of the file. Result: where that was.
    Append {
        /// The file.
        file: F,
        /// The bytes.
        data: BytesArg,
    },
    /// Result: a checksum, a number of 4 or 8 bytes.
    Checksum {
        /// Which.
        kind: Checksum,
        /// Of what.
        data: BytesArg,
    },
    /// Result: the bytes compressed.
    Compress {
        /// The format.
        codec: Codec,
        /// Of what.
        data: BytesArg,
    },
    /// Result: the bytes as they were before they were compressed. `EOVERFLOW` if they are more
    /// than `most`, `EILSEQ` if they are no frame.
    Decompress {
        /// The format.
        codec: Codec,
        /// One frame.
        data: BytesArg,
        /// Bytes of the result at most.
        most: u32,
    },
    /// Result: bytes, and others behind them.
    Join {
        /// The first of them.
        first: BytesArg,
        /// Those behind.
        second: BytesArg,
    },
    /// Replace bytes that are there: the file does not grow. Result: those that
    /// were there.
    Patch {
        /// The file.
        file: F,
        /// First byte.
        offset: NumberArg,
        /// The bytes.
        data: BytesArg,
    },
    /// Add to a number in the file; it wraps. Result: the number that was there.
    Add {
        /// The file.
        file: F,
        /// Its first byte.
        offset: NumberArg,
        /// Its width.
        width: Width,
        /// What is added.
        addend: NumberArg,
    },
    /// Put bytes in the place of others. `ECANCELED` if those are not there. Result: none.
    CompareAndSet {
        /// The file.
        file: F,
        /// First byte.
        offset: NumberArg,
        /// What must be there.
        expected: BytesArg,
        /// What is there then, of the same length.
        new: BytesArg,
    },
    /// Give a file another name. Result: none.
    Rename {
        /// The name that it has.
        from: Vec<u8>,
        /// The name it gets.
        to: Vec<u8>,
        /// A file that has this name already loses it; without, that is EEXIST.
        replace: bool,
    },
    /// Give a file one more name. Result: none.
    Link {
        /// The file.
        file: F,
        /// The name it gets.
        to: Vec<u8>,
    },
    /// Take a name away. Result: none.
    Unlink {
        /// The name.
        path: Vec<u8>,
    },
    /// Set the size. Result: none.
    SetSize {
        /// The file.
        file: F,
        /// In bytes.
        size: NumberArg,
    },
    /// Change attributes. Result: none.
    SetAttributes {
        /// The file.
        file: F,
        /// Which.
        set: NewAttributes,
    },
    /// Close what the session, or an earlier step, opened. Result: none.
    Close {
        /// The file.
        file: F,
    },
}

/// Which results a caller wants. The others are [`Value::None`], and what they opened is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All of them.
    All,
    /// Those of some steps, and no more bytes of them in all; `EMSGSIZE` if they are more. A number
    /// is 8 bytes, a file too.
    Some {
        /// The steps, ascending.
        steps: Vec<StepNr>,
        /// Bytes.
        most: u32,
    },
}

/// A compound, as it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compound {
    /// The directory that paths begin at.
    pub base: InodeNr,
    /// In order.
    pub steps: Vec<Step>,
    /// How far its changes are when the call returns.
    pub level: Level,
    /// What the caller may do.
    pub rights: Rights,
    /// The results that the caller wants.
    pub wanted: Wanted,
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// The step has no result.
    None,
    /// A file.
    File {
        /// Its inode.
        ino: InodeNr,
        /// Its generation: no other file has had both numbers.
        generation: u32,
        /// The handle if it is still open, and for what it was opened.
        open: Option<(Handle, Access)>,
    },
    /// A number.
    Number {
        /// It.
        value: u64,
        /// How wide it is as bytes.
        width: Width,
    },
    /// Bytes.
    Bytes(Vec<u8>),
}

/// A file whose bytes a compound changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenFile {
    /// Its inode.
    pub ino: InodeNr,
    /// Its size was set.
    pub resized: bool,
    /// It became longer by what was written.
    pub grown: bool,
}

/// What a compound came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compounded {
    /// All steps were carried out.
    Done {
        /// Their results, in order.
        values: Vec<Value>,
        /// Names that changed.
        names: Vec<(InodeNr, Vec<u8>)>,
        /// Files that changed in any way.
        files: Vec<InodeNr>,
        /// Those of them whose bytes changed and that were there before.
        written: Vec<WrittenFile>,
    },
    /// A step is refused, and nothing was changed.
    Refused {
        /// Which.
        step: StepNr,
        /// Why: an errno.
        errno: i32,
    },
}

/// A file that a compound has opened, and no step has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedFile {
    /// Its inode.
    pub ino: InodeNr,
    /// The inode's generation.
    pub generation: u32,
    /// The handle.
    pub handle: Handle,
    /// For what it is open.
    pub access: Access,
}

impl Value {
    /// The handle of a file that is still open.
    pub fn handle(&self) -> Option<Handle> {
        match self {
            Self::File { open: Some((handle, _)), .. } => Some(*handle),
            _ => None,
        }
    }
}

impl Compounded {
    /// The files that its steps have opened and not closed, in their order.
    pub fn opened(&self) -> Vec<OpenedFile> {
        let Self::Done { values, .. } = self else { return Vec::new() };
        let opened = values.iter().filter_map(|value| match value {
            Value::File { ino, generation, open: Some((handle, access)) } => {
                let (ino, generation, handle, access) = (*ino, *generation, *handle, *access);
                Some(OpenedFile { ino, generation, handle, access })
            }
            _ => None,
        });
        opened.collect()
    }

    /// Bytes of the results.
    pub fn bytes(&self) -> u64 {
        let len = |value: &Value| match value {
            Value::Bytes(bytes) => bytes.len() as u64,
            _ => 0,
        };
        match self {
            Self::Done { values, .. } => values.iter().map(len).sum(),
            Self::Refused { .. } => 0,
        }
    }
}
