//! What a program writes a compound with: the results that steps will have, and the operands made
//! of them. Whatever carries compounds out has these in its interface.

use crate::compound::{BytesArg, FileArg, NumberArg, StepNr};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number for a new list of steps, which no other list of the process has.
pub fn new_list() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

/// Kinds of results.
pub mod kind {
    /// A file.
    pub enum File {}
    /// Bytes.
    pub enum Bytes {}
    /// A number.
    pub enum Number {}
    /// None.
    pub enum Nothing {}
}

/// The result that a step will have: of a [`FileStep`], [`BytesStep`] or [`NumberStep`].
pub struct Coming<T> {
    compound: u64,
    step: StepNr,
    kind: PhantomData<T>,
}

impl<T> Clone for Coming<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Coming<T> {}

/// A step finds a file.
pub type FileStep = Coming<kind::File>;
/// A step has bytes as its result.
pub type BytesStep = Coming<kind::Bytes>;
/// A step has a number as its result.
pub type NumberStep = Coming<kind::Number>;

/// What a step works on: given now, or the result of an earlier step.
pub struct Operand<T> {
    arg: T,
    /// The compound whose step's result it is.
    of: Option<u64>,
}

/// The file of a step: an open one, or one that an earlier step finds.
pub type FileOperand = Operand<FileArg>;
/// Bytes: given, of an earlier step, or a number of one, little endian.
pub type BytesOperand = Operand<BytesArg>;
/// A number: given, of an earlier step, or how many bytes one has.
pub type NumberOperand = Operand<NumberArg>;

impl<K> Coming<K> {
    /// The result of step `index` of a list.
    pub fn new(list: u64, index: usize) -> Self {
        // Many more steps than fit the number are refused.
        let step = StepNr(u32::try_from(index).unwrap_or(u32::MAX));
        Self { compound: list, step, kind: PhantomData }
    }

    /// The step's number, if it is one of this list.
    pub fn number_in(self, list: u64) -> Option<StepNr> {
        (self.compound == list).then_some(self.step)
    }
}

impl<T> Operand<T> {
    /// What is known now.
    pub fn given(arg: T) -> Self {
        Self { arg, of: None }
    }

    /// What a step of this list works on.
    ///
    /// # Errors
    /// It is the result of another list's step.
    pub fn for_list(self, list: u64) -> Result<T, T> {
        if self.of.is_none_or(|of| of == list) { Ok(self.arg) } else { Err(self.arg) }
    }

    /// What an earlier step has as its result.
    pub fn of<K>(step: Coming<K>, arg: impl FnOnce(StepNr) -> T) -> Self {
        Self { arg: arg(step.step), of: Some(step.compound) }
    }
}

impl From<FileStep> for FileOperand {
    fn from(step: FileStep) -> Self {
        Self::of(step, FileArg::Step)
    }
}

impl From<Vec<u8>> for BytesOperand {
    fn from(bytes: Vec<u8>) -> Self {
        Self::given(BytesArg::Given(bytes))
    }
}

impl From<&[u8]> for BytesOperand {
    fn from(bytes: &[u8]) -> Self {
        bytes.to_vec().into()
    }
}

impl<const N: usize> From<&[u8; N]> for BytesOperand {
    fn from(bytes: &[u8; N]) -> Self {
        bytes.to_vec().into()
    }
}

impl From<BytesStep> for BytesOperand {
    fn from(step: BytesStep) -> Self {
        Self::of(step, BytesArg::Step)
    }
}

impl From<NumberStep> for BytesOperand {
    fn from(step: NumberStep) -> Self {
        Self::of(step, BytesArg::Step)
    }
}

impl From<u64> for NumberOperand {
    fn from(number: u64) -> Self {
        Self::given(NumberArg::Given(number))
    }
}

impl From<NumberStep> for NumberOperand {
    fn from(step: NumberStep) -> Self {
        Self::of(step, NumberArg::Step)
    }
}

impl From<BytesStep> for NumberOperand {
    fn from(step: BytesStep) -> Self {
        Self::of(step, NumberArg::Step)
    }
}

impl BytesStep {
    /// `len` of the bytes, from byte `start` on. A compound where they are not there is refused
    /// (`EINVAL`).
    pub fn part(self, start: u32, len: u32) -> BytesOperand {
        BytesOperand::of(self, |step| BytesArg::Part { step, start, len })
    }
}
