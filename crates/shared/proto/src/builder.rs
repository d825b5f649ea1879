//! A list of steps that a program writes down, and the methods of all builders of compounds.

use crate::compound::Step;
use crate::steps::{Coming, Operand, kind, new_list};

/// Steps that are being written down; `F` names a file.
pub struct List<F> {
    /// The list's number.
    pub id: u64,
    /// The steps so far.
    pub steps: Vec<Step<F>>,
    /// An operand, or a result that is wanted, is of another list's step.
    pub foreign: bool,
}

impl<F> Default for List<F> {
    fn default() -> Self {
        Self { id: new_list(), steps: Vec::new(), foreign: false }
    }
}

impl<F> List<F> {
    /// What the next step works on.
    pub fn take<T>(&mut self, operand: Operand<T>) -> T {
        let arg = operand.for_list(self.id);
        self.foreign |= arg.is_err();
        arg.unwrap_or_else(|foreign| foreign)
    }

    /// The file that the next step works on.
    pub fn take_file<O: Into<Operand<F>>>(&mut self, file: impl Into<O>) -> F {
        self.take(file.into().into())
    }

    /// One more step, with a result of kind `T`.
    pub fn add<T>(&mut self, step: Step<F>) -> Coming<T> {
        let coming = Coming::new(self.id, self.steps.len());
        self.steps.push(step);
        coming
    }

    /// One more step, without a result.
    pub fn add_silent(&mut self, step: Step<F>) {
        let _: Coming<kind::Nothing> = self.add(step);
    }
}

