//! The argument of the ioctl that carries out a compound, and its answer.

use super::{Rest, TYPE, WRITE};
use crate::compound::{
    self, Access, BytesArg, Checksum, Codec, Compounded, FileArg, MOST_STEPS, NewAttributes,
    NumberArg, StepNr, Value, Width,
};
use crate::{Level, SetTime};
use siftfs_base::{Result, Timestamp, errno};

/// Direction bit of an ioctl that takes an answer back.
const READ: u32 = 2;
/// Number of the ioctl. Its size is that of the buffer, for argument and answer.
const COMPOUND: u32 = 32;
/// Bytes before the steps: their length, how many they are, the level, and zero.
const HEAD: usize = 16;
/// Bytes before the results: the step that was refused, from 1, and why.
pub const ANSWER_HEAD: usize = 8;
/// The step's result is part of the answer.
const WANTED: u16 = 1;

/// A file, as a program on a mount names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    /// The number of a descriptor that it has open.
    Descriptor(u32),
    /// The one that an earlier step found.
    Step(StepNr),
}

/// A step, as a program on a mount has it: it closes nothing but what an earlier step opened.
pub type Step = compound::Step<File>;

impl Step {
    /// The step as the Runtime carries it out. `file` finds the files that it names; it is told
    /// whether the step writes at a place that it says itself.
    ///
    /// # Errors
    /// Those of `file`.
    pub fn with_files(
        self,
        mut file: impl FnMut(File, bool) -> Result<FileArg>,
    ) -> Result<compound::Step> {
        use compound::Step as S;
        Ok(match self {
            Self::Lookup { path } => S::Lookup { path },
            Self::Open { path, access, truncate } => S::Open { path, access, truncate },
            Self::Create { path, perm } => S::Create { path, perm },
            Self::Read { file: f, offset, len } => S::Read { file: file(f, false)?, offset, len },
            Self::Write { file: f, offset, data } => {
                S::Write { file: file(f, true)?, offset, data }
            }
            Self::Append { file: f, data } => S::Append { file: file(f, false)?, data },
            Self::Checksum { kind, data } => S::Checksum { kind, data },
            Self::Compress { codec, data } => S::Compress { codec, data },
            Self::Decompress { codec, data, most } => S::Decompress { codec, data, most },
            Self::Join { first, second } => S::Join { first, second },
            Self::Patch { file: f, offset, data } => {
                S::Patch { file: file(f, true)?, offset, data }
            }
            Self::Add { file: f, offset, width, addend } => {
                S::Add { file: file(f, true)?, offset, width, addend }
            }
            Self::CompareAndSet { file: f, offset, expected, new } => {
                S::CompareAndSet { file: file(f, true)?, offset, expected, new }
            }
            Self::Rename { from, to, replace } => S::Rename { from, to, replace },
            Self::Link { file: f, to } => S::Link { file: file(f, false)?, to },
            Self::Unlink { path } => S::Unlink { path },
            Self::SetSize { file: f, size } => S::SetSize { file: file(f, false)?, size },
            Self::SetAttributes { file: f, set } => S::SetAttributes { file: file(f, false)?, set },
            Self::Close { file: File::Step(step) } => S::Close { file: FileArg::Step(step) },
            Self::Close { file: File::Descriptor(_) } => return Err(errno(libc::EINVAL)),
        })
    }
}

/// The argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compound {
    /// The steps, and whether the result of each is part of the answer.
    pub steps: Vec<(Step, bool)>,
    /// How far the changes are when the call returns.
    pub level: Level,
}

/// Is it the ioctl of a compound?
pub fn is_compound(command: u32) -> bool {
    command >> 30 == (READ | WRITE) && command >> 8 & 0xFF == TYPE && command & 0xFF == COMPOUND
}

/// Size of the buffer, for argument and answer, in bytes.
pub fn buffer_len(command: u32) -> usize {
    (command >> 16 & 0x3FFF) as usize
}

