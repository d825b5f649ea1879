//! Compounds on a mount, and in the process: a list of steps, to which each function adds one.

use crate::convert::{borrowed, bytes, fail, given, io_error, refuse, slice, status};
use crate::mount::{descriptor, level};
use siftfs::{File as OpenFile, Volume};
use siftfs_client::raw::carry_out;
use siftfs_client::raw::{Argument, BytesArg, File, NumberArg, Step, StepNr};
use siftfs_client::{
    Access, Checksum, Codec, CompoundError, Level, NewAttributes, SetTime, Timestamp, Width,
};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::io;

/// `siftfs_compound`.
#[derive(Default)]
pub struct Compound {
    steps: Vec<(Step, bool)>,
    /// What came of the last run: its results.
    results: Vec<Vec<u8>>,
    /// The step that it was refused for.
    refused: Option<usize>,
}

/// `siftfs_number`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Number {
    value: u64,
    /// From 0; negative: `value`.
    step: c_int,
}

/// `siftfs_bytes`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Bytes {
    data: *const c_void,
    length: usize,
    /// From 0; negative: `data`.
    step: c_int,
    start: usize,
}

/// `siftfs_attributes`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Attributes {
    which: c_uint,
    mode: libc::mode_t,
    uid: libc::uid_t,
    gid: libc::gid_t,
    atime: libc::timespec,
    mtime: libc::timespec,
}

/// Bits of `siftfs_attributes.which`, in the order of its fields.
const MODE: c_uint = 1;
const UID: c_uint = 2;
const GID: c_uint = 4;
const ATIME: c_uint = 8;
const MTIME: c_uint = 16;

fn invalid<T>() -> io::Result<T> {
    Err(refuse(libc::EINVAL))
}

fn step_nr(step: c_int) -> io::Result<StepNr> {
    u32::try_from(step).map(StepNr).map_err(|_| refuse(libc::EINVAL))
}

/// A descriptor, or -1 - N for the file of step N.
fn file(file: c_int) -> io::Result<File> {
    Ok(match u32::try_from(file) {
        Ok(number) => File::Descriptor(number),
        Err(_) => File::Step(step_nr(-1 - file)?),
    })
}

impl Number {
    fn arg(self) -> io::Result<NumberArg> {
        match self.step < 0 {
            true => Ok(NumberArg::Given(self.value)),
            false => step_nr(self.step).map(NumberArg::Step),
        }
    }
}

impl Bytes {
    /// # Safety
    /// `data` is null or points to `length` bytes if `step` is negative.
    unsafe fn arg(self) -> io::Result<BytesArg> {
        if self.step < 0 {
            // SAFETY: the caller's promise.
            let bytes = unsafe { slice(self.data.cast::<u8>(), self.length) }?;
            return Ok(BytesArg::Given(bytes.to_vec()));
        }
        let step = step_nr(self.step)?;
        if self.length == usize::MAX && self.start == 0 {
            return Ok(BytesArg::Step(step));
        }
        let field = |n: usize| u32::try_from(n).map_err(|_| refuse(libc::EINVAL));
        Ok(BytesArg::Part { step, start: field(self.start)?, len: field(self.length)? })
    }
}

/// Adds a step; its number, or -1.
///
/// # Safety
/// `compound` is null or was given by `siftfs_compound_new`, and no other thread uses it.
unsafe fn add(compound: *mut Compound, step: impl FnOnce() -> io::Result<Step>) -> c_int {
    let add = || {
        // SAFETY: the caller's promise.
        let compound = unsafe { compound.as_mut() }.ok_or_else(|| refuse(libc::EINVAL))?;
        let number = c_int::try_from(compound.steps.len()).map_err(|_| refuse(libc::E2BIG))?;
        compound.steps.push((step()?, false));
        Ok(number)
    };
    add().unwrap_or_else(|error| {
        fail(&error);
        -1
    })
}

/// `siftfs_compound_new`.
#[unsafe(no_mangle)]
pub extern "C" fn siftfs_compound_new() -> *mut Compound {
    given(Ok(Compound::default()))
}

/// `siftfs_compound_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_compound_free(compound: *mut Compound) {
    if !compound.is_null() {
        // SAFETY: given by `siftfs_compound_new`, and the caller gives it back once.
        drop(unsafe { Box::from_raw(compound) });
    }
}

/// `siftfs_compound_lookup`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_compound_lookup(
    compound: *mut Compound,
    path: *const c_char,
) -> c_int {
    // SAFETY: the header asks for a string that ends with NUL; `add` for the compound.
    unsafe { add(compound, || Ok(Step::Lookup { path: bytes(path)?.to_vec() })) }
}

