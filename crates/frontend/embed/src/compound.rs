//! Many steps whose changes are all made, or none.

use crate::{Error, File, Result, Volume, below_root};
use siftfs_base::errno;
use siftfs_proto::builder::List;
use siftfs_proto::compound::{self as asked, FileArg, Step, StepNr, Value, Wanted};
pub use siftfs_proto::compound::{Access, Checksum, Codec, NewAttributes, Width};
use siftfs_proto::ioctl::compound as ioctl;
pub use siftfs_proto::steps::{
    BytesOperand, BytesStep, Coming, FileOperand, FileStep, NumberOperand, NumberStep, Operand,
};
use siftfs_proto::{Level, ROOT_INO, Request, Rights};

/// Steps that are to be carried out together: other callers, and a crash, see all that they change
/// or nothing of it. A step may work on the results of those before it.
///
/// ```no_run
/// # use siftfs::{Access, Checksum};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let volume = siftfs::Volume::open("/var/lib/data.sift".as_ref())?;
/// // A block, and its checksum in another file.
/// let mut steps = volume.compound();
/// let (data, sums) = (steps.open("/blocks", Access::Both), steps.open("/sums", Access::Both));
/// steps.write(data, 7 * 4096, vec![7; 4096]);
/// let sum = steps.checksum(Checksum::Crc32c, vec![7; 4096]);
/// steps.write(sums, 7 * 4, sum);
/// steps.durable()?; // one write, one flush
/// # Ok(())
/// # }
/// ```
///
/// Nothing happens before one of the three last calls. `docs/design/operations.md` says what a
/// compound may not be.
#[must_use = "nothing happens before `visible`, `atomic` or `durable`"]
pub struct Compound<'v> {
    volume: &'v Volume,
    list: List<FileArg>,
}

impl From<&File> for FileOperand {
    fn from(file: &File) -> Self {
        Self::given(FileArg::Open(file.handle()))
    }
}

impl<'v> Compound<'v> {
    pub(crate) fn new(volume: &'v Volume) -> Self {
        Self { volume, list: List::default() }
    }

    siftfs_proto::step_methods!(FileOperand, &str, below_root);

    /// Other callers see all changes on return. A crash shows all of them or none.
    ///
    /// # Errors
    /// [`CompoundError::Refused`] with the step that was; nothing has changed then.
    pub fn visible(self) -> std::result::Result<Results, CompoundError> {
        self.carry_out(Level::Visible)
    }

    /// As [`Compound::visible`], and ordered: nothing that is made durable later survives a crash
    /// without it.
    ///
    /// # Errors
    /// As of [`Compound::visible`].
    pub fn atomic(self) -> std::result::Result<Results, CompoundError> {
        self.carry_out(Level::Atomic)
    }

    /// All of it is durable on return.
    ///
    /// # Errors
    /// As of [`Compound::visible`].
    pub fn durable(self) -> std::result::Result<Results, CompoundError> {
        self.carry_out(Level::Durable)
    }

    fn carry_out(self, level: Level) -> std::result::Result<Results, CompoundError> {
        let Self { volume, list: List { id, steps, foreign } } = self;
        if foreign {
            return Err(errno(libc::EINVAL).into());
        }
        let (base, rights, wanted) = (ROOT_INO, Rights::all(), Wanted::All);
        let compound = asked::Compound { base, steps, level, rights, wanted };
        let reply = volume.shared.call(Request::Compound(Box::new(compound)))?;
        match reply.compounded()? {
            asked::Compounded::Done { values, .. } => {
                Ok(Results { id, values: values.into_iter().map(|v| volume.value(v)).collect() })
            }
            asked::Compounded::Refused { step, errno: number } => {
                Err(CompoundError::Refused { step: step.0 as usize, error: errno(number) })
            }
        }
    }
}

/// Why a compound was not carried out. Nothing has changed, unless storage failed.
#[derive(Debug)]
pub enum CompoundError {
    /// A step is refused.
    Refused {
        /// Which, from 0.
        step: usize,
        /// Why.
        error: Error,
    },
    /// All of it is.
    Failed(Error),
}

