//! Many steps on a mount whose changes are all made, or none.

use crate::call::ioctl;
use siftfs_proto::Level;
use siftfs_proto::builder::List;
pub use siftfs_proto::compound::{Access, Checksum, Codec, NewAttributes, Width};
use siftfs_proto::compound::{BytesArg, StepNr};
use siftfs_proto::ioctl::compound::{ANSWER_HEAD, Answer, Compound as Argument, File, Step};
use siftfs_proto::steps::Operand;
pub use siftfs_proto::steps::{
    BytesOperand, BytesStep, Coming, FileStep, NumberOperand, NumberStep,
};
use std::collections::BTreeSet;
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
    list: List<File>,
    /// The steps whose results are wanted.
    wanted: BTreeSet<u32>,
}

/// The file of a step: an open one, or one that an earlier step finds.
pub struct FileOperand<'f>(Operand<File>, PhantomData<BorrowedFd<'f>>);

impl<'f, T: AsFd> From<&'f T> for FileOperand<'f> {
    fn from(file: &'f T) -> Self {
        let number = file.as_fd().as_raw_fd().cast_unsigned();
        Self(Operand::given(File::Descriptor(number)), PhantomData)
    }
}

impl From<FileOperand<'_>> for Operand<File> {
    fn from(file: FileOperand<'_>) -> Self {
        file.0
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
        Self { dir: dir.as_fd(), list: List::default(), wanted: BTreeSet::new() }
    }

    /// Has the results bring that of this step.
    pub fn want<T>(&mut self, step: Coming<T>) -> &mut Self {
        match step.number_in(self.list.id) {
            Some(StepNr(number)) => drop(self.wanted.insert(number)),
            None => self.list.foreign = true,
        }
        self
    }

    siftfs_proto::step_methods!(FileOperand<'f>, impl AsRef<Path>, path_of);

    /// Carries the steps out. Other programs see all changes on return, and how much a crash shows
    /// the level says: all of them or none.
    ///
    /// # Errors
    /// [`CompoundError::Refused`] with the step that was; nothing has changed then.
    /// [`CompoundError::Failed`]: `ENOTTY` if the directory is not on a SiftFS mount; `EMSGSIZE`
    /// and `E2BIG` for results and steps that are too long. Nothing has changed then either.
    /// `EINTR` if a signal came, and it may or may not have happened; `EIO` if the storage failed.
    pub fn run(self, level: Level) -> Result<Results, CompoundError> {
        let Self { dir, list: List { id, steps, foreign }, wanted } = self;
        if foreign {
            return Err(CompoundError::Failed(io::Error::from_raw_os_error(libc::EINVAL)));
        }
        let wanted: Vec<bool> =
            (0..).zip(&steps).map(|(number, _)| wanted.contains(&number)).collect();
        let steps = steps.into_iter().zip(wanted.iter().copied()).collect();
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
        Step::Patch { .. } | Step::Compress { .. } | Step::Join { .. } => LONGEST,
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
