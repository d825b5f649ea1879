//! Errors, classed by what must follow: action by the caller, by the administrator, or none any
//! more.

/// Result with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong. [`Error::errno`] is the one table that maps an error to an errno.
#[derive(thiserror::Error, Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The caller asked for something POSIX refuses; the number is an errno such as `libc::ENOENT`.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Posix(i32),
    /// Bytes read from storage, a socket or shared memory fail a check.
    #[error("corrupt {what}: {detail}")]
    Corrupt {
        /// The structure, in words an administrator can act on ("header copy 0", "inode 17").
        what: String,
        /// What was expected and what was found.
        detail: String,
    },
    /// A version or feature that this build does not know or refuses.
    #[error("incompatible volume: {0}")]
    Incompatible(String),
    /// The storage reported an error.
    #[error("I/O error: {op} of {len} bytes at byte {offset}: {}", std::io::Error::from_raw_os_error(*.errno))]
    Io {
        /// "read", "write" or "flush".
        op: &'static str,
        /// Byte offset on the device.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// errno from the kernel or the fault injector.
        errno: i32,
    },
    /// An earlier failure was latched: the mount promises nothing more (rule R21).
    #[error("the volume stopped after an earlier failure: {0}")]
    Latched(String),
    /// The connection to the other side of a protocol is broken or was lost: the other side died,
    /// fell silent or broke the protocol. The text names the peer. Nothing more arrives or leaves
    /// on this connection; a new one may be made.
    #[error("connection lost: {0}")]
    Link(String),
    /// The volume cannot be used as asked (mounted elsewhere, dirty, wrong size, ...).
    #[error("{0}")]
    Refused(String),
}

impl Error {
    /// The errno a caller sees.
    pub fn errno(&self) -> i32 {
        match self {
            Error::Posix(e) => *e,
            Error::Corrupt { .. } => libc::EUCLEAN,
            Error::Incompatible(_) => libc::EOPNOTSUPP,
            Error::Io { errno, .. } if *errno == libc::ENOSPC => libc::ENOSPC,
            Error::Io { .. } | Error::Latched(_) | Error::Link(_) => libc::EIO,
            Error::Refused(_) => libc::EBUSY,
        }
    }
}

/// A [`Error::Corrupt`].
pub fn corrupt(what: impl Into<String>, detail: impl Into<String>) -> Error {
    Error::Corrupt { what: what.into(), detail: detail.into() }
}

/// A [`Error::Posix`] from an errno number.
pub fn errno(e: i32) -> Error {
    Error::Posix(e)
}