impl Compound {
    /// Command and buffer, with room for `answer` bytes of results and the answer's head.
    ///
    /// # Errors
    /// E2BIG if that is longer than an ioctl's argument can be, 16,383 bytes.
    pub fn encode(&self, answer: usize) -> Result<(u32, Vec<u8>)> {
        let too_big = || errno(libc::E2BIG);
        let mut out = vec![0; HEAD];
        for (step, wanted) in &self.steps {
            encode_step(step, *wanted, &mut out)?;
        }
        let len = u32::try_from(out.len()).map_err(|_| too_big())?;
        let count = u32::try_from(self.steps.len()).map_err(|_| too_big())?;
        let fields = [len, count, self.level.number(), 0];
        for (at, field) in out.chunks_exact_mut(4).zip(fields) {
            at.copy_from_slice(&field.to_le_bytes());
        }
        let wanted = answer.checked_add(ANSWER_HEAD).ok_or_else(too_big)?;
        if out.len().max(wanted) > super::LONGEST {
            return Err(too_big());
        }
        out.resize(out.len().max(wanted), 0);
        let size = u32::try_from(out.len()).map_err(|_| too_big())?;
        Ok(((READ | WRITE) << 30 | size << 16 | TYPE << 8 | COMPOUND, out))
    }

    /// Reads what any program may have sent.
    ///
    /// # Errors
    /// EINVAL for bytes that are no argument; E2BIG for more steps than a compound has.
    pub fn decode(buffer: &[u8]) -> Result<Self> {
        let mut head = Rest(buffer);
        let (len, count) = (head.u32()? as usize, head.u32()? as usize);
        let level = Level::from_number(head.u32()?)?;
        if head.u32()? != 0 || len < HEAD {
            return Err(errno(libc::EINVAL));
        }
        if count > MOST_STEPS {
            return Err(errno(libc::E2BIG));
        }
        let used = buffer.get(HEAD..len).ok_or_else(|| errno(libc::EINVAL))?;
        let mut rest = Rest(used);
        let mut steps = Vec::new();
        for _ in 0..count {
            steps.push(decode_step(&mut rest)?);
        }
        if rest.0.is_empty() { Ok(Self { steps, level }) } else { Err(errno(libc::EINVAL)) }
    }
}

/// What the answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// All steps were carried out. The results that were wanted, in order: of a number its bytes,
    /// of a file its inode number in 8.
    Done(Vec<Vec<u8>>),
    /// A step is refused, for this errno, and nothing was changed.
    Refused(StepNr, i32),
}

impl Answer {
    /// The answer, from what a compound came to: its wanted results have values.
    pub fn of(compounded: &Compounded, wanted: &[StepNr]) -> Self {
        let values = match compounded {
            Compounded::Refused { step, errno } => return Self::Refused(*step, *errno),
            Compounded::Done { values, .. } => values,
        };
        let bytes = |step: &StepNr| match values.get(step.0 as usize) {
            Some(Value::Bytes(bytes)) => bytes.clone(),
            Some(Value::Number { value, width }) => {
                value.to_le_bytes().iter().take(width.bytes()).copied().collect()
            }
            Some(Value::File { ino, .. }) => u64::from(*ino).to_le_bytes().to_vec(),
            Some(Value::None) | None => Vec::new(),
        };
        Self::Done(wanted.iter().map(bytes).collect())
    }

    /// The answer's bytes.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Refused(step, errno) => {
                [(step.0 + 1).to_le_bytes(), errno.to_le_bytes()].concat()
            }
            Self::Done(results) => {
                let mut out = vec![0; ANSWER_HEAD];
                for bytes in results {
                    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                    out.extend(len.to_le_bytes());
                    out.extend(bytes);
                }
                out
            }
        }
    }

    /// Reads an answer with this many results.
    ///
    /// # Errors
    /// EINVAL if the bytes are no answer.
    pub fn decode(buffer: &[u8], wanted: usize) -> Result<Self> {
        let mut rest = Rest(buffer);
        let (refused, why) = (rest.u32()?, i32::from_le_bytes(rest.number()?));
        if let Some(step) = refused.checked_sub(1) {
            return Ok(Self::Refused(StepNr(step), why));
        }
        let mut results = Vec::new();
        for _ in 0..wanted {
            let len = rest.u32()? as usize;
            results.push(rest.bytes(len)?.to_vec());
        }
        Ok(Self::Done(results))
    }
}

