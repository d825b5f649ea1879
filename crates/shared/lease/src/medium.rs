//! What a program's log lies in.

/// What a log lies in, which decides where its batches may begin and how one becomes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogMedium {
    /// A file on a disk, which is written past the system's cache.
    #[default]
    File,
    /// Persistent memory: a file on a file system with DAX, mapped.
    Byte,
    /// A mapped file that promises nothing over a power cut.
    Volatile,
}

impl LogMedium {
    /// All of them, each at its number.
    const ALL: [Self; 3] = [Self::File, Self::Byte, Self::Volatile];

    /// What a batch's place and length are multiples of, in bytes. Not less than a batch's header,
    /// and not more than [`crate::BATCH_UNIT`].
    pub const fn unit(self) -> usize {
        match self {
            Self::File => crate::BATCH_UNIT,
            // A cache line.
            Self::Byte | Self::Volatile => 64,
        }
    }

    /// Its number in messages and in the registry.
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// The medium of this number.
    pub fn of(number: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// Its name, as `siftfs status` says it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Byte => "byte",
            Self::Volatile => "volatile",
        }
    }

    /// Is the log's file mapped by its program?
    pub const fn is_mapped(self) -> bool {
        !matches!(self, Self::File)
    }
}
