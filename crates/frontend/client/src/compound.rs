//! Many steps on a mount whose changes are all made, or none.

use crate::call::ioctl;
use siftfs_proto::Level;
pub use siftfs_proto::compound::{Access, Checksum, Codec, NewAttributes, Width};
use siftfs_proto::compound::{BytesArg, StepNr};
use siftfs_proto::ioctl::compound::{ANSWER_HEAD, Answer, Compound as Argument, File, Step};
pub use siftfs_proto::steps::{
    BytesOperand, BytesStep, Coming, FileStep, NumberOperand, NumberStep,
};
use siftfs_proto::steps::{Operand, kind, new_list};
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Longest answer: an ioctl's buffer has a size of 14 bits.
const LONGEST: usize = (1 << 14) - 1 - ANSWER_HEAD;
/// Bytes that say how long a result is.
const RESULT_LEN: usize = size_of::<u32>();

/// Steps that are to be carried out together on a mount: other programs, and a crash, see all that
/// they change or nothing of it. A step may work on the results of those before it.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use siftfs_client::{Access, Checksum, Compound, Level};
/// let dir = std::fs::File::open("/mnt/tables")?;
/// let data = std::fs::File::options().write(true).open("/mnt/tables/blocks")?;
/// // A block, and its checksum in another file.
/// let mut steps = Compound::on(&dir);
/// steps.write(&data, 7 * 4096, &[7; 4096]);
/// let sum = steps.checksum(Checksum::Crc32c, &[7; 4096]);
/// let sums = steps.open("sums", Access::Write);
/// steps.write(sums, 7 * 4, sum);
/// steps.want(sum);
/// let results = steps.run(Level::Durable)?; // one write, one flush
/// println!("{:?}", results.number(sum));
/// # Ok(())
/// # }
/// ```
///
/// Nothing happens before [`Compound::run`]. Paths are relative to the directory, of names with `/`
/// between; no symbolic link in them is followed. A file is one that is open, and may be used as it
/// was opened, or one that a step finds; what steps open is closed with the call. Steps and results
/// take 16,383 bytes each at most. `docs/design/operations.md` says what a compound may not be.
#[must_use = "nothing happens before `run`"]
pub struct Compound<'f> {
    dir: BorrowedFd<'f>,
    id: u64,
    steps: Vec<(Step, bool)>,
    /// An operand is the result of another compound's step.
    foreign: bool,
}

/// The file of a step: an open one, or one that an earlier step finds.
pub struct FileOperand<'f>(Operand<File>, PhantomData<BorrowedFd<'f>>);

impl<'f, T: AsFd> From<&'f T> for FileOperand<'f> {
    fn from(file: &'f T) -> Self {
        let number = file.as_fd().as_raw_fd().cast_unsigned();
        Self(Operand::given(File::Descriptor(number)), PhantomData)
    }
}

impl From<FileStep> for FileOperand<'_> {
    fn from(step: FileStep) -> Self {
        Self(Operand::of(step, File::Step), PhantomData)
    }
}

impl<'f> Compound<'f> {
    /// Begins a list of steps, whose paths begin at this directory of the mount.
    pub fn on(dir: &'f impl AsFd) -> Self {
        Self { dir: dir.as_fd(), id: new_list(), steps: Vec::new(), foreign: false }
    }

    fn take<T>(&mut self, operand: Operand<T>) -> T {
        let arg = operand.for_list(self.id);
        self.foreign |= arg.is_err();
        arg.unwrap_or_else(|foreign| foreign)
    }

    fn add<T>(&mut self, step: Step) -> Coming<T> {
        let coming = Coming::new(self.id, self.steps.len());
        self.steps.push((step, false));
        coming
    }

    fn done(&mut self, step: Step) -> &mut Self {
        let _: Coming<kind::Nothing> = self.add(step);
        self
    }

    /// Has the results bring that of this step.
    pub fn want<T>(&mut self, step: Coming<T>) -> &mut Self {
        match step.number_in(self.id).and_then(|n| self.steps.get_mut(n.0 as usize)) {
            Some((_, wanted)) => *wanted = true,
            None => self.foreign = true,
        }
        self
    }

    /// Finds a file.
    pub fn lookup(&mut self, path: impl AsRef<Path>) -> FileStep {
        self.add(Step::Lookup { path: path_of(path) })
    }

    /// Opens a regular file, for the steps that follow.
    pub fn open(&mut self, path: impl AsRef<Path>, access: Access) -> FileStep {
        self.add(Step::Open { path: path_of(path), access, truncate: false })
    }

    /// Opens a regular file to read and write, which is empty then.
    pub fn open_truncated(&mut self, path: impl AsRef<Path>) -> FileStep {
        self.add(Step::Open { path: path_of(path), access: Access::Both, truncate: true })
    }

    /// Creates a regular file, which must not exist, and opens it to read and write, for the steps
    /// that follow.
    pub fn create(&mut self, path: impl AsRef<Path>, perm: u16) -> FileStep {
        self.add(Step::Create { path: path_of(path), perm })
    }