fn encode_step(step: &Step, wanted: bool, out: &mut Vec<u8>) -> Result<()> {
    let flags = if wanted { WANTED } else { 0 };
    let kind: u16 = match step {
        Step::Lookup { .. } => 1,
        Step::Open { .. } => 2,
        Step::Create { .. } => 3,
        Step::Read { .. } => 4,
        Step::Write { .. } => 5,
        Step::Append { .. } => 6,
        Step::Checksum { .. } => 7,
        Step::Compress { .. } => 8,
        Step::Decompress { .. } => 9,
        Step::Patch { .. } => 10,
        Step::Add { .. } => 11,
        Step::CompareAndSet { .. } => 12,
        Step::Rename { .. } => 13,
        Step::Link { .. } => 14,
        Step::Unlink { .. } => 15,
        Step::SetSize { .. } => 16,
        Step::SetAttributes { .. } => 17,
        Step::Close { .. } => 18,
        Step::Join { .. } => 19,
    };
    out.extend(kind.to_le_bytes());
    out.extend(flags.to_le_bytes());
    let mut w = Fields(out);
    match step {
        Step::Lookup { path } | Step::Unlink { path } => w.path(path),
        Step::Open { path, access, truncate } => {
            let access = match access {
                Access::Read => 0,
                Access::Write => 1,
                Access::Both => 2,
            };
            w.path(path)?.u32(access)?.u32((*truncate).into())
        }
        Step::Create { path, perm } => w.path(path)?.u32((*perm).into()),
        Step::Read { file, offset, len } => w.file(file)?.number(offset)?.u32(*len),
        Step::Write { file, offset, data } | Step::Patch { file, offset, data } => {
            w.file(file)?.number(offset)?.data(data)
        }
        Step::Append { file, data } => w.file(file)?.data(data),
        Step::Checksum { kind, data } => {
            let kind = match kind {
                Checksum::Crc32c => 0,
                Checksum::MaskedCrc32c => 1,
                Checksum::Xxh3 => 2,
            };
            w.u32(kind)?.data(data)
        }
        Step::Compress { codec, data } => w.codec(*codec)?.data(data),
        Step::Decompress { codec, data, most } => w.codec(*codec)?.data(data)?.u32(*most),
        Step::Join { first, second } => w.data(first)?.data(second),
        Step::Add { file, offset, width, addend } => {
            let width = if *width == Width::U32 { 4 } else { 8 };
            w.file(file)?.number(offset)?.u32(width)?.number(addend)
        }
        Step::CompareAndSet { file, offset, expected, new } => {
            w.file(file)?.number(offset)?.data(expected)?.data(new)
        }
        Step::Rename { from, to, replace } => w.path(from)?.path(to)?.u32((*replace).into()),
        Step::Link { file, to } => w.file(file)?.path(to),
        Step::SetSize { file, size } => w.file(file)?.number(size),
        Step::SetAttributes { file, set } => w.file(file)?.attributes(set),
        Step::Close { file: File::Step(step) } => w.u32(step.0),
        Step::Close { file: File::Descriptor(_) } => return Err(errno(libc::EINVAL)),
    }
    .map(drop)
}

