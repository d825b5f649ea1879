//! A lease of either kind, as a program that does not care has it.

use crate::{By, Committed, Direct, Leased, Through};
use std::io;

/// A lease: with a private log alone, or with blocks of the file granted beside that.
pub enum Hold {
    /// A private log's.
    Log(Leased),
    /// One by which the file is read and written at the target.
    Direct(Direct),
}

impl Hold {
    /// Is it of the kind that reads and writes at the target?
    pub fn is_direct(&self) -> bool {
        matches!(self, Self::Direct(_))
    }

    /// As [`Leased::write_at`], or [`Direct::write_at`].
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Through<usize> {
        match self {
            Self::Log(leased) => leased.write_at(offset, bytes),
            Self::Direct(direct) => direct.write_at(offset, bytes),
        }
    }

    /// Writes `bytes` at the file's end, or a begin of them; answers where that was, and how many.
    pub fn append(&self, bytes: &[u8]) -> Through<(u64, usize)> {
        match self {
            Self::Log(leased) => match leased.append(bytes) {
                Through::Lease(begin) => Through::Lease((begin, bytes.len())),
                Through::Mount => Through::Mount,
            },
            Self::Direct(direct) => direct.append(bytes),
        }
    }

    /// As [`Leased::read_at`], or [`Direct::read_at`].
    ///
    /// # Errors
    /// As of [`Leased::read_at`].
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<Through<usize>> {
        match self {
            Self::Log(leased) => leased.read_at(offset, bytes),
            Self::Direct(direct) => Ok(direct.read_at(offset, bytes)),
        }
    }

    /// The file's size in bytes.
    pub fn size(&self) -> Through<u64> {
        match self {
            Self::Log(leased) => leased.len(),
            Self::Direct(direct) => direct.size(),
        }
    }

    /// As [`Leased::sync_by`], or [`Direct::sync_by`].
    ///
    /// # Errors
    /// As there.
    pub fn sync_by(&self, datasync: bool) -> io::Result<Through<By>> {
        match self {
            Self::Log(leased) => leased.sync_by(datasync),
            Self::Direct(direct) => direct.sync_by(datasync),
        }
    }

    /// As [`Direct::commit`]; a private log has no atomic sections.
    ///
    /// # Errors
    /// As there.
    pub fn commit(&self, writes: &[(u64, Vec<u8>)]) -> io::Result<Committed> {
        match self {
            Self::Log(leased) if leased.len() == Through::Mount => Ok(Committed::Ended),
            Self::Log(_) => Ok(Committed::Elsewhere),
            Self::Direct(direct) => direct.commit(writes),
        }
    }

    /// As [`Leased::close`], or [`Direct::close`].
    ///
    /// # Errors
    /// As there.
    pub fn close(self) -> io::Result<()> {
        match self {
            Self::Log(leased) => leased.close(),
            Self::Direct(direct) => direct.close(),
        }
    }
}