/// `siftfs_compound_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_compound_open(
    compound: *mut Compound,
    path: *const c_char,
    flags: c_int,
) -> c_int {
    let open = || {
        let access = match flags & !libc::O_TRUNC {
            libc::O_RDONLY => Access::Read,
            libc::O_WRONLY => Access::Write,
            libc::O_RDWR => Access::Both,
            _ => return invalid(),
        };
        let truncate = flags & libc::O_TRUNC != 0;
        // SAFETY: the header asks for a string that ends with NUL.
        Ok(Step::Open { path: unsafe { bytes(path) }?.to_vec(), access, truncate })
    };
    // SAFETY: the header asks for the compound.
    unsafe { add(compound, open) }
}

/// `siftfs_compound_create`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_compound_create(
    compound: *mut Compound,
    path: *const c_char,
    mode: libc::mode_t,
) -> c_int {
    let create = || {
        let perm = u16::try_from(mode).map_err(|_| refuse(libc::EINVAL))?;
        // SAFETY: the header asks for a string that ends with NUL.
        Ok(Step::Create { path: unsafe { bytes(path) }?.to_vec(), perm })
    };
    // SAFETY: the header asks for the compound.
    unsafe { add(compound, create) }
}

/// `siftfs_compound_read`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_compound_read(
    compound: *mut Compound,
    from: c_int,
    offset: Number,
    length: u32,
) -> c_int {
    let read = || Ok(Step::Read { file: file(from)?, offset: offset.arg()?, len: length });
    // SAFETY: the header asks for the compound.
    unsafe { add(compound, read) }
}

/// `siftfs_compound_write`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_compound_write(
    compound: *mut Compound,
    to: c_int,
    offset: Number,
    data: Bytes,
) -> c_int {
    let write = || {
        // SAFETY: the header asks for the bytes.
        let data = unsafe { data.arg() }?;
        Ok(Step::Write { file: file(to)?, offset: offset.arg()?, data })
    };
    // SAFETY: the header asks for the compound.
    unsafe { add(compound, write) }
}

/// `siftfs_compound_append`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_compound_append(
    compound: *mut Compound,
    to: c_int,
    data: Bytes,
) -> c_int {
    // SAFETY: the header asks for the bytes, and for the compound.
    unsafe { add(compound, || Ok(Step::Append { file: file(to)?, data: data.arg()? })) }
}

/// `siftfs_compound_checksum`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_compound_checksum(
    compound: *mut Compound,
    kind: c_int,
    data: Bytes,
) -> c_int {
    let sum = || {
        let kind = match kind {
            0 => Checksum::Crc32c,
            1 => Checksum::MaskedCrc32c,
            2 => Checksum::Xxh3,
            _ => return invalid(),
        };
        // SAFETY: the header asks for the bytes.
        Ok(Step::Checksum { kind, data: unsafe { data.arg() }? })
    };
    // SAFETY: the header asks for the compound.
    unsafe { add(compound, sum) }
}

fn codec(codec: c_int) -> io::Result<Codec> {
    match codec {
        0 => Ok(Codec::Lz4Frame),
        1 => Ok(Codec::Zstd),
        _ => invalid(),
    }
}

/// `siftfs_compound_compress`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_compound_compress(
    compound: *mut Compound,
    format: c_int,
    data: Bytes,
) -> c_int {
    // SAFETY: the header asks for the bytes, and for the compound.
    unsafe { add(compound, || Ok(Step::Compress { codec: codec(format)?, data: data.arg()? })) }
}

/// `siftfs_compound_decompress`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_compound_decompress(
    compound: *mut Compound,
    format: c_int,
    data: Bytes,
    most: u32,
) -> c_int {
    let decompress = || {
        // SAFETY: the header asks for the bytes.
        Ok(Step::Decompress { codec: codec(format)?, data: unsafe { data.arg() }?, most })
    };
    // SAFETY: the header asks for the compound.
    unsafe { add(compound, decompress) }
}

/// `siftfs_compound_join`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_compound_join(
    compound: *mut Compound,
    first: Bytes,
    second: Bytes,
) -> c_int {
    let join = || {
        // SAFETY: the header asks for the bytes.
        let (first, second) = unsafe { (first.arg()?, second.arg()?) };
        Ok(Step::Join { first, second })
    };
    // SAFETY: the header asks for the compound.
    unsafe { add(compound, join) }
}

/// `siftfs_compound_patch`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_compound_patch(
    compound: *mut Compound,
    to: c_int,
    offset: Number,
    data: Bytes,
) -> c_int {
    let patch = || {
        // SAFETY: the header asks for the bytes.
        let data = unsafe { data.arg() }?;
        Ok(Step::Patch { file: file(to)?, offset: offset.arg()?, data })
    };
    // SAFETY: the header asks for the compound.
    unsafe { add(compound, patch) }
}