fn decode_step(rest: &mut Rest<'_>) -> Result<(Step, bool)> {
    let (kind, flags) = (rest.u16()?, rest.u16()?);
    if flags & !WANTED != 0 {
        return Err(errno(libc::EINVAL));
    }
    let step = match kind {
        1 => Step::Lookup { path: rest.path()? },
        2 => {
            let path = rest.path()?;
            let access = match rest.u32()? {
                0 => Access::Read,
                1 => Access::Write,
                2 => Access::Both,
                _ => return Err(errno(libc::EINVAL)),
            };
            Step::Open { path, access, truncate: rest.flag()? }
        }
        3 => {
            let path = rest.path()?;
            let perm = u16::try_from(rest.u32()?).map_err(|_| errno(libc::EINVAL))?;
            Step::Create { path, perm }
        }
        4 => Step::Read { file: rest.file()?, offset: rest.number_arg()?, len: rest.u32()? },
        5 => Step::Write { file: rest.file()?, offset: rest.number_arg()?, data: rest.data()? },
        6 => Step::Append { file: rest.file()?, data: rest.data()? },
        7 => {
            let kind = match rest.u32()? {
                0 => Checksum::Crc32c,
                1 => Checksum::MaskedCrc32c,
                2 => Checksum::Xxh3,
                _ => return Err(errno(libc::EINVAL)),
            };
            Step::Checksum { kind, data: rest.data()? }
        }
        8 => Step::Compress { codec: rest.codec()?, data: rest.data()? },
        9 => Step::Decompress { codec: rest.codec()?, data: rest.data()?, most: rest.u32()? },
        10 => Step::Patch { file: rest.file()?, offset: rest.number_arg()?, data: rest.data()? },
        11 => {
            let (file, offset) = (rest.file()?, rest.number_arg()?);
            let width = match rest.u32()? {
                4 => Width::U32,
                8 => Width::U64,
                _ => return Err(errno(libc::EINVAL)),
            };
            Step::Add { file, offset, width, addend: rest.number_arg()? }
        }
        12 => {
            let (file, offset) = (rest.file()?, rest.number_arg()?);
            Step::CompareAndSet { file, offset, expected: rest.data()?, new: rest.data()? }
        }
        13 => Step::Rename { from: rest.path()?, to: rest.path()?, replace: rest.flag()? },
        14 => Step::Link { file: rest.file()?, to: rest.path()? },
        15 => Step::Unlink { path: rest.path()? },
        16 => Step::SetSize { file: rest.file()?, size: rest.number_arg()? },
        17 => Step::SetAttributes { file: rest.file()?, set: rest.attributes()? },
        18 => Step::Close { file: File::Step(StepNr(rest.u32()?)) },
        19 => Step::Join { first: rest.data()?, second: rest.data()? },
        _ => return Err(errno(libc::EINVAL)),
    };
    Ok((step, flags & WANTED != 0))
}

/// Which of the attributes are there.
const PERM: u32 = 1;
const UID: u32 = 2;
const GID: u32 = 4;
const ATIME: u32 = 8;
const MTIME: u32 = 16;
/// Nanoseconds that stand for the present time.
const NOW: u32 = 0x3FFF_FFFF;

/// Puts fields behind each other.
struct Fields<'a>(&'a mut Vec<u8>);

impl Fields<'_> {
    fn u32(&mut self, value: u32) -> Result<&mut Self> {
        self.0.extend(value.to_le_bytes());
        Ok(self)
    }

    fn path(&mut self, path: &[u8]) -> Result<&mut Self> {
        let len = u32::try_from(path.len()).map_err(|_| errno(libc::E2BIG))?;
        self.u32(len)?.0.extend(path);
        Ok(self)
    }

    fn file(&mut self, file: &File) -> Result<&mut Self> {
        match file {
            File::Descriptor(number) => self.u32(0)?.u32(*number),
            File::Step(step) => self.u32(1)?.u32(step.0),
        }
    }

    fn number(&mut self, number: &NumberArg) -> Result<&mut Self> {
        match number {
            NumberArg::Given(value) => {
                self.u32(0)?.0.extend(value.to_le_bytes());
                Ok(self)
            }
            NumberArg::Step(step) => self.u32(1)?.u32(step.0),
        }
    }

    fn data(&mut self, data: &BytesArg) -> Result<&mut Self> {
        match data {
            BytesArg::Given(bytes) => self.u32(0)?.path(bytes),
            BytesArg::Step(step) => self.u32(1)?.u32(step.0),
            BytesArg::Part { step, start, len } => self.u32(2)?.u32(step.0)?.u32(*start)?.u32(*len),
        }
    }

    fn codec(&mut self, codec: Codec) -> Result<&mut Self> {
        self.u32(match codec {
            Codec::Lz4Frame => 0,
            Codec::Zstd => 1,
        })
    }

    fn attributes(&mut self, set: &NewAttributes) -> Result<&mut Self> {
        let NewAttributes { perm, uid, gid, atime, mtime } = set;
        let bit = |there: bool, bit: u32| if there { bit } else { 0 };
        let there = bit(perm.is_some(), PERM)
            | bit(uid.is_some(), UID)
            | bit(gid.is_some(), GID)
            | bit(atime.is_some(), ATIME)
            | bit(mtime.is_some(), MTIME);
        self.u32(there)?;
        for field in [perm.map(u32::from), *uid, *gid].into_iter().flatten() {
            self.u32(field)?;
        }
        for time in [atime, mtime].into_iter().flatten() {
            let (sec, nsec) = match time {
                SetTime::Now => (0, NOW),
                SetTime::At(Timestamp { sec, nsec }) => (*sec, *nsec),
            };
            self.0.extend(sec.to_le_bytes());
            self.u32(nsec)?;
        }
        Ok(self)
    }
}

