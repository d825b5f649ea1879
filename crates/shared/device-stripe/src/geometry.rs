//! Which byte of the area is which byte of which member.

use siftfs_base::{Error, Result};
use std::ops::Range;

/// First byte of a member that holds data.
pub const DATA_BEGIN: u64 = 1 << 20;
/// Smallest unit in bytes.
pub const MIN_UNIT: u64 = 64 << 10;
/// Largest unit in bytes.
pub const MAX_UNIT: u64 = 64 << 20;
/// Unit in bytes where none is asked for.
pub const DEFAULT_UNIT: u64 = 1 << 20;
/// Fewest members of a set.
const MIN_MEMBERS: usize = 2;
/// Most members of a set.
pub const MAX_MEMBERS: usize = 16;
/// Most bytes of an area: what an offset of a file can be.
const MAX_AREA: u64 = 1 << 62;

/// How the area lies on its members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    count: u16,
    unit: u64,
    len: u64,
}

/// A part of a range of the area that one member has as one run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    /// Number of the member, from 0.
    pub member: usize,
    /// First byte on the member, its reserved bytes counted.
    pub offset: u64,
    /// Bytes of the range that it is.
    pub bytes: Range<usize>,
}

impl Geometry {
    /// `count` members of `len` bytes of data each, in turns of `unit` bytes.
    ///
    /// # Errors
    /// Refused for fewer than 2 or more than 16 members, a unit that is no power of two or not
    /// from 64 KiB to 64 MiB, or a length that is not whole units, one at least.
    pub fn new(count: usize, unit: u64, len: u64) -> Result<Self> {
        let refused = |what: String| Err(Error::Refused(what));
        if !(MIN_MEMBERS..=MAX_MEMBERS).contains(&count) {
            return refused(format!(
                "a striped volume has {MIN_MEMBERS} to {MAX_MEMBERS} members, not {count}"
            ));
        }
        if !unit.is_power_of_two() || !(MIN_UNIT..=MAX_UNIT).contains(&unit) {
            return refused(format!(
                "a stripe unit of {unit} bytes: it is a power of two, from {}K to {}M",
                MIN_UNIT >> 10,
                MAX_UNIT >> 20
            ));
        }
        if len == 0 || !len.is_multiple_of(unit) || len > MAX_AREA / count as u64 {
            return refused(format!(
                "{len} bytes of data on each member: they are whole units of {unit} bytes"
            ));
        }
        let count = u16::try_from(count).map_err(|_| Error::Refused("too many members".into()))?;
        Ok(Self { count, unit, len })
    }

    /// Members of the set.
    pub fn count(&self) -> usize {
        self.count.into()
    }

    /// Bytes of a turn.
    pub fn unit(&self) -> u64 {
        self.unit
    }

    /// Bytes of data on each member.
    pub fn member_len(&self) -> u64 {
        self.len
    }

    /// Bytes of the area.
    pub fn size(&self) -> u64 {
        self.len * u64::from(self.count)
    }

    /// The parts of `len` bytes of the area at `offset`, in the area's order. The range lies inside
    /// the area.
    pub(crate) fn parts(&self, offset: u64, len: usize) -> impl Iterator<Item = Part> + use<> {
        let (geometry, mut at) = (*self, 0usize);
        std::iter::from_fn(move || {
            if at >= len {
                return None;
            }
            let (member, offset, rest) = geometry.locate(offset + at as u64);
            let part = usize::try_from(rest).unwrap_or(usize::MAX).min(len - at);
            let bytes = at..at + part;
            at = bytes.end;
            Some(Part { member, offset, bytes })
        })
    }

    /// Member and offset there of a byte of the area, and how many bytes its unit has from there.
    fn locate(&self, offset: u64) -> (usize, u64, u64) {
        let (turn, within) = (offset / self.unit, offset % self.unit);
        let count = u64::from(self.count);
        let member = usize::try_from(turn % count).unwrap_or(usize::MAX);
        (member, DATA_BEGIN + turn / count * self.unit + within, self.unit - within)
    }

    /// What each member has of `len` bytes of the area at `offset`: one run of the member, because
    /// units that follow each other there do so on the area, too. Members that have nothing of it
    /// are left out. The range lies inside the area.
    pub(crate) fn runs(&self, offset: u64, len: u64) -> Vec<(usize, Range<u64>)> {
        let (first, end) = (offset / self.unit, (offset + len).div_ceil(self.unit));
        let count = u64::from(self.count);
        let run = |member: u64| {
            // The first and the last turn from `first` on that are this member's.
            let begin = first + (member + count - first % count) % count;
            if len == 0 || begin >= end {
                return None;
            }
            let last = begin + (end - 1 - begin) / count * count;
            let from = offset.max(begin * self.unit) - begin * self.unit;
            let upto = (offset + len).min((last + 1) * self.unit) - last * self.unit;
            let at = |turn: u64| DATA_BEGIN + turn / count * self.unit;
            Some((usize::try_from(member).ok()?, at(begin) + from..at(last) + upto))
        };
        (0..count).filter_map(run).collect()
    }
}

#[cfg(test)]
#[path = "geometry_tests.rs"]
mod tests;