/// `siftfs_compound_add`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_compound_add(
    compound: *mut Compound,
    to: c_int,
    offset: Number,
    width: c_int,
    addend: Number,
) -> c_int {
    let sum = || {
        let width = match width {
            4 => Width::U32,
            8 => Width::U64,
            _ => return invalid(),
        };
        let (offset, addend) = (offset.arg()?, addend.arg()?);
        Ok(Step::Add { file: file(to)?, offset, width, addend })
    };
    // SAFETY: the header asks for the compound.
    unsafe { add(compound, sum) }
}

/// `siftfs_compound_compare_and_set`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_compound_compare_and_set(
    compound: *mut Compound,
    to: c_int,
    offset: Number,
    expected: Bytes,
    new: Bytes,
) -> c_int {
    let set = || {
        // SAFETY: the header asks for the bytes.
        let (expected, new) = unsafe { (expected.arg()?, new.arg()?) };
        Ok(Step::CompareAndSet { file: file(to)?, offset: offset.arg()?, expected, new })
    };
    // SAFETY: the header asks for the compound.
    unsafe { add(compound, set) }
}

/// `siftfs_compound_rename`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_compound_rename(
    compound: *mut Compound,
    from: *const c_char,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    let rename = || {
        let replace = match flags {
            0 => false,
            crate::convert::REPLACE => true,
            _ => return invalid(),
        };
        // SAFETY: the header asks for strings that end with NUL.
        let (from, to) = unsafe { (bytes(from)?.to_vec(), bytes(to)?.to_vec()) };
        Ok(Step::Rename { from, to, replace })
    };
    // SAFETY: the header asks for the compound.
    unsafe { add(compound, rename) }
}

/// `siftfs_compound_link`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_compound_link(
    compound: *mut Compound,
    of: c_int,
    to: *const c_char,
) -> c_int {
    // SAFETY: the header asks for a string that ends with NUL, and for the compound.
    unsafe { add(compound, || Ok(Step::Link { file: file(of)?, to: bytes(to)?.to_vec() })) }
}

/// `siftfs_compound_unlink`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_compound_unlink(
    compound: *mut Compound,
    path: *const c_char,
) -> c_int {
    // SAFETY: the header asks for a string that ends with NUL, and for the compound.
    unsafe { add(compound, || Ok(Step::Unlink { path: bytes(path)?.to_vec() })) }
}

/// `siftfs_compound_set_size`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_compound_set_size(
    compound: *mut Compound,
    of: c_int,
    size: Number,
) -> c_int {
    // SAFETY: the header asks for the compound.
    unsafe { add(compound, || Ok(Step::SetSize { file: file(of)?, size: size.arg()? })) }
}

/// `siftfs_compound_set_attributes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_compound_set_attributes(
    compound: *mut Compound,
    of: c_int,
    set: *const Attributes,
) -> c_int {
    let set = || {
        // SAFETY: the header asks for attributes.
        let set = unsafe { borrowed(set) }?;
        Ok(Step::SetAttributes { file: file(of)?, set: attributes(set)? })
    };
    // SAFETY: the header asks for the compound.
    unsafe { add(compound, set) }
}

fn attributes(set: &Attributes) -> io::Result<NewAttributes> {
    let has = |bit: c_uint| set.which & bit != 0;
    if set.which & !(MODE | UID | GID | ATIME | MTIME) != 0 {
        return invalid();
    }
    let time = |bit: c_uint, time: &libc::timespec| match time.tv_nsec {
        _ if !has(bit) => Ok(None),
        libc::UTIME_NOW => Ok(Some(SetTime::Now)),
        nsec @ 0..1_000_000_000 => {
            let nsec = u32::try_from(nsec).map_err(|_| refuse(libc::EINVAL))?;
            Ok(Some(SetTime::At(Timestamp { sec: time.tv_sec, nsec })))
        }
        _ => invalid(),
    };
    let perm = u16::try_from(set.mode).map_err(|_| refuse(libc::EINVAL));
    Ok(NewAttributes {
        perm: if has(MODE) { Some(perm?) } else { None },
        uid: has(UID).then_some(set.uid),
        gid: has(GID).then_some(set.gid),
        atime: time(ATIME, &set.atime)?,
        mtime: time(MTIME, &set.mtime)?,
    })
}

/// `siftfs_compound_close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_compound_close(compound: *mut Compound, step: c_int) -> c_int {
    // SAFETY: the header asks for the compound.
    unsafe { add(compound, || Ok(Step::Close { file: File::Step(step_nr(step)?) })) }
}

