//! What `siftfs accel --count-escapes` and the library that it loads into programs say to each
//! other: words of one memory that all of the processes share
//! (`docs/design/private-logs.md`, "Calls that escape").

/// Names the memory to the library: a path.
pub const VARIABLE: &str = "SIFTFS_ACCEL_ESCAPES";
/// The first word: what memory it is, and which form of it.
pub const MAGIC: u64 = u64::from_le_bytes(*b"SIFTesc\x01");

/// Words of 64 bits, little-endian. Behind these comes one for each of [`CALLS`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// [`MAGIC`].
    Magic,
    /// Processes that count.
    Processes,
    /// Threads that count, the first ones of their processes among them.
    Threads,
    /// Processes that cannot count: the kernel has no Syscall User Dispatch.
    Refused,
    /// Calls that the kernel told of, whatever they were about.
    Told,
    /// Entries of the C library that every process has replaced: one bit each, inverted.
    Missing,
    /// The first one of [`CALLS`].
    Calls,
}

/// All words, in bytes.
pub const LEN: usize = (Word::Calls as usize + CALLS.len()) * 8;

/// A system call about files.
#[derive(Debug)]
pub struct Call {
    /// As the kernel has it.
    pub number: i64,
    /// As manuals have it.
    pub name: &'static str,
    /// Which arguments are descriptors.
    pub descriptors: &'static [usize],
    /// Its answer is a descriptor.
    pub opens: bool,
}

macro_rules! calls {
    ($($name:ident $number:ident [$($at:literal)*] $opens:literal;)*) => {
        &[$(Call {
            number: libc::$number,
            name: stringify!($name),
            descriptors: &[$($at),*],
            opens: $opens,
        }),*]
    };
}

/// The calls that are counted.
#[cfg(target_arch = "x86_64")]
pub const CALLS: &[Call] = calls! {
    read SYS_read [0] false;
    write SYS_write [0] false;
    open SYS_open [] true;
    close SYS_close [0] false;
    fstat SYS_fstat [0] false;
    lseek SYS_lseek [0] false;
    mmap SYS_mmap [4] false;
    ioctl SYS_ioctl [0] false;
    pread64 SYS_pread64 [0] false;
    pwrite64 SYS_pwrite64 [0] false;
    readv SYS_readv [0] false;
    writev SYS_writev [0] false;
    dup SYS_dup [0] false;
    dup2 SYS_dup2 [0 1] false;
    dup3 SYS_dup3 [0 1] false;
    sendfile SYS_sendfile [0 1] false;
    fcntl SYS_fcntl [0] false;
    flock SYS_flock [0] false;
    fsync SYS_fsync [0] false;
    fdatasync SYS_fdatasync [0] false;
    ftruncate SYS_ftruncate [0] false;
    fchmod SYS_fchmod [0] false;
    fchown SYS_fchown [0] false;
    fsetxattr SYS_fsetxattr [0] false;
    fgetxattr SYS_fgetxattr [0] false;
    creat SYS_creat [] true;
    readahead SYS_readahead [0] false;
    fadvise64 SYS_fadvise64 [0] false;
    openat SYS_openat [] true;
    openat2 SYS_openat2 [] true;
    newfstatat SYS_newfstatat [0] false;
    statx SYS_statx [0] false;
    utimensat SYS_utimensat [0] false;
    splice SYS_splice [0 2] false;
    vmsplice SYS_vmsplice [0] false;
    sync_file_range SYS_sync_file_range [0] false;
    syncfs SYS_syncfs [0] false;
    fallocate SYS_fallocate [0] false;
    preadv SYS_preadv [0] false;
    pwritev SYS_pwritev [0] false;
    preadv2 SYS_preadv2 [0] false;
    pwritev2 SYS_pwritev2 [0] false;
    copy_file_range SYS_copy_file_range [0 2] false;
};

/// None are counted on other architectures.
#[cfg(not(target_arch = "x86_64"))]
pub const CALLS: &[Call] = calls! {};