    /// Reads up to `len` bytes; fewer only at the end of the file.
    pub fn read(
        &mut self,
        file: impl Into<FileOperand<'f>>,
        offset: impl Into<NumberOperand>,
        len: u32,
    ) -> BytesStep {
        let (file, offset) = (self.take(file.into().0), self.take(offset.into()));
        self.add(Step::Read { file, offset, len })
    }

    /// Writes; the result is the number of bytes.
    pub fn write(
        &mut self,
        file: impl Into<FileOperand<'f>>,
        offset: impl Into<NumberOperand>,
        data: impl Into<BytesOperand>,
    ) -> NumberStep {
        let (file, offset) = (self.take(file.into().0), self.take(offset.into()));
        let data = self.take(data.into());
        self.add(Step::Write { file, offset, data })
    }

    /// Writes at the end of the file; the result is where that was.
    pub fn append(
        &mut self,
        file: impl Into<FileOperand<'f>>,
        data: impl Into<BytesOperand>,
    ) -> NumberStep {
        let (file, data) = (self.take(file.into().0), self.take(data.into()));
        self.add(Step::Append { file, data })
    }

    /// A checksum.
    pub fn checksum(&mut self, kind: Checksum, data: impl Into<BytesOperand>) -> NumberStep {
        let data = self.take(data.into());
        self.add(Step::Checksum { kind, data })
    }

    /// Compresses.
    pub fn compress(&mut self, codec: Codec, data: impl Into<BytesOperand>) -> BytesStep {
        let data = self.take(data.into());
        self.add(Step::Compress { codec, data })
    }

    /// Decompresses to at most `most` bytes; `EOVERFLOW` if they are more, `EILSEQ` if it is not
    /// one frame.
    pub fn decompress(
        &mut self,
        codec: Codec,
        data: impl Into<BytesOperand>,
        most: u32,
    ) -> BytesStep {
        let data = self.take(data.into());
        self.add(Step::Decompress { codec, data, most })
    }

    /// Puts bytes in the place of as many that are there; the result is those.
    pub fn patch(
        &mut self,
        file: impl Into<FileOperand<'f>>,
        offset: impl Into<NumberOperand>,
        data: impl Into<BytesOperand>,
    ) -> BytesStep {
        let (file, offset) = (self.take(file.into().0), self.take(offset.into()));
        let data = self.take(data.into());
        self.add(Step::Patch { file, offset, data })
    }

    /// Adds to a little-endian number in the file, and wraps; the result is what was there.
    pub fn add_to(
        &mut self,
        file: impl Into<FileOperand<'f>>,
        offset: impl Into<NumberOperand>,
        width: Width,
        addend: impl Into<NumberOperand>,
    ) -> NumberStep {
        let (file, offset) = (self.take(file.into().0), self.take(offset.into()));
        let addend = self.take(addend.into());
        self.add(Step::Add { file, offset, width, addend })
    }

    /// Puts `new` in the place of `expected`, which are as many bytes. `ECANCELED` if those are not
    /// there.
    pub fn compare_and_set(
        &mut self,
        file: impl Into<FileOperand<'f>>,
        offset: impl Into<NumberOperand>,
        expected: impl Into<BytesOperand>,
        new: impl Into<BytesOperand>,
    ) -> &mut Self {
        let (file, offset) = (self.take(file.into().0), self.take(offset.into()));
        let (expected, new) = (self.take(expected.into()), self.take(new.into()));
        self.done(Step::CompareAndSet { file, offset, expected, new })
    }