impl From<Error> for CompoundError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<CompoundError> for Error {
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

/// The results of a compound's steps.
pub struct Results {
    id: u64,
    values: Vec<Got>,
}

/// A result that nobody has taken, or none.
enum Got {
    None,
    Number(u64),
    Bytes(Vec<u8>),
    File(File),
}

impl Volume {
    fn value(&self, value: Value) -> Got {
        match value {
            Value::Number { value, .. } => Got::Number(value),
            Value::Bytes(bytes) => Got::Bytes(bytes),
            Value::File { ino, handle: Some(handle), .. } => {
                Got::File(File::new(self.shared.clone(), ino, handle))
            }
            Value::File { handle: None, .. } | Value::None => Got::None,
        }
    }
}

impl Results {
    fn take<T>(&mut self, step: Coming<T>) -> Option<&mut Got> {
        self.values.get_mut(step.number_in(self.id)?.0 as usize)
    }

    /// The bytes that a step had as its result. Empty if they were taken already, or it is another
    /// compound's step.
    pub fn bytes(&mut self, step: BytesStep) -> Vec<u8> {
        match self.take(step) {
            Some(Got::Bytes(bytes)) => std::mem::take(bytes),
            _ => Vec::new(),
        }
    }

    /// The number that a step had as its result; `None` for a step of another compound.
    pub fn number(&mut self, step: NumberStep) -> Option<u64> {
        match self.take(step) {
            Some(Got::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// The file that a step opened. `None` if it was closed by a step, taken already, only looked
    /// up, or it is another compound's. What is not taken is closed.
    pub fn file(&mut self, step: FileStep) -> Option<File> {
        let got = self.take(step)?;
        match std::mem::replace(got, Got::None) {
            Got::File(file) => Some(file),
            other => {
                *got = other;
                None
            }
        }
    }
}

/// The compounds that programs need most.
impl Volume {
    /// Begins a list of steps that are carried out together.
    pub fn compound(&self) -> Compound<'_> {
        Compound::new(self)
    }

    /// Opens a file to read and write, and reads.
    ///
    /// # Errors
    /// As of [`Compound::visible`], and those of the steps; nothing is open then.
    pub fn open_read(&self, path: &str, offset: u64, len: u32) -> Result<(File, Vec<u8>)> {
        let mut steps = self.compound();
        let file = steps.open(path, Access::Both);
        let data = steps.read(file, offset, len);
        let mut results = steps.visible()?;
        Ok((opened(&mut results, file)?, results.bytes(data)))
    }

    /// Opens a file to read and write, and writes.
    ///
    /// # Errors
    /// As of [`Compound::visible`], and those of the steps; nothing has changed then. Not durable
    /// before a sync.
    pub fn open_write(&self, path: &str, offset: u64, data: &[u8]) -> Result<File> {
        let mut steps = self.compound();
        let file = steps.open(path, Access::Both);
        steps.write(file, offset, data);
        opened(&mut steps.visible()?, file)
    }

    /// Writes, and puts the data's checksum at `sum_at` of another file, or of the same: durable
    /// together.
    ///
    /// # Errors
    /// As of [`Compound::durable`], and those of the steps; nothing has changed then.
    pub fn checksum_and_write(
        &self,
        (file, offset): (&File, u64),
        data: &[u8],
        kind: Checksum,
        (sums, sum_at): (&File, u64),
    ) -> Result<u64> {
        let mut steps = self.compound();
        steps.write(file, offset, data);
        let sum = steps.checksum(kind, data);
        steps.write(sums, sum_at, sum);
        let mut results = steps.durable()?;
        results.number(sum).ok_or_else(|| errno(libc::EIO))
    }

    /// Reads, and computes the checksum of what was read.
    ///
    /// # Errors
    /// As of [`Compound::visible`], and those of the steps; nothing changes.
    pub fn read_and_checksum(
        &self,
        file: &File,
        offset: u64,
        len: u32,
        kind: Checksum,
    ) -> Result<(Vec<u8>, u64)> {
        let mut steps = self.compound();
        let data = steps.read(file, offset, len);
        let sum = steps.checksum(kind, data);
        let mut results = steps.visible()?;
        let number = results.number(sum).ok_or_else(|| errno(libc::EIO))?;
        Ok((results.bytes(data), number))
    }

    /// Compresses, and writes one frame; its length.
    ///
    /// # Errors
    /// As of [`Compound::visible`], and those of the steps; nothing has changed then. Not durable
    /// before a sync.
    pub fn compress_and_write(
        &self,
        file: &File,
        offset: u64,
        codec: Codec,
        data: &[u8],
    ) -> Result<u64> {
        let mut steps = self.compound();
        let frame = steps.compress(codec, data);
        let written = steps.write(file, offset, frame);
        steps.visible()?.number(written).ok_or_else(|| errno(libc::EIO))
    }

    /// Replaces bytes by `data`, and returns the old ones.
    ///
    /// # Errors
    /// As of [`Compound::visible`], and those of the steps; nothing has changed then. Not durable
    /// before a sync.
    pub fn read_modify_write(&self, file: &File, offset: u64, data: &[u8]) -> Result<Vec<u8>> {
        let mut steps = self.compound();
        let old = steps.patch(file, offset, data);
        Ok(steps.visible()?.bytes(old))
    }

    /// Writes, and closes the file.
    ///
    /// # Errors
    /// As of [`Compound::visible`], and those of the steps; nothing was written then. Not durable
    /// before a sync.
    pub fn write_close(&self, file: File, offset: u64, data: &[u8]) -> Result<()> {
        let mut steps = self.compound();
        steps.write(&file, offset, data);
        steps.list.add_silent(Step::Close { file: FileArg::Open(file.handle()) });
        let result = steps.visible();
        match result {
            Ok(_) => {
                file.closed();
                Ok(())
            }
            Err(e) => Err(e.into()),
        }
    }
}

fn opened(results: &mut Results, file: FileStep) -> Result<File> {
    results.file(file).ok_or_else(|| errno(libc::EIO))
}

/// For libraries of other languages: steps as a mount's ioctl has them. A descriptor's number is
/// the place of an open file in `files`. Answers with the wanted results, and keeps no file open
/// that the steps opened.
///
/// # Errors
/// As of [`Compound::visible`]; `EBADF` for a number without a file.
pub fn carry_out(
    volume: &Volume,
    argument: &ioctl::Compound,
    files: &[&File],
) -> std::result::Result<Vec<Vec<u8>>, CompoundError> {
    let handle = |file, _| match file {
        ioctl::File::Step(step) => Ok(FileArg::Step(step)),
        ioctl::File::Descriptor(number) => {
            let open = usize::try_from(number).ok().and_then(|number| files.get(number));
            open.map(|file| FileArg::Open(file.handle())).ok_or_else(|| errno(libc::EBADF))
        }
    };
    let steps = argument.steps.iter().map(|(step, _)| step.clone().with_files(handle));
    let steps = steps.collect::<Result<Vec<_>>>()?;
    let wanted = (0..).map(StepNr).zip(&argument.steps).filter(|(_, (_, wanted))| *wanted);
    let wanted: Vec<_> = wanted.map(|(number, _)| number).collect();
    let most = u32::try_from(asked::MOST_RESULTS).unwrap_or(u32::MAX);
    let results = Wanted::Some { steps: wanted.clone(), most };
    let (base, rights, level) = (ROOT_INO, Rights::all(), argument.level);
    let compound = asked::Compound { base, steps, level, rights, wanted: results };
    let compounded = volume.shared.call(Request::Compound(Box::new(compound)))?.compounded()?;
    if let asked::Compounded::Done { values, .. } = &compounded {
        // What was opened and is wanted has its number in the answer, and is closed here.
        values.iter().cloned().for_each(|value| drop(volume.value(value)));
    }
    match ioctl::Answer::of(&compounded, &wanted) {
        ioctl::Answer::Done(results) => Ok(results),
        ioctl::Answer::Refused(step, number) => {
            Err(CompoundError::Refused { step: step.0 as usize, error: errno(number) })
        }
    }
}
