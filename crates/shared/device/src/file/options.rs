//! How a file device does its I/O.

/// How a write with `fua` is made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurableWrite {
    /// One of the others, by what lies below: the one that costs one write and one flush there, or
    /// less.
    Chosen,
    /// One pwritev2 with `RWF_DSYNC`.
    Dsync,
    /// pwrite, then fdatasync.
    WriteThenSync,
    /// A write and an fdatasync linked in one io_uring submission; as `WriteThenSync` where
    /// io_uring is not used.
    Linked,
}

impl DurableWrite {
    /// For reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chosen => "chosen",
            Self::Dsync => "RWF_DSYNC",
            Self::WriteThenSync => "write, fdatasync",
            Self::Linked => "linked write and fdatasync",
        }
    }
}

/// How a file device does its I/O. The default is the quickest that the machine allows.
#[derive(Clone, Copy, Debug)]
pub struct FileOptions {
    /// Pass the page cache by (`O_DIRECT`) where the file system below allows it.
    pub direct: bool,
    /// Use io_uring for batches where it is allowed.
    pub uring: bool,
    /// Largest number of requests of one batch in flight, 1 to 1024.
    pub depth: u32,
    /// How a write with `fua` is made durable, under direct I/O. (Through the page cache it is
    /// always a write and an fdatasync.)
    pub durable: DurableWrite,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self { direct: true, uring: true, depth: 32, durable: DurableWrite::Chosen }
    }
}