    /// Gives a file another name, which no file has.
    pub fn rename(&mut self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> &mut Self {
        self.done(Step::Rename { from: path_of(from), to: path_of(to), replace: false })
    }

    /// Gives a file another name, in place of the file that has it, if there is one.
    pub fn replace(&mut self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> &mut Self {
        self.done(Step::Rename { from: path_of(from), to: path_of(to), replace: true })
    }

    /// Gives a file one more name.
    pub fn link(&mut self, file: impl Into<FileOperand<'f>>, to: impl AsRef<Path>) -> &mut Self {
        let file = self.take(file.into().0);
        self.done(Step::Link { file, to: path_of(to) })
    }

    /// Takes a name away.
    pub fn unlink(&mut self, path: impl AsRef<Path>) -> &mut Self {
        self.done(Step::Unlink { path: path_of(path) })
    }

    /// Sets the size of a file.
    pub fn set_len(
        &mut self,
        file: impl Into<FileOperand<'f>>,
        size: impl Into<NumberOperand>,
    ) -> &mut Self {
        let (file, size) = (self.take(file.into().0), self.take(size.into()));
        self.done(Step::SetSize { file, size })
    }

    /// Changes attributes.
    pub fn set_attributes(
        &mut self,
        file: impl Into<FileOperand<'f>>,
        set: NewAttributes,
    ) -> &mut Self {
        let file = self.take(file.into().0);
        self.done(Step::SetAttributes { file, set })
    }

    /// Closes what an earlier step opened.
    pub fn close(&mut self, file: FileStep) -> &mut Self {
        match file.number_in(self.id) {
            Some(step) => self.done(Step::Close { step }),
            None => {
                self.foreign = true;
                self
            }
        }
    }

    /// Carries the steps out. Other programs see all changes on return, and how much a crash shows
    /// the level says: all of them or none.
    ///
    /// # Errors
    /// [`CompoundError::Refused`] with the step that was; nothing has changed then.
    /// [`CompoundError::Failed`]: `ENOTTY` if the directory is not on a SiftFS mount; `EMSGSIZE`
    /// and `E2BIG` for results and steps that are too long. Nothing has changed then either.
    /// `EINTR` if a signal came, and it may or may not have happened; `EIO` if the storage failed.
    pub fn run(self, level: Level) -> Result<Results, CompoundError> {
        let Self { dir, id, steps, foreign } = self;
        if foreign {
            return Err(CompoundError::Failed(io::Error::from_raw_os_error(libc::EINVAL)));
        }
        let wanted = steps.iter().map(|(_, wanted)| *wanted).collect();
        let values = carry_out(dir, &Argument { steps, level })?;
        Ok(Results { id, wanted, values })
    }
}

/// Carries out a compound as an ioctl has it, and returns the results that were wanted, in order.
///
/// # Errors
/// As [`Compound::run`].
pub fn carry_out(dir: BorrowedFd<'_>, argument: &Argument) -> Result<Vec<Vec<u8>>, CompoundError> {
    let failed = |e: i32| CompoundError::Failed(io::Error::from_raw_os_error(e));
    let wanted = argument.steps.iter().filter(|(_, wanted)| *wanted);
    let room: usize = wanted.clone().map(|(step, _)| RESULT_LEN + longest(step)).sum();
    let (command, mut buffer) =
        argument.encode(room.min(LONGEST)).map_err(|e| failed(e.errno()))?;
    ioctl(dir, command, &mut buffer).map_err(CompoundError::Failed)?;
    match Answer::decode(&buffer, wanted.count()).map_err(|e| failed(e.errno()))? {
        Answer::Done(values) => Ok(values),
        Answer::Refused(StepNr(step), errno) => {
            let error = io::Error::from_raw_os_error(errno);
            Err(CompoundError::Refused { step: step as usize, error })
        }
    }
}

/// Bytes that the step's result may have.
fn longest(step: &Step) -> usize {
    match step {
        Step::Read { len: most, .. } | Step::Decompress { most, .. } => {
            (*most as usize).min(LONGEST)
        }
        Step::Patch { data: BytesArg::Given(bytes), .. } => bytes.len(),
        Step::Patch { data: BytesArg::Part { len, .. }, .. } => (*len as usize).min(LONGEST),
        Step::Patch { .. } | Step::Compress { .. } => LONGEST,
        // A number, or that of a file.
        _ => size_of::<u64>(),
    }
}

fn path_of(path: impl AsRef<Path>) -> Vec<u8> {
    path.as_ref().as_os_str().as_bytes().to_vec()
}

/// Why a compound was not carried out.
#[derive(Debug)]
pub enum CompoundError {
    /// A step is refused, and nothing has changed.
    Refused {
        /// Which, from 0.
        step: usize,
        /// Why.
        error: io::Error,
    },
    /// All of it is.
    Failed(io::Error),
}

impl From<CompoundError> for io::Error {
    fn from(error: CompoundError) -> Self {
        match error {
            CompoundError::Refused { error, .. } | CompoundError::Failed(error) => error,
        }
    }
}

impl std::fmt::Display for CompoundError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused { step, error } => write!(f, "step {step}: {error}"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CompoundError {}

/// The results that were wanted of a compound's steps.
#[derive(Debug)]
pub struct Results {
    id: u64,
    wanted: Vec<bool>,
    values: Vec<Vec<u8>>,
}

impl Results {
    fn of<T>(&self, step: Coming<T>) -> Option<&[u8]> {
        let index = step.number_in(self.id)?.0 as usize;
        let before = self.wanted.get(..index)?.iter().filter(|wanted| **wanted).count();
        let value = self.values.get(before).filter(|_| self.wanted.get(index) == Some(&true));
        value.map(Vec::as_slice)
    }

    /// The bytes that a step had as its result; `None` if they were not wanted.
    pub fn bytes(&self, step: BytesStep) -> Option<&[u8]> {
        self.of(step)
    }

    /// The number that a step had as its result; `None` if it was not wanted.
    pub fn number(&self, step: NumberStep) -> Option<u64> {
        self.of(step).map(number)
    }

    /// The inode number of the file that a step found; `None` if it was not wanted.
    pub fn file(&self, step: FileStep) -> Option<u64> {
        self.of(step).map(number)
    }
}

/// Of 4 or 8 bytes, little endian.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