/// The steps of a builder of compounds, which has its [`List`] in `list`. `$file` is the operand
/// that names a file, `$path` the type of a path, and `$path_of` gives its bytes.
#[macro_export]
macro_rules! step_methods {
    ($file:ty, $path:ty, $path_of:path) => {
        /// Finds a file.
        pub fn lookup(&mut self, path: $path) -> $crate::steps::FileStep {
            self.list.add($crate::compound::Step::Lookup { path: $path_of(path) })
        }

        /// Opens a regular file, for the steps that follow.
        pub fn open(
            &mut self,
            path: $path,
            access: $crate::compound::Access,
        ) -> $crate::steps::FileStep {
            self.list.add($crate::compound::Step::Open {
                path: $path_of(path),
                access,
                truncate: false,
            })
        }

        /// Opens a regular file to read and write, which is empty then.
        pub fn open_truncated(&mut self, path: $path) -> $crate::steps::FileStep {
            self.list.add($crate::compound::Step::Open {
                path: $path_of(path),
                access: $crate::compound::Access::Both,
                truncate: true,
            })
        }

        /// Creates a regular file, which must not exist, and opens it to read and write, for the
        /// steps that follow.
        pub fn create(&mut self, path: $path, perm: u16) -> $crate::steps::FileStep {
            self.list.add($crate::compound::Step::Create { path: $path_of(path), perm })
        }

        /// Reads up to `len` bytes; fewer only at the end of the file.
        pub fn read(
            &mut self,
            file: impl Into<$file>,
            offset: impl Into<$crate::steps::NumberOperand>,
            len: u32,
        ) -> $crate::steps::BytesStep {
            let (file, offset) =
                (self.list.take_file::<$file>(file), self.list.take(offset.into()));
            self.list.add($crate::compound::Step::Read { file, offset, len })
        }

        /// Writes; the result is the number of bytes.
        pub fn write(
            &mut self,
            file: impl Into<$file>,
            offset: impl Into<$crate::steps::NumberOperand>,
            data: impl Into<$crate::steps::BytesOperand>,
        ) -> $crate::steps::NumberStep {
            let (file, offset) =
                (self.list.take_file::<$file>(file), self.list.take(offset.into()));
            let data = self.list.take(data.into());
            self.list.add($crate::compound::Step::Write { file, offset, data })
        }

        /// Writes at the end of the file; the result is where that was.
        pub fn append(
            &mut self,
            file: impl Into<$file>,
            data: impl Into<$crate::steps::BytesOperand>,
        ) -> $crate::steps::NumberStep {
            let (file, data) = (self.list.take_file::<$file>(file), self.list.take(data.into()));
            self.list.add($crate::compound::Step::Append { file, data })
        }

        /// A checksum.
        pub fn checksum(
            &mut self,
            kind: $crate::compound::Checksum,
            data: impl Into<$crate::steps::BytesOperand>,
        ) -> $crate::steps::NumberStep {
            let data = self.list.take(data.into());
            self.list.add($crate::compound::Step::Checksum { kind, data })
        }

        /// Compresses.
        pub fn compress(
            &mut self,
            codec: $crate::compound::Codec,
            data: impl Into<$crate::steps::BytesOperand>,
        ) -> $crate::steps::BytesStep {
            let data = self.list.take(data.into());
            self.list.add($crate::compound::Step::Compress { codec, data })
        }

        /// Decompresses to at most `most` bytes; `EOVERFLOW` if they are more, `EILSEQ` if it is
        /// not one frame.
        pub fn decompress(
            &mut self,
            codec: $crate::compound::Codec,
            data: impl Into<$crate::steps::BytesOperand>,
            most: u32,
        ) -> $crate::steps::BytesStep {
            let data = self.list.take(data.into());
            self.list.add($crate::compound::Step::Decompress { codec, data, most })
        }

        /// Joins bytes: the second behind the first.
        pub fn join(
            &mut self,
            first: impl Into<$crate::steps::BytesOperand>,
            second: impl Into<$crate::steps::BytesOperand>,
        ) -> $crate::steps::BytesStep {
            let (first, second) = (self.list.take(first.into()), self.list.take(second.into()));
            self.list.add($crate::compound::Step::Join { first, second })
        }

        /// Overwrites bytes of the file without growing it; the result is the old bytes.
        pub fn patch(
            &mut self,
            file: impl Into<$file>,
            offset: impl Into<$crate::steps::NumberOperand>,
            data: impl Into<$crate::steps::BytesOperand>,
        ) -> $crate::steps::BytesStep {
            let (file, offset) =
                (self.list.take_file::<$file>(file), self.list.take(offset.into()));
            let data = self.list.take(data.into());
            self.list.add($crate::compound::Step::Patch { file, offset, data })
        }

        /// Adds to a little-endian number in the file, and wraps; the result is what was there.
        pub fn add_to(
            &mut self,
            file: impl Into<$file>,
            offset: impl Into<$crate::steps::NumberOperand>,
            width: $crate::compound::Width,
            addend: impl Into<$crate::steps::NumberOperand>,
        ) -> $crate::steps::NumberStep {
            let (file, offset) =
                (self.list.take_file::<$file>(file), self.list.take(offset.into()));
            let addend = self.list.take(addend.into());
            self.list.add($crate::compound::Step::Add { file, offset, width, addend })
        }

        /// Replaces `expected` by `new`, which has the same length. `ECANCELED` if those are
        /// not there.
        pub fn compare_and_set(
            &mut self,
            file: impl Into<$file>,
            offset: impl Into<$crate::steps::NumberOperand>,
            expected: impl Into<$crate::steps::BytesOperand>,
            new: impl Into<$crate::steps::BytesOperand>,
        ) -> &mut Self {
            let (file, offset) =
                (self.list.take_file::<$file>(file), self.list.take(offset.into()));
            let (expected, new) = (self.list.take(expected.into()), self.list.take(new.into()));
            self.list.add_silent($crate::compound::Step::CompareAndSet {
                file,
                offset,
                expected,
                new,
            });
            self
        }

        /// Gives a file another name, which no file has.
        pub fn rename(&mut self, from: $path, to: $path) -> &mut Self {
            self.list.add_silent($crate::compound::Step::Rename {
                from: $path_of(from),
                to: $path_of(to),
                replace: false,
            });
            self
        }

        /// Gives a file another name, in place of the file that has it, if there is one.
        pub fn replace(&mut self, from: $path, to: $path) -> &mut Self {
            self.list.add_silent($crate::compound::Step::Rename {
                from: $path_of(from),
                to: $path_of(to),
                replace: true,
            });
            self
        }

        /// Gives a file one more name.
        pub fn link(&mut self, file: impl Into<$file>, to: $path) -> &mut Self {
            let file = self.list.take_file::<$file>(file);
            self.list.add_silent($crate::compound::Step::Link { file, to: $path_of(to) });
            self
        }

        /// Takes a name away.
        pub fn unlink(&mut self, path: $path) -> &mut Self {
            self.list.add_silent($crate::compound::Step::Unlink { path: $path_of(path) });
            self
        }

        /// Sets the size of a file.
        pub fn set_len(
            &mut self,
            file: impl Into<$file>,
            size: impl Into<$crate::steps::NumberOperand>,
        ) -> &mut Self {
            let (file, size) = (self.list.take_file::<$file>(file), self.list.take(size.into()));
            self.list.add_silent($crate::compound::Step::SetSize { file, size });
            self
        }

        /// Changes attributes.
        pub fn set_attributes(
            &mut self,
            file: impl Into<$file>,
            set: $crate::compound::NewAttributes,
        ) -> &mut Self {
            let file = self.list.take_file::<$file>(file);
            self.list.add_silent($crate::compound::Step::SetAttributes { file, set });
            self
        }

        /// Closes what an earlier step opened.
        pub fn close(&mut self, file: $crate::steps::FileStep) -> &mut Self {
            let file = self.list.take_file::<$file>(file);
            self.list.add_silent($crate::compound::Step::Close { file });
            self
        }
    };
}