/// `siftfs_compound_want`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_compound_want(compound: *mut Compound, step: c_int) -> c_int {
    let want = || {
        // SAFETY: the header asks for the compound, which no other thread uses.
        let compound = unsafe { compound.as_mut() }.ok_or_else(|| refuse(libc::EINVAL))?;
        let step = usize::try_from(step).ok().and_then(|step| compound.steps.get_mut(step));
        step.ok_or_else(|| refuse(libc::EINVAL))?.1 = true;
        Ok(())
    };
    status(want())
}

/// `siftfs_compound_run`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_compound_run(
    compound: *mut Compound,
    dirfd: c_int,
    wanted: c_int,
) -> c_int {
    let run = || {
        let level = level(wanted)?;
        // SAFETY: the header asks for the compound, which no other thread uses.
        let compound = unsafe { compound.as_mut() }.ok_or_else(|| refuse(libc::EINVAL))?;
        compound.run(level, |argument| Ok(carry_out(descriptor(&dirfd)?, argument)))
    };
    status(run())
}

/// `siftfs_compound_run_in`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_compound_run_in(
    compound: *mut Compound,
    volume: *const Volume,
    files: *const *const OpenFile,
    count: usize,
    wanted: c_int,
) -> c_int {
    let run = || {
        let level = level(wanted)?;
        // SAFETY: the header asks for a volume that is open, and for `count` files.
        let (volume, files) = unsafe { (borrowed(volume)?, slice(files, count)?) };
        // SAFETY: the header asks for files that are open.
        let files = files.iter().map(|file| unsafe { borrowed(*file) });
        let files = files.collect::<io::Result<Vec<_>>>()?;
        // SAFETY: the header asks for the compound, which no other thread uses.
        let compound = unsafe { compound.as_mut() }.ok_or_else(|| refuse(libc::EINVAL))?;
        compound.run(level, |argument| {
            Ok(siftfs::carry_out(volume, argument, &files).map_err(|error| match error {
                siftfs::CompoundError::Failed(error) => CompoundError::Failed(io_error(error)),
                siftfs::CompoundError::Refused { step, error } => {
                    CompoundError::Refused { step, error: io_error(error) }
                }
            }))
        })
    };
    status(run())
}

/// `siftfs_compound_refused`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_compound_refused(compound: *const Compound) -> c_int {
    // SAFETY: the header asks for the compound.
    let refused = unsafe { borrowed(compound) }.ok().and_then(|c| c.refused);
    refused.and_then(|step| c_int::try_from(step).ok()).unwrap_or(-1)
}

impl Compound {
    /// Has the steps carried out, and keeps what came of it.
    fn run(
        &mut self,
        level: Level,
        carry_out: impl FnOnce(&Argument) -> io::Result<Result<Vec<Vec<u8>>, CompoundError>>,
    ) -> io::Result<()> {
        (self.results, self.refused) = (Vec::new(), None);
        let argument = Argument { steps: std::mem::take(&mut self.steps), level };
        let done = carry_out(&argument);
        self.steps = argument.steps;
        match done? {
            Ok(results) => {
                self.results = results;
                Ok(())
            }
            Err(CompoundError::Failed(error)) => Err(error),
            Err(CompoundError::Refused { step, error }) => {
                self.refused = Some(step);
                Err(error)
            }
        }
    }

    fn result(&self, step: c_int) -> io::Result<&[u8]> {
        let step = usize::try_from(step).map_err(|_| refuse(libc::EINVAL))?;
        let wanted = |step: &(Step, bool)| step.1;
        let before = self.steps.get(..step).map(|steps| steps.iter().filter(|s| wanted(s)).count());
        let ours = self.steps.get(step).is_some_and(wanted);
        let result = before.filter(|_| ours).and_then(|before| self.results.get(before));
        result.map(Vec::as_slice).ok_or_else(|| refuse(libc::EINVAL))
    }
}

/// `siftfs_compound_bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_compound_bytes(
    compound: *const Compound,
    step: c_int,
    length: *mut usize,
) -> *const c_void {
    let give = || {
        // SAFETY: the header asks for the compound.
        let result = unsafe { borrowed(compound) }?.result(step)?;
        // SAFETY: the header asks for room for a length.
        unsafe { crate::convert::give(length, || Ok(result.len())) }?;
        Ok(result.as_ptr().cast())
    };
    give().unwrap_or_else(|error| {
        fail(&error);
        std::ptr::null()
    })
}

/// `siftfs_compound_number`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siftfs_compound_number(
    compound: *const Compound,
    step: c_int,
    number: *mut u64,
) -> c_int {
    let give = || {
        // SAFETY: the header asks for the compound.
        let result = unsafe { borrowed(compound) }?.result(step)?;
        if !matches!(result.len(), 4 | 8) {
            return invalid();
        }
        let value = result.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte));
        // SAFETY: the header asks for room for a number.
        unsafe { crate::convert::give(number, || Ok(value)) }
    };
    status(give())
}