impl Rest<'_> {
    fn path(&mut self) -> Result<Vec<u8>> {
        let len = self.u32()? as usize;
        Ok(self.bytes(len)?.to_vec())
    }

    fn flag(&mut self) -> Result<bool> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(errno(libc::EINVAL)),
        }
    }

    fn file(&mut self) -> Result<File> {
        match self.u32()? {
            0 => Ok(File::Descriptor(self.u32()?)),
            1 => Ok(File::Step(StepNr(self.u32()?))),
            _ => Err(errno(libc::EINVAL)),
        }
    }

    fn number_arg(&mut self) -> Result<NumberArg> {
        match self.u32()? {
            0 => Ok(NumberArg::Given(u64::from_le_bytes(self.number()?))),
            1 => Ok(NumberArg::Step(StepNr(self.u32()?))),
            _ => Err(errno(libc::EINVAL)),
        }
    }

    fn data(&mut self) -> Result<BytesArg> {
        match self.u32()? {
            0 => self.path().map(BytesArg::Given),
            1 => Ok(BytesArg::Step(StepNr(self.u32()?))),
            2 => {
                let step = StepNr(self.u32()?);
                Ok(BytesArg::Part { step, start: self.u32()?, len: self.u32()? })
            }
            _ => Err(errno(libc::EINVAL)),
        }
    }

    fn codec(&mut self) -> Result<Codec> {
        match self.u32()? {
            0 => Ok(Codec::Lz4Frame),
            1 => Ok(Codec::Zstd),
            _ => Err(errno(libc::EINVAL)),
        }
    }

    fn attributes(&mut self) -> Result<NewAttributes> {
        let there = self.u32()?;
        if there & !(PERM | UID | GID | ATIME | MTIME) != 0 {
            return Err(errno(libc::EINVAL));
        }
        let mut set = NewAttributes::default();
        if there & PERM != 0 {
            let perm = u16::try_from(self.u32()?).map_err(|_| errno(libc::EINVAL))?;
            set.perm = Some(perm);
        }
        if there & UID != 0 {
            set.uid = Some(self.u32()?);
        }
        if there & GID != 0 {
            set.gid = Some(self.u32()?);
        }
        if there & ATIME != 0 {
            set.atime = Some(self.time()?);
        }
        if there & MTIME != 0 {
            set.mtime = Some(self.time()?);
        }
        Ok(set)
    }

    fn time(&mut self) -> Result<SetTime> {
        let sec = i64::from_le_bytes(self.number()?);
        match self.u32()? {
            NOW if sec == 0 => Ok(SetTime::Now),
            nsec if nsec < 1_000_000_000 => Ok(SetTime::At(Timestamp { sec, nsec })),
            _ => Err(errno(libc::EINVAL)),
        }
    }
}

#[cfg(test)]
#[path = "compound_tests.rs"]
mod tests;
